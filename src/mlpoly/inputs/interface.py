"""The interface of all input distributions."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mlpoly.arrays import Array, namespace, namespace_of, readable, safe_inverse
from mlpoly.arrays.checks import as_float_array, as_integer, check_finite, check_shape
from mlpoly.arrays.placement import cast_like, on, promote, take_rows, to_numpy, widen
from mlpoly.inputs.coordinates import rounding_floor
from mlpoly.records import map_arrays
from mlpoly.tables import Table, Tabular

if TYPE_CHECKING:
    from mlpoly.inputs.gaussian import Gaussian
    from mlpoly.inputs.samples import Samples

T = TypeVar("T", bound="Inputs")
G = TypeVar("G", bound="Gaussians")

_REMEMBERED = 2**20  # numbers of the data that are kept beside an estimated distribution


class Inputs(Tabular, ABC):
    """A distribution of d inputs x, with `mean` (d,) and, if they have any, `names`, which label terms and plots.

    `neutral` ones belong to no array library: fits and measures move them to that of their function.
    """

    mean: Array  # a field of some classes, a property of others
    names: tuple[str, ...] | None = None
    neutral: bool = False

    @property
    @abstractmethod
    def covariance(self) -> Array:
        """Covariance as a matrix, (d, d)."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the numbers, to recognise the inputs that a saved polynomial was fitted under."""

    @property
    def dim(self) -> int:
        """Number of inputs d."""
        return int(self.prototype.shape[-1])

    @property
    def prototype(self) -> Array:
        """One of the stored arrays, which shows library, dtype and device."""
        return self.mean

    @cached_property
    def root(self) -> Array:
        """Symmetric square root of the covariance: (d, d), or (d,) where that is diagonal."""
        xp = namespace_of(self.covariance)
        values, vectors = xp.linalg.eigh(widen(self.covariance))  # in float32 it fails on covariances of low rank
        return cast_like((vectors * xp.sqrt(xp.clip(values, 0, None))) @ vectors.T, self.covariance)

    def _variances(self) -> Array:
        """Variance of each input, (d,)."""
        return namespace_of(self.covariance).linalg.diagonal(self.covariance)

    def _table(self) -> Table:
        names = self.names or [f"x{i}" for i in range(self.dim)]
        mean, variance = to_numpy(self.mean).tolist(), to_numpy(self._variances()).clip(min=0)
        rows = tuple(zip(names, mean, (variance**0.5).tolist(), strict=True))
        return Table(("input", "mean", "standard deviation"), rows, repr(self), limit=10)

    def __str__(self) -> str:
        return repr(self)

    @cached_property
    def inverse_root(self) -> Array:
        """Pseudo-inverse of `root`, in its form: (d, d), or (d,) where the covariance is diagonal."""
        root = widen(self.root)
        if len(root.shape) == 1:
            return cast_like(safe_inverse(root), self.root)
        xp = namespace_of(root)
        values, vectors = xp.linalg.eigh(root)
        floor = rounding_floor(self.root, root, self.dim) ** 0.5 * xp.max(values)
        return cast_like((vectors * safe_inverse(xp.where(values > floor, values, 0.0))) @ vectors.T, self.root)

    @abstractmethod
    def sample(self, n: int, seed: int | Sequence[int] = 0) -> Array:
        """Draw n samples, (n, d); the same seed gives the same samples on every array library."""

    def points(self, n: int, seed: int = 0) -> Samples:
        """At least n points that stand for the distribution: its samples, or better ones that it has."""
        from mlpoly.inputs.samples import Samples  # a kind of inputs itself

        return Samples(self.sample(n, seed), names=self.names)

    def projection_moments(self, directions: Array, order: int) -> Array:
        """Moments E[((w.x - E w.x) / s)^k] (order + 1, h), k = 0, ..., order, with s the standard deviation of w.x.

        The `directions` (h, d) have one w in each row; from k = 1 on the moments are zero where w.x does not vary.
        """
        directions = as_float_array("directions", directions)
        namespace(directions=directions, inputs=self.prototype)
        check_shape("directions", directions, (None, self.dim), "directions in rows, over the inputs")
        check_finite("directions", directions)
        return cast_like(self._moments(widen(directions), as_integer("order", order, 0)), self.mean)

    @abstractmethod
    def _moments(self, directions: Array, order: int) -> Array:
        """`projection_moments` of checked directions (h, d), in the widest precision."""

    def in_units(self: T, scale: Any, shift: Any = 0.0) -> T:
        """The distribution of shift + scale x: the inputs in other units.

        ``in_units(scaler.scale_, scaler.mean_)`` of inputs that a ``StandardScaler`` standardised leads back to the
        original ones; both are a float or an array (d,).
        """
        factor, offset = unit_arrays(scale, shift, self.dim, self.prototype)
        return self._rescaled(factor, offset)

    def _rescaled(self: T, factor: Array, offset: Array) -> T:
        """The distribution of offset + factor x, for arrays (d,) in the widest precision."""
        raise TypeError(f"{type(self).__name__} cannot be converted to other units.")

    def to(self: T, like: Array) -> T:
        """The same inputs in the array library, dtype and device of `like`; 16 bits give float32."""
        (like,) = promote(like)
        return map_arrays(self, lambda a: on(a, like))


