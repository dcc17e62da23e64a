"""Inner products of hidden units under a Gaussian, chunk by chunk.

Second moments of units P_i(t_i) + e_i Q_i(t_i) depend on the inputs only through the inner products of t_i, e_i with
t_j, e_j (MATH 5).
"""

from collections.abc import Callable, Iterator

from mlpoly.arrays import Array, chunks, eye, namespace, on_cpu, safe_root, stop_gradient
from mlpoly.records import map_arrays, record
from mlpoly.units.units import Units

# Hidden units in a chunk. About twenty float64 arrays (chunk, chunk) exist at a time: 40 MB and 160 MB, on a GPU, whose
# kernels take longer to launch than to run on less, 640 MB.
_SMALL, _LARGE, _ON_GPU = 512, 1024, 2048


@record
class Angles:
    """Inner products of a chunk of units (a,) with another (b,): (a, b) each, or any common shape for listed pairs."""

    rho: Array  # E[t_i t_j]
    right: Array = None  # E[t_i e_j]; None for plain units, as the next two
    left: Array = None  # E[e_i t_j]
    gates: Array = None  # E[e_i e_j]

    def at(self, index: Array) -> "Angles":
        """The same for listed pairs, given by their positions in the flattened chunk."""
        xp = namespace(rho=self.rho)
        return map_arrays(self, lambda a: xp.take(xp.reshape(a, (-1,)), index))


def angles(
    one: Units, two: Units, times: Callable[[Array], Array], own: bool = False
) -> Iterator[tuple[slice, slice, Angles]]:
    """Inner products of all units of one family with all of another, as chunks (rows, columns).

    Both families have a gate, with its spreads, or neither. `times` multiplies rows (m, d) with the covariance of the x
    of one and that of the other; `own` says that both are the same units of the same x. Of one family with itself the
    chunks are those on and above the diagonal. No array is h x h unless that is a single chunk.
    """
    parts, others = _parts(one), _parts(two)
    for number, rows in enumerate(parts):
        spread = times(one.directions[rows, :])
        gate_spread = None if one.gate is None else times(one.gate.directions[rows, :])
        for columns in others[number if one is two else 0 :]:
            yield rows, columns, _inner(one, two, rows, columns, spread, gate_spread, own)


def angle_count(one: Units, two: Units) -> int:
    """Number of chunks that `angles` yields."""
    count = len(_parts(one))
    return count * (count + 1) // 2 if one is two else count * len(_parts(two))


def _parts(units: Units) -> list[slice]:
    size = _SMALL if units.size <= 8 * _SMALL else _LARGE
    return chunks(units.size, size if on_cpu(units.directions) else _ON_GPU)


def _inner(
    one: Units, two: Units, rows: slice, columns: slice, spread: Array, gate_spread: Array | None, own: bool
) -> Angles:
    """Inner products of one chunk, from the rows w_i S (`spread`) and v_i S of the first family.

    The forms are w_i.x = s_i t_i and v_i.x = r_i t_i + e_i about their means, so that for example
    E[t_i e_j] = E[t_i v_j.x] - r_j E[t_i t_j].
    """
    xp = namespace(spread=spread)
    inverse_i, inverse_j = one.inverse_scales[rows][:, None], two.inverse_scales[columns][None, :]
    rho = (spread @ two.directions[columns, :].T) * inverse_i * inverse_j
    # Correlations within [-1, 1]; those that differ from +-1 only by rounding become +-1.
    rho = xp.where(xp.abs(rho) > 1 - 64 * float(xp.finfo(rho.dtype).eps), xp.sign(rho), rho)
    if own and rows == columns:  # a unit must correlate with itself by exactly one
        own_pairs = eye(rows.stop - rows.start, rho) > 0
        rho = xp.where(own_pairs & (one.scales > 0)[rows][:, None], 1.0, rho)
    if one.gate is None or two.gate is None or gate_spread is None:
        return Angles(rho)
    gate_i, gate_j = one.gate, two.gate
    t_v = (spread @ gate_j.directions[columns, :].T) * inverse_i  # E[t_i v_j.x]
    v_t = (gate_spread @ two.directions[columns, :].T) * inverse_j  # E[v_i.x t_j]
    v_v = gate_spread @ gate_j.directions[columns, :].T  # E[v_i.x v_j.x]
    r_i, r_j = gate_i.slopes[rows][:, None], gate_j.slopes[columns][None, :]
    q_i, q_j = gate_i.spreads[rows][:, None], gate_j.spreads[columns][None, :]  # standard deviations of e_i and e_j
    e_e = v_v - v_t * r_j - r_i * t_v + r_i * r_j * rho
    # e is orthogonal to its own t, so its inner product with another t is at most sqrt(1 - rho^2) of its size.
    side = safe_root((1 - rho) * (1 + rho))
    return Angles(
        rho, _within(t_v - rho * r_j, side * q_j), _within(v_t - r_i * rho, side * q_i), _within(e_e, q_i * q_j)
    )


def _within(a: Array, limit: Array) -> Array:
    """`a` clipped to [-limit, limit], which rounding alone exceeds: gradients are those of `a`."""
    xp = namespace(a=a)
    return a + stop_gradient(xp.where(xp.abs(a) > limit, xp.sign(a) * limit, a) - a)
