"""Moments through the layers of a network with the third cumulants of the values, and fourth ones of pairs (MATH 9).

By the Edgeworth series, for values t of mean 0 and variance 1 that are nearly Gaussian,

    E[G(t)] = E_g[G] + sum_abc K_abc E_g[d_a d_b d_c G] / 6 + sum_abcd K_abcd E_g[d_a d_b d_c d_d G] / 24

with E_g under the Gaussian of the same mean and covariance rho. For G a function of one unit act_i or two it takes the
skewness K_iii, the K_iij, and of the fourth cumulants the K_iijj. In a wide random network with n units in a layer
rho_ij is of order n^-1/2, K_ijk and K_iijj are of order 1/n, and those K_iijj have one sign. So they move means by
order 1/n, as much as the skewness does, and all else by less: a series about rho = 0 gives the new cumulants

    K_ijk    d1_i d1_j d1_k K_ijk + (d2_i d1_j d1_k rho_ij rho_ik + two permutations)
    K_iij    Cov(psi_i, act_j) + K_iij e2_i d1_j / 2 + K_ijj e1_i d2_j / 2 + K_iijj e2_i d2_j / 4 - 2 shift_i Cov_ij
    K_iijj   Cov(psi_i, psi_j) - 2 Cov_ij^2 + K_iij e2_i e1_j / 2 + K_ijj e1_i e2_j / 2 + K_iijj e2_i e2_j / 4

of units with distinct i, j, k. Here psi_i = (act_i - E_g act_i)^2, and dk and ek are the means of the k-th derivatives
of act and psi in t. K stays a product of factors (`State`): rho_ij rho_ik is one already, and what K_iij and K_iii
differ by from the first line is another with along = 1 at i. So a layer costs products of matrices (h, h) with (h, k),
k = 2 h for every hidden layer before, and nothing has h^3 entries.
"""

import math

from mlpoly.arrays import Array, eye, namespace, no_gradients, positive_semidefinite, safe_inverse, safe_root
from mlpoly.inputs import Gaussian
from mlpoly.moments import Expansion, inner, power_series
from mlpoly.networks import Affine, Chain, Layer, Network
from mlpoly.propagation.closure import Closure, State
from mlpoly.records import trusted

_DEGREE = 6


def takes_third_cumulants(net: Network) -> bool:
    """Whether a network is a chain of layers with plain units, which `ThirdCumulants` can walk through."""
    parts = net.layers if isinstance(net, Chain) else (net,)
    return all(isinstance(part, Layer) and part.forms.gate_directions is None for part in parts)


class ThirdCumulants(Closure):
    """A walk through a chain of layers with plain units that keeps third cumulants, and fourth ones of pairs.

    Its `shifts` are the first term of the series for the means that is left out, skewness^2 d6 / 72, or the square of
    the correction itself if that is larger.
    """

    def layer(self, layer: Layer, state: State) -> State:
        """State behind a layer."""
        hidden = self.hidden = Expansion.of(layer, state.inputs)
        self.before.append(state)
        units, net = _UnitCumulants(hidden, state), hidden.layer
        self.skewness.append(units.skewness)
        # A correction that is not small beside the spread of a unit shows that the series does not converge.
        xp, inverse = namespace(cov=units.plain_cov), safe_inverse(safe_root(units.variances))
        left_out = xp.abs(units.skewness**2 * units.d[6] / 72)
        self.shifts.append(xp.maximum(left_out * inverse, (units.shift * inverse) ** 2))
        if isinstance(layer, Affine):  # exact, and its outputs are still made of the same units
            return _image(state, net.forms.directions, net.bias)
        behind = units.state(state.outer)
        if net.readout is None and net.bias is None:
            return behind
        return _image(behind, units.one if net.readout is None else net.readout, net.bias)


