"""Inner products of functions under a Gaussian by degree: everything of second order is one of them (MATH 5, 10 to 12).

With f = readout F + bias and g = readout' G + bias', Cov[f, g] = readout Cov[F, G] readout', a sum over all pairs of
hidden units. Polynomials with explicit coefficients are sums over these instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlpoly.arrays import Array, namespace
from mlpoly.moments.expansion import Expansion
from mlpoly.moments.explicit import Products, Quadratic
from mlpoly.moments.kernels import hermite_sums, piecewise_linear, sinusoids
from mlpoly.progress_bars import progress_bar
from mlpoly.units import angle_count, angles, energies, terms

AnyExpansion = Expansion | Quadratic | Products


@dataclass(frozen=True)
class ByDegree:
    """Covariances of outputs: (o,) of every output of f with the same one of g, or the matrix (o, p) of all pairs."""

    head: Array  # (n, o) or (n, o, p), at degree 1, ..., n
    tail: Array  # (o,) or (o, p), above degree n
    bound: Array  # on the error of `tail` from truncated series; zero for exact kernels

    @property
    def total(self) -> Array:
        """The covariance at all degrees together."""
        return namespace(head=self.head).sum(self.head, axis=0) + self.tail


def inner(
    f: AnyExpansion, g: AnyExpansion, times: Callable[[Array], Array] | None = None, degree: int = 0, full: bool = False
) -> ByDegree:
    """Covariance of f(x) and g(x') by degree, for jointly Gaussian x and x' with one distribution.

    `times` multiplies rows (m, d) with the covariance of x and x', which is symmetric. By default x' = x: two functions
    are compared. With an x' that has some inputs in common with x and is otherwise drawn anew, given these, it is the
    variance that they explain: Cov[f(x), f(x')] = Var E[f | these inputs].

    Degrees up to `degree` are listed one by one. `full` gives the covariances of all outputs of f with all of g;
    otherwise both have the same number of outputs.
    """
    if isinstance(f, Expansion) and isinstance(g, Expansion):
        if f is g and f.readout is None and times is None and not full:  # the outputs are the units: no pair is needed
            xp, energy = namespace(variances=f.variances), energies(f.series(degree), f.units)[1:, ...]
            rest = xp.clip(f.variances - xp.sum(energy, axis=0), 0, None)
            return ByDegree(energy, rest, rest * 0 if f.beyond is None else f.beyond**2)
        return _over_pairs(f, g, times, degree, full)
    one, two = common(f, g)
    rows = one.covariances(two, times, full)
    xp, zero = namespace(mean=one.mean), one.mean * 0
    zero = zero[:, None] * two.mean if full else zero
    head = [*rows[:degree], *[zero] * (degree - len(rows))]
    stacked = xp.stack(head) if head else zero[None, ...][:0, ...]
    return ByDegree(stacked, sum(rows[degree:], start=zero), zero)


def common(f: AnyExpansion, g: AnyExpansion) -> tuple[Any, Any]:
    """Two functions as the same kind of expansion; of two kinds, up to the lower degree, which alone counts."""
    if type(f) is type(g) and not isinstance(f, Products):
        return f, g
    degree = min(f.degree, g.degree)
    for h in (f, g):
        if isinstance(h, Products):
            return h.like(f, degree), h.like(g, degree)
    one, two = (Quadratic.of(h, degree) if isinstance(h, Expansion) else h for h in (f, g))
    return one, two


def remainder_of(f: Expansion, g: Expansion) -> Callable[..., tuple[Array, Array | None]]:
    """The way to have covariances of the units beyond a degree: exact for two of a kind that has it, else by series."""
    if f.breaks is not None and g.breaks is not None:
        return piecewise_linear.remainder
    return sinusoids.remainder if f.wave and g.wave else hermite_sums.remainder


def _over_pairs(
    f: Expansion, g: Expansion, times: Callable[[Array], Array] | None, degree: int, full: bool
) -> ByDegree:
    """The sum over all pairs of hidden units, chunk by chunk."""
    remainder = remainder_of(f, g)
    if (f.units.gate is None) != (g.units.gate is None):
        f, g = f.with_gate(), g.with_gate()
    symmetric, own = f is g, f is g and times is None
    times = times or f.inputs.times_covariance
    left, right = f.weights, g.weights
    xp = namespace(left=left)
    zero = left[:, 0] * 0
    zero = zero[:, None] * right[:, 0] if full else zero
    listed = min(degree, f.degree, g.degree)  # beyond the end of a polynomial there is nothing
    ended = any(e.beyond is None and e.degree <= degree for e in (f, g))
    head, tail, bound = [zero] * listed, zero, zero
    one, two = f.series(listed), g.series(listed)

    def read(rows: slice, columns: slice, chunk: Array, absolute: bool = False) -> Array:
        """W M V' for a chunk M of the covariances of the units, or its diagonal; half of it on the diagonal of M."""
        W, V = left[:, rows], right[:, columns]
        if absolute:
            W, V = xp.abs(W), xp.abs(V)
        value = (W @ chunk) @ V.T if full else xp.vecdot(W @ chunk, V)
        return 0.5 * value if symmetric and rows == columns else value

    with progress_bar("pairs of hidden units", angle_count(f.units, g.units)) as update:
        for done, (rows, columns, chunk) in enumerate(angles(f.units, g.units, times, own)):
            update(done, "")
            each = terms(one.rows(rows), two.columns(columns), chunk, listed)
            head = [h + read(rows, columns, term) for h, term in zip(head, each, strict=True)]
            if ended:
                continue
            matrix, error = remainder(f, g, rows, columns, chunk, degree, own)
            tail = tail + read(rows, columns, matrix)
            if error is not None:
                bound = bound + read(rows, columns, error, absolute=True)
    if symmetric:  # the chunks below the diagonal
        *head, tail, bound = (a + a.T if full else 2 * a for a in (*head, tail, bound))
    if own and not full:
        tail = xp.clip(tail, 0, None)
    head += [zero] * (degree - listed)
    return ByDegree(xp.stack(head) if head else zero[None, ...][:0, ...], tail, bound)
