"""The polynomials of a page, and how far each is from the network: in closed form, on the data, on unseen rows."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mlpoly.errors import TooLargeError
from mlpoly.fitting import fit
from mlpoly.inputs import Gaussian, Inputs
from mlpoly.measures import DegreeSpectrum, degree_spectrum, fvu
from mlpoly.networks import MLP, Chain, Layer, Network, check_network
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.toolkit.widgets import percent
from mlpoly.polynomials import Polynomial
from mlpoly.scores import FVU, fvu_of_outputs

ROUNDING = 1e-10  # fractions of variance below it are rounding
_ROWS = 20_000  # rows on which errors are measured
_OUTPUTS = 12  # outputs with pictures of their own
_MONOMIALS = 50_000  # up to which a polynomial above degree 2 is written in its monomials
_TALLEST = 12  # degree up to which single predictions can be taken apart
_SPECTRUM = 8  # degrees listed separately
_PROBABILITIES = ("sigmoid", "hardsigmoid")  # activations of an output that make it one


@dataclass(frozen=True)
class DegreeErrors:
    """Errors of the polynomial of one degree."""

    degree: int
    under_inputs: FVU  # the inputs of the fit, for each output and for all; exact for one hidden layer
    on_data: FVU
    on_unseen: float | None  # FVU on each half of the rows of a polynomial from the moments of the other half
    score: float | None  # accuracy or R² with the labels
    agreement: float | None  # fraction of rows that get the network's class

    @property
    def standard_error(self) -> float:
        """Standard error of the FVU on the data."""
        return float(self.on_data.standard_error if self.on_data.standard_error is not None else 0.0)


@dataclass(frozen=True)
class Fits:
    """Polynomials of degree 1 to n of a network, with what is known about their errors."""

    polynomials: Mapping[int, Polynomial]  # by degree; each is the closest of its degree
    errors: tuple[DegreeErrors, ...]
    spectrum: DegreeSpectrum | None  # for one hidden layer under one Gaussian
    written: Polynomial  # the one that is written out: of the highest degree whose monomials can be listed
    every: int  # errors are measured on every so many of the rows of the data
    rows: np.ndarray  # (m, d), these rows
    values: np.ndarray  # (m, o), outputs of the network on them
    score: float | None  # accuracy or R² of the network itself
    shown: tuple[int, ...]  # outputs with pictures of their own: the 12 of largest variance

    @property
    def degree(self) -> int:
        """Highest degree."""
        return max(self.polynomials)

    @property
    def quadratic(self) -> Polynomial | None:
        """The closest quadratic, if the degree reaches it."""
        return self.polynomials.get(2)


def fit_degrees(subject: Subject, degree: int | None, tick: Callable[[str], None]) -> Fits:
    """Fit and measure the polynomials of degree 1 to `degree`; `tick` is called with a note on what comes next.

    By default the degree is 3 for one hidden layer under one Gaussian and 2 otherwise.
    """
    net, inputs = check_network(subject.net), subject.inputs
    exact = isinstance(net, Layer) and isinstance(inputs, Gaussian)
    degree = (3 if exact else 2) if degree is None else degree
    tick("polynomials")
    polynomials = _by_degree(net, inputs, degree)
    every = -(-len(subject.x) // _ROWS)
    rows, values = subject.x[::every], np.asarray(net(subject.x[::every]))
    targets = None if subject.targets is None else subject.targets[::every]
    unseen = _on_unseen(net, rows, degree) if subject.estimated and len(rows) >= 20 else {}
    errors = []
    for k, poly in polynomials.items():
        tick(f"error of degree {k}")
        found = np.asarray(poly(rows))
        agreement = float(np.mean(chosen(net, found) == chosen(net, values))) if subject.task == "classes" else None
        under = fvu(net, poly, inputs)
        on_data, score = fvu_of_outputs(values, found), _score(subject, found, targets)
        errors.append(DegreeErrors(k, under, on_data, unseen.get(k), score, agreement))
    spectrum = degree_spectrum(net, inputs, max(degree, _SPECTRUM)) if exact else None
    shown = np.sort(np.argsort(-values.var(axis=0), kind="stable")[:_OUTPUTS])
    listed = [k for k in polynomials if k <= 2 or (k <= _TALLEST and math.comb(net.dim_in + k, k) <= _MONOMIALS)]
    score = _score(subject, values, targets)
    # A network that is a polynomial is written as it is, without terms of a higher degree that only rounding makes.
    whole = [e.degree for e in errors if abs(float(e.under_inputs)) < ROUNDING]
    written = polynomials[min([max(listed), *whole])]
    return Fits(polynomials, tuple(errors), spectrum, written, every, rows, values, score, tuple(map(int, shown)))


def _by_degree(net: Network, inputs: Inputs, degree: int) -> dict[int, Polynomial]:
    """The closest polynomial of every degree from 1 on."""
    if isinstance(net, Layer) and isinstance(inputs, Gaussian):  # in the Hermite basis, a truncation is the optimum
        highest = fit(net, inputs, degree)
        return {k: highest.truncate(k) for k in range(1, degree + 1)}
    found: dict[int, Polynomial] = {}
    for k in range(1, degree + 1):
        try:
            found[k] = fit(net, inputs, k)
        except TooLargeError:  # for all monomials, under a mixture
            if not isinstance(net, Layer):
                raise
            found[k] = fit(net, inputs, k, method="neuronwise")
    return found


def _on_unseen(net: Network, rows: np.ndarray, degree: int) -> dict[int, float]:
    """FVU by degree on each half of the rows, for polynomials that know the moments of the other half."""
    halves = rows[0::2], rows[1::2]
    found: dict[int, list[float]] = {}
    for known, new in (halves, halves[::-1]):
        values = np.asarray(net(new))
        if not (values.var(axis=0) > 0).all():
            return {}
        for k, poly in _by_degree(net, Gaussian.from_samples(known), degree).items():
            found.setdefault(k, []).append(float(fvu_of_outputs(values, np.asarray(poly(new)))))
    return {k: float(np.mean(each)) for k, each in found.items()}


def _score(subject: Subject, found: np.ndarray, targets: np.ndarray | None) -> float | None:
    """Accuracy for classes, R² for values."""
    if targets is None:
        return None
    if subject.task == "classes":
        return float(np.mean(chosen(subject.net, found) == targets))
    spread = float(np.sum((targets - targets.mean(axis=0)) ** 2))
    return 1 - float(np.sum((targets - found) ** 2)) / spread if spread > 0 else None


def chosen(net: Network, found: np.ndarray) -> np.ndarray:
    """Class of each row: the largest output; a single one is a logit, or a probability if the network ends so."""
    if found.shape[1] > 1:
        return found.argmax(axis=1)
    last = net.layers[-1] if isinstance(net, Chain) else net
    ends = isinstance(last, MLP) and last.W2 is None and last.b2 is None and last.activation.name
    probability = ends in _PROBABILITIES
    return (found[:, 0] > (0.5 if probability else 0)).astype(int)


def missed(fraction: float) -> str:
    """Return a fraction that is left unexplained; what only rounding left is zero."""
    return percent(0.0 if abs(fraction) < ROUNDING else fraction, None)
