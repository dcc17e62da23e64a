"""Results of measures: records that act as one number, and means over samples with their standard errors."""

from typing import Any

from mlpoly.arrays import Array, astype, cast_result, namespace, readable, scalar, to_numpy, widen
from mlpoly.arrays.checks import as_float_array, check_finite, check_shape
from mlpoly.records import record
from mlpoly.tables import Plottable, Table, Tabular

_VISIBLE = 0.005  # bound on the error of a number, relative to it, from which it can change the digits that are printed


class Number(Tabular, Plottable):
    """A record that can be converted, formatted and compared like its main number."""

    def _number(self) -> Array:
        raise NotImplementedError

    def __str__(self) -> str:
        return repr(self)

    def __float__(self) -> float:
        return scalar(self._number())

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __lt__(self, other: Any) -> Any:
        return self._number() < _plain(other)

    def __le__(self, other: Any) -> Any:
        return self._number() <= _plain(other)

    def __gt__(self, other: Any) -> Any:
        return self._number() > _plain(other)

    def __ge__(self, other: Any) -> Any:
        return self._number() >= _plain(other)


def _plain(value: Any) -> Any:
    return value._number() if isinstance(value, Number) else value


@record
class FVU(Number):
    """Fraction of variance unexplained; 0 is a perfect polynomial, 1 is as good as the mean.

    As a number it is `total`: ``float(f)``, ``f"{f:.3f}"`` and ``f < 0.1`` work.

    Attributes
    ----------
    total, per_output : array (), array (o,)
        sum_o E(f_o - p_o)^2 / sum_o Var f_o, and the same for each output.
    flattened : array ()
        Over flattened outputs, as in the code of the paper: var(f - p) / var(f) with all outputs of all inputs in one
        list. The variance then includes that between the means of the outputs, and a constant error common to all
        outputs does not count.
    standard_error, bound : array () or None
        Of `total`: on data its standard error, as a ratio of two means; in closed form a bound on the error from
        truncated series, rounding aside, 0 for exact kernels.
    closure : array () or None
        Estimate of `total` without samples for a deep network, each of whose layers is taken to see nearly Gaussian
        values. It is a difference of two variances, so that a small one may be far off.
    data : FVU or None
        The same on rows of the data which the distribution was estimated from, where the two are far apart.
    """

    total: Array
    per_output: Array
    flattened: Array
    standard_error: Array | None = None
    bound: Array | None = None
    closure: Array | None = None
    data: "FVU | None" = None

    @property
    def explained(self) -> Array:
        """Fraction of variance explained, 1 - total."""
        return 1 - self.total

    def _number(self) -> Array:
        return self.total

    def _table(self) -> Table:
        rows = [("all", float(self)), *((str(i), v) for i, v in enumerate(to_numpy(self.per_output).tolist()))]
        named = {"standard error": self.standard_error, "bound on the error": self.bound, "closure": self.closure}
        about = [f"{name} {scalar(value):.2g}" for name, value in named.items() if value is not None]
        about += [] if self.data is None else [f"on data {float(self.data):.3g}"]
        note = f"all: {', '.join(about)}" if about else ""
        return Table(("output", "fraction of variance unexplained"), tuple(rows), note=note, limit=21)

    def __repr__(self) -> str:
        if not readable(self.total):
            return "FVU(traced)"
        error = "" if self.standard_error is None else f" +- {scalar(self.standard_error):.1g}"
        bound = 0.0 if self.bound is None else scalar(self.bound)
        stated = f", bound on its error {bound:.2g}" if bound > _VISIBLE * scalar(self.total) else ""
        if self.data is not None:
            stated += f", on data {float(self.data):.3g} +- {scalar(self.data.standard_error):.1g}"
        return f"FVU(total={scalar(self.total):.3g}{error}{stated}, outputs={self.per_output.shape[0]})"


@record
class Estimate(Number):
    """A mean over samples, and its standard error, zero for a single one; as a number it is `mean`."""

    mean: Array
    standard_error: Array

    def _number(self) -> Array:
        return self.mean

    def _table(self) -> Table:
        return Table(("mean", "standard error"), ((float(self), scalar(self.standard_error)),))

    def __repr__(self) -> str:
        if not readable(self.mean):
            return "Estimate(traced)"
        return f"Estimate({scalar(self.mean):.4g} +- {scalar(self.standard_error):.1g})"


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
