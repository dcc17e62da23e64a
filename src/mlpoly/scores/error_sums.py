"""Fraction of the variance of one table of outputs that another leaves unexplained, at once or batch by batch."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, cast_result, check_shape, namespace, readable, to_numpy, widen
from mlpoly.records import map_arrays, replace
from mlpoly.scores.means import checked_outputs, checked_weights, counted, mean_and_error
from mlpoly.scores.number import FVU


def fvu_of_outputs(f: Array, p: Array, weights: Array | None = None) -> FVU:
    """Fraction of the variance of f that p leaves unexplained, on the same samples.

    Parameters
    ----------
    f, p : array (n, o)
    weights : array (n,), optional
        Not negative.

    Returns
    -------
    FVU
        In the dtype of f (float32 where that has 16 bits).

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
    made = sums.fvu()
    xp, wide = namespace(f=f), widen(f)
    # A ratio of means: to first order its error is that of the mean of (residual - total * deviation) (delta method).
    squares = xp.sum((wide - widen(p)) ** 2, axis=1)
    each = squares - sums.total * xp.sum((wide - sums._origin - sums._mean) ** 2, axis=1)
    error = mean_and_error(each, weights)[1] / xp.sum(sums.variance)
    return replace(made, standard_error=cast_result(error, f))


class ErrorSums:
    """`fvu_of_outputs` batch by batch; any batching, and any merging, gives the one-shot result.

    Batches are joined by the pairwise update of Chan, Golub and LeVeque, in deviations from the first sample, so that a
    large mean costs no digits.

    Parameters
    ----------
    standard_error : bool
        Whether to keep the sums for the standard error: a matrix over the outputs, (o + 3, o + 3).

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
        self._like: Array = None  # a number in the dtype of the outputs; None before the first sample
        self._eps = 0.0  # relative rounding error of the outputs
        self._weight: Any = 0.0  # sum of the weights
        self._origin: Array = None  # the first sample (o,); means are relative to it
        self._mean: Array = None  # mean of f - origin, (o,)
        self._scatter: Array = None  # weighted sum of (f - mean)^2, (o,)
        self._missed: Array = None  # weighted sum of f - p, (o,)
        self._missed_squares: Array = None  # weighted sum of (f - p)^2, (o,)
        self._largest: Array = None  # largest |f|, (o,)
        # Sum of w^2 u u^T with u = (1, |f - p|^2, |f - mean|^2, f - mean) of each sample. A change of the mean acts
        # linearly on u, so that this suffices for the squares of |f - p|^2 - total |f - mean|^2 at the end.
        self._gram: Array = None

    @property
    def variance(self) -> Array:
        """Population variance of f (o,), exactly zero where it is of the size of rounding errors."""
        self._check_started()
        variance = self._scatter / self._weight
        rounding = 2 * self._eps * self._largest
        return namespace(variance=variance).where(variance > rounding**2, variance, 0.0)

    @property
    def total(self) -> Array:
        """`FVU.total` in float64 where the library has it; constant outputs are included."""
        self._check_started()
        xp = namespace(scatter=self._scatter)
        return xp.sum(self._missed_squares) / xp.sum(self._scatter)

    def update(self, f: Array, p: Array, weights: Array | None = None) -> ErrorSums:
        """Add outputs f and p (n, o) of the same samples, with weights (n,); returns self."""
        f, p = checked_outputs(f, p)
        weights, f, p = counted(checked_weights(weights, f), f, p)
        if f.shape[0] == 0:
            return self
        xp, wide = namespace(f=f), widen(f)
        w = xp.ones_like(wide[:, :1]) if weights is None else weights[:, None]
        origin, residual = wide[0, :], wide - widen(p)
        weight = float(f.shape[0]) if weights is None else xp.sum(weights)
        mean = xp.sum(w * (wide - origin), axis=0) / weight
        centred = wide - origin - mean
        batch = ErrorSums(standard_error=self._with_error)
        batch._like, batch._eps = xp.zeros((), dtype=f.dtype), float(xp.finfo(f.dtype).eps)
        batch._weight, batch._origin, batch._mean = weight, origin, mean
        batch._scatter = xp.sum(w * centred**2, axis=0)
        batch._missed, batch._missed_squares = xp.sum(w * residual, axis=0), xp.sum(w * residual**2, axis=0)
        batch._largest = xp.max(xp.abs(wide), axis=0)
        if self._with_error:
            squares = [xp.sum(a**2, axis=1, keepdims=True) for a in (residual, centred)]
            u = w * xp.concat([xp.ones_like(w), *squares, centred], axis=1)
            batch._gram = u.T @ u
        return self.merge(batch)

    def merge(self, other: ErrorSums) -> ErrorSums:
        """Add everything that other sums have seen; returns self, leaves `other` unchanged."""
        if not isinstance(other, ErrorSums):
            raise TypeError(f"other must be ErrorSums, got {type(other).__name__}.")
        if other._like is None:
            return self
        if self._with_error and other._gram is None:
            raise ValueError("other was made with standard_error=False; make both with the same option.")
        if self._like is None:
            gram = other._gram if self._with_error else None
            vars(self).update(vars(other) | {"_with_error": self._with_error, "_gram": gram})
            return self
        namespace(other=other._mean, sums=self._mean)
        check_shape("other", other._mean, tuple(self._mean.shape), "both must see the same outputs")
        weight = self._weight + other._weight
        theirs = other._mean + (other._origin - self._origin)
        gap, fraction = theirs - self._mean, other._weight / weight
        mean = self._mean + fraction * gap
        if self._with_error:
            self._gram = _moved(self._gram, self._mean - mean) + _moved(other._gram, theirs - mean)
        self._scatter = self._scatter + other._scatter + gap**2 * (self._weight * fraction)
        self._missed = self._missed + other._missed
        self._missed_squares = self._missed_squares + other._missed_squares
        self._largest = namespace(mean=mean).maximum(self._largest, other._largest)
        self._weight, self._mean, self._eps = weight, mean, max(self._eps, other._eps)
        return self

    def fvu(self) -> FVU:
        """The fraction of variance unexplained so far, in the dtype of the first outputs f."""
        variance = self.variance
        missed, squares = self._missed / self._weight, self._missed_squares / self._weight
        # Only differences between the means of the outputs count; this way those of large means keep their digits.
        made = unexplained(self._origin - self._origin[:1] + self._mean, variance, missed, squares)
        if self._with_error:
            xp, g, total = namespace(variance=variance), self._gram, made.total
            square = g[1, 1] - 2 * total * g[1, 2] + total**2 * g[2, 2]
            # g[0, 0] is the sum of w^2, and 1 - g[0, 0] / weight^2 is (m - 1) / m.
            spare = 1 - g[0, 0] / self._weight**2
            error = xp.sqrt(xp.where(square > 0, square, 0.0) / spare) / xp.sum(self._scatter)
            made = replace(made, standard_error=error)
        return map_arrays(made, lambda a: cast_result(a, self._like))

    def _check_started(self) -> None:
        if self._like is None:
            raise ValueError("there are no samples (of positive weight) yet; a variance needs at least 2.")


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
