"""Fraction of variance unexplained: how much of the network the polynomial misses."""

import warnings
from collections.abc import Callable
from typing import Any

from mlpoly.arrays import Array, as_integer, chunks, differentiated, namespace, no_gradients, readable, safe_root
from mlpoly.arrays.host import by_value
from mlpoly.arrays.placement import cast_like, cast_result, rounding_error, scalar
from mlpoly.errors import DataWarning
from mlpoly.fitting.deep.expansion import fit_expansion
from mlpoly.inputs import Gaussian, Gaussians, Independent, Inputs, InputsLike, Samples, as_inputs
from mlpoly.inputs.resolve import check_order, checked_inputs
from mlpoly.measures.functions import check_functions, checked_data, gaussians, outputs_of
from mlpoly.moments import Expansion, common, inner
from mlpoly.networks import Layer, Network, check_network
from mlpoly.polynomials import Polynomial, to_dense
from mlpoly.propagation import propagate, takes_third_cumulants
from mlpoly.records import map_arrays, replace
from mlpoly.scores import FVU, ErrorSums, fvu_of_outputs
from mlpoly.scores.error_sums import unexplained
from mlpoly.units import energies

_ROWS = 8192  # samples drawn at once


@by_value
def fvu(
    net: Network | Callable[[Array], Array],
    poly: Polynomial | Callable[[Array], Array],
    inputs: InputsLike | None = None,
    *,
    draws: int = 65_536,
    seed: int = 0,
) -> FVU:
    """Fraction of the variance of a network that a polynomial leaves unexplained.

    ``E|f - p|^2 / E|f - E f|^2``, for each output and for all together. The residual is not centred: a constant error
    counts as an error, so the fraction may exceed 1. An output without variance raises a `ValueError`.

    Parameters
    ----------
    net, poly : network, Polynomial
        The polynomial need not be optimal, nor fitted under these inputs. On data both may be any callable from
        (n, d) to (n, o).
    inputs : Gaussian, GaussianMixture, Independent, Samples or data (n, d), optional
        By default those that the polynomial was fitted under. Closed form under a Gaussian or a mixture, without
        sampling (MATH 5); under few independent inputs a quadrature, whose `bound` is its difference from a coarser
        one; on data the average, with a standard error. For a deep network, a composed polynomial or other inputs,
        samples of the distribution are drawn, and the answer has a standard error; for a polynomial of degree up to 2
        under one Gaussian the estimate in closed form stands beside it, as `closure`.
    draws, seed : int
        Number of samples to draw where there is no closed form, and their seed.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "relu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=2)
    >>> round(float(mp.fvu(net, poly).total), 4)
    0.0331
    >>> bool(mp.fvu(net, poly, np.random.default_rng(0).standard_normal((1000, 2))) < 0.1)
    True
    """
    inputs = getattr(poly, "inputs", None) if inputs is None else inputs
    if inputs is None:
        check_functions(net, poly)
        raise ValueError("give inputs, a distribution or data (n, d): this polynomial does not know those of its fit.")
    inputs = as_inputs(inputs)
    if isinstance(inputs, Samples):
        x = checked_data(inputs, 2, net=net, poly=poly).x
        f = outputs_of("net", net, x)
        return fvu_of_outputs(f, outputs_of("poly", poly, x, f.shape[1]), inputs.weights)
    check_functions(net, poly)
    for name, function in ("net", net), ("poly", poly):
        check_order(inputs, getattr(function, "names", None), name)
    if not isinstance(poly, Polynomial):
        remedy = "to compare two networks pass data, such as inputs.sample(n), or use mlpoly.similarity"
        raise TypeError(f"poly must be a polynomial under a distribution, got {type(poly).__name__}; {remedy}.")
    layer = check_network(net)
    if isinstance(inputs, Independent) and (finest := inputs.finest(8)):
        return _on_grids(layer, poly, checked_inputs(layer, inputs), finest)
    if not isinstance(layer, Layer) or not poly.closed_form or not isinstance(inputs, Gaussians):
        return _by_draws(layer, poly, inputs, as_integer("draws", draws, 2), as_integer("seed", seed, 0))
    parts = [(w, _moments(layer, poly, g)) for w, g in gaussians(layer, inputs, traced=True)]
    mean, variance, missed, squares, bound, rounding = (sum(w * part[i] for w, part in parts) for i in range(6))
    variance = variance + sum(w * (part[0] - mean) ** 2 for w, part in parts)  # within and between the Gaussians
    xp = namespace(variance=variance)
    variance = xp.where(variance > rounding, variance, 0.0)
    error = replace(unexplained(mean, variance, missed, squares), bound=xp.sum(bound) / xp.sum(variance))
    return _beside_data(map_arrays(error, lambda a: cast_result(a, layer.prototype)), layer, poly, inputs)


def far_apart(closed: FVU, data: FVU) -> bool:
    """Whether an error in closed form and the same on data differ by more than a factor of two, and not by chance."""
    one, two = float(closed), float(data)
    eps = float(namespace(total=closed.total).finfo(closed.total.dtype).eps)
    chance = 2 * scalar(data.standard_error) + (0.0 if closed.bound is None else scalar(closed.bound)) + 1e4 * eps
    return max(one, two) > 2 * min(one, two) and abs(one - two) > chance


