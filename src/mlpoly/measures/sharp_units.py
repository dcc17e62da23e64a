"""Hidden units as functions of one input, for shape functions whose Hermite series would need too many degrees."""

from typing import Any

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import Array, namespace, safe_inverse, safe_root, take_rows
from mlpoly.measures.shape_systems import projections
from mlpoly.moments import Expansion, inner, smoothed
from mlpoly.records import arrays_of, map_arrays, record, replace, static


@record
class SharpUnits:
    """Hidden units averaged over all inputs but one: act(mean + slope z + spread w), w a standard normal variable.

    Gated ones are that times (gate mean + gate slope z + gate spread w), plus what is independent of both.
    """

    owners: tuple[int, ...] = static()  # the inputs
    activation: Activation = static()
    means: Array = None  # (k,), and so are all but the weights
    slopes: Array = None
    spreads: Array = None
    weights: Array = None  # (k, o)
    gate_means: Array | None = None
    gate_slopes: Array | None = None
    gate_spreads: Array | None = None

    def of(self, place: int) -> "SharpUnits | None":
        """The units of one input."""
        index = np.flatnonzero(np.asarray(self.owners) == place)
        return map_arrays(self, lambda a: take_rows(a, index)) if len(index) else None

    def __call__(self, z: Array) -> Array:
        """Values (n, o) at standardised values z (n,) of their input."""
        xp, shape = namespace(z=z), (z.shape[0], self.means.shape[0])
        means = self.means + z[:, None] * self.slopes
        spreads = xp.broadcast_to(self.spreads, shape)
        mean, spread = (xp.reshape(a, (-1,)) for a in (means, spreads))
        parts = smoothed(self.activation, mean, spread, int(self.gate_means is not None))
        found = [xp.reshape(a, shape) for a in parts]
        if self.gate_means is not None:  # E[act(y) w] is the second
            found[0] = found[0] * (self.gate_means + z[:, None] * self.gate_slopes) + found[1] * self.gate_spreads
        return found[0] @ self.weights


def correlations(f: Expansion, directions: Array) -> Array:
    """Correlations (h, r) of hidden units with inputs; +-1 where only rounding is missing."""
    seen = (f.inputs.times_covariance(f.units.directions) @ directions.T) * f.units.inverse_scales[:, None]
    xp = namespace(seen=seen)
    return xp.where(xp.abs(seen) > 1 - 64 * float(xp.finfo(seen.dtype).eps), xp.sign(seen), seen)


def kept_beside(f: Any, direction: Array, degree: int, index: np.ndarray) -> tuple[Array, Array, SharpUnits | None]:
    """The series (n + 1, o) of some units in one input, their variance (o,) beyond it, and they themselves."""
    zero = f.mean * 0
    xp = namespace(zero=zero)
    if not len(index):
        return xp.stack([zero] * (degree + 1)), zero, None
    units = map_arrays(f.units, lambda a: take_rows(a, index))
    some = Expansion(units, f.inputs, take_rows(f.weights.T, index).T, None, f.activation)
    series = projections(some, f.inputs, direction[None, :], degree)[:, 0, :]
    known = f.inputs.times_covariance(direction[None, :])  # P_S = S_.i S_i. / S_ii, with z_i of variance one
    tail = inner(some, some, lambda rows: (rows @ known.T) @ known, degree=degree).tail
    seen = correlations(some, direction[None, :])[:, 0]
    left, gate = safe_root((1 - seen) * (1 + seen)), units.gate
    kept = SharpUnits((), f.activation, units.means, units.scales * seen, units.scales * left, some.weights.T)
    if gate is not None:  # the gate is slope t + e, and E[e z] = alone; Cov(e, t) = 0 gives its part along w
        alone = (f.inputs.times_covariance(gate.directions) @ direction) - gate.slopes * seen
        along = gate.slopes * left - alone * seen * safe_inverse(left)
        gates = {"gate_means": gate.means, "gate_slopes": gate.slopes * seen + alone, "gate_spreads": along}
        kept = replace(kept, **gates)
    return xp.concat([some.mean[None, :], series]), tail, kept


def gathered(parts: list[SharpUnits | None], owner: np.ndarray, sign: np.ndarray, size: np.ndarray) -> SharpUnits:
    """The units of all inputs; those of inputs that are multiples of one another have equal parts of them."""
    made, owners = [], list[int]()
    for i, number in enumerate(owner.tolist()):
        units = parts[number]
        if units is None:
            continue
        along, count = float(sign[i]), int(size[i])
        gate = None if units.gate_slopes is None else units.gate_slopes * along
        made.append(replace(units, slopes=units.slopes * along, weights=units.weights / count, gate_slopes=gate))
        owners += [i] * int(units.means.shape[0])
    xp = namespace(means=made[0].means)
    arrays = {name: xp.concat([getattr(units, name) for units in made]) for name in arrays_of(made[0])}
    return replace(made[0], owners=tuple(owners), **arrays)
