"""One code path on NumPy, PyTorch and JAX: same numbers, same kind of array, gradients, jit, vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.backends import (
    JAX32,
    JAX64,
    NUMPY32,
    NUMPY64,
    TORCH32,
    TORCH64,
    assert_close,
    assert_same_kind,
    backends,
    make,
    to_numpy,
)
from support.inputs import points
from support.polynomials import own_arrays

import mlpoly as mp

D, H, OUT = 4, 6, 3
NETS = dict.fromkeys(("relu", "hardtanh", "gelu", "silu", "elu"), "MLP") | dict.fromkeys(
    ("relu glu", "silu glu"), "GLU"
)
nets = pytest.mark.parametrize("name", NETS)
# JAX compiles every shape for seconds: in float32 with the slow tests.
libraries = backends(NUMPY64, NUMPY32, TORCH64, TORCH32, JAX64, slow=(JAX32,))


def numbers(name):
    """Weights by argument name, then mean and covariance root, as NumPy float64."""
    rng = np.random.default_rng(list(name.encode()))
    shapes = {"W1": (H, D), "b1": (H,), "W2": (OUT, H), "b2": (OUT,)}
    if NETS[name] == "GLU":
        shapes = {"W_gate": (H, D), "b_gate": (H,), "W_up": (H, D), "b_up": (H,), "W_down": (OUT, H), "b_down": (OUT,)}
    shapes |= {"mean": (D,), "root": (D, D)}
    return {key: 0.7 * rng.standard_normal(shape) for key, shape in shapes.items()}


def build(name, values):
    """Network and Gaussian from arrays of one library."""
    values = dict(values)
    mean, root = values.pop("mean"), values.pop("root")
    layer = mp.GLU if NETS[name] == "GLU" else mp.MLP
    return layer(**values, activation=name.split()[0]), mp.Gaussian(mean, root @ root.T)


X = points(D, 5, seed=0, spread=1.0)


@libraries
@nets
@pytest.mark.parametrize("degree", [0, 3])
def test_fit_equals_numpy_in_double_precision(name, degree, backend):
    values = {key: make(v, backend) for key, v in numbers(name).items()}
    x = make(X, backend)
    net, gaussian = build(name, values)
    poly = mp.fit(net, gaussian, degree)
    twin_net, twin_gaussian = build(name, {key: to_numpy(v) for key, v in values.items()})
    twin = mp.fit(twin_net, twin_gaussian, degree)
    for got, want in [
        (net(x), twin_net(to_numpy(x))),
        (poly(x), twin(to_numpy(x))),
        (poly(x[0]), twin(to_numpy(x[0]))),
        (poly.gradient(x), twin.gradient(to_numpy(x))),
        (poly.hessian(x[0]), twin.hessian(to_numpy(x[0]))),
        (poly.coefficients().constant, twin.coefficients().constant),
        (poly.coefficients().linear, twin.coefficients().linear),
        (poly.coefficients().tensor(3), twin.coefficients().tensor(3)),
        ((2.0 * poly - poly.truncate(1))(x), (2.0 * twin - twin.truncate(1))(to_numpy(x))),
    ]:
        assert_same_kind(got, x)
        assert_close(got, want, 3 * backend.tolerance)  # sums of H D products and three powers of t
    two = make(2.0, backend)
    for double in (two * poly, poly * two, poly + poly, mp.fit(net, mp.Gaussian.standard(D), degree) * 2):
        assert_same_kind(double(x), x)  # also of scalars of the library, and of inputs of none
    assert_close((two * poly)(x), 2 * twin(to_numpy(x)), 3 * backend.tolerance)
    for array in own_arrays(poly).values():
        assert_same_kind(array, x)


jaxes = backends(JAX64, JAX32)
cases = pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, JAX64) for name in NETS), ("gelu", JAX32), ("silu glu", JAX32)],
    ids=lambda value: value if isinstance(value, str) else value.name,
    indirect=["backend"],
)


@cases
def test_jit_returns_the_polynomial_itself(name, backend):
    values = {key: make(v, backend) for key, v in numbers(name).items()}
    x = make(X, backend)

    @jax.jit
    def fitted(values):
        return mp.fit(*build(name, values), degree=3)

    poly, plain = fitted(values), mp.fit(*build(name, values), degree=3)
    assert isinstance(poly, mp.polynomials.RidgePolynomial)
    assert (poly.degree, poly.source) == (3, plain.source)
    assert_same_kind(poly(x), x)
    assert_close(poly(x), plain(x), backend.tolerance)
    assert_close(poly.gradient(x), plain.gradient(x), backend.tolerance)
    assert poly.inputs.dim == D


@jaxes
def test_records_pass_through_jit_as_arguments(backend):
    net, gaussian = build("silu glu", {key: make(v, backend) for key, v in numbers("silu glu").items()})
    x = make(X, backend)
    got = jax.jit(lambda net, gaussian, x: (mp.fit(net, gaussian, 2)(x), net(x)))(net, gaussian, x)
    assert_close(got[0], mp.fit(net, gaussian, 2)(x), backend.tolerance)
    assert_close(got[1], net(x), backend.tolerance)
    poly = mp.fit(net, gaussian, 2)
    for make_it in (lambda p: p.gradient(x), lambda p: p.coefficients().quadratic, lambda p: (p + 2 * p)(x)):
        assert_close(jax.jit(make_it)(poly), make_it(poly), backend.tolerance)


def test_jit_tells_two_functions_of_one_name_apart():
    with JAX64.active():
        x, W = make(X, JAX64), make(numbers("relu")["W1"], JAX64)
        fitted = jax.jit(lambda net, x: mp.fit(net, mp.Gaussian.standard(D), degree=3)(x))
        for power in (2, 3):
            net = mp.MLP(W, activation=lambda y, power=power: y**power)
            assert_close(fitted(net, x), net(x), 1e-11)  # what one refinement of a callable's panels reaches


@cases
def test_vmap_over_networks_and_their_inputs(name, backend):
    stacked = {key: jnp.stack([make(v, backend), 0.5 * make(v, backend)]) for key, v in numbers(name).items()}
    x = make(X, backend)

    def value(values):
        return mp.fit(*build(name, values), degree=2)(x)

    together = jax.jit(jax.vmap(value))(stacked)
    apart = [value({key: v[i] for key, v in stacked.items()}) for i in range(2)]
    assert_close(together, jnp.stack(apart), backend.tolerance)


def loss(name, values, x, degree=2):
    """Some scalar that depends on every number."""
    poly = mp.fit(*build(name, values), degree)
    return (poly(x) ** 2).sum() + poly.coefficients().linear.sum()


def torch_gradients(name, numbers_, x, degree=2):
    leaves = {key: make(v, TORCH64).requires_grad_() for key, v in numbers_.items()}
    loss(name, leaves, make(x, TORCH64), degree).backward()
    return {key: leaf.grad for key, leaf in leaves.items()}


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "relu glu", "silu glu"])
@pytest.mark.parametrize("degree", [0, 3])
def test_torch_gradcheck_from_values_to_weights_mean_and_covariance(name, degree):
    keys, x = list(numbers(name)), make(X[:2], TORCH64)
    leaves = [make(v, TORCH64).requires_grad_() for v in numbers(name).values()]

    def values(*arrays):
        return mp.fit(*build(name, dict(zip(keys, arrays, strict=True))), degree)(x)

    assert torch.autograd.gradcheck(values, leaves, fast_mode=True)


@cases
def test_jax_and_torch_gradients_agree(name, backend):
    values, x = numbers(name), X
    want = torch_gradients(name, values, x)
    arrays = {key: make(v, backend) for key, v in values.items()}
    got = jax.jit(jax.grad(lambda a: loss(name, a, make(x, backend))))(arrays)
    for key in values:
        # A gradient sums 15 squared outputs, with cancellation: coarser than one value.
        assert_close(got[key], want[key], 30 * backend.tolerance)


@pytest.mark.parametrize("name", ["relu", "silu"])
def test_gradients_of_the_error_in_single_precision_agree_with_torch(name):
    def error(arrays):
        net, gaussian = build(name, arrays)
        return mp.fvu(net, mp.fit(net, gaussian, 2)).total

    values = numbers(name)
    leaves = {key: make(v, TORCH64).requires_grad_() for key, v in values.items()}
    error(leaves).backward()
    with JAX32.active():
        got = jax.jit(jax.grad(error))({key: make(v, JAX32) for key, v in values.items()})
        for key, leaf in leaves.items():
            # The variance that is left is a difference of larger ones, and its gradient that of theirs.
            assert_close(got[key], leaf.grad, 30 * JAX32.tolerance)


def without_a_neuron(name):
    values = numbers(name)
    values[next(iter(values))][0] = 0  # the first neuron sees nothing
    return values


@nets
@pytest.mark.parametrize("degree", [0, 1, 3])
def test_torch_gradients_without_variance_are_finite(name, degree):
    for values in (without_a_neuron(name), numbers(name) | {"root": np.zeros((D, D))}):
        for key, gradient in torch_gradients(name, values, X, degree).items():
            assert torch.all(torch.isfinite(gradient)), key


@pytest.mark.parametrize("name", ["relu", "gelu", "silu glu"])
def test_jax_gradients_with_a_neuron_without_variance_are_finite(name):
    with JAX64.active():
        arrays = {key: make(v, JAX64) for key, v in without_a_neuron(name).items()}
        gradients = jax.jit(jax.grad(lambda a: loss(name, a, make(X, JAX64))))(arrays)
        for key, gradient in gradients.items():
            assert np.all(np.isfinite(to_numpy(gradient))), key


def summed(record):
    """A number that every entry of the first moments, or of a polynomial's values, has its part in."""
    return (record * record).sum()