def _beside_data(error: FVU, net: Network, poly: Polynomial, inputs: Any) -> FVU:
    """The error in closed form, with that on the rows that the inputs were estimated from if the two are far apart."""
    rows = getattr(inputs, "rows", None)
    if rows is None or not readable(error.total):
        return error
    with no_gradients(net.prototype):
        x = cast_like(rows, net.prototype)
        sums = ErrorSums().update(net(x), poly(x))
        if not bool(namespace(x=x).all(sums.variance > 0)):  # too few rows to see every output vary
            return error
        data = sums.fvu()
    if not far_apart(error, data):
        return error
    if float(data) > float(error):
        warnings.warn(
            f"{float(data):.2g} of the variance is unexplained on {rows.shape[0]} rows of the data that the "
            f"distribution was estimated from, where its closed form says {float(error):.2g}: the data are not like it "
            f"where the network bends. Use a fit on the data, mlpoly.fit(net, x, degree), and see "
            f"mlpoly.check(net, inputs, x).",
            DataWarning,
            stacklevel=4,
        )
    return replace(error, data=data)


def _moments(net: Layer, poly: Polynomial, inputs: Gaussian) -> tuple[Array, ...]:
    """E[f], Var f, E[f - p], E[(f - p)^2], a bound on their truncation error, and a variance that is zero; (o,) each.

    The network differs from its own best polynomial of the same degree by the tail of its degree spectrum, and that
    difference is orthogonal to every polynomial of the degree: E|f - p|^2 = E|f - f_n|^2 + E|f_n - p|^2.
    """
    f = Expansion.of(net, inputs)
    p = poly.hermite(inputs, f.units)
    n = p.degree
    spread = inner(f, f, degree=n)
    best, own = common(f.best(n), p)
    apart = best.minus(own)
    miss = spread.tail + apart.mean**2
    miss = miss + _variance(apart, rounding_error(net.prototype) / 4 * miss)
    # Deviations from the mean have the rounding of the values, variances that of terms that cancel between units.
    xp = namespace(tail=spread.tail)
    eps = 100 * float(xp.finfo(miss.dtype).eps)
    spreads, values = xp.sqrt(f.variances), xp.abs(f.centres)
    if f.readout is not None:
        spreads, values = xp.abs(f.readout) @ spreads, xp.abs(f.readout) @ values
    values = xp.maximum(values, xp.abs(f.mean))  # which has the bias too
    rounding, bound = eps * spreads**2 + (eps * values) ** 2, spread.bound
    if poly.piecewise:  # beyond the degree, the network and the polynomial may partly cancel or add up
        beyond = inner(p, p, degree=n).bound
        bound = bound + beyond + 2 * xp.sqrt(beyond * spread.tail)
    return f.mean, spread.total, apart.mean, miss, bound, rounding


def _variance(apart: Any, limit: Array) -> Array:
    """Variance (o,) of a function; zero where it is below a limit whatever the correlations, as of a fit to itself."""
    if isinstance(apart, Expansion) and apart.readout is not None and apart.beyond is None:
        energy = energies(apart.series(apart.degree), apart.units)[1:, ...]
        xp = namespace(energy=energy)
        most = (xp.abs(apart.readout) @ safe_root(xp.sum(energy, axis=0))) ** 2
        if readable(most, limit) and not differentiated(most) and bool(xp.all(most <= limit)):
            return most * 0
    return inner(apart, apart).total


def _on_grids(net: Network, poly: Polynomial, inputs: Independent, size: int) -> FVU:
    """FVU by quadrature, with its difference from that on half as many nodes of each input."""
    errors = []
    for nodes in (size // 2, size):
        sums, grid = ErrorSums(standard_error=False), inputs.grid(nodes, poly.degree)
        for rows, weights in grid.chunks(_ROWS):
            x = cast_like(rows, net.prototype)
            sums = sums.update(net(x), poly(x), weights[:, 0])
        errors.append(sums.fvu())
    coarse, fine = errors
    return replace(fine, bound=namespace(total=fine.total).abs(fine.total - coarse.total))


def _by_draws(net: Network, poly: Polynomial, inputs: Inputs, draws: int, seed: int) -> FVU:
    """FVU on samples drawn from the inputs, with the estimate of the closure beside it where there is one."""
    inputs = checked_inputs(net, inputs)
    sums = ErrorSums()
    for number, rows in enumerate(chunks(draws, _ROWS)):
        x = cast_like(inputs.sample(rows.stop - rows.start, [seed, number]), net.prototype)
        sums = sums.update(net(x), poly(x))
    error = sums.fvu()
    if not isinstance(inputs, Gaussian) or poly.degree > 2 or poly.piecewise:
        return error
    # f differs from its own best quadratic by its variance beyond degree 2, which is orthogonal to every quadratic.
    best = fit_expansion(net, inputs, poly.degree, pairs=0)
    outputs = propagate(net, inputs, cumulants=3 if takes_third_cumulants(net) else 2)[-1]
    xp = namespace(mean=outputs.mean)
    center = cast_like(inputs.mean, net.prototype)
    level, spread = (to_dense(best, center) - to_dense(poly, center)).moments(inputs)
    variance = xp.sum(xp.linalg.diagonal(outputs.cov))
    beyond = xp.clip(1 - best.report.details["explained"] / variance, 0, None)
    missed = beyond + xp.sum(spread + level**2) / variance
    return replace(error, closure=cast_result(missed, net.prototype))
