"""Fits on data that no Gaussian stands for: groups of 0/1 columns, many of them rare, and networks trained on them.

Fractions of variance unexplained on rows that no fit has seen, whether the warning comes where the closed form is off
by more than a factor of two there, and nowhere else; and what fitting all neurons together costs.
"""

import itertools
import multiprocessing
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from torch import nn

import mlpoly as mp
from benchmarks.common import peak_gib, save, versions
from mlpoly.fitting.deep import on_samples

DEGREES = (1, 2, 3, 5)
ROWS, FRESH, STEPS = 6000, 6000, 600
MOST = 2000  # monomials up to which scikit-learn takes part
ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "gelu": nn.GELU}
WAYS: dict[str, Any] = {
    "neuron by neuron": "neuronwise",
    "readout": mp.methods.Joint("readout"),
    "free": mp.methods.Joint("free"),
    "default": "joint",
}


def rare_rows(n: int, d: int, seed: int) -> np.ndarray:
    """Groups of six columns of which one is set, with frequencies from a half to a thousandth."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, 7) ** 3.5
    hot = rng.choice(6, size=(n, d // 6), p=chance / chance.sum())
    return np.eye(6)[hot].reshape(n, -1)


def normal_rows(n: int, d: int, seed: int) -> np.ndarray:
    """Correlated normal columns of the same number."""
    mixing = np.random.default_rng(d).normal(size=(d, d)) / d**0.5
    return np.random.default_rng(seed).normal(size=(n, d)) @ mixing


def trained(x: np.ndarray, activation: str, hidden: tuple[int, ...], steps: int) -> mp.MLP | mp.Chain:
    """A network with three outputs, trained to tell which of three sums of products of two inputs is largest."""
    torch.manual_seed(0)
    rng, d = np.random.default_rng(0), x.shape[1]
    one, two = x @ rng.normal(size=(d, 12)), x @ rng.normal(size=(d, 12))
    scores = ((one - one.mean(0)) * (two - two.mean(0))) @ rng.normal(size=(12, 3))
    labels, rows = torch.tensor(scores.argmax(1)), torch.tensor(x)
    sizes, parts = (d, *hidden), []
    for before, after in itertools.pairwise(sizes):
        parts += [nn.Linear(before, after), ACTIVATIONS[activation]()]
    model = nn.Sequential(*parts, nn.Linear(hidden[-1], 3)).double()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        batch = torch.randint(len(rows), (512,))
        loss = nn.functional.cross_entropy(model(rows[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    maps = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in model if isinstance(m, nn.Linear)]
    *before, last = [mp.MLP(*each, None, None, activation) for each in maps[:-1]]
    last = mp.MLP(last.W1, last.b1, *maps[-1], activation)
    return mp.Chain([*before, last]) if before else last


def unexplained(f: np.ndarray, p: np.ndarray) -> float:
    """Fraction of the variance of values (n, o)."""
    return float(((f - p) ** 2).sum() / ((f - f.mean(0)) ** 2).sum())


def one_layer(kind: str, d: int, activation: str, tiny: bool) -> dict[str, dict[str, Any]]:
    """Errors by degree and way; ``warned`` and ``off`` say whether fvu warned, and whether it should have."""
    make = rare_rows if kind == "0/1" else normal_rows
    x, fresh = make(ROWS // 10 if tiny else ROWS, d, 1), make(FRESH // 10 if tiny else FRESH, d, 2)
    net = trained(x, activation, (24,), 50 if tiny else STEPS)
    values, inputs, found = net(fresh), mp.Gaussian.from_samples(x), {}
    for degree in DEGREES:
        poly = mp.fit(net, inputs, degree)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            closed = mp.fvu(net, poly)
        row: dict[str, Any] = {"closed form": float(closed), "on data": unexplained(values, poly(fresh))}
        row["warned"] = any(issubclass(w.category, mp.DataWarning) for w in heard)
        row["off"] = row["on data"] > 2 * row["closed form"]
        for name, method in WAYS.items() if kind == "0/1" else ():
            row[name] = unexplained(values, mp.fit(net, x, degree, method=method)(fresh))
        if kind == "0/1" and PolynomialFeatures(degree).fit(x[:1]).n_output_features_ <= MOST:
            peer = make_pipeline(PolynomialFeatures(degree, include_bias=False), Ridge(1e-6, solver="cholesky"))
            row["scikit-learn"] = unexplained(values, peer.fit(x, net(x)).predict(fresh))
        found[str(degree)] = row
    return found


def two_layers(d: int, activation: str, tiny: bool) -> dict[str, dict[str, Any]]:
    """Errors of compositions, each layer by itself and as `mp.fit` chooses, pure and with lines beyond three."""
    x, fresh = rare_rows(ROWS // 10 if tiny else ROWS, d, 1), rare_rows(FRESH, d, 2)
    net = trained(x, activation, (24, 24), 50 if tiny else STEPS)
    values, found = net(fresh), {}
    for degree in DEGREES[1:]:
        chosen = mp.fit(net, x, degree, method="composed")
        stages = on_samples.fitted(net, mp.Samples(x), [degree, degree], together=False)
        alone = mp.polynomials.ComposedPolynomial(stages)
        found[str(degree)] = {
            "kind": chosen.report.details["kind"],
            "by itself": unexplained(values, alone(fresh)),
            "chosen": unexplained(values, chosen(fresh)),
            "by itself, lines": unexplained(values, alone.bounded(3.0)(fresh)),
            "chosen, lines": unexplained(values, chosen.bounded(3.0)(fresh)),
        }
    return found


def cost(method: str, degree: int, rows: int, size: tuple[int, int]) -> tuple[float, float]:
    """Processor seconds and GiB of a fit to a gated block, in this process."""
    d, h = size
    rng = np.random.default_rng(0)
    up, gate = (rng.normal(size=(h, d)).astype("f4") / d**0.5 for _ in range(2))
    net = mp.GLU(gate, None, up, None, rng.normal(size=(d, h)).astype("f4") / h**0.5, None, "silu")
    x = rng.normal(size=(rows, d)).astype("f4") ** 3
    before, began = peak_gib(), time.process_time()
    mp.fit(net, x, degree, method=method if method == "neuronwise" else mp.methods.Joint("readout"))
    return time.process_time() - began, peak_gib() - before


def alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def main(tiny: bool = False) -> None:
    """Measure, print and save."""
    tables: dict[str, Any] = {}
    for kind in ("0/1", "normal"):
        for d in (60,) if tiny else (60, 120, 300):
            for activation in ACTIVATIONS:
                tables[f"{kind}, {d} columns, {activation}"] = one_layer(kind, d, activation, tiny)
                print(kind, d, activation, tables[f"{kind}, {d} columns, {activation}"], flush=True)
    deep = {f"{d} columns, {a}": two_layers(d, a, tiny) for d in ((60,) if tiny else (60, 300)) for a in ACTIVATIONS}
    rows = [row for table in tables.values() for row in table.values()]
    results: dict[str, Any] = {
        "fits whose closed form is off by more than a factor of two": sum(row["off"] for row in rows),
        "of them with a warning": sum(row["off"] and row["warned"] for row in rows),
        "fits whose closed form holds": sum(not row["off"] for row in rows),
        "of these with a warning": sum(row["warned"] and not row["off"] for row in rows),
    }
    size, count = ((48, 64), 2000) if tiny else ((576, 1536), 4096)
    for degree in (2, 3):
        for method in ("neuronwise", "readout"):
            seconds, memory = alone(cost, method, degree, count, size)
            results[f"GLU {size[0]}-{size[1]}, degree {degree}, {count} rows: {method}, processor seconds"] = seconds
            results[f"GLU {size[0]}-{size[1]}, degree {degree}, {count} rows: {method}, GiB"] = memory
    save("rare", {**results, "tables": tables, "deep": deep, "versions": versions("scikit-learn")})
