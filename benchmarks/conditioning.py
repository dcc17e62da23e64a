"""Conditioning on inputs, and two networks compared, beside what others do, with one thread for all.

- The game v(S) = E[f | x_S = x0_S], and its Shapley values: shapiq's GaussianImputer, which averages over draws of the
  other inputs, at its default number of draws and at the number for which it takes as long as the closed form.
- Sobol indices of independent inputs: chaospy, by regression on samples and by a tensor grid.
- E[f.g] of two bilinear layers under N(0, I): the contraction of their tensors, and the sum over pairs of hidden units
  that tensor-similarity (arXiv 2605.15183) uses.

Times are those of the processor, because other work on a machine disturbs them least.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import mlpoly as mp
from benchmarks.common import save, versions
from mlpoly.charts import style
from mlpoly.measures.games import shapley_values
from mlpoly.measures.shapley import prediction_worth

DRAWS = 100  # shapiq's default
ENUMERATED = 12  # inputs up to which all sets are used; 64 orders of the inputs above


def processor_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor for one call, and what it returns."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


# -- the game of one prediction ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """A network of correlated inputs, whose mean and covariance are those of data, at one point."""

    d: int
    hidden: int = 64

    @cached_property
    def data(self) -> np.ndarray:
        rng = np.random.default_rng(self.d)
        return rng.standard_normal((4000, self.d)) @ rng.standard_normal((self.d, self.d)) / self.d**0.5

    @cached_property
    def inputs(self) -> mp.Gaussian:
        return mp.Gaussian(self.data.mean(0), np.cov(self.data.T))

    @cached_property
    def net(self) -> mp.MLP:
        rng = np.random.default_rng(1)
        shapes = ((self.hidden, self.d), self.hidden, (1, self.hidden))
        first, bias, last = (rng.standard_normal(shape) for shape in shapes)
        return mp.MLP(2 * first / self.d**0.5, bias, last / self.hidden**0.5, None, "gelu")

    @cached_property
    def point(self) -> np.ndarray:
        return self.data[0]

    @cached_property
    def sets(self) -> list[tuple[int, ...]]:
        """All that Shapley values need: all there are, or those of the orders that are drawn."""
        if self.d <= ENUMERATED:
            return [s for k in range(self.d + 1) for s in itertools.combinations(range(self.d), k)]
        met: dict[tuple[int, ...], None] = {}
        self.shapley(lambda chosen: met.setdefault(tuple(sorted(chosen))) or 0.0)
        return list(met)

    def shapley(self, worth: Callable[[Any], float]) -> np.ndarray:
        """Shapley values (d,) of a game."""
        drawn = None if self.d <= ENUMERATED else 64
        return shapley_values(lambda chosen: np.array([worth(chosen)]), self.d, drawn, seed=0)[0][:, 0]

    def closed_form(self) -> np.ndarray:
        """v(S) of all sets."""
        worth = prediction_worth(self.net, self.inputs, self.point, [np.array([i]) for i in range(self.d)])
        return np.array([float(worth(s)[0]) for s in self.sets])

    def masks(self) -> np.ndarray:
        """The sets as rows of true and false."""
        return np.array([[i in s for i in range(self.d)] for s in map(set, self.sets)])

    def imputed(self, draws: int, seed: int) -> np.ndarray:
        """v(S) of all sets from draws of the other inputs, by shapiq."""
        from shapiq.imputer import GaussianImputer

        def predict(x: np.ndarray) -> np.ndarray:
            return self.net(x)[:, 0]

        return GaussianImputer(predict, self.data, self.point, sample_size=draws, random_state=seed)(self.masks())


def against_shapiq(d: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Errors of v(S) in standard deviations of the output, and of Shapley values relative to the largest."""
    at = Prediction(d)
    at.imputed(2, 0)  # imports, and the covariance of the data
    closed, exact = min((processor_seconds(at.closed_form) for _ in range(2)), key=lambda found: found[0])
    few, many = (processor_seconds(lambda n=n: at.imputed(n, 0))[0] for n in (10, 410))
    equal = max(2, round(10 + 400 * (closed - few) / (many - few)))
    spread = math.sqrt(float(mp.second_moment(at.net, at.inputs).cov[0, 0]))
    values = at.shapley(lookup(at, exact))
    numbers: dict[str, float] = {f"d = {d}: v(S) in closed form, ms per set": 1e3 * closed / len(at.sets)}
    points = []
    for draws in sorted({DRAWS, equal}):
        took, found = processor_seconds(lambda n=draws: at.imputed(n, 1))
        apart = math.sqrt(float(np.mean((found - exact) ** 2))) / spread
        wrong = float(np.max(np.abs(at.shapley(lookup(at, found)) - values)) / np.max(np.abs(values)))
        points.append((took / closed, wrong))
        which = "in equal time" if draws == equal else f"with {DRAWS} draws"
        numbers |= {
            f"d = {d}: shapiq {which}, error of v(S) in standard deviations of f": apart,
            f"d = {d}: shapiq {which}, largest error of a Shapley value / largest value": wrong,
        }
        if draws == equal:
            numbers[f"d = {d}: sample size of shapiq in equal time"] = equal
        else:
            numbers[f"d = {d}: shapiq {which} / closed form, time"] = took / closed
    return numbers, {f"d = {d}": {"x": [x for x, _ in points], "y": [y for _, y in points]}}


