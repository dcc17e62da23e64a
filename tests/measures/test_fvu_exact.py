"""The error of a polynomial in closed form: against tensor quadrature and samples; KL on data."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import torch
from support.inputs import gaussian, grid
from support.networks import glu, mlp, network

import mlpoly as mp
from mlpoly.inputs import GaussianMixture
from mlpoly.measures import fvu, kl
from mlpoly.polynomials import to_dense
from mlpoly.records import arrays_of, replace

OUT = 3


def mixture_of(rng, d, scale=0.5):
    return GaussianMixture.of(np.array([0.2, 0.5, 0.3]), [gaussian(rng, d, spread=scale) for _ in range(3)])


def polynomials(net, inputs, other):
    """Optimal ones, those of another distribution, of another network, and plainly wrong ones."""
    first = inputs.components[0] if isinstance(inputs, GaussianMixture) else inputs
    elsewhere = mp.Gaussian(first.mean + 0.3, 0.7 * first.cov)
    best = [mp.fit(net, first, degree=n) for n in range(5)]
    return {
        **{f"optimal {n}": p for n, p in enumerate(best)},
        "elsewhere": mp.fit(net, elsewhere, degree=3),
        "scaled": best[2] * 1.3,
        "of another network": mp.fit(other, first, degree=3),
        "sum": best[3] - 0.5 * mp.fit(other, elsewhere, degree=2),
        "dense": to_dense(best[2], first.mean + 0.1),
        "dense elsewhere": to_dense(mp.fit(net, elsewhere, degree=2), first.mean),
        "dense linear": to_dense(best[1], first.mean),
    }


def by_quadrature(f, p, weight):
    """Total, per output and flattened, from values (n, o)."""
    mean = weight @ f
    variance, miss = weight @ (f - mean) ** 2, weight @ (f - p) ** 2
    all_f, all_miss = np.mean(weight @ f**2) - np.mean(mean) ** 2, np.mean(miss) - np.mean(weight @ (f - p)) ** 2
    return miss.sum() / variance.sum(), miss / variance, all_miss / all_f


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(
    "make_inputs", [lambda rng, d: gaussian(rng, d, spread=0.5), mixture_of], ids=["gaussian", "mixture"]
)
@pytest.mark.parametrize(("kind", "activation"), [(mlp, "gelu"), (mlp, "silu"), (glu, "silu"), (glu, "erf")])
def test_against_tensor_quadrature(kind, activation, make_inputs, d, rng):
    net, other = kind(rng, activation, d, 7, OUT), (glu if kind is mlp else mlp)(rng, "silu", d, 5, OUT)
    inputs = make_inputs(rng, d)
    x, weight = grid(inputs, 90 if d == 2 else 48)
    f = net(x)
    for name, poly in polynomials(net, inputs, other).items():
        got = fvu(net, poly, inputs)
        total, per_output, flattened = by_quadrature(f, poly(x), weight)
        assert got.total == pytest.approx(total, rel=1e-8, abs=1e-8), name
        np.testing.assert_allclose(got.per_output, per_output, rtol=1e-8, atol=1e-8, err_msg=name)
        assert got.flattened == pytest.approx(flattened, rel=1e-8, abs=1e-8), name
        assert got.explained == pytest.approx(1 - total, abs=1e-7 * (1 + total)), name
        assert 0 <= got.bound < 1e-10
        assert got.standard_error is None


def fvu_of_a_unit(name, bias):
    """FVU of the best line to act(t + bias), and the mean in standard deviations, 40 digits."""
    functions = {"sigmoid": lambda y: 1 / (1 + mpmath.exp(-y)), "softplus": lambda y: mpmath.log1p(mpmath.exp(y))}
    with mpmath.workdps(40):

        def mean(f):
            return mpmath.quad(lambda t: f(t, functions[name](t + bias)) * mpmath.npdf(t), range(-18, 19, 2))

        centre = mean(lambda t, y: y)
        variance = mean(lambda t, y: (y - centre) ** 2)
        return float(1 - mean(lambda t, y: t * y) ** 2 / variance), float(centre / mpmath.sqrt(variance))


@pytest.mark.parametrize("name", ["sigmoid", "softplus"])
@pytest.mark.parametrize("bias", [0.0, 5.0, 12.0])
def test_units_that_hardly_vary_around_their_mean(name, bias):
    """A variance is no difference of squares: all that is lost is the rounding of the values beside their spread."""
    want, distance = fvu_of_a_unit(name, bias)
    for library in (np, jnp):
        net = mp.MLP(library.eye(1), library.asarray([bias]), None, None, name)
        got = float(fvu(net, mp.fit(net, mp.Gaussian.standard(1), degree=1)).total)
        rounding = float(library.finfo(net.W1.dtype).eps) * (1 + distance)
        assert got == pytest.approx(want, abs=1e-12 + 16 * rounding)


def test_units_as_outputs_far_from_zero():
    """Far right elu is the identity: nothing is left unexplained, at any mean."""
    for bias in (1e2, 1e4, 1e6):
        net = mp.MLP(np.eye(1), np.array([bias]), None, None, "elu")
        assert fvu(net, mp.fit(net, mp.Gaussian.standard(1), degree=2)).total < 1e-9


def test_flattened_is_var_over_var_of_one_list(rng):
    net, inputs = mlp(rng, "relu"), gaussian(rng)
    poly = mp.fit(net, mp.Gaussian.standard(4), degree=1)
    x = inputs.sample(1000)
    f, p = net(x), poly(x)
    assert fvu(net, poly, x).flattened == pytest.approx(np.var(f - p) / np.var(f), rel=1e-12)
    # An error that all outputs share counts in one convention and not in the other.
    shifted = mp.polynomials.RidgePolynomial(poly.units, poly.series, poly.readout, poly.bias + 5)
    assert fvu(net, shifted, inputs).flattened == pytest.approx(fvu(net, poly, inputs).flattened, rel=1e-9)
    assert fvu(net, shifted, inputs).total > fvu(net, poly, inputs).total + 1


def test_differentiable_in_torch(rng):
    """Through the fit too."""
    net = mlp(rng, "relu", 2, 3, 1)
    inputs, arrays = mp.Gaussian(torch.tensor([0.3, -0.2], dtype=torch.float64)), arrays_of(net)

    def loss(*weights):
        moved = replace(net, **dict(zip(arrays, weights, strict=True)))
        return fvu(moved, mp.fit(moved, inputs, degree=2), inputs).total

    leaves = [torch.tensor(a, requires_grad=True) for a in arrays.values()]
    assert torch.autograd.gradcheck(loss, leaves, eps=1e-5, atol=1e-7, rtol=1e-6, fast_mode=True)


@pytest.mark.parametrize("bound", [None, 1.5])
@pytest.mark.parametrize("build", [mlp, glu])
def test_gradients_do_not_move_a_polynomial_with_the_network(build, bound, rng):
    """Its linear forms and readout are equal to those of the network, and stay where they are when that changes."""
    net, inputs = build(rng, "tanh", 3, 4, 2), mp.Gaussian(torch.zeros(3).double(), torch.eye(3).double())
    arrays = {name: torch.tensor(a) for name, a in arrays_of(net).items()}
    poly = mp.fit(replace(net, **arrays), mp.Gaussian(inputs.mean + 0.5, 1.5 * inputs.cov), degree=3)
    poly = poly if bound is None else poly.bounded(bound)

    def error(*weights):
        return mp.fvu(replace(net, **dict(zip(arrays, weights, strict=True))), poly, inputs).total

    weights = [a.clone().requires_grad_() for a in arrays.values()]
    assert torch.autograd.gradcheck(error, weights, fast_mode=True)


def test_bad_input(rng):
    net, inputs = mlp(rng, "relu"), gaussian(rng)
    poly = mp.fit(net, inputs, degree=2)
    with pytest.raises(ValueError, match="maps 4 -> 3, but poly maps 4 -> 2"):
        fvu(net, mp.fit(mlp(rng, "relu", o=2), inputs, degree=2), inputs)
    with pytest.raises(ValueError, match="dimension 3, but the network takes 4"):
        fvu(net, poly, mp.Gaussian.standard(3))
    with pytest.raises(TypeError, match="inputs must be a Gaussian"):
        fvu(net, poly, "data")
    with pytest.raises(ValueError, match="give inputs"):
        fvu(net, poly - mp.fit(net, mp.Gaussian.standard(4), degree=2))  # of different inputs, so of none
    assert fvu(net, poly).total == fvu(net, poly, inputs).total  # by default, what it was fitted under
    with pytest.raises(TypeError, match="net must be"):
        fvu(poly, poly, inputs)
    with pytest.raises(TypeError, match="got MLP; to compare two networks pass data"):
        fvu(net, net, inputs)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_constant_outputs_are_named(activation, rng):
    net, inputs = mlp(rng, activation), gaussian(rng)
    silent = net.W2.copy()
    silent[1] = 0
    dead = mp.MLP(net.W1, net.b1, silent, net.b2, activation)
    with pytest.raises(ValueError, match="output 1 of the network has no variance"):
        fvu(dead, mp.fit(dead, inputs, degree=1), inputs)
    still = mp.Gaussian(np.ones(4), np.zeros(4))
    with pytest.raises(ValueError, match="outputs 0, 1, 2 of the network has no variance"):
        fvu(net, mp.fit(net, inputs, degree=1), still)
    # Units that cancel exactly leave rounding errors, which are no variance.
    twice = mp.MLP(net.W1[[0, 0]], net.b1[[0, 0]], np.array([[1.0, -1.0]]), None, activation)
    with pytest.raises(ValueError, match="no variance"):
        fvu(twice, mp.fit(twice, inputs, degree=1), inputs)


def test_kl_survives_any_logits():
    net = mp.MLP(np.eye(2) * 1e4, None, None, None, "identity")
    other = mp.fit(mp.MLP(np.eye(2)[::-1] * 1e4, None, None, None, "identity"), mp.Gaussian.standard(2), degree=1)
    assert float(kl(net, other, np.array([[1.0, 0.0]]))) == pytest.approx(1e4, rel=1e-9)


def test_a_bound_that_matters_is_printed():
    """Where it could change a digit of the number: lines from 1.5 standard deviations on, not for exact kernels."""
    net, inputs = network("MLP", "tanh", 3, 20, 1), mp.Gaussian.standard(3)
    rough, fine = (mp.fvu(net, mp.fit(net, inputs, 3, bound=bound)) for bound in (1.5, 6.0))
    assert float(rough.bound) > 0.005 * float(rough)
    assert f", bound on its error {float(rough.bound):.2g}, outputs=1)" in repr(rough)
    assert f"bound on the error {float(rough.bound):.2g}" in rough._repr_html_()
    assert float(fine.bound) < 0.005 * float(fine) and "bound" not in repr(fine)
