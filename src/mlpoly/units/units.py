"""Hidden units under a Gaussian (MATH 1, 2, 5), the only place where weights meet a covariance.

A unit sees x through w_i.x = shift_i + scale_i t_i with t_i standard normal. The second factor of a gated unit splits
into what t_i explains and what it does not: v_i.x = shift_i + slope_i t_i + e_i. So any function of the two forms is
P_i(t_i) + e_i Q_i(t_i), with e_i independent of t_i.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import Array, chunks, differentiated, interchangeable, namespace, no_gradients, quadratic_forms
from mlpoly.arrays.gaps import add_product, safe_inverse, safe_root, stop_gradient
from mlpoly.arrays.namespace import decidable, on_cpu, readable
from mlpoly.arrays.placement import cast_like, promote, rounding_error, to_numpy, widen
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.networks import Forms, Layer
from mlpoly.records import record, replace
from mlpoly.special import times_line
from mlpoly.units.series import Series

T = TypeVar("T")

_ROWS = 2048  # rows of W at a time: a product of this size runs at full speed, and its buffer stays small


@record
class Gate:
    """Second factors of gated units: v_i.x = shift_i + slope_i t_i + e_i, with e_i independent of t_i."""

    directions: Array  # (h, d), the v_i
    shifts: Array  # (h,), means of v_i.x
    slopes: Array  # (h,), regression of v_i.x on t_i
    bias: Array = None  # (h,), which the network adds to v_i.x; zero by default
    spreads: Array = None  # (h,), standard deviations of e_i, if requested

    def __post_init__(self) -> None:
        _without_none(self)

    @property
    def means(self) -> Array:
        """Means (h,) of the factors v_i.x + c_i."""
        return self.shifts + self.bias


@record
class Units:
    """Hidden units under a Gaussian: w_i.x = shift_i + scale_i t_i, with t_i standard normal."""

    directions: Array  # (h, d), the w_i
    shifts: Array  # (h,), means of w_i.x
    scales: Array  # (h,), standard deviations of w_i.x; zero marks a constant unit, whose t_i is zero
    bias: Array = None  # (h,), which the network adds to w_i.x before the activation; zero by default
    gate: Gate | None = None  # second factors, for gated units

    def __post_init__(self) -> None:
        _without_none(self)

    @classmethod
    def under(cls, layer: "Layer | Units", inputs: Gaussian, spreads: bool = False) -> "Units":
        """Units of a layer under a Gaussian; everything of size h is in float64 where the library has it.

        The one product with the covariance per chunk of rows, W S, serves both s_i^2 = w_i' S w_i and w_i' S v_i; what
        needs only the former takes half of it. So do the `spreads` of a gate. Raises a ValueError where means or
        standard deviations overflow.
        """
        forms = layer.forms
        xp = namespace(weights=forms.directions, inputs=inputs.mean)
        # About the largest standard deviation of an input, as a power of two.
        size = _power_of_two(xp.sqrt(xp.max(inputs._variances())))
        first = _Rows(forms.directions, size)
        gates = None if forms.gate_directions is None else _Rows(forms.gate_directions, size)
        scales, shifts, gate_shifts, cross, second = [], [], [], [], []
        for part in chunks(first.weights.shape[0], _ROWS if on_cpu(first.weights) else 4 * _ROWS):
            rows, scale = first[part]
            shifts.append(_product(_times_mean(rows, inputs.mean), scale))
            if gates is None:
                scales.append(_product(safe_root(widen(_quadratic_forms(rows, inputs))), scale))
                continue
            spread = inputs.times_covariance(rows)
            scales.append(_product(safe_root(widen(_dots(spread, rows))), scale))
            others, other_scale = gates[part]
            gate_shifts.append(_product(_times_mean(others, inputs.mean), other_scale))
            cross.append(_product(_dots(spread, others), scale, other_scale))
            if spreads:
                second.append(_product(safe_root(widen(_quadratic_forms(others, inputs))), other_scale))
        means, widths = xp.concat(shifts), xp.concat(scales)
        limits = xp.finfo(promote(forms.directions)[0].dtype)
        if readable(widths) and not bool(xp.all((widths <= float(limits.max)) & (xp.abs(means) <= float(limits.max)))):
            raise ValueError(
                f"preactivations w.x under these inputs are too large for {forms.directions.dtype}; scale the first "
                f"weights or the inputs down, or use float64."
            )
        widths = xp.where(widths >= float(limits.smallest_normal), widths, 0.0)  # where their inverse overflows
        widths = _tiny_without_weights(widths, forms.directions)
        made = cls(forms.directions, means, widths, forms.bias)
        if gates is None:
            return made
        slopes = xp.concat(cross) * safe_inverse(made.scales)  # r_i = Cov(v_i.x, w_i.x) / s_i (MATH 2)
        left = None
        if spreads:
            left = _tiny_without_weights(safe_root(xp.concat(second) ** 2 - slopes**2), forms.gate_directions)
        return replace(made, gate=Gate(gates.weights, xp.concat(gate_shifts), slopes, forms.gate_bias, left))

    @classmethod
    def pooled(cls, layer: Layer, inputs: GaussianMixture) -> "tuple[Units, list[Units]]":
        """Units of a layer under a mixture, by the law of total covariance, and those under each component.

        A spread below the relative rounding error of the moments counts as zero.
        """
        weights, parts = widen(inputs.weights), [cls.under(layer, g, spreads=True) for g in inputs.components]
        rounding = rounding_error(promote(layer.prototype, inputs.means)[0])

        def total(values: Sequence[Array]) -> Array:
            return sum((weights[c] * value for c, value in enumerate(values)), start=0.0)

        shifts = total([u.shifts for u in parts])
        gaps = [u.shifts - shifts for u in parts]
        scales = safe_root(total([u.scales**2 + gap**2 for u, gap in zip(parts, gaps, strict=True)]))
        made = cls(parts[0].directions, shifts, scales, parts[0].bias)
        gates = [u.gate for u in parts if u.gate is not None]
        if not gates:
            return made, parts
        xp = namespace(weights=weights)
        gate_shifts = total([g.shifts for g in gates])
        gate_gaps = [g.shifts - gate_shifts for g in gates]
        pairs = list(zip(parts, gates, gaps, gate_gaps, strict=True))
        slopes = total([u.scales * g.slopes + gap * other for u, g, gap, other in pairs]) * safe_inverse(scales)
        variance = total([g.spreads**2 + g.slopes**2 + other**2 for _, g, _, other in pairs])
        left = variance - slopes**2
        left = safe_root(xp.where(left > 100 * rounding * variance, left, 0.0))
        gate = Gate(gates[0].directions, gate_shifts, slopes, gates[0].bias, left)
        return replace(made, gate=gate), parts

    @property
    def forms(self) -> Forms:
        """The linear forms that enter the units."""
        gate = self.gate
        if gate is None:
            return Forms(self.directions, self.bias)
        return Forms(self.directions, self.bias, gate.directions, gate.bias)

    def sees(self, other: "Units") -> bool:
        """Whether the linear forms are those of other units, also in gradients; these may have gates besides."""
        pairs = [(self.directions, other.directions)]
        if other.gate is not None:
            if self.gate is None:
                return False
            pairs.append((self.gate.directions, other.gate.directions))
        return all(interchangeable(a, b) for a, b in pairs)

    def beside(self, other: "Units") -> "Units":
        """The units of both, under the same Gaussian; where one has no gates it gets second factors of zero."""
        gate = None
        if self.gate is not None or other.gate is not None:
            gates = []
            for u in (self, other):
                flat = u.shifts * 0
                gates.append(Gate(u.directions * 0, flat, flat, None, flat) if u.gate is None else u.gate)
            gate = _joined(*gates)
        return replace(_joined(replace(self, gate=None), replace(other, gate=None)), gate=gate)

    def precomposed(self, factors: Array, offset: Array) -> "Units":
        """The same units as functions of x, where they now see factors * x + offset, for arrays (d,)."""
        gate = None if self.gate is None else _precomposed(self.gate, factors, offset)
        return replace(_precomposed(self, factors, offset), gate=gate)

    @property
    def size(self) -> int:
        """Number of hidden units h."""
        return int(self.directions.shape[0])

    @property
    def means(self) -> Array:
        """Means (h,) of the preactivations w_i.x + b_i."""
        return self.shifts + self.bias

    @property
    def inverse_scales(self) -> Array:
        """1 / scales (h,), and 0 for constant units."""
        return safe_inverse(promote(self.scales)[0])

    def standardise(self, y: Array) -> Array:
        """The t (..., h) of linear forms y = w.x (..., h)."""
        return self.standardisation()(y)

    def standardisation(self) -> Callable[[Array], Array]:
        """The function `standardise`, with what does not depend on y computed once."""
        inverse = self.inverse_scales
        start = -self.shifts * inverse
        return lambda y: add_product(start, y, inverse)

    def residual(self, z: Array, t: Array) -> Array:
        """The e (..., h) of second factors z = v.x (..., h): what t does not explain."""
        assert self.gate is not None
        return add_product(z - self.gate.shifts, self.gate.slopes, t, -1.0)

    def expand(self, activation: Activation, degree: int) -> Series:
        """Hermite series of act(w_i.x + b_i), times v_i.x + c_i if gated, up to a total degree (MATH 1, 2)."""
        if self.gate is None:
            return Series(self._project(activation, degree))
        c = self._project(activation, degree + 1)
        return Series(times_line(c, self.gate.means, self.gate.slopes), c[:degree, ...] if degree else None)

    def _project(self, activation: Activation, degree: int) -> Array:
        """Hermite coefficients (degree + 1, h) of act(w_i.x + b_i)."""
        c = activation.project(self.means, self.scales, degree)
        if not differentiated(self.directions):
            return c
        xp, still = namespace(c=c), _without_weights(self.directions)
        if decidable(still) and not bool(xp.any(still)):
            return c
        # The tiny scale is there for the gradients; the value is that without it, also at a kink.
        exact = activation.project(self.means, xp.where(still, 0.0, self.scales), 0)
        return xp.concat([c[:1, :] + stop_gradient(exact - c[:1, :]), c[1:, :]])


# A unit with zero weights is constant, and still has a gradient: c_1(s) t with t = w.(x - mean) / s tends to
# E[act'] w.(x - mean). A tiny s in place of 0 leaves t = 0 as it is and gives that gradient; with s^2 at the rounding
# error, quadratures have c_1 / s to the same s.


def _without_weights(directions: Array) -> Array:
    """Which rows (h,) are zero."""
    return ~namespace(directions=directions).any(directions != 0, axis=1)


def _tiny_without_weights(scales: Array, directions: Array) -> Array:
    """The scales (h,), tiny in place of zero for directions (h, d) that are zero and have a gradient."""
    if not differentiated(directions):
        return scales
    xp = namespace(scales=scales)
    return xp.where(_without_weights(directions), math.sqrt(float(xp.finfo(scales.dtype).eps)), scales)


def _joined(one: T, two: T) -> T:
    """Two records of units side by side; an array that only one of them has is zero in the other."""
    pairs = {name: (getattr(one, name), getattr(two, name)) for name in vars(one)}
    flat = [u.shifts * 0 for u in (one, two)]  # type: ignore[attr-defined]
    arrays = {
        name: namespace(a=flat[0]).concat([z if a is None else a for a, z in zip(pair, flat, strict=True)])
        for name, pair in pairs.items()
        if pair[0] is not None or pair[1] is not None
    }
    return replace(one, **arrays)


def _without_none(forms: Any) -> None:
    """Replace a bias that was not given by zeros."""
    if forms.bias is None:
        object.__setattr__(forms, "bias", forms.shifts * 0)


def _precomposed(forms: Any, factors: Array, offset: Array) -> Any:
    """Directions, shifts and bias of linear forms of factors * x + offset as forms of x."""
    W, like = widen(forms.directions), forms.directions
    moved = W @ offset
    bias = cast_like(widen(forms.bias) + moved, like)
    shifts = cast_like(widen(forms.shifts) - moved, forms.shifts)
    return replace(forms, directions=cast_like(W * factors, like), shifts=shifts, bias=bias)


def _dots(left: Array, right: Array) -> Array:
    """Row-by-row inner products."""
    left, right = promote(left, right)
    return namespace(rows=left).vecdot(left, right)


def _times_mean(weight: Array, mean: Array) -> Array:
    weight, mean = promote(weight, mean)
    with np.errstate(over="ignore", invalid="ignore"):
        return widen(weight @ mean)


# -- scales are factored out before squaring, which would soon leave the range of floats, and restored afterwards ------


class _Rows:
    """Rows of weights, over powers of two where their products with a covariance may leave the range of floats."""

    def __init__(self, weights: Array, size: Array) -> None:
        self.weights, self.size, self.plain = weights, size, decidable(weights, size)
        if self.plain:  # whether sums of w_i S_ij w_j keep half of the range of exponents for entries that are smaller
            xp = namespace(weights=weights)
            with no_gradients(weights):
                largest, size = promote(xp.linalg.vector_norm(weights, ord=math.inf, axis=1), size)
                low = float(xp.finfo(largest.dtype).smallest_normal) ** 0.125
                sizes = xp.concat([xp.where(largest == 0, size, largest), xp.reshape(size, (1,))])
                smallest, most = (float(a) for a in to_numpy(xp.stack([xp.min(sizes), xp.max(sizes)])))
            self.plain = low <= smallest and most <= 1 / low

    def __getitem__(self, part: slice) -> tuple[Array, Array | None]:
        """Rows (m, d) over their scale, and that scale (m,), their own size times that of the inputs, or None for 1."""
        rows = self.weights[part, ...]
        if self.plain:
            return rows, None
        xp = namespace(rows=rows)
        rows, size = promote(rows, self.size)
        high, low = xp.max(rows, axis=1), -xp.min(rows, axis=1)
        limits = xp.finfo(rows.dtype)
        with np.errstate(over="ignore"):
            scale = _power_of_two(xp.where(high > low, high, low)) * size
        # Outside of this range the spread itself is out of the range of the dtype.
        scale = xp.clip(scale, float(limits.smallest_normal), float(limits.max))
        return rows / scale[:, None], scale


def _quadratic_forms(rows: Array, inputs: Gaussian) -> Array:
    """Variances (m,) of w.x for rows w (m, d)."""
    if inputs.cov is not None and len(inputs.cov.shape) == 2:
        return quadratic_forms(rows, inputs.cov)
    return _dots(inputs.times_covariance(rows), rows)


def _product(first: Array, *others: Array | None) -> Array:
    """Product in the widest precision, None counted as 1; infinite where it is out of range, which is checked later."""
    first = widen(first)
    with np.errstate(over="ignore"):
        for a in others:
            first = first if a is None else first * widen(a)
    return first


def _power_of_two(a: Array) -> Array:
    """The power of two below each entry, which divides without rounding. One for zeros, constant under autograd."""
    xp = namespace(a=a)
    with no_gradients(a):
        exponent = xp.floor(xp.log2(xp.where(a > 0, a, 1.0)))
        return 2.0 ** xp.clip(exponent, math.log2(float(xp.finfo(a.dtype).smallest_normal)), None)
