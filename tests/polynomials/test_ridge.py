"""Values of a gated ridge polynomial against its definition, P(t) + e Q(t), term by term in extended precision."""

import numpy as np
import pytest
from support.backends import assert_close

import mlpoly as mp
from mlpoly.units import Gate, Series, Units

H, D, POINTS = 5, 3, 20


def hermite(t, degree):
    """Orthonormal Hermite polynomials by their three-term recurrence."""
    rows = [t * 0 + 1, t]
    for k in range(1, degree):
        rows.append((t * rows[k] - np.sqrt(np.longdouble(k)) * rows[k - 1]) / np.sqrt(np.longdouble(k + 1)))
    return rows[: degree + 1]


def by_definition(p, x):
    """In extended precision, and how large each neuron's terms are, with t known to the rounding of w.x."""
    units, gate, series = p.units, p.units.gate, (p.series.plain, p.series.gated)
    x, W, V = (np.asarray(a, np.longdouble) for a in (x, units.directions, gate.directions))
    moving, scales = units.scales > 0, np.where(units.scales > 0, units.scales, 1)
    t = np.where(moving, (x @ W.T - units.shifts) / scales, 0)
    e = x @ V.T - gate.shifts - gate.slopes * t
    rows = hermite(t, max(len(s) for s in series))
    first, factor = (sum(c * he for c, he in zip(s, rows, strict=False)) for s in series)
    known = 1 + np.where(moving, (np.abs(x) @ np.abs(W).T + np.abs(units.shifts)) / np.maximum(units.scales, 1e-9), 0)
    reach = [np.abs(he) + k * known * np.abs(t) ** max(k - 1, 0) for k, he in enumerate(rows)]
    sizes = [sum(np.abs(c) * r for c, r in zip(s, reach, strict=False)) for s in series]
    size = sizes[0] + (np.abs(x @ V.T) + np.abs(gate.shifts) + np.abs(gate.slopes) * (np.abs(t) + known)) * sizes[1]
    return first + e * factor, size


def polynomial(rows, gate_rows, mean=0.0):
    rng = np.random.default_rng(rows + 10 * gate_rows)
    numbers = lambda *shape: rng.standard_normal(shape)  # noqa: E731
    gate, gated = Gate(numbers(H, D), numbers(H) + mean, numbers(H)), numbers(gate_rows, H)
    units = Units(numbers(H, D), numbers(H), np.array([1.0, 0.5, 2.0, 0.0, 1e-3]), gate=gate)  # one is constant
    return mp.polynomials.RidgePolynomial(units, Series(numbers(rows, H), gated))


@pytest.mark.parametrize("mean", [0.0, 1e6])
@pytest.mark.parametrize(("rows", "gate_rows"), [(2, 1), (3, 2), (4, 3), (6, 5), (9, 8)])
def test_values(rows, gate_rows, mean):
    p = polynomial(rows, gate_rows, mean)
    x = np.random.default_rng(1).standard_normal((POINTS, D))
    expected, size = by_definition(p, x)
    assert np.max(np.abs(p(x) - expected) / size) <= 2e-15 * (rows + gate_rows)


def test_powers_say_the_same():
    p = polynomial(4, 3)
    x = np.random.default_rng(1).standard_normal((POINTS, D))
    a, b = p.powers()
    y, v = p.forms_at(x)
    value = sum(c * y**k for k, c in enumerate(a)) + v * sum(c * y**k for k, c in enumerate(b))
    keep = [0, 1, 2, 3]  # in powers of w.x the neuron of scale 1e-3 cancels nine digits
    assert_close(value[:, keep], p(x)[:, keep], 1e-12)
