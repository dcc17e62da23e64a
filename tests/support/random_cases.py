"""Random functions, inputs and array libraries, each from a generator; NumPy in float64 is what the oracles see."""

import numpy as np

import mlpoly as mp
from mlpoly.networks import Layer
from mlpoly.records import arrays_of, map_arrays, replace
from support.backends import JAX32, JAX64, NUMPY32, NUMPY64, TORCH32, TORCH64, in_library, make, to_numpy
from support.plane import root_of

KINKED = (
    "relu", "leaky_relu", "leaky_relu(0.3)", "hardtanh", "hardtanh(-0.5, 2)", "relu6", "abs", "relu2", "step",
    "jumprelu", "threshold", "hardswish", "hardsigmoid", "elu", "selu", "softsign", "own kinked",
)  # fmt: skip
SMOOTH = (
    "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "sin", "cos", "erf", "sigmoid", "softplus", "mish", "gaussian",
    "identity", "square", "cube", "own smooth",
)  # fmt: skip


def activation(rng, smooth=None):
    names = SMOOTH if smooth or (smooth is None and rng.random() < 0.5) else KINKED
    name = str(rng.choice(names))
    if name == "own smooth":
        return mp.activations.register_activation("own_smooth", lambda y: y / (1 + 0.25 * y * y), overwrite=True)
    if name == "own kinked":
        return mp.activations.register_activation(
            "own_kinked", lambda y: y * (abs(y) / (1 + abs(y))), kinks=(0.0,), overwrite=True
        )
    return mp.activations.get(name)


def backend(rng, jax=0.02):
    """Mostly NumPy in float64; JAX compiles every operation of a new shape."""
    rest = 1 - jax
    chances = [0.72 * rest, 0.1 * rest, 0.1 * rest, 0.08 * rest, 0.7 * jax, 0.3 * jax]
    return (NUMPY64, NUMPY32, TORCH64, TORCH32, JAX64, JAX32)[rng.choice(6, p=chances)]


def exact(values):
    """Rounded to sixteenths, so that products of few are exact in single precision too."""
    return np.round(16 * np.asarray(values)) / 16


def gaussian(rng, d, rank=None):
    """Of rank up to two: full or diagonal, perhaps with inputs that do not vary; far from zero now and then."""
    rank = min(d, int(rng.choice([0, 1, 2, 2, 2, 2]))) if rank is None else rank
    unit = 2.0 ** rng.integers(-8, 9)
    mean = unit * exact(rng.standard_normal(d) * (8 if rng.random() < 0.1 else 1))
    if rng.random() < 0.25:
        varies = np.isin(np.arange(d), rng.permutation(d)[:rank])
        return mp.Gaussian(mean, np.where(varies, unit * exact(0.2 + np.abs(rng.standard_normal(d))), 0.0) ** 2)
    factor = unit * exact(rng.standard_normal((d, rank)))
    if rng.random() < 0.2:
        factor[rng.integers(d)] = 0
    return mp.Gaussian(mean, factor @ factor.T)


def mixture(rng, d):
    """One to three components near one another or far apart, two perhaps of one shape or the same."""
    c = int(rng.integers(1, 4))
    parts = [gaussian(rng, d) for _ in range(c)]
    unit = 2.0 ** np.round(np.log2(np.sqrt(max(float(np.max(g.covariance)) for g in parts)) or 1.0))
    distance = 2.0 ** rng.integers(-2, 5)
    means = [unit * exact(distance * rng.standard_normal(d)) for _ in range(c)]
    covs = [g.covariance for g in parts]
    if c > 1 and rng.random() < 0.4:
        covs[1], means[1] = covs[0], means[int(rng.integers(2))]
    weights = (1 + rng.multinomial(16 - c, np.full(c, 1 / c))) / 16
    return mp.GaussianMixture(weights, np.array(means), np.array(covs))


def inputs(rng, d, mixtures=0.3):
    return mixture(rng, d) if rng.random() < mixtures else gaussian(rng, d)


