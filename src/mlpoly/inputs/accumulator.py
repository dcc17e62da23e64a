"""Mean and covariance of a stream of batches."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import Array, astype, eye, is_low_precision, namespace, namespace_of, readable, widen
from mlpoly.arrays.checks import as_float_array, as_integer, check_finite, check_shape
from mlpoly.records import trusted

if TYPE_CHECKING:
    from mlpoly.inputs.gaussian import Gaussian


class MomentAccumulator:
    """Collect mean and covariance batch by batch; any batching, and any merging, gives the one-shot result.

    Each batch is centred on its own mean before it is squared, and batches are joined by the pairwise update of Chan,
    Golub and LeVeque, so that a large mean costs no digits. Sums are kept in float64 where the library has it.

    Attributes
    ----------
    dim, count : int
        Number of inputs d, and of samples seen.
    mean, scatter : array (d,), array (d, d)
        Mean, and sum of squared deviations from it; None before the first sample.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> acc = mp.MomentAccumulator(2)
    >>> acc.update(np.array([[0.0, 1.0]])).update(np.array([[2.0, 3.0]])).gaussian().mean.tolist()
    [1.0, 2.0]
    """

    def __init__(self, dim: int) -> None:
        self.dim = as_integer("dim", dim, 1)
        self.count = 0
        self.mean: Array = None
        self.scatter: Array = None
        self._dtype: object = None  # dtype of the samples
        self._narrow: object = None  # dtype of the Gaussian, if one was requested

    @classmethod
    def from_moments(cls, count: int, mean: Array, scatter: Array, dtype: object = None) -> MomentAccumulator:
        """Continue from moments summed elsewhere, or saved; `scatter` is `count` times the population covariance.

        The Gaussian has the given `dtype`, if that is narrower than float64; 16 bits, too few for a covariance, give
        float32.
        """
        count = as_integer("count", count, 1)
        mean, scatter = as_float_array("mean", mean), as_float_array("scatter", scatter)
        namespace(mean=mean, scatter=scatter)
        check_shape("mean", mean, (None,), "a vector with one entry per input")
        check_shape("scatter", scatter, (mean.shape[0], mean.shape[0]), "a square matrix over the entries of mean")
        check_finite("mean", mean)
        check_finite("scatter", scatter)
        accumulator = cls(mean.shape[0])
        accumulator._join(count, widen(mean), widen(scatter))
        accumulator._dtype = mean.dtype if dtype is None else dtype
        if dtype is not None:
            accumulator._narrow = namespace_of(mean).float32 if is_low_precision(dtype) else dtype
        return accumulator

    def __repr__(self) -> str:
        return f"MomentAccumulator(dim={self.dim}, count={self.count})"

    def update(self, batch: Array) -> MomentAccumulator:
        """Add samples (n, d), or (..., d) with leading axes flattened; returns self."""
        batch = as_float_array("batch", batch, integers=True)
        xp = namespace_of(batch)
        if len(batch.shape) < 2 or batch.shape[-1] != self.dim:
            check_shape("batch", batch, (None, self.dim), "samples in rows, as many columns as the accumulator's dim")
        rows = xp.reshape(batch, (-1, self.dim))
        if rows.shape[0] == 0:
            return self
        check_finite("batch", rows)
        if self.mean is not None:
            namespace(batch=batch, accumulated=self.mean)
        if self._dtype is None:
            self._dtype = batch.dtype
        wide = widen(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = xp.mean(wide, axis=0)
            centred = wide - mean
            scatter = centred.T @ centred
        check_overflow(scatter)
        self._join(rows.shape[0], mean, scatter)
        return self

    def merge(self, other: MomentAccumulator) -> MomentAccumulator:
        """Add everything another accumulator has seen; returns self, leaves `other` alone."""
        if not isinstance(other, MomentAccumulator):
            raise TypeError(f"other must be a MomentAccumulator, got {type(other).__name__}.")
        if other.dim != self.dim:
            raise ValueError(f"other has dim {other.dim}, expected {self.dim}: both must see the same inputs.")
        if other.count:
            if self.count:
                namespace(other=other.mean, accumulated=self.mean)
            if self._dtype is None:
                self._dtype, self._narrow = other._dtype, other._narrow
            self._join(other.count, other.mean, other.scatter)
        return self

    def _join(self, count: int, mean: Array, scatter: Array) -> None:
        if self.count == 0:
            self.count, self.mean, self.scatter = count, mean, scatter
            return
        total = self.count + count
        gap = mean - self.mean
        self.scatter = self.scatter + scatter + (gap[:, None] * gap[None, :]) * (self.count * (count / total))
        self.mean = self.mean + gap * (count / total)
        self.count = total

    def gaussian(self, shrinkage: float | str = 0.0) -> Gaussian:
        """The Gaussian with these moments, shrunk as by `Gaussian.from_samples`, in float64 where the library has it.

        Rounded to a narrower dtype of the samples, a covariance whose variances differ a lot would lose the small ones.
        """
        from mlpoly.inputs.gaussian import Gaussian

        if self.count == 0:
            raise ValueError("no samples yet: call update(batch) before gaussian().")
        mean, cov = self.mean, self.scatter / self.count
        xp, d = namespace_of(cov), self.dim
        if shrinkage == "oas":
            # Oracle approximating shrinkage (Chen, Wiesel, Eldar and Hero 2010, eq. 23): needs tr(S) and tr(S^2) only.
            trace2, square = xp.sum(xp.linalg.diagonal(cov)) ** 2, xp.sum(cov * cov)
            up = (1 - 2 / d) * square + trace2
            down = (self.count + 1 - 2 / d) * (square - trace2 / d)
            fraction: Array = xp.where(down > 0, xp.clip(up / xp.where(down > 0, down, 1.0), 0, 1), 1.0)
        elif isinstance(shrinkage, Real) and 0 <= shrinkage <= 1:
            fraction = float(shrinkage)
        else:
            raise ValueError(f"shrinkage must be a number in [0, 1] or 'oas', got {shrinkage!r}.")
        if shrinkage == "oas" or fraction > 0:
            cov = (1 - fraction) * cov + fraction * (xp.sum(xp.linalg.diagonal(cov)) / d) * eye(d, cov)
        if self._narrow is not None:
            with np.errstate(over="ignore"):
                mean, cov = astype(mean, self._narrow), astype(cov, self._narrow)
        check_overflow(cov)
        return trusted(Gaussian, mean=mean, cov=cov, sample_dtype=self._dtype)


def check_overflow(squares: Array) -> None:
    """Raise if squares of finite samples are not finite."""
    xp = namespace_of(squares)
    if readable(squares) and not bool(xp.all(xp.isfinite(squares))):
        remedy = "Divide them by a common factor, and multiply the network's first weights by it."
        raise ValueError(f"the samples are too large: their squares overflow {squares.dtype}. {remedy}")
