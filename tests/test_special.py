"""Normal tails and Hermite recurrences against mpmath, NumPy and quadrature."""

import math

import mpmath
import numpy as np
import pytest
import torch
from support.backends import assert_close, assert_same_kind, make, to_numpy

from mlpoly import special

EPS = np.finfo(float).eps


def mills_integrals(x):
    """I_0, I_1, I_2 of the docstring, by parabolic cylinder functions and 60 digits against their cancellation."""
    with mpmath.workdps(60):
        x = mpmath.mpf(float(x))
        # E[(t - x)_+^r] = r! phi-weighted repeated integral = r! exp(-x^2/4) D_{-r-1}(x) / sqrt(2 pi)
        return [float(mpmath.exp(x * x / 4) * mpmath.pcfd(-r - 1, x)) for r in range(3)]


TAIL_POINTS = [0.0, *np.geomspace(1e-8, 1e8, 49), 4.999, 5.0, 5.001, 37.5]


@pytest.mark.parametrize("r", range(3))
def test_tail_integrals_keep_all_digits_from_zero_to_1e8(r):
    got = special.tail_integrals(np.array(TAIL_POINTS))[r]
    want = np.array([mills_integrals(x)[r] for x in TAIL_POINTS])
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_tail_integrals_survive_any_size():
    for integral in special.tail_integrals(np.array([1e100, 1e300])):
        assert np.all(np.isfinite(integral)) and np.all(integral >= 0)


U = np.concatenate([np.linspace(-37, 37, 75), [-8.3, -1e-9, 0.0, 1e-9, 0.1]])


def test_normal_pdf_and_cdf_against_mpmath():
    # exp(-u^2/2) turns the rounding of its argument into a relative error of u^2/2 units.
    rtol = (20 + U * U) * EPS
    with mpmath.workdps(40):
        pdf = np.array([float(mpmath.npdf(mpmath.mpf(float(u)))) for u in U])
        cdf = np.array([float(mpmath.ncdf(mpmath.mpf(float(u)))) for u in U])
    assert np.all(np.abs(special.normal_pdf(U) - pdf) <= rtol * pdf)
    assert np.all(np.abs(special.normal_cdf(U) - cdf) <= rtol * cdf)


def test_normal_functions_are_quiet_at_any_distance():
    far = np.array([-1e308, -1e20, -1e5, 1e5, 1e20, 1e308])
    assert special.normal_pdf(far).tolist() == [0.0] * 6
    assert special.normal_cdf(far).tolist() == [0.0] * 3 + [1.0] * 3


def test_normal_cdf_on_every_backend(backend):
    u = make(np.linspace(-5, 5, 41), backend)
    got = special.normal_cdf(u)
    assert_same_kind(got, u)
    assert_close(got, special.normal_cdf(to_numpy(u)), backend.tolerance)


def hermite_table(t, degree):
    return np.stack(list(special.hermite(t, degree)))


def test_hermite_polynomials_agree_with_numpy():
    t = np.linspace(-4, 4, 33)
    for k, row in enumerate(hermite_table(t, 12)):
        want = np.polynomial.hermite_e.HermiteE.basis(k)(t) / math.sqrt(math.factorial(k))
        np.testing.assert_allclose(row, want, rtol=1e-12, atol=1e-12 * np.max(np.abs(want)))


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 7, 20])
def test_clenshaw_sums_the_series(degree, rng):
    coefficients = rng.standard_normal((degree + 1, 4))
    t = rng.standard_normal((6, 4))
    assert_close(special.clenshaw(coefficients, t), np.einsum("kh,knh->nh", coefficients, hermite_table(t, degree)))


def test_clenshaw_leaves_its_arguments_alone(rng):
    coefficients, t = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    for a in (coefficients, t):
        a.setflags(write=False)
    expected = np.einsum("kh,knh->nh", coefficients, hermite_table(t, 3))
    assert_close(special.clenshaw(coefficients, t), expected)
    wide = special.clenshaw(coefficients.astype(np.float32), t)
    assert wide.dtype == np.float64


def test_gradients_flow_through_clenshaw(rng):
    coefficients, t = (torch.tensor(rng.standard_normal(s), requires_grad=True) for s in ((5, 3), (4, 3)))
    assert torch.autograd.gradcheck(special.clenshaw, (coefficients, t))
    # Mapped over several series at once: none of them may be written into.
    series = torch.stack([coefficients, 2 * coefficients])
    mapped = torch.func.vmap(special.clenshaw, in_dims=(0, None))(series, t)
    assert torch.allclose(mapped[1], 2 * special.clenshaw(coefficients, t))


def test_tables_hold_the_polynomials(rng):
    t = rng.standard_normal(5)
    powers = t ** np.arange(9)[:, None]
    assert_close(np.array(special.hermite_in_powers(8)) @ powers, hermite_table(t, 8))
    assert_close(np.array(special.powers_in_hermite(8)) @ hermite_table(t, 8), powers)
