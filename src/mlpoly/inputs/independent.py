"""Inputs that are no Gaussians: independent ones with any marginals, or joined by a Gaussian copula (MATH 18)."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from mlpoly.arrays import Array, namespace_of
from mlpoly.arrays.checks import as_float_array, as_integer, check_finite, check_names, check_shape
from mlpoly.arrays.placement import cast_like, constant, eye, promote, to_numpy, widen
from mlpoly.inputs.interface import Inputs, digest
from mlpoly.inputs.marginal import marginal_of
from mlpoly.inputs.samples import Samples
from mlpoly.records import record, replace, static

_GRID = 2**18  # nodes of the largest grid
SPARE = 4  # nodes of each input beyond the degree, at least


@record
class Independent(Inputs):
    """Inputs with given marginals, independent, or with the dependence of a Gaussian copula.

    Parameters
    ----------
    marginals : sequence of frozen SciPy distributions, or mapping from name to distribution
        One for each input, such as ``scipy.stats.uniform(-1, 2)``; any object with quantiles `ppf` and `isf` works.
        They are continuous, and have a finite variance.
    copula : array (d, d), optional
        Correlation matrix of normal scores z: input i is the monotone function of z_i that has its marginal. By
        default the inputs are independent.
    names : sequence of d str, optional
        By default the keys of a mapping.

    Attributes
    ----------
    marginals : tuple of Marginal
        The laws of (x_i - center_i) / scale_i.
    center, scale : array (d,)
        Means and standard deviations of the marginals; the scale is negative where units were turned round.

    Examples
    --------
    >>> import mlpoly as mp
    >>> from scipy import stats
    >>> inputs = mp.Independent({"load": stats.lognorm(0.5), "length": stats.uniform(1, 2)})
    >>> inputs.names, inputs.mean.round(6).tolist()
    (('load', 'length'), [1.133148, 2.0])
    """

    marginals: Any = static()
    copula: Array | None = None
    names: tuple[str, ...] | None = static(default=None)
    center: Array = None
    scale: Array = None
    neutral: bool = static(default=True)

    def __init__(
        self,
        marginals: Sequence[Any] | Mapping[str, Any],
        copula: Array | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if isinstance(marginals, Mapping):
            names = list(marginals) if names is None else names
            marginals = list(marginals.values())
        if not isinstance(marginals, Sequence) or not len(marginals):
            raise TypeError(
                "marginals must be a sequence, or a mapping from names, of frozen distributions such as "
                f"scipy.stats.uniform(-1, 2), got {marginals!r:.60}."
            )
        laws = []
        for i, marginal in enumerate(marginals):
            try:
                laws.append(marginal_of(marginal))
            except (TypeError, ValueError) as error:
                label = i if names is None else repr(names[i])
                raise type(error)(f"marginal {label} cannot be used: {error}.") from None
        center, scale = (np.array([law[k] for law in laws]) for k in (1, 2))
        if copula is not None:
            copula = _checked_copula(copula, len(laws))
            copula, center = promote(copula, constant(center, copula))
            scale = constant(scale, copula)
        values = {
            "marginals": tuple(law[0] for law in laws),
            "copula": copula,
            "names": check_names(names, len(laws)),
            "center": center,
            "scale": scale,
            "neutral": copula is None or isinstance(copula, np.ndarray),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def mean(self) -> Array:
        """Means (d,)."""
        return self.center

    @property
    def prototype(self) -> Array:
        """The means."""
        return self.center

    def __repr__(self) -> str:
        return f"Independent(dim={self.dim}{'' if self.copula is None else ', joined by a Gaussian copula'})"

    @cached_property
    def covariance(self) -> Array:
        """Covariance (d, d); under a copula by the Hermite series of the marginals (Mehler's formula)."""
        scale = widen(self.scale)
        if self.copula is None:
            return cast_like(eye(self.dim, scale) * scale**2, self.center)
        series = constant(np.stack([law.series for law in self.marginals]), scale)  # (d, n)
        R, like = widen(self.copula), eye(self.dim, scale)
        total, power = like * 0, like * 0 + 1
        for n in range(1, series.shape[1]):
            power = power * R
            total = total + power * series[:, n] * series[:, n][:, None]
        total = total * (1 - like) + like  # the series of a variance is known: it is one
        return cast_like(total * scale * scale[:, None], self.center)

    def _variances(self) -> Array:
        return self.scale**2

    def _at(self, scores: np.ndarray) -> Array:
        """Inputs (n, d) at normal scores (n, d) of NumPy."""
        columns = [law.at(scores[:, i]) for i, law in enumerate(self.marginals)]
        return self.center + self.scale * constant(np.stack(columns, axis=1), self.center)

    def _joined(self, noise: np.ndarray) -> np.ndarray:
        """Normal scores with the correlations of the copula, from independent ones (n, d)."""
        if self.copula is None:
            return noise
        values, vectors = np.linalg.eigh(to_numpy(widen(self.copula)))
        return noise @ (vectors * np.sqrt(values.clip(0))) @ vectors.T

    def sample(self, n: int, seed: int | Sequence[int] = 0) -> Array:
        """Draw n samples (n, d); the same seed gives the same samples on every array library."""
        n = as_integer("n", n, 1)
        return self._at(self._joined(np.random.default_rng(seed).standard_normal((n, self.dim))))

    def points(self, n: int, seed: int = 0) -> Samples:
        """Quasi-random points, at least n: scrambled Sobol' points, mapped to the inputs."""
        from scipy.stats import qmc  # takes longer to import than the rest of this package

        uniform = qmc.Sobol(self.dim, rng=np.random.default_rng(seed)).random_base2(max(1, (n - 1).bit_length()))
        inside = uniform.clip(2.0**-33, 1 - 2.0**-33)
        return Samples(self._at(self._joined(ndtri(inside))), names=self.names)

    def grid(self, size: int, degree: int) -> Samples:
        """Nodes and weights (size^d,) for functions times polynomials of a degree, of independent inputs."""
        rules = {law: law.rule(size, degree) for law in dict.fromkeys(self.marginals)}
        parts = [np.meshgrid(*(rules[law][k] for law in self.marginals), indexing="ij") for k in (0, 1)]
        u, weights = np.stack([a.ravel() for a in parts[0]], axis=1), np.prod([a.ravel() for a in parts[1]], axis=0)
        like = self.center
        return Samples(like + self.scale * constant(u, like), constant(weights, widen(like)), names=self.names)

    def check_degree(self, degree: int) -> None:
        """Raise if polynomials of a degree have no variance under some marginal, or none that floats can hold."""
        for i, law in enumerate(self.marginals):
            try:
                law.recurrence(degree)
            except ValueError as error:
                label = f"input {i}" if self.names is None else repr(self.names[i])
                remedy = "use a lower degree, or a network of its logarithm"
                raise ValueError(f"degree {degree} is too high for {label}: {error}; {remedy}.") from None

    def finest(self, degree: int) -> int:
        """Nodes of each input on the finest grid of moderate size; 0 if it could not serve polynomials of a degree."""
        most = int(_GRID ** (1 / self.dim) + 1e-9)
        return most if self.copula is None and most >= degree + SPARE else 0

    def _rescaled(self, factor: Array, offset: Array) -> "Independent":
        return replace(self, center=offset + factor * widen(self.center), scale=factor * widen(self.scale))

    def _moments(self, directions: Array, order: int) -> Array:
        if self.copula is not None:
            raise TypeError("projections under a copula have no moments in closed form; use mlpoly.Samples(x).")
        xp, spread = namespace_of(directions), directions * widen(self.scale)
        length = xp.sqrt(xp.sum(spread**2, axis=1))
        unit = spread / xp.where(length > 0, length, 1.0)[:, None]
        each = constant(np.stack([law.moments(order) for law in self.marginals]), spread)
        total = [length * 0 + 1] + [length * 0] * order
        for i in range(self.dim):  # the moments of a sum with one more independent term
            term = [each[i, j] * unit[:, i] ** j for j in range(order + 1)]
            total = [sum(math.comb(k, j) * total[k - j] * term[j] for j in range(k + 1)) for k in range(order + 1)]
        moving = xp.where(length > 0, 1.0, 0.0)
        return xp.stack([total[0], *(moment * moving for moment in total[1:])])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the marginals' quantiles, means, standard deviations and copula."""
        scores = np.arange(-6.0, 6.5, 0.5)
        quantiles = np.stack([law.at(scores) for law in self.marginals])
        return digest(quantiles, self.center, self.scale, self.copula)

    def to(self, like: Array) -> "Independent":
        """The same inputs in the array library, dtype and device of `like`; 16 bits give float32."""
        return replace(super().to(like), neutral=False)


def _checked_copula(copula: Any, dim: int) -> Array:
    R = as_float_array("copula", copula)
    check_shape("copula", R, (dim, dim), "a correlation matrix of the inputs' normal scores")
    check_finite("copula", R)
    values = to_numpy(widen(R))
    if np.abs(np.diag(values) - 1).max() > 1e-6 or np.abs(values - values.T).max() > 1e-6:
        raise ValueError("copula must be a correlation matrix: symmetric, with ones on its diagonal.")
    if np.linalg.eigvalsh(values).min() < -1e-6:
        raise ValueError("copula is not positive semidefinite, so that no normal scores have these correlations.")
    return R
