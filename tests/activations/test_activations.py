"""Names, parameters and values of activations; their Hermite coefficients against mpmath; the user's own functions."""

import math
import warnings

import array_api_compat as compat
import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mpmath import mpf
from support.backends import assert_close, assert_same_kind, make, to_numpy

import mlpoly as mp
from mlpoly.activations.piecewise import piecewise

ROOT_FACTORIAL = np.sqrt([math.factorial(k) for k in range(9)])


def norm_of(function, mean, std):
    """sqrt(E[act^2]) at one point by the trapezoidal rule: all digits for smooth functions, six across a kink."""
    t = np.linspace(-12, 12, 4801)
    density = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    return math.sqrt(np.sum(function(mean + std * t) ** 2 * density) * (t[1] - t[0]))


ALIASES = """ReLU:relu LeakyReLU:leaky_relu ReLU6:relu6 relu_squared:relu2 heaviside:step linear:identity none:identity
    jump_relu:jumprelu Hardtanh:hardtanh hard_tanh:hardtanh Hardsigmoid:hardsigmoid hard_sigmoid:hardsigmoid
    Hardswish:hardswish hard-swish:hardswish GELU:gelu gelu_python:gelu gelu_new:gelu_tanh gelu_pytorch_tanh:gelu_tanh
    gelu_fast:gelu_tanh gelu_accurate:gelu_tanh QuickGELU:quick_gelu SiLU:silu swish:silu LogSigmoid:logsigmoid
    log_sigmoid:logsigmoid Tanhshrink:tanhshrink"""
ALL = mp.activations.names()


def test_aliases():
    for alias, name in (pair.split(":") for pair in ALIASES.split()):
        assert mp.activations.get(alias) == mp.activations.get(f" {alias} ") == mp.activations.get(name)
        assert mp.activations.get(alias).name == name


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("leaky_relu(0.2)", "leaky_relu", {"slope": 0.2}),
        ("leaky_relu( slope = 0.2 )", "leaky_relu", {"slope": 0.2}),
        ("threshold(-1.0,0.5)", "threshold", {"threshold": -1, "value": 0.5}),
        ("jumprelu(1.5)", "jumprelu", {"threshold": 1.5}),
        ("hardtanh(-2, 3)", "hardtanh", {"low": -2, "high": 3}),
        ("softplus(2)", "softplus", {"beta": 2}),
        ("CELU(alpha=2)", "celu", {"alpha": 2}),
    ],
)
def test_parameters_by_text_and_by_keyword(text, name, parameters):
    by_text, by_keyword = mp.activations.get(text), mp.activations.get(name, **parameters)
    assert by_text == by_keyword != mp.activations.get(name)
    y = np.linspace(-4, 4, 41)
    np.testing.assert_array_equal(by_text(y), by_keyword(y))
    np.testing.assert_array_equal(
        mp.activations.hermite_coefficients(by_text, 0.3, 1.2, 4),
        mp.activations.hermite_coefficients(by_keyword, 0.3, 1.2, 4),
    )


def test_names_have_the_parameters_that_are_not_the_default_exactly():
    assert mp.activations.get("leaky_relu", slope=0.01).name == mp.activations.get("leaky_relu()").name == "leaky_relu"
    assert mp.activations.get("hardtanh(-1, 1)") == mp.activations.get("hardtanh")
    assert mp.activations.get("relu( )") == mp.activations.get("relu")
    for slope in (0.1 + 0.2, 1 / 3, 1e-7, 5.0):
        made = mp.activations.get("leaky_relu", slope=slope)
        assert mp.activations.get(made.name) == made and made(np.array([-1.0])) == -slope


SAME = """relu leaky_relu relu6 hardtanh hardsigmoid hardswish gelu silu sigmoid logsigmoid tanh tanhshrink softsign elu
    selu celu mish"""
TORCH = {
    **{name: getattr(F, name) for name in SAME.split()},
    **{name: getattr(torch, name) for name in ("abs", "erf", "sin", "cos", "square")},
    "identity": lambda y: y,
    "leaky_relu(0.2)": lambda y: F.leaky_relu(y, 0.2),
    "relu2": lambda y: F.relu(y) ** 2,
    "step": lambda y: torch.heaviside(y, torch.zeros(1, dtype=y.dtype)),
    "jumprelu(1.5)": lambda y: F.threshold(y, 1.5, 0.0),
    "threshold(-1, 0.5)": lambda y: F.threshold(y, -1.0, 0.5),
    "hardtanh(-2, 3)": lambda y: F.hardtanh(y, -2.0, 3.0),
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "quick_gelu": lambda y: y * torch.sigmoid(1.702 * y),
    "softplus": lambda y: F.softplus(y, threshold=100.0),  # torch switches to y beyond 20 by default
    "softplus(2)": lambda y: F.softplus(y, 2.0, threshold=100.0),
    "elu(0.5)": lambda y: F.elu(y, 0.5),
    "celu(2)": lambda y: F.celu(y, 2.0),
    "gaussian": lambda y: torch.exp(-y * y / 2),
    "cube": lambda y: y**3,
}
GRID = np.linspace(-30, 30, 2401)  # holds every kink


