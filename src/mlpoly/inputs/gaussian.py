"""Gaussian inputs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import Array, namespace, namespace_of, positive_semidefinite, readable
from mlpoly.arrays.checks import as_float_array, as_integer, check_finite, check_names, check_shape, column_names
from mlpoly.arrays.placement import astype, cast_result, constant, eye, promote, scalar, take_rows, widen
from mlpoly.arrays.products import product
from mlpoly.inputs.accumulator import MomentAccumulator
from mlpoly.inputs.conditioning import Given, check_possible, chosen_names, known_inputs
from mlpoly.inputs.interface import Gaussians, digest
from mlpoly.records import record, replace, static

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@record
class Gaussian(Gaussians):
    """A normal distribution N(mean, cov); the covariance may be singular.

    `neutral` is true for `Gaussian.standard(d)`, which belongs to no array library: `fit` moves it to the network's.
    `sample` draws in `sample_dtype`, that of the data of an estimated Gaussian; None means that of the mean.

    Parameters
    ----------
    mean : array (d,)
    cov : None, array (d,) or array (d, d)
        None is the identity, (d,) a diagonal of variances, (d, d) a symmetric positive semidefinite matrix.
    names : sequence of d str, optional
        Names of the inputs.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mp.Gaussian(np.zeros(2), np.array([[2.0, 1.0], [1.0, 1.0]])).dim
    2
    """

    mean: Array
    cov: Array | None = None
    neutral: bool = static(default=False)
    sample_dtype: Any = static(default=None)
    names: tuple[str, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        mean = as_float_array("mean", self.mean)
        check_shape("mean", mean, (None,), "a vector with one entry per input")
        if mean.shape[0] == 0:
            raise ValueError("mean is empty; a Gaussian needs at least one input.")
        check_finite("mean", mean)
        cov = self.cov
        if cov is not None:
            cov = _checked_covariance(as_float_array("cov", cov), mean)
            mean, cov = promote(mean, cov)
        for name, value in (("mean", mean), ("cov", cov), ("names", check_names(self.names, mean.shape[0]))):
            object.__setattr__(self, name, value)

    @classmethod
    def standard(cls, dim: int, like: Array | None = None) -> Gaussian:
        """N(0, I) in `dim` dimensions; with `like`, in the array library, dtype and device of that array."""
        dim = as_integer("dim", dim, 1)
        if like is None:
            return cls(np.zeros(dim), None, neutral=True)
        return cls(constant(np.zeros(dim), as_float_array("like", like)))

    @classmethod
    def from_samples(cls, samples: Array, shrinkage: float | str = 0.0, names: Sequence[str] | None = None) -> Gaussian:
        """The Gaussian with the mean and (population) covariance of the samples, in float64 where the library has it.

        A fit still has the network's dtype, and `sample` draws in the dtype of these samples.

        Parameters
        ----------
        samples : array (n, d) or data frame
            One sample is enough: its covariance is zero.
        shrinkage : float in [0, 1] or "oas"
            Fraction of the covariance replaced by its mean variance times the identity, or "oracle approximating
            shrinkage".
        names : sequence of d str, optional
            Names of the inputs; by default the columns of a data frame.
        """
        names = column_names(samples) if names is None else names
        samples = as_float_array("samples", samples, integers=True)
        check_shape("samples", samples, (None, None), "n samples of d inputs")
        if samples.shape[0] == 0:
            raise ValueError("samples has no rows; pass at least one sample.")
        names = check_names(names, samples.shape[1])
        estimated = MomentAccumulator(samples.shape[1]).update(samples).gaussian(shrinkage=shrinkage)
        return replace(estimated, names=names).remember(samples)

    @property
    def weights(self) -> Array:
        """The weight of its only component: one, (1,)."""
        return namespace_of(self.mean).ones_like(self.mean[:1])

    @property
    def components(self) -> tuple[Gaussian, ...]:
        """Itself: a mixture of one."""
        return (self,)

    def __repr__(self) -> str:
        kind = "identity" if self.cov is None else "diagonal" if len(self.cov.shape) == 1 else "full"
        return f"Gaussian(dim={self.dim}, {kind} covariance)"

    def _variances(self) -> Array:
        if self.cov is None:
            return namespace_of(self.mean).ones_like(self.mean)
        return self.cov if len(self.cov.shape) == 1 else super()._variances()

    def times_covariance(self, rows: Array) -> Array:
        """Product rows @ cov for rows (m, d), in the wider dtype of the two."""
        if self.cov is None:
            return rows
        if len(self.cov.shape) == 2:
            return product(rows, self.cov)
        rows, cov = promote(rows, self.cov)
        return rows * cov

    @cached_property
    def root(self) -> Array:
        """Symmetric square root of the covariance: (d, d), or (d,) if that is diagonal or the identity."""
        if self.cov is None or len(self.cov.shape) == 1:
            return namespace_of(self.mean).sqrt(self._variances())
        return super().root

    def sample(self, n: int, seed: int | Sequence[int] = 0) -> Array:
        """Draw n samples, (n, d); the same seed gives the same samples on every array library."""
        n = as_integer("n", n, 1)
        drawn = self.colour(constant(np.random.default_rng(seed).standard_normal((n, self.dim)), self.mean))
        return drawn if self.sample_dtype is None else astype(drawn, self.sample_dtype)

    def colour(self, noise: Array) -> Array:
        """Turn standard normal noise (n, d) into samples of this Gaussian."""
        return self.mean + (noise * self.root if len(self.root.shape) == 1 else noise @ self.root)

    def condition(self, known: Mapping[int | str, float]) -> Gaussian:
        """The Gaussian of all other inputs, given a mapping from index or name of some to their values.

        Inputs that do not vary, or that others determine, can have only the values that can occur.

        Examples
        --------
        >>> import numpy as np, mlpoly as mp
        >>> g = mp.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]])).condition({0: 2.0})
        >>> (g.mean.tolist(), g.cov.tolist())
        ([1.0], [[0.75]])
        """
        places, values = known_inputs(known, self)
        given = Given(self, places)
        check_possible("known", [given], values[None, :])
        mean, others = given.mean(values[None, :])[0, :], given.others
        left = take_rows(given.left, others)
        left = left if given.diagonal else take_rows(left.T, others)
        mean, cov = (cast_result(a, self.mean) for a in (take_rows(mean, others), left))
        return replace(self, mean=mean, cov=cov, neutral=False, names=chosen_names(self.names, others))

    def _rescaled(self, factor: Array, offset: Array) -> Gaussian:
        cov = factor**2 if self.cov is None else widen(self.cov)
        if self.cov is not None:
            cov = cov * factor**2 if len(cov.shape) == 1 else cov * factor * factor[:, None]
        return replace(self, mean=offset + factor * widen(self.mean), cov=cov, neutral=False)

    @property
    def covariance(self) -> Array:
        """The covariance as a (d, d) matrix, whatever its stored form."""
        if self.cov is not None and len(self.cov.shape) == 2:
            return self.cov
        return self._variances()[:, None] * eye(self.dim, self.mean)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of mean and covariance, to recognise the inputs a saved polynomial was fitted under."""
        return digest(self.mean, self.cov)

    def to(self, like: Array) -> Gaussian:
        """Move mean and covariance to the array library, dtype and device of `like`; 16 bits give float32."""
        return replace(super().to(like), neutral=False, sample_dtype=None)


