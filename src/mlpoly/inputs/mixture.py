"""A mixture of Gaussians."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mlpoly.arrays import Array, namespace, namespace_of, readable
from mlpoly.arrays.checks import as_float_array, as_integer, check_finite, check_names, check_shape, column_names
from mlpoly.arrays.placement import astype, constant, promote, rounding_error, take_rows, to_numpy, widen
from mlpoly.extras import library
from mlpoly.inputs.accumulator import MomentAccumulator
from mlpoly.inputs.conditioning import Given, check_possible, known_inputs, posterior
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.inputs.interface import Gaussians
from mlpoly.records import record, replace, static, trusted


@record
class GaussianMixture(Gaussians):
    """x ~ sum_c weights_c N(means_c, covs_c); covariances may be singular, and `sample_dtype` is as in `Gaussian`.

    Parameters
    ----------
    weights : array (c,)
        Not negative, summing to one.
    means : array (c, d)
    covs : None or array
        None is the identity; (c, d, d) full; (c, d) diagonal; (d, d) or (d,) shared by all components.
    shared : bool, optional
        Whether `covs` is one covariance for all components, where c = d makes (d, d) ambiguous.
    names : sequence of d str, optional
        Names of the inputs.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mix = mp.GaussianMixture(np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.array([[1.0], [2.0]]))
    >>> mix.covariance.tolist()
    [[2.5]]
    """

    weights: Array
    means: Array
    covs: Any = None
    shared: bool | None = static(default=None)
    sample_dtype: Any = static(default=None)
    names: tuple[str, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        weights, means = as_float_array("weights", self.weights), as_float_array("means", self.means)
        check_shape("weights", weights, (None,), "one weight per component")
        check_shape("means", means, (weights.shape[0], None), "one row per weight")
        if means.shape[1] == 0:
            raise ValueError("means has no columns; a mixture needs at least one input.")
        check_finite("means", means)
        weights = _checked_weights(weights)
        covs, shared, (c, d) = None, bool(self.shared), means.shape
        if self.covs is None:
            namespace(weights=weights, means=means)
            weights, means = promote(weights, means)
        else:
            covs = as_float_array("covs", self.covs)
            namespace(weights=weights, means=means, covs=covs)
            weights, means, covs = promote(weights, means, covs)
            shape = tuple(covs.shape)
            if self.shared is None:
                if shape == (d, d) == (c, d) and c > 1:
                    either = f"may be one shared matrix or {c} diagonals; pass shared=True or shared=False"
                    raise ValueError(f"covs of shape {shape} with {c} components of dimension {d} {either}.")
                shared = shape in ((d, d), (d,))
            if not shared:
                meaning = "one covariance per component, (c, d, d) or diagonals (c, d)"
                check_shape("covs", covs, (c, d) if len(shape) == 2 else (c, d, d), meaning)
            # Symmetry and definiteness of every covariance, by building the Gaussians once.
            for i in range(1 if shared else c):
                try:
                    Gaussian(means[i, ...], covs if shared else covs[i, ...])
                except ValueError as error:
                    raise ValueError(f"covs, component {i}: {error}") from None
        names = check_names(self.names, d)
        made = {"weights": weights, "means": means, "covs": covs, "shared": shared, "names": names}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, weights: Array, components: Sequence[Gaussian]) -> "GaussianMixture":
        """Mixture of existing Gaussians; nothing is checked twice."""
        weights = as_float_array("weights", weights)
        check_shape("weights", weights, (len(components),), "one weight per component")
        weights = _checked_weights(weights)
        if len({g.dim for g in components}) > 1:
            raise ValueError(f"components have different dimensions: {[g.dim for g in components]}.")
        xp = namespace(weights=weights, **{f"component_{i}": g.mean for i, g in enumerate(components)})
        means = xp.stack(promote(*[g.mean for g in components]))
        covs, first = tuple(g.cov for g in components), components[0]  # components may differ in form
        weights, dtype = astype(weights, means.dtype), first.sample_dtype
        return trusted(
            cls, weights=weights, means=means, covs=covs, shared=False, sample_dtype=dtype, names=first.names
        )

    @classmethod
    def from_labels(
        cls, samples: Array, labels: Array, shrinkage: float | str = 0.0, names: Sequence[str] | None = None
    ) -> "GaussianMixture":
        """One Gaussian per class: weights from counts, population means and covariances.

        Parameters
        ----------
        samples : array (n, d) or data frame
        labels : integer or text array (n,)
            Any integers or strings; a class of one sample gets covariance zero. The components are in the order of
            ``np.unique(labels)``.
        shrinkage, names
            As in `Gaussian.from_samples`, for each class; so are the dtypes.
        """
        names = column_names(samples) if names is None else names
        samples = as_float_array("samples", samples, integers=True)
        check_shape("samples", samples, (None, None), "n samples of d inputs")
        classes = as_labels(labels, samples.shape[0])
        groups = {
            label: MomentAccumulator(samples.shape[1]).update(take_rows(samples, np.flatnonzero(classes == label)))
            for label in np.unique(classes).tolist()
        }
        names = check_names(names, samples.shape[1])
        return replace(cls.from_accumulators(groups, shrinkage), names=names).remember(samples)

    @classmethod
    def from_accumulators(
        cls, accumulators: dict[Any, MomentAccumulator], shrinkage: float | str = 0.0
    ) -> "GaussianMixture":
        """Mixture from streamed moments, one accumulator per component; empty ones are left out."""
        used = [a for a in accumulators.values() if a.count]
        if not used:
            raise ValueError("accumulators hold no samples yet: call update(batch) on them first.")
        components = [a.gaussian(shrinkage=shrinkage) for a in used]
        total = sum(a.count for a in used)
        return cls.of(constant([a.count / total for a in used], components[0].mean), components)

    @classmethod
    def from_samples(cls, samples: Array, components: int, seed: int = 0, **options: Any) -> "GaussianMixture":
        """Mixture found by expectation maximisation (scikit-learn's GaussianMixture, which receives `options`)."""
        sklearn = library("sklearn.mixture", "scikit-learn", "GaussianMixture.from_samples")
        if "shrinkage" in options:
            raise TypeError("shrinkage is an option of from_labels; scikit-learn's GaussianMixture has reg_covar=.")
        names = column_names(samples)
        samples = as_float_array("samples", samples, integers=True)
        check_shape("samples", samples, (None, None), "n samples of d inputs")
        components = as_integer("components", components, 1)
        if components > samples.shape[0]:
            raise ValueError(f"components is {components}, but there are only {samples.shape[0]} samples.")
        options = {"covariance_type": "full", "random_state": seed, **options}
        wide = widen(samples)
        model = sklearn.GaussianMixture(components, **options).fit(to_numpy(wide))
        kind = options["covariance_type"]
        if kind not in ("diag", "full", "tied"):
            raise ValueError(f"covariance_type must be one of ['diag', 'full', 'tied'], got {kind!r}.")
        parts = (model.weights_ / model.weights_.sum(), model.means_, model.covariances_)
        weights, means, covs = (constant(a, wide) for a in parts)
        return cls(weights, means, covs, kind == "tied", samples.dtype, names).remember(samples)

    @cached_property
    def components(self) -> tuple[Gaussian, ...]:
        """The components as Gaussians."""
        one, count = self.covs is None or self.shared, self.means.shape[0]
        covs = [self.covs if one else self.covs[c] for c in range(count)]
        return tuple(trusted(Gaussian, mean=self.means[c, ...], cov=covs[c], names=self.names) for c in range(count))

    @property
    def prototype(self) -> Array:
        """The means."""
        return self.means

    def _variances(self) -> Array:
        gaps = self.means - self.mean
        return self.weights @ (namespace_of(gaps).stack([g._variances() for g in self.components]) + gaps**2)

    def __repr__(self) -> str:
        return f"GaussianMixture(components={self.weights.shape[0]}, dim={self.dim})"

    @cached_property
    def mean(self) -> Array:
        """Mean of the whole mixture, (d,)."""
        return self.weights @ self.means

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the whole mixture, (d, d): within the components plus between their means."""
        gaps = self.means - self.mean
        total = (gaps * self.weights[:, None]).T @ gaps
        for i, g in enumerate(self.components):
            total = total + self.weights[i] * g.covariance
        return total

    def sample(self, n: int, seed: int | Sequence[int] = 0, return_labels: bool = False) -> Any:
        """Draw n samples (n, d), with `return_labels` also the component of each (n,), as NumPy integers."""
        n = as_integer("n", n, 1)
        rng = np.random.default_rng(seed)
        weights = to_numpy(self.weights).astype(float)
        labels = rng.choice(len(weights), size=n, p=weights / weights.sum())
        noise = constant(rng.standard_normal((n, self.dim)), self.means)
        order = np.argsort(labels, kind="stable")
        parts = [
            g.colour(take_rows(noise, np.flatnonzero(labels == c)))
            for c, g in enumerate(self.components)
            if (labels == c).any()
        ]
        drawn = take_rows(namespace_of(noise).concat(parts), np.argsort(order, kind="stable"))
        drawn = drawn if self.sample_dtype is None else astype(drawn, self.sample_dtype)
        return (drawn, labels) if return_labels else drawn

    def condition(self, known: Mapping[int | str, float]) -> "GaussianMixture":
        """The mixture of all other inputs, given the values of some by index or name; its weights change."""
        places, values = known_inputs(known, self)
        given = [Given(g, places) for g in self.components]
        check_possible("known", given, values[None, :])
        weights = posterior(widen(self.weights), given, values[None, :])[0, :]
        kept = np.flatnonzero(to_numpy(weights > 0))
        pairs = {i: float(v) for i, v in zip(places.tolist(), to_numpy(values), strict=True)}
        parts = [self.components[c].condition(pairs) for c in kept.tolist()]
        return replace(GaussianMixture.of(take_rows(weights, kept), parts), sample_dtype=self.sample_dtype)

    def _rescaled(self, factor: Array, offset: Array) -> "GaussianMixture":
        parts = [g._rescaled(factor, offset) for g in self.components]
        return replace(GaussianMixture.of(widen(self.weights), parts), sample_dtype=self.sample_dtype)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of weights and components."""
        parts = [to_numpy(self.weights).tobytes(), *(g.fingerprint.encode() for g in self.components)]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def to(self, like: Array) -> "GaussianMixture":
        """The same mixture in the array library, dtype and device of `like`; 16 bits give float32."""
        return replace(super().to(like), sample_dtype=None)


def as_labels(labels: Any, length: int) -> np.ndarray:
    """Check labels, integers or text, and return them as a NumPy vector of the given length."""
    vector = to_numpy(labels) if hasattr(labels, "shape") else np.asarray(labels)
    if vector.dtype.kind == "O" and all(isinstance(label, str) for label in vector.flat):  # a column of a data frame
        vector = vector.astype(str)
    if vector.dtype.kind not in "iubUS":
        remedy = "labels.astype(int)" if vector.dtype.kind == "f" else "np.unique(labels, return_inverse=True)[1]"
        raise TypeError(f"labels must be integers or text, got dtype {vector.dtype}; use {remedy}.")
    if vector.shape != (length,):
        raise ValueError(f"labels have shape {vector.shape}, expected ({length},): one label per sample.")
    return vector


def _checked_weights(weights: Array) -> Array:
    """Check weights, and return them with a sum of one to the precision of their dtype."""
    check_finite("weights", weights)
    if not readable(weights):
        return weights
    eps = float(namespace_of(weights).finfo(weights.dtype).eps)
    (weights,) = promote(weights)  # their sum must be one to more than three digits
    values = to_numpy(weights).astype(float)
    if (values < 0).any():
        raise ValueError(f"weights must not be negative, lowest is {values.min():.3g}.")
    total = float(values.sum())
    # Stored weights sum to one only within their own rounding.
    if abs(total - 1) > max(1e-5, eps):
        raise ValueError(f"weights sum to {total:.6g}, expected 1; divide them by their sum.")
    # Weights that have been divided stay as they are, to the last bit.
    return weights if abs(total - 1) <= len(values) * rounding_error(weights) else weights / total
