"""Polynomial chaos of networks beside chaospy and OpenTURNS: mean, variance, Sobol indices, error and time.

Two tanh networks: one trained on Ishigami's function under uniform inputs, one on the deflection of a beam with a
lognormal load. Everybody finds a polynomial of the same total degree of the network itself, with one thread; the time
is that of the polynomial, its moments and indices. The truth is a quadrature with 64 nodes of each input,
Gauss-Legendre for uniform ones and Gauss-Hermite for lognormal ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from threadpoolctl import threadpool_limits

import mlpoly as mp
from benchmarks.common import save, seconds, versions

NODES, REPEATS = 64, 3
Answer = tuple[float, float, np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]  # moments, Sobol, values


@dataclass
class Problem:
    """A function that a network learns, its inputs, and the degree of the polynomials."""

    name: str
    marginals: list[Any]
    function: Callable[[np.ndarray], np.ndarray]
    degree: int
    steps: int = 3000

    @property
    def terms(self) -> int:
        return math.comb(len(self.marginals) + self.degree, self.degree)

    def train(self, tiny: bool) -> None:
        torch.manual_seed(0)
        rng, d = np.random.default_rng(0), len(self.marginals)
        x = np.stack([m.rvs(2**13, random_state=rng) for m in self.marginals], axis=1)
        y = self.function(x)
        center, scale, level, size = x.mean(0), x.std(0), y.mean(), y.std()
        model = torch.nn.Sequential(torch.nn.Linear(d, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).double()
        optimiser = torch.optim.Adam(model.parameters(), 0.01)
        inputs, wanted = torch.tensor((x - center) / scale), torch.tensor((y - level) / size)[:, None]
        for _ in range(50 if tiny else self.steps):
            batch = torch.randint(len(x), (1024,))
            loss = ((model(inputs[batch]) - wanted[batch]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        W1, b1, W2, b2 = (p.detach().numpy() for p in model.parameters())
        self.net = mp.MLP(W1 / scale, b1 - W1 @ (center / scale), W2 * size, b2 * size + level, "tanh")
        self.truth(NODES)

    def truth(self, nodes: int) -> None:
        """Mean, variance and Sobol indices of the network on a tensor grid of its own."""
        each = [_rule(m, nodes) for m in self.marginals]
        d, weights = len(each), [w for _, w in each]
        self.grid = np.stack([a.ravel() for a in np.meshgrid(*[x for x, _ in each], indexing="ij")], axis=1)
        f = np.concatenate([self.net(part)[:, 0] for part in np.array_split(self.grid, 64)])
        self.values, self.mass = f, np.prod(np.meshgrid(*weights, indexing="ij"), axis=0).ravel()
        self.mean = float(self.mass @ f)
        self.variance = float(self.mass @ (f - self.mean) ** 2)
        table = f.reshape([nodes] * d) - self.mean
        axes = "abcdef"[:d]

        def explained(kept: str) -> float:
            rest = [a for a in axes if a not in kept]
            mean = np.einsum(f"{axes},{','.join(rest)}->{kept}", table, *[weights[axes.index(a)] for a in rest])
            own = [weights[axes.index(a)] for a in kept]
            return float(np.einsum(f"{kept},{','.join(kept)}->", mean**2, *own)) / self.variance

        self.first = np.array([explained(a) for a in axes])
        self.total = 1 - np.array([explained(axes.replace(a, "")) for a in axes])


def _rule(marginal: Any, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    if marginal.dist.name == "uniform":
        t, w = np.polynomial.legendre.leggauss(nodes)
        low, high = marginal.support()
        return (low + high + (high - low) * t) / 2, w / 2
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    return marginal.kwds["scale"] * np.exp(marginal.args[0] * z), w / w.sum()


# -- who finds polynomials ---------------------------------------------------------------------------------------------


def ours(problem: Problem, net: Any) -> Answer:
    inputs = mp.Independent(problem.marginals)
    poly = mp.fit(net, inputs, problem.degree)
    moments, found = mp.second_moment(poly, inputs), mp.sensitivity(poly, inputs)
    values = lambda x: poly(x)[:, 0]  # noqa: E731
    return float(moments.mean[0]), float(moments.cov[0, 0]), found.first[:, 0], found.total[:, 0], values


def _chaospy_inputs(problem: Problem) -> Any:
    import chaospy

    parts = []
    for m in problem.marginals:
        if m.dist.name == "uniform":
            parts.append(chaospy.Uniform(*m.support()))
        else:
            parts.append(chaospy.LogNormal(math.log(m.kwds["scale"]), m.args[0]))
    return chaospy.J(*parts)


def _of_chaospy(found: Any, coefficients: Any, expansion: Any, joint: Any) -> Answer:
    """With the indices from coefficients: from the polynomial alone, `Sens_m` takes minutes."""
    import chaospy

    mean, variance = float(chaospy.E(found, joint)), float(chaospy.Var(found, joint))
    first, total = (index(expansion, coefficients) for index in (chaospy.FirstOrderSobol, chaospy.TotalOrderSobol))
    return mean, variance, first, total, lambda x: np.asarray(found(*x.T))


def chaospy_quadrature(problem: Problem, net: Any) -> Answer:
    import chaospy

    joint = _chaospy_inputs(problem)
    expansion = chaospy.generate_expansion(problem.degree, joint, normed=True)
    nodes, weights = chaospy.generate_quadrature(problem.degree + 2, joint, rule="gaussian")
    found = chaospy.fit_quadrature(expansion, nodes, weights, net(nodes.T)[:, 0], retall=1)
    return _of_chaospy(*found, expansion, joint)


def chaospy_regression(problem: Problem, net: Any) -> Answer:
    import chaospy

    joint = _chaospy_inputs(problem)
    expansion = chaospy.generate_expansion(problem.degree, joint, normed=True)
    x = joint.sample(10 * problem.terms, rule="sobol")
    found = chaospy.fit_regression(expansion, x, net(x.T)[:, 0], retall=1)
    return _of_chaospy(*found, expansion, joint)


def openturns_regression(problem: Problem, net: Any) -> Answer:
    import openturns

    parts = []
    for m in problem.marginals:
        if m.dist.name == "uniform":
            parts.append(openturns.Uniform(*m.support()))
        else:
            parts.append(openturns.LogNormal(math.log(m.kwds["scale"]), m.args[0]))
    joint = openturns.JointDistribution(parts)
    bases = [openturns.StandardDistributionPolynomialFactory(openturns.AdaptiveStieltjesAlgorithm(p)) for p in parts]
    basis = openturns.OrthogonalProductPolynomialFactory(bases)
    strategy = openturns.FixedStrategy(basis, problem.terms)
    sobol = openturns.LowDiscrepancyExperiment(openturns.SobolSequence(), joint, 10 * problem.terms)
    x = np.array(sobol.generate())
    y = openturns.Sample(net(x)[:, :1])
    algorithm = openturns.FunctionalChaosAlgorithm(openturns.Sample(x), y, joint, strategy)
    algorithm.run()
    result = algorithm.getResult()
    moments, sobol = openturns.FunctionalChaosRandomVector(result), openturns.FunctionalChaosSobolIndices(result)
    count = range(len(parts))
    first = np.array([sobol.getSobolIndex(i) for i in count])
    total = np.array([sobol.getSobolTotalIndex(i) for i in count])
    surrogate = result.getMetaModel()
    mean, variance = moments.getMean()[0], moments.getCovariance()[0, 0]
    return mean, variance, first, total, lambda x: np.array(surrogate(openturns.Sample(x)))[:, 0]


PEERS: dict[str, Callable[[Problem, Any], Answer]] = {
    "mlpoly": ours,
    "chaospy, quadrature": chaospy_quadrature,
    "chaospy, regression": chaospy_regression,
    "OpenTURNS, regression": openturns_regression,
}


class Counter:
    """A network that counts the points at which it is evaluated; mlpoly gets the network itself."""

    def __init__(self, net: mp.MLP) -> None:
        self.net, self.points = net, 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.points += len(x)
        return self.net(x)


def measure(problem: Problem, name: str, repeats: int) -> dict[str, Any]:
    counter = Counter(problem.net)
    net = problem.net if name == "mlpoly" else counter
    mean, variance, first, total, values = PEERS[name](problem, net)
    missed = problem.mass @ (values(problem.grid) - problem.values) ** 2
    deviation = math.sqrt(problem.variance)
    return {
        "mean": abs(mean - problem.mean) / deviation,
        "deviation": abs(math.sqrt(variance) / deviation - 1),
        "Sobol": float(max(np.abs(first - problem.first).max(), np.abs(total - problem.total).max())),
        "FVU": float(missed / problem.variance),
        "seconds": seconds(lambda: PEERS[name](problem, net), repeats),
        "points": counter.points // (repeats + 2) or nodes(problem),  # a call for the answer, one to warm up
    }


def nodes(problem: Problem) -> int:
    """Of the last grid of our fit; those before it have about half as many together."""
    poly = mp.fit(problem.net, mp.Independent(problem.marginals), problem.degree)
    return int(poly.report.details["nodes"])


def ishigami(x: np.ndarray) -> np.ndarray:
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def beam(x: np.ndarray) -> np.ndarray:
    """Deflection of a cantilever in millimetres, of load (kN), length (m) and stiffness (MN m^2)."""
    return x[:, 0] * x[:, 1] ** 3 / (3 * x[:, 2])


def lognormal(median: float, spread: float) -> Any:
    return stats.lognorm(spread, scale=median)


PROBLEMS = (
    Problem("Ishigami, uniform", [stats.uniform(-math.pi, 2 * math.pi)] * 3, ishigami, 8),
    Problem("beam, lognormal", [lognormal(10.0, 0.4), stats.uniform(1.5, 1.0), lognormal(2.0, 0.15)], beam, 5),
)


def main(tiny: bool = False) -> None:
    """Measure, print and save."""
    import chaospy
    import openturns  # before the work, so that it is missed at once

    del chaospy, openturns
    table: dict[str, Any] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for problem in PROBLEMS:
            problem.train(tiny)
            for name in PEERS:
                table[f"{problem.name}, degree {problem.degree}: {name}"] = measure(
                    problem, name, 1 if tiny else REPEATS
                )
                print(problem.name, name, table[f"{problem.name}, degree {problem.degree}: {name}"], flush=True)
    torch.set_num_threads(threads)
    results: dict[str, Any] = {}
    for key, row in table.items():
        problem, name = key.split(": ")
        if name == "mlpoly":
            results[f"{problem}: FVU of the polynomial"] = row["FVU"]
            fastest = min(r["seconds"] for k, r in table.items() if k.startswith(problem) and not k.endswith("mlpoly"))
            results[f"{problem}: fastest peer / closed form"] = fastest / row["seconds"]
    save("uncertainty", {**results, "table": table, "versions": versions("chaospy", "openturns")})


if __name__ == "__main__":
    main()
