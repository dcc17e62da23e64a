"""What others put in the place of an activation: one polynomial for a whole layer, on the interval that it sees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.chebyshev import chebvander

Function = Callable[[np.ndarray], np.ndarray]
Interval = tuple[float, float]

_GRID = 2**13  # points on which the minimax error is levelled, denser towards the ends
_SERIES = 2**11  # points of the quadrature behind a Chebyshev series
_ROUNDS = 100  # of the exchange; it needs about ten


def widened(interval: Interval, margin: float) -> Interval:
    """The interval `margin` times as long around the same middle."""
    low, high = interval
    middle, half = (low + high) / 2, margin * (high - low) / 2
    return middle - half, middle + half


def interpolated(f: Function, degree: int, interval: Interval) -> Chebyshev:
    """Interpolation at the Chebyshev points of the first kind, as numpy.polynomial does it."""
    return Chebyshev.interpolate(f, degree, domain=interval)


def projected(f: Function, degree: int, interval: Interval) -> Chebyshev:
    """The first terms of the Chebyshev series of f: the least squares for the weight 1 / sqrt(1 - t^2)."""
    return Chebyshev(Chebyshev.interpolate(f, _SERIES, domain=interval).coef[: degree + 1], domain=interval)


def least_squares(f: Function, degree: int, interval: Interval, values: np.ndarray) -> Chebyshev:
    """The closest polynomial in mean square over `values`; the interval is only where its basis lives."""
    return Chebyshev.fit(values, f(values), degree, domain=interval)


def minimax(f: Function, degree: int, interval: Interval, kinks: Sequence[float] = ()) -> Chebyshev:
    """The polynomial of least largest error on an interval, by the second algorithm of Remez.

    Parameters
    ----------
    f : callable
        A continuous function.
    degree : int
    interval : tuple
    kinks : sequence of float
        Where f has corners: the error can be largest there, so they belong to the grid.
    """
    low, high = interval
    points = (low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0, np.pi, _GRID + 1))
    points = np.union1d(points, [kink for kink in kinks if low < kink < high])
    basis = chebvander((2 * points - low - high) / (high - low), degree)
    values, count = f(points), degree + 2
    # Start at the extrema of the Chebyshev polynomial of the next degree.
    chosen = np.searchsorted(points, (low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0, np.pi, count)))
    chosen = np.minimum(chosen, len(points) - 1)
    signs = (-1.0) ** np.arange(count)
    for _ in range(_ROUNDS):
        solved = np.linalg.solve(np.column_stack([basis[chosen], signs]), values[chosen])
        error, level = values - basis @ solved[:-1], abs(solved[-1])
        if np.abs(error).max() <= level * (1 + 1e-9) + 1e-13 * np.abs(values).max():
            return Chebyshev(solved[:-1], domain=interval)
        # The largest error of each run of equal signs; the errors at the chosen points alternate, so there are enough.
        runs = np.split(np.arange(len(points)), np.flatnonzero(np.diff(np.sign(error))) + 1)
        peaks = [int(run[np.argmax(np.abs(error[run]))]) for run in runs if np.any(error[run])]
        while len(peaks) > count:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        chosen = np.array(peaks)
    raise RuntimeError(f"the exchange did not settle at degree {degree} on [{low:g}, {high:g}]")


@dataclass(frozen=True)
class OnePerLayer:
    """A network whose activations are polynomials of one variable, one for each hidden layer.

    Attributes
    ----------
    weights : tuple of pairs
        Weights (outputs, inputs) and bias of every layer, the last without an activation.
    polynomials : tuple
        Polynomials of NumPy, whose domains are the intervals that they were made for.
    """

    weights: tuple[tuple[np.ndarray, np.ndarray], ...]
    polynomials: tuple[Chebyshev | Polynomial, ...]

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Outputs (n, o), and which rows (n,) of x left an interval on the way."""
        outside = np.zeros(len(x), bool)
        for (weight, bias), poly in zip(self.weights, self.polynomials, strict=False):
            y = x @ weight.T + bias
            outside |= ~((y >= poly.domain[0]) & (y <= poly.domain[1])).all(1)  # nan is outside as well
            x = poly(y)
        weight, bias = self.weights[-1]
        return x @ weight.T + bias, outside