SCALARS = {
    "fit": lambda net, g, x: summed(mp.fit(net, g, 1)(x)),
    "bounded": lambda net, g, x: summed(mp.fit(net, g, 3).bounded(2.0)(x)),
    "second_moment": lambda net, g, x: summed(mp.second_moment(net, g).raw),
    "degree_spectrum": lambda net, g, x: mp.degree_spectrum(net, g, 3).variance[0].sum(),
    "propagate": lambda net, g, x: summed(mp.propagate(net, g)[-1].cov),
    "similarity": lambda net, g, x: mp.similarity(net, mp.fit(net, g, 2), g, centred=True).inner,
    "fvu": lambda net, g, x: mp.fvu(net, mp.fit(net, g, 1), g).total,
}


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu", "sin"])
@pytest.mark.parametrize("what", SCALARS)
def test_gradients_at_units_without_weights(what, activation, kind):
    """A unit that starts at zero still has a gradient, and its values are those without one."""
    rng, step = np.random.default_rng(2), 1e-5  # central differences: a part of 1e-10, and rounding of 1e-11
    rest = [np.array([0.3, -0.1]), *(rng.standard_normal(s) for s in ((2, 2), (2,)) if kind == "GLU")]
    readout, mean, cov = np.array([[1.0, 0.7], [0.3, -1.0]]), [0.3, -0.2], [[1.0, 0.4], [0.4, 0.7]]
    x = points(2, 5, seed=0)

    def value(W, of):
        net = getattr(mp, kind)(W, *map(of, rest), of(readout), None, activation=activation)
        return SCALARS[what](net, mp.Gaussian(of(np.array(mean)), of(np.array(cov))), of(x))

    W = np.array([[0.0, 0.0], [1.0, 0.5]])
    weights = torch.tensor(W, requires_grad=True)
    result = value(weights, torch.tensor)
    result.backward()
    assert abs(float(result.detach()) - value(W, np.asarray)) <= 1e-13 * abs(value(W, np.asarray))
    moves = [step * np.array([[1.0, 0.0], [0.0, 0.0]]), step * np.array([[0.0, 1.0], [0.0, 0.0]])]
    wanted = [(value(W + m, np.asarray) - value(W - m, np.asarray)) / (2 * step) for m in moves]
    assert np.max(np.abs(wanted)) > 1e-3  # something to miss
    assert_close(weights.grad[0], np.array(wanted), 1e-7)


