"""First derivatives of activations: closed forms against mpmath, and differences of the user's own functions."""

import warnings

import mpmath
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
    assert_same_kind,
    backends,
    make,
    to_numpy,
)

import mlpoly as mp
from mlpoly.activations.differences import difference_quotient


def sigmoid(y):
    return 1 / (1 + mpmath.exp(-y))


SMOOTH = {
    "identity": lambda y: y,
    "square": lambda y: y * y,
    "cube": lambda y: y**3,
    "gelu": lambda y: y * mpmath.ncdf(y),
    "gelu_tanh": lambda y: y * sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (y + mpmath.mpf(0.044715) * y**3)),
    "quick_gelu": lambda y: y * sigmoid(mpmath.mpf(1.702) * y),
    "silu": lambda y: y * sigmoid(y),
    "sigmoid": sigmoid,
    "logsigmoid": lambda y: -mpmath.log(1 + mpmath.exp(-y)),
    "tanh": mpmath.tanh,
    "tanhshrink": lambda y: y - mpmath.tanh(y),
    "softplus": lambda y: mpmath.log(1 + mpmath.exp(y)),
    "softplus(3)": lambda y: mpmath.log(1 + mpmath.exp(3 * y)) / 3,
    "mish": lambda y: y * mpmath.tanh(mpmath.log(1 + mpmath.exp(y))),
    "erf": mpmath.erf,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "gaussian": lambda y: mpmath.exp(-y * y / 2),
}
SELU = mpmath.mpf(1.0507009873554804934193349852946), mpmath.mpf(1.6732632423543772848170429916717)
# Functions left and right of their kinks: (kink, left of it), ..., right of all.
PIECEWISE = {
    "relu": [(0, lambda y: 0), lambda y: y],
    "leaky_relu": [(0, lambda y: mpmath.mpf(0.01) * y), lambda y: y],
    "leaky_relu(0.3)": [(0, lambda y: mpmath.mpf(0.3) * y), lambda y: y],
    "relu6": [(0, lambda y: 0), (6, lambda y: y), lambda y: 6],
    "relu2": [(0, lambda y: 0), lambda y: y * y],
    "abs": [(0, lambda y: -y), lambda y: y],
    "step": [(0, lambda y: 0), lambda y: 1],
    "threshold": [(1, lambda y: 0), lambda y: y],
    "jumprelu": [(1, lambda y: 0), lambda y: y],
    "hardtanh": [(-1, lambda y: -1), (1, lambda y: y), lambda y: 1],
    "hardsigmoid": [(-3, lambda y: 0), (3, lambda y: (y + 3) / 6), lambda y: 1],
    "hardswish": [(-3, lambda y: 0), (3, lambda y: y * (y + 3) / 6), lambda y: y],
    "softsign": [(0, lambda y: y / (1 - y)), lambda y: y / (1 + y)],
    "elu": [(0, lambda y: mpmath.expm1(y)), lambda y: y],
    "elu(0.5)": [(0, lambda y: mpmath.expm1(y) / 2), lambda y: y],
    "selu": [(0, lambda y: SELU[0] * SELU[1] * mpmath.expm1(y)), lambda y: SELU[0] * y],
    "celu": [(0, lambda y: mpmath.expm1(y)), lambda y: y],
    "celu(2)": [(0, lambda y: 2 * mpmath.expm1(y / 2)), lambda y: y],
}
FAR = (1e-8, 0.1, 1.3, 4.7, 15.0, 40.0, 200.0, 1e3)
GRID = sorted({*np.linspace(-9, 9, 37), *FAR, *(-y for y in FAR)})


def expected(name, grid):
    """First derivatives by differences at 60 digits; at a kink, from the right."""
    if name in SMOOTH:
        functions = [SMOOTH[name]] * len(grid)
    else:
        *left, last = PIECEWISE[name]
        functions = [next((f for kink, f in left if y < kink), last) for y in grid]
    with mpmath.workdps(60):
        return np.array([float(mpmath.diff(f, mpmath.mpf(y))) for f, y in zip(functions, grid, strict=True)])


def test_every_built_in_activation_has_a_closed_form():
    assert set(mp.activations.names()) <= {*SMOOTH, *PIECEWISE}
    assert all(mp.activations.get(name).derivative is not None for name in mp.activations.names())


@pytest.mark.parametrize("name", [*SMOOTH, *PIECEWISE])
def test_closed_forms_in_double_precision(name):
    activation, right = mp.activations.get(name), expected(name, GRID)
    for array in (np.array(GRID), torch.tensor(GRID, dtype=torch.float64)):
        found = activation.slope(array)
        assert_same_kind(found, array)
        error = np.abs(to_numpy(found) - right) / np.maximum(np.abs(right), 1e-3)
        assert error.max() <= 1e-13, GRID[int(error.argmax())]


