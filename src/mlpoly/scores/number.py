"""Results of measures: records that act as one number."""

from typing import Any

from mlpoly.arrays import Array, readable, scalar, to_numpy
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