ALL = mp.activations.names()


@pytest.mark.parametrize("name", ALL)
def test_derivatives_of_coefficients(name):
    """d a_k/dm = (k+1) a_{k+1} / s and s d a_k/ds = k a_k + (k+1)(k+2) a_{k+2}, from MATH 1 and the heat equation."""
    n = 4
    mean = torch.tensor([-2.0, -0.3, 0.4, 1.7], dtype=torch.float64)
    std = torch.tensor([0.5, 1.0, 2.0, 6.0], dtype=torch.float64)
    a = mp.activations.hermite_coefficients(name, mean, std, n + 2)
    by_mean, by_std = torch.autograd.functional.jacobian(
        lambda m, s: mp.activations.hermite_coefficients(name, m, s, n), (mean, std)
    )
    k = torch.arange(n + 1, dtype=torch.float64)[:, None]
    size = (a.abs() + 1).amax(0)  # of the size of the function; derivatives of quadrature lose a digit or two
    along = torch.diagonal(by_mean, dim1=1, dim2=2)
    assert torch.all((along * std - (k + 1) * a[1 : n + 2]).abs() <= 1e-10 * size)
    spread = torch.diagonal(by_std, dim1=1, dim2=2)
    assert torch.all((spread * std - k * a[: n + 1] - (k + 1) * (k + 2) * a[2:]).abs() <= 1e-10 * size)