def lookup(at: Prediction, values: np.ndarray) -> Callable[[Any], float]:
    """A game from its values."""
    known = dict(zip(at.sets, values.tolist(), strict=True))
    return lambda chosen: known[tuple(sorted(chosen))]


# -- Sobol indices of independent inputs -------------------------------------------------------------------------------


def against_chaospy(d: int, degrees: tuple[int, ...]) -> tuple[dict[str, float], dict[str, Any]]:
    """Largest error of first-order and total indices of a network of independent inputs, and time."""
    import chaospy
    import numpoly  # of chaospy

    rng = np.random.default_rng(0)
    first, bias, last = (rng.standard_normal(shape) for shape in ((16, d), 16, (1, 16)))
    net, inputs = mp.MLP(first / d**0.5, bias, last / 4, None, "gelu"), mp.Gaussian.standard(d)
    normal = chaospy.Iid(chaospy.Normal(0, 1), d)

    def ours() -> np.ndarray:
        """First-order and total indices, with the Shapley effects, which come with them."""
        found = mp.sensitivity(net, inputs, show_progress=False)
        return np.stack([found.first[:, 0], found.total[:, 0]])

    def indices(expansion: Any, coefficients: np.ndarray) -> np.ndarray:
        """Sums of squared coefficients; Sens_m and Sens_t find the same from moments, hundreds of times slower."""
        powers = numpoly.lead_exponent(expansion, graded=True) > 0
        squares = np.where(powers.any(axis=1), coefficients**2, 0.0)
        alone = powers & (powers.sum(axis=1, keepdims=True) == 1)
        return np.stack([squares @ alone, squares @ powers]) / squares.sum()

    def regression(degree: int) -> np.ndarray:
        """On ten times as many samples as there are terms, drawn from a Sobol sequence."""
        expansion = chaospy.generate_expansion(degree, normal, normed=True)
        x = normal.sample(10 * len(expansion), rule="sobol", seed=1)
        return indices(expansion, chaospy.fit_regression(expansion, x, net(x.T)[:, 0], retall=1)[1])

    def projection(degree: int) -> np.ndarray:
        """On a grid of Gauss-Hermite nodes, one more in every input than the degree."""
        expansion = chaospy.generate_expansion(degree, normal, normed=True)
        nodes, weights = chaospy.generate_quadrature(degree, normal, rule="gaussian")
        return indices(expansion, chaospy.fit_quadrature(expansion, nodes, weights, net(nodes.T)[:, 0], retall=1)[1])

    closed, exact = min((processor_seconds(ours) for _ in range(3)), key=lambda found: found[0])
    numbers: dict[str, float] = {f"Sobol indices, d = {d}: all of them in closed form, s": closed}
    curves: dict[str, Any] = {}
    for name, way in {"regression": regression, "grid": projection}.items():
        way(1)
        runs = []
        for degree in degrees:
            took, found = processor_seconds(lambda degree=degree, way=way: way(degree))
            runs.append((took / closed, float(np.max(np.abs(found - exact)))))
            key = f"Sobol indices, d = {d}: chaospy, {name} of degree {degree}"
            numbers |= {f"{key}, largest error": runs[-1][1], f"{key} / closed form, time": runs[-1][0]}
        curves[f"chaospy, {name}"] = {"x": [x for x, _ in runs], "y": [y for _, y in runs]}
    return numbers, curves


# -- two networks ------------------------------------------------------------------------------------------------------


def against_tensors(d: int, h: int, o: int) -> dict[str, float]:
    """E[f.g] of two bilinear layers under N(0, I), by three routes."""
    rng = np.random.default_rng(0)
    weights = [[rng.standard_normal((h, d)) / d**0.5 for _ in range(2)] for _ in range(2)]
    (W, V), (A, B) = weights
    out, other = (rng.standard_normal((o, h)) / h**0.5 for _ in range(2))
    f, g = mp.GLU(W, None, V, None, out, None, "identity"), mp.GLU(A, None, B, None, other, None, "identity")
    inputs = mp.Gaussian.standard(d)

    def tensors() -> float:
        """tr P tr Q + 2 <P, Q> for the symmetric forms P, Q of every output."""
        total = 0.0
        for p, q in zip(out, other, strict=True):
            P, Q = (V.T * p) @ W, (B.T * q) @ A
            total += np.trace(P) * np.trace(Q) + np.sum(P * (Q + Q.T))
        return float(total)

    def pairs() -> float:
        """The same as a sum over pairs of hidden units."""
        inner = (W @ A.T) * (V @ B.T) + (W @ B.T) * (V @ A.T) + np.outer(np.sum(W * V, 1), np.sum(A * B, 1))
        return float(np.sum((out @ inner) * other))

    ours = lambda: mp.similarity(f, g, inputs, max_degree=2)  # noqa: E731
    times = {work: min(processor_seconds(work)[0] for _ in range(3)) for work in (tensors, pairs, ours)}
    name = f"bilinear {d}-{h}-{o}"
    return {
        f"{name}: error of E[f.g] against the tensors, relative": abs(float(ours().inner) / tensors() - 1),
        f"{name}: similarity (three inner products, by degree) / tensors (one)": times[ours] / times[tensors],
        f"{name}: similarity / sum over pairs of one inner product": times[ours] / times[pairs],
    }


