"""Fraction of the variance of one table of outputs that another leaves unexplained, at once or batch by batch."""

from dataclasses import dataclass
from typing import Any

from mlpoly.arrays import Array, cast_result, check_shape, namespace, readable, to_numpy, widen
from mlpoly.records import map_arrays, replace
from mlpoly.scores.number import FVU, checked_outputs, checked_weights, counted, mean_and_error


def fvu_of_outputs(f: Array, p: Array, weights: Array | None = None) -> FVU:
    """Fraction of the variance of f (n, o) that p leaves unexplained on the same samples, with weights (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from mlpoly.scores import fvu_of_outputs
    >>> f = np.array([[0.0], [1.0], [2.0]])
    >>> float(fvu_of_outputs(f, f + 1)), float(fvu_of_outputs(f, f + 1, weights=[1, 0, 1]))
    (1.5, 1.0)
    """
    f, p = checked_outputs(f, p)
    weights, f, p = counted(checked_weights(weights, f), f, p)
    sums = ErrorSums(standard_error=False).update(f, p, weights)
    fvu, xp = sums.fvu(), namespace(f=f)
    # A ratio of means: to first order its error is that of the mean of (residual - total * deviation) (delta method).
    squares = xp.sum((widen(f) - widen(p)) ** 2, axis=1)
    seen = sums._started()
    each = squares - sums.total * xp.sum((widen(f) - seen.origin - seen.mean) ** 2, axis=1)
    error = mean_and_error(each, weights)[1] / xp.sum(sums.variance)
    return replace(fvu, standard_error=cast_result(error, f))


class ErrorSums:
    """`fvu_of_outputs` batch by batch; any batching, and any merging, gives the one-shot result.

    Batches are joined by the pairwise update of Chan, Golub and LeVeque, in deviations from the first sample, so that a
    large mean costs no digits. A standard error needs a matrix over the outputs, (o + 3, o + 3).

    Examples
    --------
    >>> import numpy as np
    >>> from mlpoly.scores import ErrorSums
    >>> sums = ErrorSums()
    >>> for f in (np.array([[0.0], [1.0]]), np.array([[2.0]])):
    ...     sums = sums.update(f, f + 1)
    >>> float(sums.fvu())
    1.5
    """

    def __init__(self, *, standard_error: bool = True) -> None:
        self._with_error = standard_error
        self._sums: _Sums | None = None  # None before the first sample

    @property
    def variance(self) -> Array:
        """Population variance of f (o,), exactly zero where it is of the size of rounding errors."""
        sums = self._started()
        variance = sums.scatter / sums.weight
        rounding = 2 * sums.eps * sums.largest
        return namespace(variance=variance).where(variance > rounding**2, variance, 0.0)

    @property
    def total(self) -> Array:
        """`FVU.total` in float64 where the library has it; constant outputs are included."""
        sums = self._started()
        xp = namespace(scatter=sums.scatter)
        return xp.sum(sums.missed_squares) / xp.sum(sums.scatter)

    def update(self, f: Array, p: Array, weights: Array | None = None) -> "ErrorSums":
        """Add outputs f and p (n, o) of the same samples, with weights (n,); returns self."""
        f, p = checked_outputs(f, p)
        weights, f, p = counted(checked_weights(weights, f), f, p)
        if f.shape[0]:
            batch = _Sums.of(f, p, weights, self._with_error)
            self._sums = batch if self._sums is None else self._sums.joined(batch)
        return self

    def merge(self, other: "ErrorSums") -> "ErrorSums":
        """Add everything that other sums have seen; returns self, leaves `other` unchanged."""
        if not isinstance(other, ErrorSums):
            raise TypeError(f"other must be ErrorSums, got {type(other).__name__}.")
        sums = other._sums
        if sums is None:
            return self
        if self._with_error and sums.gram is None:
            raise ValueError("other was made with standard_error=False; make both with the same option.")
        sums = sums if self._with_error else replace(sums, gram=None)
        self._sums = sums if self._sums is None else self._sums.joined(sums)
        return self

    def fvu(self) -> FVU:
        """The fraction of variance unexplained so far, in the dtype of the first outputs f."""
        sums, variance = self._started(), self.variance
        missed, squares = sums.missed / sums.weight, sums.missed_squares / sums.weight
        # Only differences between the means of the outputs count; this way those of large means keep their digits.
        fvu = unexplained(sums.origin - sums.origin[:1] + sums.mean, variance, missed, squares)
        if self._with_error:
            xp, g, total = namespace(variance=variance), sums.gram, fvu.total
            square = g[1, 1] - 2 * total * g[1, 2] + total**2 * g[2, 2]
            # g[0, 0] is the sum of w^2, and 1 - g[0, 0] / weight^2 is (m - 1) / m.
            spare = 1 - g[0, 0] / sums.weight**2
            error = xp.sqrt(xp.where(square > 0, square, 0.0) / spare) / xp.sum(sums.scatter)
            fvu = replace(fvu, standard_error=error)
        return map_arrays(fvu, lambda a: cast_result(a, sums.like))

    def _started(self) -> "_Sums":
        if self._sums is None:
            raise ValueError("there are no samples (of positive weight) yet; a variance needs at least 2.")
        return self._sums