class _UnitCumulants:
    """Cumulants of hidden units, from those of the t that enter them.

    In the letters of this module: d, e, third and fourth are lists of the means (h,) of the derivatives in t of act,
    psi = (act - E_g act)^2, (act - E_g act)^3 and (act - E_g act)^4; rho has a diagonal of zeros.
    """

    def __init__(self, hidden: Expansion, state: State) -> None:
        units, unread = hidden.units, hidden.hidden()
        self.plain_mean, self.plain_cov = unread.mean, inner(unread, unread, full=True).tail  # if t were Gaussian
        xp, self.one = namespace(cov=self.plain_cov), eye(units.size, self.plain_cov)
        self.variances = xp.linalg.diagonal(self.plain_cov)
        self.d = _derivatives(hidden.series(_DEGREE).plain)
        powers = power_series(hidden.layer.activation, units, self.plain_mean, 4, 4)
        self.e, self.third, self.fourth = map(_derivatives, powers[2:])
        t = self.t = _image(state, units.directions * units.inverse_scales[:, None])
        self.rho = self._with_diagonal(t.inputs.covariance, self.variances * 0)
        self.triples = 4 * (t.bends * t.along) @ t.along.T + 2 * t.along**2 @ t.bends.T  # K_iij of t
        self.pairs = fourth_cumulants(t)  # K_iijj of t
        self.skewness, self.excess = xp.linalg.diagonal(self.triples), xp.linalg.diagonal(self.pairs)
        self.shift = self.skewness * self.d[3] / 6 + self.excess * self.d[4] / 24  # of the means

    def state(self, outer: Array) -> State:
        """State of the units."""
        xp, d, t, one = namespace(cov=self.plain_cov), self.d, self.t, self.one
        cov = self._covariance()
        # K_ijk of the first line, and what K_iij and K_iii differ by from it.
        bends = [d[1][:, None] * t.bends, one * (d[2] / 2), self._repeated(cov).T]
        along = [d[1][:, None] * t.along, d[1][:, None] * (self.rho + one), one]
        values = trusted(Gaussian, mean=self.plain_mean + self.shift, cov=cov)
        return State(values, outer, xp.concat(bends, axis=1), xp.concat(along, axis=1), self._fourth(cov), one)

    def _covariance(self) -> Array:
        d, e, shift = self.d, self.e, self.shift
        half = 0.5 * self.triples * _outer(d[2], d[1])
        change = half + half.T + 0.25 * self.pairs * _outer(d[2], d[2])
        # The series may leave less than nothing of the variance of a unit that is rarely active.
        own = self.skewness * e[3] / 6 + self.excess * e[4] / 24 - shift**2
        own = namespace(own=own).maximum(own, -0.75 * self.variances)
        return _semidefinite(self.plain_cov + self._with_diagonal(change, own))

    def _repeated(self, cov: Array) -> Array:
        """The factors bends_j with along = 1 at i: what K_iij and K_iii differ by from the line for distinct units."""
        d, e, triples, rho = self.d, self.e, self.triples, self.rho
        chains = 2 * _outer(d[2] * d[1], d[1]) * rho + _outer(d[1] ** 2, d[2]) * rho**2
        distinct = _outer(d[1] ** 2, d[1]) * triples + self._with_diagonal(chains, 3 * d[2] * d[1] ** 2)
        wanted = self._pairwise(e, d) + 0.5 * (triples * _outer(e[2], d[1]) + triples.T * _outer(e[1], d[2]))
        wanted = wanted + 0.25 * self.pairs * _outer(e[2], d[2]) - 2 * self.shift[:, None] * cov
        own = self.third[0] + self.skewness * self.third[3] / 6 - 3 * self.shift * self.variances
        # Such a factor adds 2 bends_j to K_iij and 6 bends_i to K_iii.
        return (self._with_diagonal(wanted, own) - distinct) / (2 + 4 * self.one)

    def _fourth(self, cov: Array) -> Array:
        """The K_iijj, with the K_iiii on the diagonal."""
        e, fourth, variances = self.e, self.fourth, self.variances
        half = 0.5 * self.triples * _outer(e[2], e[1])
        pairs = self._pairwise(e, e) - 2 * cov**2 + half + half.T + 0.25 * self.pairs * _outer(e[2], e[2])
        own = fourth[0] - 3 * variances**2
        own = own + self.skewness * (fourth[3] - 6 * variances * e[3]) / 6
        own = own + self.excess * (fourth[4] - 6 * variances * e[4]) / 24
        return self._with_diagonal(pairs, own)

    def _pairwise(self, a: list[Array], b: list[Array]) -> Array:
        """Covariance of two functions of t_i and t_j, from the means of their derivatives."""
        return sum(_outer(a[k], b[k]) * (self.rho**k / math.factorial(k)) for k in range(1, 5))

    def _with_diagonal(self, a: Array, diagonal: Array) -> Array:
        return a * (1 - self.one) + self.one * diagonal


def _outer(a: Array, b: Array) -> Array:
    return a[:, None] * b[None, :]


def _derivatives(series: Array) -> list[Array]:
    """Means of the derivatives in t of functions with these orthonormal Hermite series: sqrt(k!) c_k, (h,) each."""
    return [math.sqrt(math.factorial(k)) * series[k, :] for k in range(series.shape[0])]


def _image(state: State, weight: Array, bias: Array | None = None) -> State:
    """State of weight @ values + bias."""
    mean, cov = weight @ state.inputs.mean, state.inputs.times_covariance(weight) @ weight.T
    return State(
        trusted(Gaussian, mean=mean if bias is None else mean + bias, cov=cov),
        state.outer,
        weight @ state.bends,
        weight @ state.along,
        state.pairs,
        None if state.mix is None else weight @ state.mix,
    )


def fourth_cumulants(state: State) -> Array:
    """Fourth cumulants (a, a, b, b) of the values, (n, n), from those of their last hidden units.

    Of (a, a, b, b) with a != b it leaves out twice the sum of F_ij mix_ai mix_bi mix_aj mix_bj over i != j, whose terms
    have random signs.
    """
    if state.pairs is None:  # the values are Gaussian
        return state.inputs.covariance * 0
    xp, square = namespace(mix=state.mix), state.mix**2
    made = square @ state.pairs @ square.T
    # (i, i, j, j) enters (a, a, a, a) in three orders, (i, i, i, i) in one.
    twice = 2 * (xp.linalg.diagonal(made) - square**2 @ xp.linalg.diagonal(state.pairs))
    return made + eye(made.shape[0], made) * twice


def _semidefinite(cov: Array) -> Array:
    """The nearest covariance: a series that is cut off may leave negative eigenvalues."""
    xp = namespace(cov=cov)
    cov = 0.5 * (cov + cov.T)
    rounding = cov.shape[0] * float(xp.finfo(cov.dtype).eps) * xp.max(xp.linalg.diagonal(cov))
    with no_gradients(cov):
        if positive_semidefinite(cov, rounding):
            return cov
        values, vectors = xp.linalg.eigh(cov)
        missing = (vectors * xp.clip(-values, 0, None)) @ vectors.T
    return cov + missing
