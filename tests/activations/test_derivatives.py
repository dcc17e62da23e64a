"""First derivatives of activations: closed forms against mpmath, and differences of the user's own functions."""

import warnings

import mpmath
import numpy as np
import pytest
import torch
from reference.make_reference import ACTIVATIONS
from support.backends import NUMPY32, NUMPY64, TORCH32, TORCH64, assert_same_kind, backends, make, to_numpy

import mlpoly as mp
from mlpoly.activations.record import difference_quotient

FAR = (1e-8, 0.1, 1.3, 4.7, 15.0, 40.0, 200.0, 1e3)
GRID = sorted({*np.linspace(-9, 9, 37), *FAR, *(-y for y in FAR)})


def expected(name, grid):
    """First derivatives by differences at 60 digits, just to the right of each point: at a kink, from the right."""
    function = ACTIVATIONS[name]
    with mpmath.workdps(60):
        points = [mpmath.mpf(float(y)) + mpmath.mpf(10) ** -40 for y in grid]
        return np.array([float(mpmath.diff(lambda v: function(v, mpmath.exp(-abs(v))), y)) for y in points])


def test_every_built_in_activation_has_a_closed_form():
    assert all(mp.activations.get(name).derivative is not None for name in mp.activations.names())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_closed_forms_near_and_far_out(name, dtype):
    grid = np.array(GRID, dtype)
    right = expected(name, grid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for array in (grid, torch.tensor(grid)):
            found = mp.activations.get(name).slope(array)
            assert_same_kind(found, array)
            error = np.abs(to_numpy(found) - right) / np.maximum(np.abs(right), 1e-3)
            assert error.max() <= (1e-13 if dtype is np.float64 else 5e-5), grid[int(error.argmax())]


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


JUMPS = {"step", "threshold", "jumprelu"}


def test_jumps_of_all_activations():
    for like in (np.zeros(1), torch.zeros(1), np.zeros(1, np.float32)):
        assert {name for name in mp.activations.names() if mp.activations.get(name).jumps(like)} == JUMPS


def test_jumps_depend_on_parameters_and_declared_kinks(scratch_registry):
    like = np.zeros(1)
    assert not mp.activations.get("threshold(1, 1)").jumps(like)  # max(y, 1)
    assert mp.activations.register_activation("bend", bend, kinks=(-1, 0, 0.001)).jumps(like)
    assert not mp.activations.register_activation("bent", bend, kinks=(0,)).jumps(like)