@pytest.mark.parametrize("name", ALL)
def test_derivatives_are_finite_where_branches_meet_and_far_out(name):
    mean = torch.tensor([0.0, 0.0, 1.0, -1.0, 3.0, -3.0, 1e3, -1e3, 1e3, -1e3, 6.0], dtype=torch.float64)
    std = torch.tensor([0.0, 1.0, 0.0, 1e-8, 1.0, 0.0, 0.0, 1e-8, 1e3, 1.0, 1e-4], dtype=torch.float64)
    mean.requires_grad_(), std.requires_grad_()
    mp.activations.hermite_coefficients(name, mean, std, 4).sum().backward()
    assert torch.all(torch.isfinite(mean.grad)) and torch.all(torch.isfinite(std.grad))


@jaxes
def test_constants_may_be_used_under_jit(backend):
    """Under jit the sum of two constants is traced, so that no check may look at it."""
    values = numbers("gelu")
    arrays = {key: make(value, backend) for key, value in values.items()}
    x = make(X, backend)
    expected = to_numpy(mp.fit(*build("gelu", arrays), 3)(x))
    for traced in arrays:
        got = jax.jit(lambda a, key=traced: mp.fit(*build("gelu", arrays | {key: a}), 3)(x))(arrays[traced])
        assert_close(got, expected, backend.tolerance)
    got = jax.jit(lambda x: mp.fit(*build("gelu", arrays), 3)(x))(x)  # everything but the points
    assert_close(got, expected, backend.tolerance)


def test_functions_of_the_user_may_be_fitted_under_jit_with_constants():
    with JAX64.active():
        mean, std = make([0.0, 0.5, -1.0], JAX64), make([1.0, 2.0, 0.5], JAX64)
        expected = mp.activations.hermite_coefficients(jnp.tanh, mean, std, 3)
        got = jax.jit(lambda a: a + mp.activations.hermite_coefficients(jnp.tanh, mean, std, 3))(mean * 0)
        assert_close(got, expected, 1e-10)  # under jit the panels are halved once, without a look at the change
        net, inputs = mp.MLP(make(np.eye(2), JAX64)), mp.Gaussian(make([0.0, 1.0], JAX64))
        got = jax.jit(lambda a: a * mp.second_moment(net, inputs).cov)(std[1])
        assert_close(got, 2 * mp.second_moment(net, inputs).cov, 1e-14)


def test_constants_are_checked_outside_jit():
    with JAX64.active():
        with pytest.raises(ValueError, match="W1 holds 1 NaN"):
            mp.MLP(make([[np.nan]], JAX64))
        with pytest.raises(ValueError, match="W1 holds 1 NaN"):
            jax.grad(lambda a: mp.MLP(make([[np.nan]], JAX64))(a)[0])(make([1.0], JAX64))