class Gaussians(Inputs):
    """Inputs made of Gaussians, with `weights` (c,) that add up to one: a single one, or a mixture.

    `rows` (m, d) are some of the data that it was estimated from, if it was: closed forms are compared with them. They
    are no field, so that whatever is made from these inputs by a change does not have them.
    """

    weights: Array
    rows: Array | None = None

    def remember(self: G, data: Array) -> G:
        """The same inputs with evenly spaced rows of the data (n, d) that they were estimated from."""
        n, d = data.shape
        count = min(n, max(256, min(8192, _REMEMBERED // d)))
        object.__setattr__(self, "rows", take_rows(data, np.linspace(0, n - 1, count).round().astype(int)))
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "rows"}  # a pickle holds no data of a user

    @property
    @abstractmethod
    def components(self) -> tuple[Gaussian, ...]:
        """The c Gaussians."""

    def _moments(self, directions: Array, order: int) -> Array:
        xp, weights = namespace_of(directions), widen(self.weights)
        gaps = xp.stack([directions @ (widen(g.mean) - widen(self.mean)) for g in self.components])  # (c, h)
        spreads = [xp.vecdot(widen(g.times_covariance(directions)), directions) for g in self.components]
        variances = xp.clip(xp.stack(spreads), 0, None)
        inverse = safe_inverse(xp.sqrt(weights @ (gaps**2 + variances)))
        gaps, variances = gaps * inverse, variances * inverse**2
        powers = [xp.ones_like(gaps), gaps]
        for k in range(2, order + 1):
            powers.append(gaps * powers[k - 1] + (k - 1) * variances * powers[k - 2])  # of N(gap, variance), by parts
        return xp.stack([weights @ power for power in powers[: order + 1]])


def unit_arrays(scale: Any, shift: Any, dim: int, like: Array) -> tuple[Array, Array]:
    """Check scale and shift of a change of units; return them as arrays (dim,) in the widest precision."""
    arrays = []
    for name, value in (("scale", scale), ("shift", shift)):
        a = on(widen(as_float_array(name, value, integers=True)), widen(like))
        if len(a.shape) == 0:
            a = namespace_of(a).broadcast_to(a, (dim,)) + 0
        check_shape(name, a, (dim,), "one number, or one per input")
        check_finite(name, a)
        arrays.append(a)
    factor, offset = arrays
    if readable(factor) and bool(namespace_of(factor).any(factor == 0)):
        raise ValueError("scale has a zero; an input in units of zero has no value, so use 1 for constant inputs.")
    return factor, offset


def digest(*arrays: Array | None) -> str:
    """SHA-256 of arrays, with their dtypes and shapes."""
    made = hashlib.sha256()
    for part in arrays:
        a = np.zeros(0) if part is None else np.ascontiguousarray(to_numpy(part))
        made.update(f"{a.dtype.str}{a.shape}".encode())
        made.update(a.tobytes())
    return made.hexdigest()
