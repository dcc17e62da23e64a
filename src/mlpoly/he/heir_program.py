"""Polynomials as MLIR programs for the HEIR compiler."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import numpy as np

from mlpoly.he.circuit import Circuit, LinearTerm
from mlpoly.he.exports import ActivationNetwork, to_orion
from mlpoly.he.lowering import to_circuit
from mlpoly.he.square_tree import Vector, products
from mlpoly.polynomials import Polynomial


def to_heir(
    poly: Polynomial | Circuit,
    form: Literal["neurons", "shared"] = "neurons",
    outside: float = 1e-6,
    name: str = "network",
    backend: Literal["openfhe", "lattigo"] = "openfhe",
) -> str:
    """A polynomial as a program for the HEIR compiler: a function of a secret tensor, in MLIR.

    The text is what ``heir.compile(mlir_str=..., scheme="ckks")`` and ``heir-opt --mlir-to-ckks`` take. Its function
    maps a tensor<1 x d x f64> to a tensor<1 x o x f64>.

    Parameters
    ----------
    poly : RidgePolynomial, ComposedPolynomial or Circuit
    form : "neurons" or "shared"
        "neurons" writes the circuit ``poly.to_he()``, in which every neuron has its own polynomial: matrices, and
        products of ciphertexts. "shared" writes one ``polynomial.eval`` per layer with the coefficients of
        `shared_polynomials` and their domain; without gated units, skip connections or bounds.
    outside : float
        Probability with which some preactivation may leave its range, under the Gaussian marginals of the fit.
    name : str
        Name of the function.
    backend : "openfhe" or "lattigo"
        Library for which HEIR shall generate code.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> poly = mp.fit(mp.MLP(np.eye(3), activation="gelu"), mp.Gaussian.standard(3), degree=2)
    >>> program = mp.he.to_heir(poly, name="hidden")
    >>> print(program.splitlines()[1].strip())
    func.func @hidden(%x: tensor<1x3xf64> {secret.secret}) -> tensor<1x3xf64> {
    >>> program.count("linalg.matmul"), program.count("arith.mulf")  # matrices, and products of ciphertexts
    (3, 1)
    """
    if form not in ("neurons", "shared"):
        raise ValueError(f"form must be 'neurons' or 'shared', got {form!r}.")
    if backend not in ("openfhe", "lattigo"):
        raise ValueError(f"backend must be 'openfhe' or 'lattigo', got {backend!r}.")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ValueError(f"name must be a name of a function such as 'network', got {name!r}.")
    if form == "neurons":
        program = _of_circuit(poly if isinstance(poly, Circuit) else to_circuit(poly, outside))
    elif isinstance(poly, Circuit):
        raise TypeError("a Circuit has a polynomial for each neuron; pass the polynomial itself with form='shared'.")
    else:
        program = _of_layers(to_orion(poly, "shared", outside))
    return program.text(name, backend)


class _Program:
    """Lines of a function of one row %x; values are rows, and their names are counted."""

    def __init__(self, dim: int) -> None:
        self.sizes = {"%x": dim}
        self.lines: list[str] = []
        self.attributes: list[str] = []

    def add(self, operation: str, size: int) -> str:
        made = f"%{len(self.sizes)}"
        self.sizes[made] = size
        self.lines.append(f"{made} = {operation}")
        return made

    def constant(self, matrix: np.ndarray) -> str:
        # The bytes themselves: exact, and shorter than decimals.
        data = np.ascontiguousarray(matrix, dtype="<f8").tobytes().hex().upper()
        return self.add(f'arith.constant dense<"0x{data}"> : {_tensor(*matrix.shape)}', matrix.shape[1])

    def affine(self, parts: Iterable[tuple[str, np.ndarray]], bias: np.ndarray) -> str:
        """Sum of matrices (o, h) times values, plus a bias (o,).

        As products of two matrices. With linalg.matvec heir_py 2026.10.1 uses fewer levels, but two in a row gave wrong
        values when its code was run as tools/check_heir.py does.
        """
        total = self.constant(bias[None, :])
        for value, matrix in parts:
            weight = self.constant(matrix.T)
            row, out = _tensor(1, self.sizes[value]), _tensor(1, len(bias))
            ins = f"ins({value}, {weight} : {row}, {_tensor(*matrix.T.shape)})"
            total = self.add(f"linalg.matmul {ins} outs({total} : {out}) -> {out}", len(bias))
        return total

    def product(self, one: str, two: str) -> str:
        size = self.sizes[one]
        return self.add(f"arith.mulf {one}, {two} : {_tensor(1, size)}", size)

    def polynomial(self, value: str, coefficients: np.ndarray) -> str:
        """A polynomial, given highest power first, of entries in [-1, 1]."""
        terms = [_number(c) + ("", "x", f"x**{k}")[min(k, 2)] for k, c in enumerate(coefficients[::-1])]
        attribute = f"#polynomial_{len(self.attributes)}"
        self.attributes.append(f"{attribute} = #polynomial.typed_float_polynomial<{' + '.join(terms)}> : !series")
        domain = "{domain_lower = -1.0 : f64, domain_upper = 1.0 : f64}"
        size = self.sizes[value]
        return self.add(f"polynomial.eval {attribute}, {value} {domain} : {_tensor(1, size)}", size)

    def text(self, name: str, backend: str) -> str:
        """The whole program; the last value is its result."""
        last = next(reversed(self.sizes))
        result = _tensor(1, self.sizes[last])
        ring = ["!series = !polynomial.polynomial<ring = <coefficientType = f64>>"] if self.attributes else []
        return "\n".join(
            [
                *ring,
                *self.attributes,
                f"module attributes {{backend.{backend}}} {{",
                f"  func.func @{name}(%x: {_tensor(1, self.sizes['%x'])} {{secret.secret}}) -> {result} {{",
                *(f"    {line}" for line in self.lines),
                f"    return {last} : {result}",
                "  }",
                "}\n",
            ]
        )


def _number(value: float) -> str:
    """A number as MLIR reads it: with a point, which Python leaves out of 1e-05."""
    text = repr(float(value))
    return text if "." in text else text.replace("e", ".0e")


def _tensor(rows: int, columns: int) -> str:
    return f"tensor<{rows}x{columns}xf64>"


def _of_circuit(circuit: Circuit) -> _Program:
    program = _Program(circuit.dim_in)
    values = {Vector(0): "%x"}

    def total(terms: tuple[LinearTerm, ...]) -> str:
        # The last entry of a vector is one, or zero if it is gated: here a bias, and no entry.
        bias = sum((term.matrix[:, -1] for term in terms if not term.gated), start=np.zeros(len(terms[0].matrix)))
        return program.affine([(values[term.vector], term.matrix[:, :-1]) for term in terms], bias)

    def without_last(terms: tuple[LinearTerm, ...]) -> tuple[LinearTerm, ...]:
        return tuple(LinearTerm(term.matrix[:-1, :], *term.vector) for term in terms)

    for i, layer in enumerate(circuit.layers, 1):
        values[Vector(i)] = total(without_last(layer.forms))
        if layer.gates:
            values[Vector(i, 0, True)] = total(without_last(layer.gates))
        for made, (one, two) in products(circuit.powers(i)).items():
            values[made] = program.product(values[one], values[two])
    total(circuit.outputs)
    return program


def _of_layers(network: ActivationNetwork) -> _Program:
    program = _Program(network.weights[0].shape[1])
    value = program.affine([("%x", network.weights[0])], network.biases[0])
    for c, weight, bias in zip(network.coefficients, network.weights[1:], network.biases[1:], strict=True):
        value = program.affine([(program.polynomial(value, c), weight)], bias)
    return program
