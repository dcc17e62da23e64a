"""Means of networks under Gaussians by nested quadrature, on panels that end at the kinks."""

import functools
import itertools

import numpy as np

REACH = 9.5  # standard deviations: beyond, the density is below 1e-20


def panels(cuts, nodes=14, width=1.2, reach=REACH):
    """Nodes (m, ...) and weights, with the normal density, of Gauss-Legendre; panels end at the cuts (k, ...)."""
    cuts = np.asarray(cuts, dtype=float)
    even = np.linspace(-reach, reach, round(2 * reach / width) + 1)
    even = np.broadcast_to(even.reshape(-1, *[1] * (cuts.ndim - 1)), (len(even), *cuts.shape[1:]))
    edges = np.sort(np.concatenate([even, np.clip(cuts, -reach, reach)]), axis=0)
    x, w = np.polynomial.legendre.leggauss(nodes)
    half = np.diff(edges, axis=0)[:, None] / 2
    shape = (-1, *cuts.shape[1:])
    t = (edges[:-1][:, None] + half * (x + 1).reshape(1, -1, *[1] * (cuts.ndim - 1))).reshape(shape)
    weights = (half * w.reshape(1, -1, *[1] * (cuts.ndim - 1))).reshape(shape)
    return t, weights * np.exp(-t * t / 2) / np.sqrt(2 * np.pi)


def normal_mean(net, means, cov, nodes=14):
    """E[net(x)] (n, o) for x ~ N(means[i], cov): one integral over the preactivation of each unit."""
    forms = net.forms
    y = means @ forms.directions.T + (0 if forms.bias is None else forms.bias)  # (n, h)
    spread = np.sqrt(np.clip(np.einsum("hd,de,he->h", forms.directions, cov, forms.directions), 0, None))
    safe = np.where(spread > 1e-12, spread, 1.0)
    t, weights = panels([(kink - y) / safe for kink in net.activation.kinks] or np.zeros((1, *y.shape)), nodes)
    values = net.activation(y + spread * t) * weights
    if forms.gate_directions is None:
        hidden = values.sum(axis=0)
    else:
        level = means @ forms.gate_directions.T + (0 if forms.gate_bias is None else forms.gate_bias)
        slope = np.einsum("hd,de,he->h", forms.gate_directions, cov, forms.directions) / safe
        hidden = (values * (level + slope * t)).sum(axis=0)
    return (hidden if net.readout is None else hidden @ net.readout.T) + (0 if net.bias is None else net.bias)


def average(function, means, cov, nodes=20):
    """E[function] under N(mean, cov), means (d,) or (n, 1, d), by Gauss-Hermite: exact below degree 2 `nodes`."""
    values, vectors = np.linalg.eigh(cov)
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    dims = np.flatnonzero(values > 1e-12 * values.max())
    grid = np.array(list(itertools.product(x, repeat=len(dims))))
    weights = np.prod(np.array(list(itertools.product(w, repeat=len(dims)))), axis=1)
    return weights @ function(means + grid * np.sqrt(values[dims]) @ vectors[:, dims].T)


@functools.cache
def trapezoid(dims, step):
    """Nodes (n, dims) and weights (n,) under N(0, I); for smooth functions this converges geometrically."""
    x = np.arange(-round(REACH / step), round(REACH / step) + 1) * step
    w = step * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    grid = np.array(list(itertools.product(range(len(x)), repeat=dims)))
    weights = np.prod(w[grid], axis=1)
    keep = weights > 1e-20
    return x[grid][keep], weights[keep]


def explained_variance(net, inputs, known, step=0.25, nodes=14):
    """Var E[f | x_S] (o,) under a Gaussian with a positive definite covariance, by nested quadrature."""
    known, cov = list(known), inputs.covariance
    w, weights = trapezoid(len(known), step)
    root = np.linalg.cholesky(cov[np.ix_(known, known)])
    regression = np.linalg.solve(root @ root.T, cov[known]).T  # (d, s)
    values = normal_mean(net, inputs.mean + w @ (regression @ root).T, cov - regression @ cov[known], nodes)
    return weights @ (values - weights @ values) ** 2


def pair_mean(one, two, cov, means):
    """E[act(y) z act'(y') z'] of (y, z, y', z') ~ N(means, cov) for two activations; z and z' may be constants.

    Over t = (y - m) / s on panels, and the part of y' that t leaves on panels that end at the images of its kinks;
    those of a smooth function are narrow around its bend.
    """
    kinks, other_kinks = (act.kinks or (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0) for act in (one, two))
    m, cov = np.asarray(means, dtype=float), np.asarray(cov, dtype=float)
    s, r = np.sqrt(cov[0, 0]), np.sqrt(cov[2, 2])
    rho = cov[0, 2] / (s * r)
    side = np.sqrt(1 - rho * rho)
    # A kink of the second, averaged over what t leaves, becomes a layer of width side / |rho| in t.
    layers = [((k - m[2]) / r + x * side) / (rho or 1.0) for k in other_kinks for x in (-4, -2, -1, 0, 1, 2, 4)]
    t, outer = panels([(k - m[0]) / s for k in kinks] + layers, 20)
    w, inner = panels([((k - m[2]) / r - rho * t) / side for k in other_kinks], 20)
    y, other = one(m[0] + s * t), two(m[2] + r * (rho * t + side * w))
    # z and z' given t and w: regressions, and the covariance that is left.
    a = np.array([[cov[1, 0] / s, (cov[1, 2] / r - rho * cov[1, 0] / s) / side],
                  [cov[3, 0] / s, (cov[3, 2] / r - rho * cov[3, 0] / s) / side]])  # fmt: skip
    left = cov[1, 3] - a[0] @ a[1]
    factors = (m[1] + a[0, 0] * t + a[0, 1] * w) * (m[3] + a[1, 0] * t + a[1, 1] * w) + left
    return float(np.sum(outer * y * np.sum(inner * other * factors, axis=0)))