def layer(rng, under, o=None, smooth=None, h=None):
    """An MLP, GLU or affine map with preactivations of moderate size under a distribution.

    Units may be constant, the same or opposite ones, and inputs without a weight; biases or the readout may be missing.
    """
    d = under.dim
    act = activation(rng, smooth)
    size = np.sqrt(np.clip(np.diagonal(under.covariance), 0, None)).max() or 1.0
    scale = 2.0 ** rng.integers(-3, 3 if act.pieces is None else 11) / 2.0 ** np.round(np.log2(size))
    if h is None:
        h = int(rng.choice([0, 1, 2, 3], p=[0.02, 0.26, 0.36, 0.36]))
    bare = o is None or (o == h and rng.random() < 0.15)
    h = max(h, int(bare))

    def forms():
        w = scale * rng.standard_normal((h, d))
        if h and rng.random() < 0.2:
            w[rng.integers(h)] = 0
        if h > 1 and rng.random() < 0.2:
            w[1] = rng.choice([-1, 1, 2]) * w[0]
        if rng.random() < 0.1:
            w[:, rng.integers(d)] = 0
        b = -w @ np.asarray(under.mean) * rng.choice([0, 1]) + rng.standard_normal(h)
        return w, (b if rng.random() < 0.7 else None)

    readout = None if bare else rng.standard_normal((o, h)) * 2.0 ** rng.integers(-8, 9)
    last = readout, (None if rng.random() < 0.3 else rng.standard_normal(h if bare else o))
    kind = rng.choice(["MLP", "GLU", "Affine"], p=[0.55, 0.4, 0.05])
    if kind == "Affine":
        return mp.Affine(scale * rng.standard_normal((h if bare else o, d)), last[1])
    first = forms() if kind == "MLP" else forms() + forms()
    return getattr(mp, kind)(*first, *last, activation=act)


def relative(rng, under, mixtures):
    """A distribution like another: the same, its Gaussian, one beside it, or that split in two parts."""
    cov = np.asarray(under.covariance)
    near = mp.Gaussian(np.asarray(under.mean), cov)
    if mixtures:
        step = exact(rng.standard_normal(2)) @ np.stack([np.sqrt(np.diagonal(cov))] * 2) / 2
        covs = np.stack([cov, cov * float(exact(rng.uniform(0.5, 1.5)))])
        return mp.GaussianMixture(np.array([0.25, 0.75]), near.mean + np.outer([1.0, -1.0], step), covs)
    if rng.random() < 0.5:
        return near
    shift = root_of(cov) @ rng.uniform(-0.5, 0.5, root_of(cov).shape[1])
    return mp.Gaussian(near.mean + shift, cov * float(exact(rng.uniform(0.5, 1.5))))


def polynomial(rng, under, o, place=NUMPY64, forms=("ridge", "dense", "chaos"), highest=6):
    """A fit of a random network under inputs like those given, the same for the oracle, and the size of its terms."""
    form, degree = str(rng.choice(forms)), int(rng.integers(0, highest + 1))
    own = relative(rng, under, form == "dense" or (form == "chaos" and rng.random() < 0.7))
    net, own = in_library(layer(rng, under, o), place), in_library(own, place)
    if form == "ridge":
        made = mp.fit(net, own, degree)
    elif form == "bounded":
        made = mp.fit(net, own, degree, bound=2.0) if rng.random() < 0.5 else mp.fit(net, own, degree).bounded(2.5)
    elif form == "dense":
        made = mp.fit(net, own, degree % 3)
    elif isinstance(own, mp.GaussianMixture):
        made = mp.fit(net, own, max(degree, 3))
    else:
        root = root_of(to_numpy(own.covariance))
        x = to_numpy(own.mean) + rng.standard_normal((120, root.shape[1])) @ root.T
        made = mp.fit(net, mp.Samples(make(x, place)), degree)
    return made, in_numpy(made), terms_size(in_numpy(net), in_numpy(own), under, made.degree)


def terms_size(net, own, under, degree):
    """Root mean square of the terms of a fit under other inputs: those of the units, times R^degree with

    E|he_k(a + b t)|^2 <= (1 + |a| + b)^(2 k) for the mean a and spread b of the inputs in units of those of the fit.
    """
    back, apart = np.linalg.pinv(root_of(own.covariance), rcond=1e-10), [1.0]
    for g in under.components:
        spread = np.linalg.norm(back @ root_of(g.covariance))
        apart.append(1 + np.linalg.norm(back @ (g.mean - own.mean)) + spread)
    return units_size(net, own.sample(4000, seed=0)) * max(apart) ** degree