@pytest.mark.parametrize("name", TORCH)
def test_values_are_those_of_torch(name):
    want = TORCH[name](torch.tensor(GRID)).numpy()
    # Torch's own gelu, mish and tanhshrink cancel in the tails and near zero: the absolute part is for those.
    np.testing.assert_allclose(mp.activations.get(name)(GRID), want, rtol=1e-13, atol=2e-14)


@pytest.mark.parametrize("name", ALL)
def test_values_on_every_backend(name, backend):
    y = make(np.linspace(-8, 8, 65), backend)
    got = mp.activations.get(name)(y)
    assert_same_kind(got, y)
    assert_close(got, mp.activations.get(name)(to_numpy(y)), backend.tolerance)
    assert np.all(np.isfinite(to_numpy(mp.activations.get(name)(make([-1e4, -800, -100, 100, 800, 1e4], backend)))))


@pytest.mark.parametrize("name", ALL)
def test_without_spread_the_coefficients_are_the_value(name):
    mean = np.array([-3.5, -0.25, 0.0, 0.5, 7.0])
    got = mp.activations.hermite_coefficients(name, mean, 0.0, 3)
    np.testing.assert_allclose(got[0], mp.activations.get(name)(mean), rtol=1e-12, atol=1e-15)
    assert not np.any(got[1:])


@pytest.mark.parametrize("name", ["relu", "hardtanh", "hardswish", "gelu", "silu", "erf", "gaussian", "elu"])
def test_high_degrees(name):
    """Parseval: the series of a smooth function exhausts its norm; of any function it never exceeds it."""
    mean, std = 0.3, 0.6
    a = mp.activations.hermite_coefficients(name, mean, std, 100)
    assert np.all(np.isfinite(a))
    energy = np.cumsum([c * c * math.exp(math.lgamma(k + 1)) for k, c in enumerate(a)])
    total = norm_of(mp.activations.get(name), mean, std) ** 2
    assert energy[-1] <= total * (1 + 1e-6)  # norm_of has a kink inside a panel
    assert energy[-1] >= total * (1 - 1e-3)
    if name in ("gelu", "silu", "erf", "gaussian"):
        assert energy[-1] == pytest.approx(total, rel=1e-12)


def test_mean_and_std_broadcast():
    mean, std = np.linspace(-1, 1, 3)[:, None], np.array([0.5, 1.0, 2.0, 3.0])
    table = mp.activations.hermite_coefficients("gelu", mean, std, 4)
    assert table.shape == (5, 3, 4)
    assert_close(table[:, 1, 2], mp.activations.hermite_coefficients("gelu", 0.0, 2.0, 4), 1e-15)
    array = torch.tensor([0.5, 1.0])
    for got in (mp.activations.hermite_coefficients("silu", *pair, 2) for pair in ((0.25, array), (array, 0.25))):
        assert_same_kind(got, array)  # of which a plain number takes library and dtype
        assert got.shape == (3, 2)


MEANS = np.array([-2.0, -0.4, 0.0, 0.35, 1.0, 4.0, -1.0, 0.301])
STDS = np.array([1.0, 0.3, 2.0, 0.05, 1.0, 8.0, 40.0, 1e-3])


def check_against(got, name, tolerance, shift=0.0):
    record = mp.activations.get(name)
    want = mp.activations.hermite_coefficients(record, MEANS - shift, STDS, 8)
    norm = np.array([norm_of(record, m - shift, s) for m, s in zip(MEANS, STDS, strict=True)])
    error = np.abs(got - want) * ROOT_FACTORIAL[:, None] / norm
    assert np.max(error) <= tolerance


@pytest.mark.parametrize(
    ("function", "kink", "same", "shift"),
    [
        (lambda y: np.maximum(y, 0.0), 0, "relu", 0.0),
        (lambda y: np.where(y > 0.3, y, 0.0), 0.3, "jumprelu(0.3)", 0.0),
        (lambda y: np.where(y > 0.3, 1.0, 0.0), 0.3, "step", 0.3),
    ],
)
def test_a_declared_kink_costs_nothing(function, kink, same, shift, scratch_registry):
    mine = mp.activations.register_activation("mine", function, kinks=(kink,))
    assert mine.route == "quadrature" and mine.kinks == (float(kink),)
    check_against(mp.activations.hermite_coefficients("mine", MEANS, STDS, 8), same, 1e-12, shift)


