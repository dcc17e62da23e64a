"""Quadrature for Hermite coefficients: nodes that neurons share, against panels; and the memory of refinement."""

import tracemalloc
import warnings

import numpy as np
import pytest

import mlpoly as mp
from mlpoly.activations import quadrature
from mlpoly.activations.numeric import numeric_activations
from mlpoly.special import LADDER, reach_of

ANALYTIC = [a for a in numeric_activations() if a.strip is not None]


@pytest.mark.parametrize("activation", ANALYTIC, ids=lambda a: a.name)
@pytest.mark.parametrize("degree", [0, 3, 40, 300])
def test_shared_nodes_agree_with_panels(activation, degree, rng):
    """To rounding of the function's size: panels four times as fine as needed are an independent rule."""
    for std in (0.0, 1e-6, 0.3, 2.0, 12.0):
        mean = np.array([*rng.normal(0, 3, 3), -6 * std - 1, 6 * std + 1])
        widths = np.full(5, std)
        found = activation.project(mean, widths, degree)
        ladder = LADDER
        reach = reach_of(degree)
        want = quadrature._integrate(activation.function, mean, widths, degree, ladder, 4, reach, sizes=True)
        size = np.sqrt(want[-1]) if std else np.abs(activation.function(mean))
        assert np.max(np.abs(found - want[:-2]) / size) < 1e-13


def test_an_undeclared_kink_needs_little_memory():
    """The finest panels have 10^5 nodes for each neuron; about ten arrays of 2^19 numbers are 40 MB."""
    mean, std = np.linspace(-1, 1, 48), np.linspace(0.5, 2, 48)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mp.QuadratureWarning)
            mp.activations.hermite_coefficients(lambda y: np.abs(y - 0.3712), mean, std, 4)
        assert tracemalloc.get_traced_memory()[1] < 80e6
    finally:
        tracemalloc.stop()