def units_size(net, x, weights=None):
    """Sum over units of their root mean square times the size of their readout weight, (o,)."""
    weights = np.full(len(x), 1 / len(x)) if weights is None else weights
    units = net.hidden(x)
    most = np.max(np.abs(units), axis=0) + 1e-300  # whose square may be too large
    size = most * np.sqrt(weights @ (units / most) ** 2)
    size = size if net.readout is None else np.abs(net.readout) @ size
    return size + (0 if net.bias is None else np.abs(net.bias))


def size_under(net, cloud):
    """Size of the terms of a network (o,) under a Gaussian.

    Far out, they count so much that what the nodes do not see is within a tolerance of 1e-10 times the squared size.
    """
    return units_size(net, cloud.x, cloud.w) + 1e-11 * units_size(net, cloud.wide, cloud.w)


def in_numpy(thing):
    """A network, polynomial or distribution with arrays of NumPy in float64, of the same values."""
    return map_arrays(thing, to_numpy)


def points(rng, under, count=20):
    """Points (n, d) of a distribution; those of a singular one lie where it has its density, to rounding."""
    part = under.components[rng.integers(len(under.components))]
    root = root_of(part.covariance)
    return np.asarray(part.mean) + rng.standard_normal((count, root.shape[1])) @ root.T


def layer_with_varying_units(rng, under, o, place):
    """A layer with a readout, all of whose preactivations vary, in a library and for the oracle."""
    while True:
        net = in_numpy(in_library(layer(rng, under, o), place))
        if isinstance(net, mp.MLP | mp.GLU) and net.readout is not None and net.dim_hidden:
            w = net.forms.directions
            if np.all(np.einsum("hd,de,he->h", w, under.covariance, w) > 0):
                return in_library(net, place), net


def pair_of_units(f, g, i, j, under):
    """Covariance (4, 4) and means (4,) of the forms of a unit of f and one of g; ungated ones have a factor of one."""
    rows, levels = [], []
    for forms, k in ((f.forms, i), (g.forms, j)):
        gated, w = forms.gate_directions is not None, forms.directions[k]
        rows += [w, forms.gate_directions[k] if gated else 0 * w]
        levels += [0.0 if forms.bias is None else forms.bias[k]]
        levels += [float(not gated) if forms.gate_bias is None else forms.gate_bias[k]]
    return np.stack(rows) @ under.covariance @ np.stack(rows).T, np.stack(rows) @ under.mean + levels


def times(function, factor):
    """A function times a number."""
    if not isinstance(function, Layer):
        return function * factor
    readout = np.eye(function.dim_hidden) if function.readout is None else function.readout
    bias = None if function.bias is None else function.bias * factor
    return function.with_parts(function.forms, readout * factor, bias)


def in_units(function, factor):
    """The function x -> f(x / factor)."""
    if not isinstance(function, Layer):
        return function.in_units(factor)
    directions = {n: a / factor for n, a in arrays_of(function.forms).items() if n.endswith("directions")}
    return function.with_parts(replace(function.forms, **directions), function.readout, function.bias)


def shuffled(rng, function):
    """A network with its hidden units in another order; a polynomial as it is."""
    if not isinstance(function, mp.MLP | mp.GLU) or function.readout is None:
        return function
    order = rng.permutation(function.dim_hidden)
    forms = map_arrays(function.forms, lambda a: a[order])
    return function.with_parts(forms, function.readout[:, order], function.bias)


def split(rng, under):
    """A mixture, in another order, with one of its components as two."""
    weights, parts = list(under.weights), list(under.components)
    which, part = int(rng.integers(len(weights))), rng.uniform(0.1, 0.9)
    weights, parts = [*weights, part * weights[which]], [*parts, parts[which]]
    weights[which] *= 1 - part
    order = rng.permutation(len(weights))
    means, covs = ([np.asarray(getattr(parts[i], name)) for i in order] for name in ("mean", "covariance"))
    return mp.GaussianMixture(np.array(weights)[order], np.array(means), np.array(covs))