def test_an_undeclared_kink_warns():
    def kinked(y):
        return np.maximum(y - 0.37, 0.0)

    with pytest.warns(mp.QuadratureWarning, match=r"kinked.*has not converged.*kinks=\("):
        got = mp.activations.hermite_coefficients(kinked, 0.3, 1.0, 4)
    # warned of, yet not far off
    assert_close(got, mp.activations.hermite_coefficients("relu", 0.3 - 0.37, 1.0, 4), 1e-4)
    with pytest.warns(mp.QuadratureWarning):
        mp.activations.hermite_coefficients(lambda y: np.where(y > 0.37, 1.0, 0.0), 0.3, 1.0, 4)


def test_smooth_callables_converge_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Ten times the library's own tolerance for tanh, because the generic ladder knows nothing of its poles.
        check_against(mp.activations.hermite_coefficients(np.tanh, MEANS, STDS, 8), "tanh", 1e-11)


def test_a_callable_on_every_backend(backend):
    mean = make([-1.0, 0.5, 2.0], backend)
    got = mp.activations.hermite_coefficients(lambda y: compat.array_namespace(y).tanh(y), mean, 0.7, 5)
    assert_same_kind(got, mean)
    assert_close(
        got, mp.activations.hermite_coefficients("tanh", to_numpy(mean), 0.7, 5), max(1e-11, backend.tolerance)
    )


def test_registering_over_a_name_must_be_asked_for(scratch_registry):
    mp.activations.register_activation("mine", np.tanh)
    replaced = mp.activations.register_activation("mine", np.sin, overwrite=True)
    assert mp.activations.get("mine") is replaced
    alias = mp.activations.register_activation("swish", np.sin, overwrite=True)
    assert mp.activations.get("swish") is alias
    assert mp.activations.get("silu").name == "silu"
    made = mp.activations.register_activation("My-Act.2", np.sin)
    assert mp.activations.get("my-act.2") is mp.activations.get("MY_ACT.2") is made


def test_two_functions_of_one_name_are_two_activations():
    first, second = (mp.activations.get(f) for f in (lambda y: y * y, lambda y: y + 1))
    assert first.name == second.name
    assert first != second
    assert mp.activations.get(np.tanh) == mp.activations.get(np.tanh)
    assert mp.activations.get("leaky_relu(0.2)") == mp.activations.get("leaky_relu", slope=np.float64(0.2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("leaky_relu(slope=1,slope=2)", "'slope' twice"),
        ("threshold(value=3, 1)", "'value' twice"),
        ("leaky_relu(,)", "'' is not a number"),
        ("leaky_relu(0.1,)", r"takes the parameters \['slope'\]"),
        ("relu(,)", "takes the parameters none"),
    ],
)
def test_parameters_are_read_strictly(text, message):
    with pytest.raises(ValueError, match=message):
        mp.activations.get(text)


def mp_far(name, mean, std, k):
    """Orthonormal c_k of erf and of the Gaussian bump, 40 digits and any exponent."""
    with mpmath.workdps(40):
        m, s = mpf(mean), mpf(std)
        width = 2 if name == "erf" else 1  # both are Gaussians of y in their first or zeroth derivative
        v = mpmath.sqrt(1 + width * s * s)
        u, order = m * mpmath.sqrt(width) / v, k - 1 if name == "erf" else k
        he, before = mpf(1), mpf(0)
        for j in range(order):
            he, before = (u * he - mpmath.sqrt(j) * before) / mpmath.sqrt(j + 1), he
        power = (-mpmath.sqrt(width) * s / v) ** k * he * mpmath.exp(-u * u / 2)
        if name == "gaussian":
            return power / v
        return mpmath.erf(m / v) if k == 0 else -2 * power / mpmath.sqrt(2 * mpmath.pi * k)


@pytest.mark.parametrize("name", ["erf", "gaussian"])
@pytest.mark.parametrize(
    ("mean", "std"), [(0.7, 0.5), (30.0, 1.0), (-45.0, 0.5), (300.0, 1.4), (1e4, 1.0), (60.0, 50.0)]
)
def test_smooth_bumps_have_right_coefficients_far_out(name, mean, std):
    """he_256(u) alone overflows beyond u = 155, and exp(-u^2/2) alone vanishes beyond 38."""
    record = mp.activations.get(name)
    got = record.project(np.array(mean), np.array(std), 256)
    for k in (0, 1, 2, 7, 60, 100, 255, 256):
        want = float(mp_far(name, mean, std, k))
        assert got[k] == pytest.approx(want, rel=1e-9, abs=1e-300), k