def similarity_seconds(d: int, h: int, o: int) -> dict[str, float]:
    """Time of a similarity of two networks of this size, and what sampling reaches in it."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((d, d)) / d**0.5
    inputs = mp.Gaussian(np.zeros(d), A @ A.T)

    def weights() -> list[np.ndarray]:
        shapes = ((h, d), (h,), (h, d), (h,), (o, h))
        return [rng.standard_normal(s) / (s[1] if len(s) == 2 else 4) ** 0.5 for s in shapes]

    def mlp(activation: str) -> mp.MLP:
        W, b, _, _, out = weights()
        return mp.MLP(W, b, out, None, activation)

    pairs = {
        "ReLU, ReLU": (mlp("relu"), mlp("relu")),
        "ReLU, GELU": (mlp("relu"), mlp("gelu")),
        "GELU, SiLU": (mlp("gelu"), mlp("silu")),
        "SwiGLU, SwiGLU": (mp.GLU(*weights(), None), mp.GLU(*weights(), None)),
    }
    numbers: dict[str, float] = {}
    for name, (f, g) in pairs.items():
        both = lambda f=f, g=g: mp.similarity(f, g, inputs)  # noqa: E731
        took, found = min((processor_seconds(both) for _ in range(2)), key=lambda each: each[0])
        sampling, error = monte_carlo(f, g, inputs, 10_000)
        reached = error / math.sqrt(took / sampling) / float(found.distance)
        numbers |= {
            f"similarity {d}-{h}-{o}, {name}, s": took,
            f"similarity {d}-{h}-{o}, {name}: error of the distance by sampling in equal time, relative": reached,
        }
    return numbers


def monte_carlo(f: Any, g: Any, inputs: mp.Gaussian, n: int) -> tuple[float, float]:
    """Seconds of n samples, and the standard error of E|f - g|^2 from them."""

    def work() -> float:
        x = inputs.sample(n, seed=0)
        values = np.sum((f(x) - g(x)) ** 2, axis=1)
        return float(np.std(values)) / math.sqrt(n)

    return processor_seconds(work)


# -- all of it ---------------------------------------------------------------------------------------------------------


def main(tiny: bool = False) -> None:
    """Everything; what a library is missing for is left out, and said."""
    results: dict[str, Any] = {}
    notes: list[str] = []
    curves: dict[str, Any] = {}
    with threadpool_limits(1):
        for work, package in (
            *((lambda d=d: against_shapiq(d), "shapiq") for d in ((4,) if tiny else (8, 12, 20, 30))),
            (lambda: against_chaospy(*((2, (1, 2)) if tiny else (4, (2, 4, 6, 8)))), "chaospy"),
        ):
            print(".", end="", flush=True)
            try:
                numbers, drawn = work()
            except ModuleNotFoundError as error:
                if error.name != package:
                    raise
                notes.append(f"{package} is not installed, so that it is not compared here.")
                continue
            results |= numbers
            curves |= drawn
        results |= against_tensors(*((8, 12, 2) if tiny else (256, 512, 64)))
        results |= similarity_seconds(*((8, 12, 2) if tiny else (784, 256, 10)))
    libraries = versions("numpy", "scipy", "shapiq", "chaospy")
    save("conditioning", {**results, "notes": list(dict.fromkeys(notes)), "curves": curves, "versions": libraries}, 1)


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Errors of the peers against their time, in times of the closed form."""
    figure = Figure(figsize=(style.WIDTH, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    marks = itertools.cycle("os^D")
    for name, curve in results["curves"].items():
        ax = right if name.startswith("chaospy") else left
        ax.plot(curve["x"], curve["y"], marker=next(marks), markersize=5, linewidth=1.2, label=name)
    for ax, title in (
        (left, "Shapley values by shapiq: largest error"),
        (right, "Sobol indices by chaospy: largest error"),
    ):
        ax.axvline(1, color=style.INK, linewidth=0.8, linestyle=style.DASHED, zorder=0)
        ax.set(xscale="log", yscale="log")
        if ax is left:
            ax.set(xlim=(0.1, 10), ylim=(0.005, 0.5))
        if ax.lines[1:]:
            ax.legend(frameon=False, fontsize=style.SMALL)
        style.tidy(ax, "time / closed form (dashed: equal)", "", title)
    return {"conditioning": figure}


if __name__ == "__main__":
    main()
