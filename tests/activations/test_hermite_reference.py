"""Every activation against tests/reference/hermite.npz: 50 digits, k = 0..8, |m| <= 1000, 1e-8 <= s <= 1000.

The file is made by tests/reference/make_reference.py. A failing test names the activation and the numerical regime.
The whole suite turns warnings into errors, so none is raised anywhere in that range.
"""

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.backends import BACKENDS, JAX32, JAX64, NUMPY64, TORCH64, assert_same_kind, backends, make, to_numpy

import mlpoly as mp

with np.load(Path(__file__).parents[1] / "reference" / "hermite.npz") as file:
    REFERENCE = dict(file)
NAMES = [str(name) for name in REFERENCE["names"]]
MEAN, STD = REFERENCE["points"].T
ROOT_FACTORIAL = np.sqrt([math.factorial(k) for k in range(9)])

# Far from the bend of a decaying activation even its norm leaves the range of the dtype, and an error relative to it
# can no longer be expressed. The floors are what is lost when a product below the smallest normal number (2e-308,
# 1e-38) becomes zero and is then multiplied by std^2 and he_8, which are at most 1e6 here.
FLOOR = {"float64": 1e-300, "float32": 1e-34}
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


@cache
def computed(name, backend):
    """Coefficients (P, 9) at all points at once, rounded to the backend's dtype."""
    with backend.active():
        mean, std = make(MEAN, backend), make(STD, backend)
        result = mp.activations.hermite_coefficients(name, mean, std, 8)
        assert_same_kind(result, mean)
        return to_numpy(result).T


@cache
def expected(name, dtype):
    """The stored coefficients; where (m, s) is no float32, the float64 result at the rounded point."""
    stored = REFERENCE["coefficients"][NAMES.index(name)]
    if dtype == "float64":
        return stored
    mean, std = MEAN.astype(np.float32).astype(float), STD.astype(np.float32).astype(float)
    exact = (mean == MEAN) & (std == STD)
    assert np.sum(exact) > 90
    return np.where(exact[:, None], stored, mp.activations.hermite_coefficients(name, mean, std, 8).T)


def test_the_reference_covers_the_registry():
    families = {mp.activations.get(name).name.split("(")[0] for name in NAMES}
    assert families == {family.name for family in mp.activations.families()}
    assert np.max(np.abs(MEAN)) == 1000 and STD.min() == 1e-8 and STD.max() == 1000


# JAX compiles every activation anew: in single precision one of each route, the others with the slow tests.
CASES = [
    pytest.param(b, n, marks=[pytest.mark.slow] * (b is JAX32 and n not in ("relu", "gelu", "silu")))
    for b in BACKENDS
    for n in NAMES
]


@pytest.mark.parametrize(
    ("backend", "name"), CASES, ids=lambda value: getattr(value, "name", value), indirect=["backend"]
)
def test_errors_are_within_the_tolerance_of_the_norm(backend, name):
    found, norm = computed(name, backend), np.exp(np.clip(REFERENCE["log_norm"][NAMES.index(name)], -700, None))
    assert np.all(np.isfinite(found))
    allowed = TOLERANCE[backend.dtype] * norm[:, None] / ROOT_FACTORIAL + FLOOR[backend.dtype]
    errors = np.max(np.abs(found - expected(name, backend.dtype)) / allowed, axis=1)
    worst = int(np.argmax(errors))
    assert errors[worst] <= 1, f"{REFERENCE['regimes'][worst]}: m = {MEAN[worst]}, s = {STD[worst]}"


@backends(NUMPY64, TORCH64, JAX64)
@pytest.mark.parametrize("name", ["relu", "relu2"])
def test_far_tail_keeps_its_relative_accuracy(name, backend):
    stored = REFERENCE["coefficients"][NAMES.index(name)]
    far = (MEAN < -6 * STD)[:, None] & (np.abs(stored) > 1e-280)
    assert np.sum(far) > 100
    error = np.abs(computed(name, backend) - stored)[far] / np.abs(stored)[far]
    assert np.max(error) <= 1e-9
