"""The data themselves as a distribution."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from mlpoly.arrays import Array, chunks, namespace, namespace_of, readable, safe_inverse
from mlpoly.arrays.checks import as_float_array, as_integer, check_finite, check_names, check_shape, column_names
from mlpoly.arrays.placement import scalar, take_rows, to_numpy, widen
from mlpoly.inputs.accumulator import check_overflow
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.inputs.interface import Inputs, digest
from mlpoly.records import record, replace, static, trusted

_NUMBERS = 2**22  # numbers held at once in the widest precision


@record
class Samples(Inputs):
    """Equal or given probability on each of n samples.

    Parameters
    ----------
    x : array (n, d) or data frame
        One sample in each row; any floating dtype. Integers become float64.
    weights : array (n,), optional
        Not negative; they are divided by their sum. By default, None, all samples count the same.
    names : sequence of d str, optional
        Names of the inputs; by default the columns of a data frame.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mp.Samples(np.array([[0.0, 1.0], [4.0, 3.0]]), weights=np.array([3.0, 1.0])).mean.tolist()
    [1.0, 1.5]
    """

    x: Array
    weights: Array | None = None
    names: tuple[str, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        names = column_names(self.x) if self.names is None else self.names
        x = as_float_array("x", self.x, integers=True)
        check_shape("x", x, (None, None), "n samples of d inputs")
        if 0 in x.shape:
            columns = "columns; a sample needs one input or more"
            raise ValueError(f"x has no {columns if x.shape[0] else 'rows; pass at least one sample'}.")
        xp = namespace_of(x)
        if readable(x) and (bad := int(np.count_nonzero(to_numpy(~xp.all(xp.isfinite(x), axis=1))))):
            remedy = "drop these rows, for example with x[np.isfinite(x).all(axis=1)], or x.dropna() of a data frame"
            raise ValueError(f"x holds NaN or infinite entries in {bad} of its {x.shape[0]} rows; {remedy}.")
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "names", check_names(names, x.shape[1]))
        if self.weights is None:
            return
        weights = as_float_array("weights", self.weights, integers=True)
        namespace(x=x, weights=weights)
        check_shape("weights", weights, (x.shape[0],), "one weight per row of x")
        check_finite("weights", weights)
        weights = widen(weights)
        if readable(weights):
            lowest, highest = scalar(xp.min(weights)), scalar(xp.max(weights))
            if lowest < 0:
                raise ValueError(f"weights must not be negative, lowest is {lowest:.3g}; drop these rows from x.")
            if highest == 0:
                raise ValueError("weights are all zero; at least one sample must count.")
            weights = weights / highest  # so that their sum cannot overflow
        object.__setattr__(self, "weights", weights / xp.sum(weights))

    @property
    def count(self) -> int:
        """Number of samples n."""
        return int(self.x.shape[0])

    @property
    def prototype(self) -> Array:
        """The samples."""
        return self.x

    def __repr__(self) -> str:
        return f"Samples(n={self.count}, dim={self.dim}{'' if self.weights is None else ', weighted'})"

    def chunks(self, size: int) -> Iterator[tuple[Array, Array]]:
        """Rows (m, d) in their own dtype, at most `size` at a time, and their weights (m, 1) in the widest."""
        for rows in chunks(self.count, size):
            x, weights = self.x[rows, ...], self.weights
            yield x, widen(x[:, :1]) * 0 + 1 / self.count if weights is None else widen(weights[rows])[:, None]

    def _variances(self) -> Array:
        xp = namespace_of(self.x)
        rows = self.chunks(self._rows)
        return sum(xp.sum(weights * (widen(x) - self.mean) ** 2, axis=0) for x, weights in rows)

    @cached_property
    def mean(self) -> Array:
        """Mean of the samples, (d,), in float64 where the library has it."""
        xp, first = namespace_of(self.x), widen(self.x[0, :])
        # Relative to the first sample: a constant input then has exactly its value as mean, and no variance.
        return first + sum(xp.sum(w * (widen(x) - first), axis=0) for x, w in self.chunks(self._rows))

    @cached_property
    def covariance(self) -> Array:
        """Population covariance of the samples, (d, d), in float64 where the library has it."""
        parts = ((widen(x) - self.mean, w) for x, w in self.chunks(self._rows))
        with np.errstate(over="ignore", invalid="ignore"):
            total = sum((u * w).T @ u for u, w in parts)
        check_overflow(total)
        return 0.5 * (total + total.T)

    @property
    def _rows(self) -> int:
        """Number of rows in a chunk."""
        return max(1, _NUMBERS // self.dim)

    def gaussian(self) -> Gaussian:
        """The Gaussian with the mean and covariance of the samples."""
        return trusted(Gaussian, mean=self.mean, cov=self.covariance, sample_dtype=self.x.dtype, names=self.names)

    def sample(self, n: int, seed: int | Sequence[int] = 0) -> Array:
        """Draw n of the samples with replacement, (n, d); the same seed draws the same rows on every array library."""
        weights = None if self.weights is None else to_numpy(self.weights).astype(float)
        weights = None if weights is None else weights / weights.sum()
        drawn = np.random.default_rng(seed).choice(self.count, size=as_integer("n", n, 1), p=weights)
        return take_rows(self.x, drawn)

    def points(self, n: int, seed: int = 0) -> "Samples":
        """The samples themselves, however many."""
        return self

    def _rescaled(self, factor: Array, offset: Array) -> "Samples":
        return replace(self, x=offset + factor * widen(self.x))

    def _moments(self, directions: Array, order: int) -> Array:
        xp = namespace_of(directions)
        size = max(1, _NUMBERS // max(directions.shape))

        def projected(scale: Array) -> Iterator[tuple[Array, Array]]:
            return (((widen(x) - self.mean) @ directions.T * scale, w) for x, w in self.chunks(size))  # (m, h)

        inverse = safe_inverse(xp.sqrt(sum(xp.sum(w * t**2, axis=0) for t, w in projected(1.0))))
        return sum(xp.stack([xp.sum(w * t**k, axis=0) for k in range(order + 1)]) for t, w in projected(inverse))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of samples and weights."""
        return digest(self.x, self.weights)
