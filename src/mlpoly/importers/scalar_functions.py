"""Functions of single units, which graphs hold as one node or as many, and the activations that they are."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlpoly.activations import Activation, families, get

Function = Callable[[np.ndarray], np.ndarray]

# Points at which two functions are compared; none is a likely kink. Those far out show limits on large values.
_FAR = np.geomspace(20, 1e6, 100)
_GRID = np.concatenate([np.linspace(-20, 20, 800) + 0.003, _FAR, -_FAR])
_TOLERANCE = 1e-6  # constants are stored in float32; gelu and its approximation by tanh differ by 5e-4
_TOLERANCE_16 = 2e-3
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A function of single units, of float64 arrays, and the node that computes it, for errors.

    It may be known to be an activation, a line (scale and shift), or the identity between two bounds, perhaps infinite.
    """

    function: Function
    where: str
    activation: Activation | None = None
    line: tuple[float, float] | None = None
    bounds: tuple[float, float] | None = None


def line(scale: float, shift: float, where: str) -> Elementwise:
    """The function y -> scale * y + shift."""
    return Elementwise(lambda y: scale * y + shift, where, line=(scale, shift))


def _clip(low: float, high: float, where: str) -> Elementwise:
    """The function y -> min(max(y, low), high)."""
    return Elementwise(lambda y: np.clip(y, low, high), where, bounds=(low, high))


def combined(
    operation: Callable[[np.ndarray, np.ndarray], np.ndarray],
    first: Sequence[Elementwise],
    last: Sequence[Elementwise],
    where: str,
) -> Elementwise:
    """The function that combines the results of two runs of functions of the same units."""
    return Elementwise(lambda y: operation(composed(first)(y), composed(last)(y)), where)


def elementwise(op: str, numbers: dict[str, Any], where: str) -> list[Elementwise] | None:
    """The functions, one after the other, of an ONNX operation on one tensor; None if it is none of them.

    `numbers` are its attributes with their defaults, and its inputs beside the tensor, where they are constants.
    """

    def named(name: str, **parameters: float) -> Elementwise:
        activation = get(name, **parameters)
        return Elementwise(activation.function, where, activation)

    if op == "Relu":
        return [_clip(0.0, math.inf, where)]
    if op in _SAME:
        return [named(op.lower())]
    if op in _PLAIN:
        return [Elementwise(_PLAIN[op], where)]
    alpha: Any = numbers.get("alpha")
    low, high = numbers.get("min"), numbers.get("max")
    if op == "Neg":
        return [line(-1.0, 0.0, where)]
    if op == "LeakyRelu":
        return [named("leaky_relu", slope=alpha)]
    if op in ("Elu", "Celu"):
        return [named(op.lower(), alpha=alpha)]
    if op == "Selu":
        usual = abs(alpha - 1.6732632) < 1e-6 and abs(numbers["gamma"] - 1.050701) < 1e-6
        return [named("selu")] if usual else [named("elu", alpha=alpha), line(numbers["gamma"], 0.0, where)]
    if op == "ThresholdedRelu":
        return [named("jumprelu", threshold=alpha)]
    if op == "HardSigmoid":
        return [line(alpha, numbers["beta"], where), _clip(0.0, 1.0, where)]
    if op == "Gelu":
        return [named("gelu_tanh" if numbers.get("approximate") == "tanh" else "gelu")]
    if op == "Swish" and alpha:  # y sigmoid(alpha y)
        return [line(alpha, 0.0, where), named("silu"), line(1 / alpha, 0.0, where)]
    if op == "Clip":
        # Exporters write the largest float32 for no limit.
        low, high = (-math.inf if low is None or low <= -_LARGEST else low), high if high is not None else math.inf
        return [_clip(low, math.inf if high >= _LARGEST else high, where)]
    if op == "Pow" and (power := numbers.get("exponent")) is not None:
        return [named({2: "square", 3: "cube"}[power]) if power in (2, 3) else Elementwise(lambda y: y**power, where)]
    return None