@dataclass(frozen=True, eq=False)
class _Sums:
    """Weighted sums over samples of f and p, in deviations from the first one; (o,) each."""

    like: Array  # (), a number in the dtype of the outputs
    eps: float  # relative rounding error of the outputs
    weight: Any  # sum of the weights
    origin: Array  # the first sample; means are relative to it
    mean: Array  # mean of f - origin
    scatter: Array  # sum of (f - mean)^2
    missed: Array  # sum of f - p
    missed_squares: Array  # sum of (f - p)^2
    largest: Array  # largest |f|
    # Sum of w^2 u u^T with u = (1, |f - p|^2, |f - mean|^2, f - mean) of each sample, (o + 3, o + 3), or None. A change
    # of the mean acts linearly on u: this suffices for the squares of |f - p|^2 - total |f - mean|^2 at the end.
    gram: Array

    @classmethod
    def of(cls, f: Array, p: Array, weights: Array | None, with_error: bool) -> "_Sums":
        """Sums over checked outputs (n, o), n > 0."""
        xp, wide = namespace(f=f), widen(f)
        w = xp.ones_like(wide[:, :1]) if weights is None else weights[:, None]
        origin, residual = wide[0, :], wide - widen(p)
        weight = float(f.shape[0]) if weights is None else xp.sum(weights)
        mean = xp.sum(w * (wide - origin), axis=0) / weight
        centred = wide - origin - mean
        scatter, missed, squares = (xp.sum(w * a, axis=0) for a in (centred**2, residual, residual**2))
        gram = None
        if with_error:
            lengths = [xp.sum(a**2, axis=1, keepdims=True) for a in (residual, centred)]
            u = w * xp.concat([xp.ones_like(w), *lengths, centred], axis=1)
            gram = u.T @ u
        like, eps = xp.zeros((), dtype=f.dtype), float(xp.finfo(f.dtype).eps)
        return cls(like, eps, weight, origin, mean, scatter, missed, squares, xp.max(xp.abs(wide), axis=0), gram)

    def joined(self, other: "_Sums") -> "_Sums":
        """Sums over the samples of both."""
        xp = namespace(other=other.mean, sums=self.mean)
        check_shape("other", other.mean, tuple(self.mean.shape), "both must see the same outputs")
        weight = self.weight + other.weight
        theirs, fraction = other.mean + (other.origin - self.origin), other.weight / weight
        gap = theirs - self.mean
        mean, gram = self.mean + fraction * gap, None
        if self.gram is not None:
            gram = _moved(self.gram, self.mean - mean) + _moved(other.gram, theirs - mean)
        scatter = self.scatter + other.scatter + gap**2 * (self.weight * fraction)
        missed, squares = self.missed + other.missed, self.missed_squares + other.missed_squares
        eps, largest = max(self.eps, other.eps), xp.maximum(self.largest, other.largest)
        return _Sums(self.like, eps, weight, self.origin, mean, scatter, missed, squares, largest, gram)


def _moved(gram: Array, step: Array) -> Array:
    """The matrix of `ErrorSums` once `step` (o,) is added to all deviations c = f - mean."""
    xp = namespace(gram=gram)

    def rows(g: Array) -> Array:
        constant, deviations = g[:1, :], g[3:, :]
        # |c + s|^2 = |c|^2 + 2 s.c + |s|^2
        square = g[2:3, :] + 2 * step[None, :] @ deviations + xp.sum(step**2) * constant
        return xp.concat([g[:2, :], square, deviations + step[:, None] * constant])

    return rows(rows(gram).T)


def unexplained(mean: Array, variance: Array, missed: Array, squares: Array) -> FVU:
    """FVU, without an error, from moments (o,) each: E[f] up to a constant, Var[f], E[f - p] and E[(f - p)^2]."""
    xp = namespace(variance=variance)
    flat = [i for i, v in enumerate(to_numpy(variance)) if not v > 0] if readable(variance) else []
    if flat:
        shown = ", ".join(map(str, flat[:8])) + (", ..." if len(flat) > 8 else "")
        listed = f"output {shown}" if len(flat) == 1 else f"each of the outputs {shown}"
        raise ValueError(
            f"FVU is undefined: {listed} of the network has no variance, so there is nothing to explain. "
            f"Leave it out of the network (rows of the last weight and bias), or use inputs on which it varies."
        )
    # In one list of all outputs, differences of the outputs' means are variance; the common mean of residuals is not.
    spread = xp.mean(variance) + xp.mean((mean - xp.mean(mean)) ** 2)
    flattened = (xp.mean(squares) - xp.mean(missed) ** 2) / spread
    return FVU(xp.sum(squares) / xp.sum(variance), squares / variance, flattened)