@pytest.mark.parametrize("name", [*SMOOTH, *PIECEWISE])
def test_closed_forms_in_single_precision_are_finite_and_close_far_out(name):
    activation, grid = mp.activations.get(name), np.float32(GRID)
    right = expected(name, grid.astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for array in (grid, torch.tensor(grid)):
            found = activation.slope(array)
            assert_same_kind(found, array)
            error = np.abs(to_numpy(found) - right) / np.maximum(np.abs(right), 1e-3)
            assert error.max() <= 5e-5, grid[int(error.argmax())]


@backends(JAX64, slow=(JAX32,))
def test_closed_forms_in_jax(backend):
    y = make(np.linspace(-6, 6, 25), backend)
    for name in ("relu", "hardswish", "gelu", "silu", "elu"):
        found, right = mp.activations.get(name).slope(y), mp.activations.get(name).slope(to_numpy(y))
        assert_same_kind(found, y)
        assert np.abs(to_numpy(found) - right).max() <= 10 * backend.tolerance


# ---------------------------------------------------------------------------------------------------------------------
# The user's own functions
# ---------------------------------------------------------------------------------------------------------------------


def bend(y):
    """Smooth but for kinks at -1, 0 and 0.001, where it jumps, bends, and bends."""
    library = torch if isinstance(y, torch.Tensor) else np
    left, inner, right = library.exp(y) + 5, library.sin(3 * y), y * y * y + 3 * y
    kinked = library.where(y >= 0.001, right + 1.0, library.where(y >= 0, right, inner))
    return library.where(y >= -1, kinked, left)


def bend_slope(y):
    return np.where(y >= 0, 3 * y * y + 3, np.where(y >= -1, 3 * np.cos(3 * y), np.exp(y)))


@backends(NUMPY64, TORCH64, NUMPY32, TORCH32)
def test_differences_do_not_reach_across_declared_kinks(backend, scratch_registry):
    activation = mp.activations.register_activation("bend", bend, kinks=(0.001, -1, 0))
    near = [k + s * d for k in (-1, 0, 0.001) for d in (0.0, 1e-4, 1e-3, 1e-2) for s in (-1, 1)]
    y = make(np.array([*near, *np.linspace(-3, 3, 41)]), backend)
    found = activation.slope(y)
    assert_same_kind(found, y)
    right = bend_slope(to_numpy(y))
    error = np.abs(to_numpy(found) - right) / np.maximum(np.abs(right), 1.0)
    assert error.max() <= (1e-9 if backend.dtype == "float64" else 1e-6)


def test_differences_across_an_undeclared_kink_are_wrong():
    """So the test above could fail."""
    y = np.array([-1 + 1e-4])
    assert abs(difference_quotient(bend, y, ()) - bend_slope(y)) > 1.0


def test_differences_of_smooth_functions_near_and_far():
    y = np.array([-1e3, -40.0, -3.0, -1e-3, 0.0, 0.7, 12.0, 1e3])
    assert np.abs(mp.activations.get(np.sin).slope(y) - np.cos(y)).max() <= 1e-9
    cube = mp.activations.get(lambda v: v**3).slope(y)
    assert (np.abs(cube - 3 * y * y) / np.maximum(3 * y * y, 1.0)).max() <= 1e-9


def test_gradients_flow_through_slopes():
    y = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    for activation in (mp.activations.get("tanh"), mp.activations.get(torch.tanh)):
        (second,) = torch.autograd.grad(activation.slope(y).sum(), y)
        t = torch.tanh(y).detach()
        assert torch.abs(second + 2 * t * (1 - t * t)).max() <= 1e-8


# ---------------------------------------------------------------------------------------------------------------------
# Jumps
# ---------------------------------------------------------------------------------------------------------------------

JUMPS = {"step", "threshold", "jumprelu"}


def test_jumps_of_all_activations():
    for like in (np.zeros(1), torch.zeros(1), np.zeros(1, np.float32)):
        assert {name for name in mp.activations.names() if mp.activations.get(name).jumps(like)} == JUMPS


def test_jumps_depend_on_parameters_and_declared_kinks(scratch_registry):
    like = np.zeros(1)
    assert not mp.activations.get("threshold(1, 1)").jumps(like)  # max(y, 1)
    assert mp.activations.register_activation("bend", bend, kinks=(-1, 0, 0.001)).jumps(like)
    assert not mp.activations.register_activation("bent", bend, kinks=(0,)).jumps(like)
