"""Weighted means over samples with their standard errors, and the checks of what they are taken of."""

from typing import Any

from mlpoly.arrays import Array, astype, cast_result, namespace, readable, widen
from mlpoly.arrays.checks import as_float_array, check_finite, check_shape
from mlpoly.scores.number import Estimate


def checked_outputs(f: Any, p: Any) -> tuple[Array, Array]:
    """Check two tables of outputs (n, o) on the same samples."""
    f, p = as_float_array("f", f), as_float_array("p", p)
    namespace(f=f, p=p)
    check_shape("f", f, (None, None), "one row per sample, outputs in columns")
    check_shape("p", p, tuple(f.shape), "the outputs of another model on the samples of f")
    return f, p


def checked_weights(weights: Any, samples: Array) -> Array | None:
    """Check weights (n,) of samples or outputs, or None; return them in float64 where the library has it."""
    if weights is None:
        return None
    weights = as_float_array("weights", weights, integers=True)
    xp = namespace(weights=weights, samples=samples)
    check_shape("weights", weights, tuple(samples.shape[:1]), "one weight per sample")
    check_finite("weights", weights)
    if readable(weights) and weights.shape[0] and not bool(xp.all(weights >= 0)):
        raise ValueError(f"weights must not be negative, but the smallest is {float(xp.min(weights)):.3g}.")
    return widen(weights)


def estimate(values: Array, like: Array, weights: Array | None = None) -> Estimate:
    """Mean and standard error of one number, or truth value, per sample (n,), in the dtype of `like`."""
    weights, values = counted(checked_weights(weights, values), values)
    if values.shape[0] == 0:
        raise ValueError("there are no samples (of positive weight); a mean needs at least one.")
    mean, error = mean_and_error(astype(values, widen(like[:0]).dtype), weights)
    return Estimate(cast_result(mean, like), cast_result(error, like))


def mean_and_error(values: Array, weights: Array | None) -> tuple[Array, Array]:
    """Weighted mean of values (n,), and its standard error."""
    xp = namespace(values=values)
    w = xp.ones_like(values) if weights is None else weights
    total = xp.sum(w)
    mean = xp.sum(w * values) / total
    spare = 1 - xp.sum(w**2) / total**2  # (m - 1) / m for the effective number m of samples; zero for one
    return mean, xp.sqrt(xp.sum((w * (values - mean)) ** 2) / xp.where(spare > 0, spare, 1.0)) / total


def counted(weights: Array | None, *tables: Array) -> tuple[Any, ...]:
    """Weights (n,) and tables (n, ...) without the rows of weight zero, which may hold NaN; under jit they stay."""
    if weights is None or not readable(weights):
        return weights, *tables
    return tuple(a[weights > 0] for a in (weights, *tables))
