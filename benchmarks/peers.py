"""What others do to find a polynomial of a network: regression and descent on samples, beside the optimum."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

import mlpoly as mp
from benchmarks.common import seconds

OUTPUTS, WIDEST, BATCH = 4, 1024, 1024

Tensors = list[np.ndarray]  # the coefficients of degree k as (o, d, ..., d), symmetric in the k axes of inputs
Answer = Callable[[], Tensors]  # what a peer found, brought into that form outside of its time


@dataclass(frozen=True)
class Problem:
    """A network under N(0, I), and its optimal polynomial."""

    d: int
    degree: int = 2

    def __str__(self) -> str:
        return f"d = {self.d}, degree {self.degree}"

    @property
    def features(self) -> int:
        """Number of monomials."""
        return math.comb(self.d + self.degree, self.degree)

    @cached_property
    def net(self) -> mp.MLP:
        rng = np.random.default_rng(0)
        d, h = self.d, min(4 * self.d, WIDEST)
        first, bias, last = (rng.standard_normal(shape) for shape in ((h, d), h, (OUTPUTS, h)))
        return mp.MLP(first / d**0.5, bias, last / h**0.5, None, "gelu")

    @cached_property
    def inputs(self) -> mp.Gaussian:
        return mp.Gaussian.standard(self.d)

    def closed_form(self) -> Tensors:
        """The fit, and its dense coefficients, which are what the peers find."""
        found = mp.fit(self.net, self.inputs, self.degree).coefficients()
        return [np.asarray(found.tensor(k)) for k in range(self.degree + 1)]

    def fit_seconds(self) -> float:
        """Of the fit without its dense coefficients, which few uses of it need."""
        return seconds(lambda: mp.fit(self.net, self.inputs, self.degree))

    @cached_property
    def optimum(self) -> Tensors:
        return in_hermite_basis(self.closed_form())

    @cached_property
    def variance(self) -> float:
        return float(np.trace(mp.second_moment(self.net, self.inputs).cov))

    @cached_property
    def fvu(self) -> float:
        return float(mp.fvu(self.net, mp.fit(self.net, self.inputs, self.degree)).total)

    def sample(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (n, d) and what the network makes of them."""
        x = np.random.default_rng(seed).standard_normal((n, self.d))
        return x, self.net(x)

    def errors(self, found: Tensors) -> tuple[float, float]:
        """Excess error, and the relative error of the coefficients of the highest degree; both exact."""
        apart = squares([a - b for a, b in zip(in_hermite_basis(found), self.optimum, strict=True)])
        return sum(apart) / self.variance, math.sqrt(apart[-1] / squares(self.optimum)[-1])


def squares(tensors: Tensors) -> list[float]:
    """k! |T_k|^2: the variance at every degree, of tensors in the Hermite basis of N(0, I)."""
    return [math.factorial(k) * float(np.sum(t * t)) for k, t in enumerate(tensors)]


def in_hermite_basis(tensors: Tensors) -> Tensors:
    """From powers of x up to the third to Hermite polynomials: x x = He_2 + 1 and x x x = He_3 + 3 He_1."""
    made = [t.copy() for t in tensors]
    if len(tensors) > 2:
        made[0] += np.trace(tensors[2], axis1=1, axis2=2)
    if len(tensors) > 3:
        made[1] += 3 * np.trace(tensors[3], axis1=2, axis2=3)
    return made


def symmetric_tensors(powers: np.ndarray, coefficients: np.ndarray, degree: int) -> Tensors:
    """From coefficients (o, p) of monomials with the given powers (p, d) to symmetric tensors."""
    o, d = len(coefficients), powers.shape[1]
    tensors = [np.zeros((o, *[d] * k)) for k in range(degree + 1)]
    for column, row in zip(coefficients.T, powers, strict=True):
        places = tuple(np.repeat(np.arange(d), row))
        alike = set(itertools.permutations(places))
        for place in alike:
            tensors[len(places)][(slice(None), *place)] = column / len(alike)
    return tensors


# -- the peers ---------------------------------------------------------------------------------------------------------


def regression(problem: Problem, n: int, seed: int, normal_equations: bool = False) -> Answer:
    """PolynomialFeatures, then LinearRegression, or ridge without penalty, which solves normal equations (faster)."""
    from sklearn.linear_model import LinearRegression, Ridge
    from sklearn.preprocessing import PolynomialFeatures

    x, y = problem.sample(n, seed)
    features = PolynomialFeatures(problem.degree)
    options = {"fit_intercept": False, "copy_X": False}
    model = Ridge(alpha=0.0, solver="cholesky", **options) if normal_equations else LinearRegression(**options)
    model.fit(features.fit_transform(x), y)
    return lambda: symmetric_tensors(features.powers_, model.coef_, problem.degree)


def chaospy_regression(problem: Problem, n: int, seed: int) -> Answer:
    """Point collocation: an orthonormal expansion, and regression on samples."""
    import chaospy

    x, y = problem.sample(n, seed)
    expansion = chaospy.generate_expansion(problem.degree, _normal(problem.d), normed=True)
    found = chaospy.fit_regression(expansion, x.T, y)
    return lambda: _of_chaospy(found, problem)


def chaospy_quadrature(problem: Problem, n: int, seed: int) -> Answer:
    """Pseudo-spectral projection on a tensor grid of at most n Gauss-Hermite nodes."""
    import chaospy

    order = math.floor(n ** (1 / problem.d) + 1e-9) - 1
    nodes, weights = chaospy.generate_quadrature(order, _normal(problem.d), rule="gaussian")
    expansion = chaospy.generate_expansion(problem.degree, _normal(problem.d), normed=True)
    found = chaospy.fit_quadrature(expansion, nodes, weights, problem.net(nodes.T))
    return lambda: _of_chaospy(found, problem)


def _normal(d: int) -> Any:
    import chaospy

    return chaospy.Iid(chaospy.Normal(0, 1), d)


def _of_chaospy(polynomial: Any, problem: Problem) -> Tensors:
    inputs = [f"q{i}" for i in range(problem.d)]  # a variable that no term contains is missing from the exponents
    powers = np.zeros((len(polynomial.exponents), problem.d), int)
    powers[:, [inputs.index(name) for name in polynomial.names]] = polynomial.exponents
    return symmetric_tensors(powers, np.stack(polynomial.coefficients, axis=1), problem.degree)


def descent(problem: Problem, n: int, seed: int) -> Answer:
    """Schedule-free SGD on dense quadratic coefficients, from zero, in float32, with steps measured by curvature."""
    d, net = problem.d, problem.net
    weights = [torch.tensor(w, dtype=torch.float32) for w in (net.W1, net.b1, net.W2)]
    single = mp.MLP(*weights, None, "gelu")
    shapes = ((d,), (OUTPUTS,), (OUTPUTS, d), (OUTPUTS, d, d))
    zero = mp.polynomials.DensePolynomial(*[torch.zeros(shape) for shape in shapes])
    inputs, steps = mp.Gaussian.standard(d, like=single.W1), max(n // BATCH, 1)
    options = {"batch_size": BATCH, "seed": seed}
    found = mp.finetune(single, zero, inputs, steps=steps, **options).coefficients()
    return lambda: [found.tensor(k).numpy().astype(float) for k in range(3)]


Peer = Callable[[Problem, int, int], Answer]
PEERS: dict[str, Peer] = {
    "scikit-learn": regression,
    "scikit-learn, normal equations": partial(regression, normal_equations=True),
    "chaospy": chaospy_regression,
    "chaospy, quadrature": chaospy_quadrature,
    "SGD": descent,
}
