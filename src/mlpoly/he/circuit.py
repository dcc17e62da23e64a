"""A polynomial as a circuit for homomorphic encryption: matrix products, and products of encrypted vectors.

An encrypted vector can be multiplied by a known matrix, added to another, and multiplied with another, entry by entry.
Each of the products costs a level, and levels are what an encryption has few of. So scales, shifts and coefficients
are folded into the matrices, biases go through an entry that is always one, and the readout of a layer and the linear
forms of the next one are a single matrix:

    u_l = sum of matrices @ powers of earlier layers,    u_l^2, u_l^3, ... by a square tree
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import as_float_array, check_finite, to_numpy
from mlpoly.he.square_tree import Vector, depth_of_power, products
from mlpoly.records import record, static
from mlpoly.tables import Table, Tabular

if TYPE_CHECKING:
    from mlpoly.he.ckks import CKKS
    from mlpoly.he.safety import Bounds, RangeReport
    from mlpoly.he.tenseal_run import EncryptedSession
    from mlpoly.inputs import Inputs


@record
class LinearTerm:
    """A matrix times an encrypted vector.

    Attributes
    ----------
    matrix : ndarray (rows, columns)
    layer, power, gated
        The vector: u_layer^power, times e_layer if gated.
    """

    matrix: np.ndarray
    layer: int = static()
    power: int = static(default=1)
    gated: bool = static(default=False)

    @property
    def vector(self) -> Vector:
        """The vector that the matrix is multiplied with."""
        return Vector(self.layer, self.power, self.gated)


@record
class EncryptedLayer:
    """A hidden layer: linear forms u of earlier vectors and, for gated units, second factors e.

    Attributes
    ----------
    forms : tuple of LinearTerm
        u = sum of the terms, (h + 1,); its last entry is one.
    gates : tuple of LinearTerm
        e = sum of the terms, (h + 1,); its last entry is zero. Empty without a gate.
    degree : int
        Degree of the layer's polynomial.
    radius : float
        Number of standard deviations of each form about its mean for which its entry of u is within [-1, 1].
    name : str
        Name of the layer in errors.
    """

    forms: tuple[LinearTerm, ...]
    gates: tuple[LinearTerm, ...] = ()
    degree: int = static(default=1)
    radius: float = static(default=1.0)
    name: str = static(default="")

    @property
    def size(self) -> int:
        """Number of entries of u, the one included."""
        return int(self.forms[0].matrix.shape[0])


@record
class Circuit(Tabular):
    """A polynomial as encrypted inference evaluates it; `poly.to_he()` makes it.

    The input is x with a one appended, (d + 1,).

    Attributes
    ----------
    layers : tuple of EncryptedLayer
        Hidden layers, in the order of the data; layer 1 is the first.
    outputs : tuple of LinearTerm
        The outputs are the sum of the terms, (o,).

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(3), None, np.ones((2, 3)), None, "gelu")
    >>> circuit = mp.fit(net, mp.Gaussian.standard(3), degree=4).to_he()
    >>> circuit.levels, circuit.multiplications, circuit.matrix_products
    (4, 2, 4)
    >>> circuit(np.ones((5, 3))).shape  # in the clear; circuit.encrypted() makes keys
    (5, 2)
    >>> circuit.outside(mp.Gaussian.standard(3)).outside < 1e-3, circuit.bound(-1, 1).fits
    (True, True)
    >>> circuit.parameters().ring_dimension
    16384
    """

    layers: tuple[EncryptedLayer, ...]
    outputs: tuple[LinearTerm, ...]

    @property
    def dim_in(self) -> int:
        """Number of inputs d, without the appended one."""
        terms = (term for term in self._terms() if term.layer == 0)
        return int(next(terms).matrix.shape[1]) - 1

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return int(self.outputs[0].matrix.shape[0])

    def _terms(self) -> Iterator[LinearTerm]:
        for layer in self.layers:
            yield from layer.forms
            yield from layer.gates
        yield from self.outputs

    def powers(self, layer: int) -> list[Vector]:
        """Vectors of a layer that some matrix is multiplied with, lowest power first."""
        return sorted({term.vector for term in self._terms() if term.layer == layer}, key=lambda v: (v.gated, v.power))

    @property
    def levels(self) -> int:
        """Products that follow one another: levels that an encryption of the input needs."""
        return self._depth_of_sum(self.outputs, self._depths())

    @property
    def multiplications(self) -> int:
        """Number of products of two encrypted vectors."""
        return sum(len(products(self.powers(layer))) for layer in range(1, len(self.layers) + 1))

    @property
    def matrix_products(self) -> int:
        """Number of products of a matrix with an encrypted vector."""
        return sum(1 for _ in self._terms())

    def _depths(self) -> dict[tuple[int, bool], int]:
        """Levels used up by the forms (False) and the gates (True) of each layer; the input has used none."""
        found = {(0, False): 0}
        for i, layer in enumerate(self.layers, 1):
            found[i, False] = self._depth_of_sum(layer.forms, found)
            if layer.gates:
                found[i, True] = self._depth_of_sum(layer.gates, found)
        return found

    def _depth_of_sum(self, terms: Iterable[LinearTerm], depths: dict[tuple[int, bool], int]) -> int:
        def depth(v: Vector) -> int:
            own = depths[v.layer, False]
            if not v.gated:
                return own + depth_of_power(v.power)
            return max(own, depths[v.layer, True]) + depth_of_power(v.power + 1)

        return 1 + max(depth(term.vector) for term in terms)

    # -- evaluation without encryption --------------------------------------------------------------------------------

    def __call__(self, x: Any) -> np.ndarray:
        """Outputs (..., o) at points x (..., d), in float64 and without encryption."""
        return self.run(x)[2]

    def intermediates(self, x: Any) -> list[np.ndarray]:
        """Entries of u of every layer, (..., h), or of u and e, (..., 2 h), at points x (..., d).

        Within the range they are at most one. The entry that is always one is left out.
        """
        forms, gates, _ = self.run(x)
        found = []
        for layer, u, e in zip(self.layers, forms, gates, strict=True):
            found.append(np.concatenate([u[..., :-1], e[..., :-1]], axis=-1) if layer.gates else u[..., :-1])
        return found

    def run(self, x: Any) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        """Forms and gates (..., h + 1) of every layer, and the outputs (..., o), at points x (..., d)."""
        x = to_numpy(as_float_array("x", x, integers=True)).astype(np.float64)
        if x.ndim == 0 or x.shape[-1] != self.dim_in:
            raise ValueError(f"x has shape {x.shape}, expected (..., {self.dim_in}): one row for each point.")
        check_finite("x", x)
        forms, gates = [np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)], [np.zeros(1)]

        def total(terms: Iterable[LinearTerm]) -> np.ndarray:
            found: Any = 0.0
            for term in terms:
                value = forms[term.layer] ** term.power
                found = found + (value * gates[term.layer] if term.gated else value) @ term.matrix.T
            return found

        with np.errstate(over="ignore", invalid="ignore"):  # far outside the range, where callers look at the sizes
            for layer in self.layers:
                u, e = total(layer.forms), total(layer.gates)
                forms.append(u)
                gates.append(e)
            return forms[1:], gates[1:], total(self.outputs)

    # -- safety -------------------------------------------------------------------------------------------------------

    def outside(self, inputs: Inputs | Any) -> RangeReport:
        """Probability that an input leaves the range of a layer, in closed form and counted.

        Parameters
        ----------
        inputs : Gaussian, GaussianMixture, Samples or array (n, d)
            Of a distribution, 10 000 samples are counted. The closed form is that of the first layer, whose forms are
            linear in x: the sum over its units, which bounds the probability for any of them.
        """
        from mlpoly.he.safety import range_report  # imports this module

        return range_report(self, inputs)

    def bound(
        self, low: Any = None, high: Any = None, *, inputs: Inputs | None = None, radius: float | None = None
    ) -> Bounds:
        """Bounds on every intermediate value and on the outputs, for all inputs in a box or in an ellipsoid.

        Parameters
        ----------
        low, high : float or array (d,), optional
            Box of the inputs, such as 0 and 1 for pixels.
        inputs : Gaussian or GaussianMixture, optional
        radius : float, optional
            With `inputs`, the ellipsoid (x - mean)' cov^-1 (x - mean) <= radius^2, or one for each component.

        Returns
        -------
        Bounds
            Exact for each form of the first layer; behind it by interval arithmetic, with each unit's polynomial
            bounded by the sizes of its coefficients in Chebyshev polynomials of the unit's interval.
        """
        from mlpoly.he.safety import bounds_over  # imports this module

        return bounds_over(self, low, high, inputs, radius)

    # -- encryption ---------------------------------------------------------------------------------------------------

    def parameters(self, scale_bits: int = 40, headroom_bits: int = 12, ring_dimension: int | None = None) -> CKKS:
        """Parameters of CKKS encryption for the circuit, at 128-bit security; `encrypted` describes the arguments."""
        from mlpoly.he.ckks import choose_parameters  # imports this module
        from mlpoly.he.packing import pack

        return choose_parameters(self.levels, pack(self).block, scale_bits, headroom_bits, ring_dimension)

    def encrypted(
        self, scale_bits: int = 40, headroom_bits: int = 12, ring_dimension: int | None = None
    ) -> EncryptedSession:
        """Make keys to evaluate the circuit on encrypted inputs with TenSEAL (extra `he`).

        Parameters
        ----------
        scale_bits : int
            Bits behind the point, 25 to 58.
        headroom_bits : int
            Bits before the point of an output, its sign included: outputs are below 2^(headroom_bits - 1).
        ring_dimension : int, optional
            4096, 8192, 16384 or 32768; if None the smallest that has enough levels at 128-bit security.

        Returns
        -------
        EncryptedSession
            ``.encrypt(x)``, ``.evaluate(encrypted)``, ``.decrypt(encrypted)``, or all three: ``.predict(x)``.

        Raises
        ------
        ValueError
            If the circuit needs more levels than the ring dimension has.
        ImportError
            Without TenSEAL.

        Examples
        --------
        >>> import numpy as np, mlpoly as mp
        >>> net = mp.MLP(np.eye(3), None, np.ones((2, 3)), None, "gelu")
        >>> circuit = mp.fit(net, mp.Gaussian.standard(3), degree=2).to_he()
        >>> session, x = circuit.encrypted(), np.eye(3)
        >>> outputs = session.decrypt(session.evaluate(session.encrypt(x)))
        >>> np.allclose(outputs, circuit(x), atol=1e-3)
        True
        """
        from mlpoly.he.tenseal_run import EncryptedSession  # imports this module

        return EncryptedSession(self, self.parameters(scale_bits, headroom_bits, ring_dimension))

    # -- display and files --------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        degrees = ", ".join(str(layer.degree) for layer in self.layers)
        return (
            f"Circuit({self.dim_in} -> {self.dim_out}, degrees ({degrees}), {self.levels} levels, "
            f"{self.multiplications} multiplications, {self.matrix_products} matrix products)"
        )

    def _table(self) -> Table:
        depths = self._depths()
        columns = ("layer", "units", "degree", "gated", "range (sd)", "levels so far", "multiplications")
        rows = [
            (r.name, r.size - 1, r.degree, bool(r.gates), r.radius, depths[i, False], len(products(self.powers(i))))
            for i, r in enumerate(self.layers, 1)
        ]
        return Table(columns, tuple(rows), repr(self))

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file with a JSON header; `mlpoly.he.load_circuit` reads it."""
        from mlpoly.he.circuit_files import save_circuit  # imports this module

        save_circuit(self, path)