def _checked_covariance(cov: Array, mean: Array) -> Array:
    d = mean.shape[0]
    xp = namespace(mean=mean, cov=cov)
    if len(cov.shape) == 1:
        check_shape("cov", cov, (d,), "a diagonal with one variance per entry of mean")
    else:
        check_shape("cov", cov, (d, d), "a square matrix over the entries of mean")
    check_finite("cov", cov)
    eps = float(xp.finfo(cov.dtype).eps)
    (cov,) = promote(cov)  # 16-bit matrices have no Cholesky factor
    if not readable(cov):
        return cov
    if len(cov.shape) == 1:
        if bool(xp.any(cov < 0)):
            raise ValueError("cov has a negative variance; a diagonal covariance must be >= 0.")
        return cov
    size = scalar(xp.max(xp.abs(xp.linalg.diagonal(cov)))) if d else 0.0
    skew = scalar(xp.max(xp.abs(cov - cov.T)))
    if skew > 100 * eps * max(size, skew / 2):
        raise ValueError(f"cov is not symmetric (entries differ by {skew:.2e}); use (cov + cov.T) / 2.")
    # Rounding leaves eigenvalues of a true covariance negative by about eps times its norm, which is at most d * size.
    if not positive_semidefinite(astype(cov, cov.dtype), 4 * eps * d * size + float(xp.finfo(cov.dtype).tiny)):
        lowest = scalar(xp.min(xp.linalg.eigvalsh(cov)))
        remedy = "estimate it with Gaussian.from_samples, or clip its negative eigenvalues"
        raise ValueError(f"cov is not positive semidefinite (lowest eigenvalue {lowest:.2e}); {remedy}.")
    return cov