def activations_of(run: Sequence[Elementwise], digits: int) -> list[Activation | tuple[float, float]]:
    """Activations, and scales with shifts, that a run of functions of single units computes.

    `digits` is the size in bytes of the numbers that the constants of the graph are stored in. A TypeError names a
    function that is not a known activation.
    """
    recognised: list[Activation | tuple[float, float]] = []
    joined, start = list[Elementwise](), 0
    for part in run:  # limits that follow each other are one: a maximum with 0 and then a minimum with 25
        if joined and (before := joined[-1].bounds) and part.bounds:
            low, high = (float(part.function(np.asarray(bound))) for bound in before)
            part = _clip(low, high, part.where)
            joined.pop()
        joined.append(part)
    run = joined
    while start < len(run):
        for end in range(len(run), start, -1):
            if found := _recognised(run[start:end], _TOLERANCE_16 if digits == 2 else _TOLERANCE):
                break
        else:
            raise TypeError(
                f"mlpoly does not know the function that {run[start].where} computes; it knows "
                f"{', '.join(family.name for family in families())}. mlpoly.activations."
                f"register_activation(name, function, kinks=...) makes another one known."
            )
        recognised += found
        start = end
    return recognised


def _limited(low: float, high: float) -> list[Activation | tuple[float, float]]:
    """The limits as activations."""
    if math.isinf(high):
        if math.isinf(low):
            return [(1.0, 0.0)]
        return [get("relu") if low == 0 else get("threshold", threshold=low, value=low)]
    if math.isinf(low):
        return [(-1.0, 0.0), *_limited(-high, math.inf), (-1.0, 0.0)]
    return [get("relu6") if (low, high) == (0.0, 6.0) else get("hardtanh", low=low, high=high)]


def _recognised(run: Sequence[Elementwise], tolerance: float) -> list[Activation | tuple[float, float]]:
    """What a whole run computes, up to a factor; empty if it is not known."""
    if all(part.line is not None for part in run):
        scale, shift = 1.0, 0.0
        for part in run:
            a, b = part.line or (1.0, 0.0)
            scale, shift = a * scale, a * shift + b
        return [(scale, shift)]
    if len(run) == 1 and run[0].activation is not None:
        return [run[0].activation]
    if len(run) == 1 and run[0].bounds is not None:
        return _limited(*run[0].bounds)
    nearest, best, factor = tolerance, None, 1.0
    with np.errstate(all="ignore"):
        values = composed(run)(_GRID)
        for family in families() if np.isfinite(values[: -2 * len(_FAR)]).all() and values.any() else ():
            try:
                known = np.asarray(get(family.name)(_GRID))
            except Exception:  # a user's function for arrays of another library
                continue
            seen = np.isfinite(values) & np.isfinite(known)  # exponentials overflow far out
            ratio = float(values[seen] @ known[seen] / (known[seen] @ known[seen]))
            apart = float(np.max(np.abs(values - ratio * known)[seen] / (1 + np.abs(known[seen])))) / (
                abs(ratio) or 1.0
            )
            if ratio and apart <= nearest:
                nearest, best, factor = apart, get(family.name), ratio
    if best is None:
        return []
    simple = round(2 * factor) / 2  # the factor without the rounding of constants
    factor = simple if abs(factor - simple) <= tolerance * abs(factor) else factor
    return [best] if factor == 1 else [best, (factor, 0.0)]


def composed(run: Sequence[Any]) -> Function:
    """The function that a run of functions computes."""

    def function(y: np.ndarray) -> np.ndarray:
        for part in run:
            y = part.function(y)
        return y

    return function


# Operations with the name of their activation.
_SAME = ("Sigmoid", "Tanh", "Softplus", "Softsign", "Erf", "Abs", "Sin", "Cos", "Mish", "HardSwish")
_PLAIN: dict[str, Function] = {"Exp": np.exp, "Log": np.log, "Sqrt": np.sqrt, "Reciprocal": np.reciprocal}