EXTREME = [(0.3, 1e-309), (0.0, 1e-309), (1.0, 1e160), (1e160, 1.0), (-1e160, 1e160), (0.0, 1e300), (1e4, 1), (-1e4, 1)]


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("square", "cube", "relu2")])
def test_coefficients_values_and_slopes_are_finite_and_quiet_at_any_size(name):
    """The largest std is large enough that its square overflows, the smallest that a distance divided by it does."""
    for mean, std in EXTREME:
        assert np.all(np.isfinite(mp.activations.hermite_coefficients(name, mean, std, 100))), (mean, std)
    record, y = mp.activations.get(name), np.array([-1e300, -1e160, 1e160, 1e300])
    assert np.all(np.isfinite(record(y))) and np.all(np.isfinite(record.slope(y)))


@pytest.mark.parametrize("name", ["gelu", "relu", "silu", "hardswish"])
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1e160), (-1e160, 1e160), (3e200, 1e200)])
def test_huge_units_are_those_of_relu(name, mean, std):
    """On that scale all of them are ReLU: a_0 = s (phi(u) + u Phi(u)), a_1 = s Phi(u), a_2 = s phi(u) / 2."""
    u = mean / std
    density, below = math.exp(-u * u / 2) / math.sqrt(2 * math.pi), 0.5 * math.erfc(-u / math.sqrt(2))
    want = [std * (density + u * below), std * below, std * density / 2]
    np.testing.assert_allclose(mp.activations.hermite_coefficients(name, mean, std, 2), want, rtol=1e-12)


@pytest.mark.parametrize("name", ["square", "cube", "relu2"])
def test_coefficients_out_of_range_are_refused(name):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=rf"coefficients of '{name}' are not finite"):
        mp.activations.hermite_coefficients(name, 1.0, 1e200, 3)


def test_a_fast_growing_function_is_followed_to_where_it_counts():
    """E[exp(s t) he_k(t)] = exp(s^2/2) s^k / sqrt(k!) comes from t = s, 12 standard deviations out."""
    for std in (1.0, 5.0, 12.0, 20.0):
        got = mp.activations.hermite_coefficients(np.exp, 0.5, std, 3)
        want = math.exp(0.5 + std**2 / 2) * np.array([1, std, std**2 / 2, std**3 / 6])
        np.testing.assert_allclose(got, want, rtol=1e-12)
    got = mp.activations.hermite_coefficients(lambda y: np.exp(y * y), 0.0, 0.6, 0)
    np.testing.assert_allclose(got, [1 / math.sqrt(1 - 2 * 0.36)], rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "std"), [(lambda y: np.exp(y * y), 1.0), (lambda y: np.exp(y * y), 0.71), (np.exp, 30.0)]
)
def test_an_integral_that_never_ends_warns(function, std):
    """E[exp(y^2)] is infinite from std = sqrt(1/2) on; exp itself leaves the range of float64."""
    with pytest.warns(mp.QuadratureWarning, match="has not converged.*smaller standard deviation"):
        mp.activations.hermite_coefficients(function, 0.0, std, 3)


def test_units_that_never_fire_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ramp = mp.activations.get(lambda y: np.maximum(y, 0.0))
        far = mp.activations.hermite_coefficients(ramp, np.array([-80.0, -36.5, -33.5]), 1.0, 2)
    assert np.all(np.abs(far) < 1e-240)


def test_a_declared_bump_is_found(scratch_registry):
    """Width 1e-3 under a standard deviation of 10: unseen between the nodes, exact where it is declared."""
    width = 1e-3

    def bump(y):
        return np.exp(-0.5 * ((y - 10) / width) ** 2)

    mp.activations.register_activation("bump", bump, kinks=(10 - 9 * width, 10, 10 + 9 * width))
    v = math.hypot(10, width)
    want = width / v * math.exp(-0.5 * (10 / v) ** 2)
    assert mp.activations.hermite_coefficients("bump", 0.0, 10.0, 0)[0] == pytest.approx(want, rel=1e-10)


def test_jumps_of_too_high_a_degree_are_refused():
    """A cubic on both sides is no jump, and the function itself is integrated."""
    cube = ([0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0])
    piecewise("stepped cube", "y^3 + 1[y > 0]", lambda y: y**3 + (y > 0), [0.0], cube)
    with pytest.raises(ValueError, match=r"'half cube' jump at 0.5 by a polynomial of degree 3, .* up to degree 2"):
        piecewise("half cube", "", lambda y: np.maximum(y, 0) ** 3, [-1.0, 0.5], [[0.0], [0.0], cube[0]])
    net = mp.MLP(np.eye(1), activation=lambda y: y**3 * (y > 0))
    assert mp.fit(net, mp.Gaussian.standard(1), 0)(np.zeros((1, 1)))[0, 0] == pytest.approx(math.sqrt(2 / math.pi))
