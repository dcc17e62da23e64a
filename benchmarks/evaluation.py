"""What does a polynomial cost in the place of the network? 10^5 inputs, beside the network and dense coefficients.

NumPy and PyTorch, float32 and float64, ``torch.compile`` off and on. Every ratio comes from batches that the network
and its polynomials were given in turn.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import mlpoly as mp
from benchmarks.common import paired_seconds, save
from mlpoly.charts import style

INPUTS, BATCH = 100_000, 2000
DEGREES = (2, 3, 5)
WIDTHS = (8, 16, 32, 64, 128, 256)
COLOURS = {2: style.LINEAR, 3: style.QUADRATIC, 5: "#009e73"}
Batched = Callable[[Any], Any]


class Gated(nn.Module):
    """A gated unit in PyTorch's own words."""

    def __init__(self, d: int, h: int, o: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(d, h, bias=False), nn.Linear(d, h, bias=False)
        self.down_proj, self.act_fn = nn.Linear(h, o, bias=False), nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def networks(tiny: bool) -> dict[str, nn.Module]:
    """An MLP of MNIST's size with the cheapest of activations, and a gated unit."""
    d, h, o = (12, 16, 3) if tiny else (784, 256, 10)
    e, g = (12, 16) if tiny else (256, 688)
    torch.manual_seed(0)
    return {
        f"ReLU {d}-{h}-{o}": nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, o)),
        f"SwiGLU {e}-{g}-{e}": Gated(e, g, e),
    }


def contenders(module: nn.Module, dtype: str) -> dict[str, dict[str, Batched]]:
    """The network and its polynomials in every library, by library and name."""
    module = module.to(getattr(torch, dtype)).requires_grad_(False)
    net = mp.from_torch(module)
    inputs = mp.Gaussian.standard(net.dim_in)
    polys = {k: mp.fit(net, inputs, k) for k in DEGREES}
    plain = as_numpy(net)
    eager = {"network": module, **{f"degree {k}": p.to_torch() for k, p in polys.items()}}
    torch.compiler.reset()  # it counts how often a function was compiled, over all modules
    made = {"NumPy": {"network": plain, **{f"degree {k}": mp.fit(plain, inputs, k) for k in DEGREES}}, "torch": eager}
    if compiles():
        made["torch.compile"] = {name: torch.compile(m, dynamic=False) for name, m in eager.items()}
    return made


@functools.cache
def compiles(device: str = "cpu") -> bool:
    """Whether torch.compile works here: it needs a compiler of C or C++."""
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=device))
    except Exception as error:  # whatever the compiler's absence raises
        print(f"torch.compile does not work here ({type(error).__name__}) and is left out", flush=True)
        return False
    return True


def as_numpy(net: mp.MLP | mp.GLU) -> mp.MLP | mp.GLU:
    """The same network over NumPy arrays."""
    kind = type(net)
    names = ("W1", "b1", "W2", "b2") if kind is mp.MLP else ("W_gate", "b_gate", "W_up", "b_up", "W_down", "b_down")
    parts = [getattr(net, name) for name in names]
    return kind(*[None if p is None else p.numpy() for p in parts], net.activation)


def beside_network(name: str, module: nn.Module, inputs: int) -> dict[str, float]:
    """Time of every polynomial relative to its network."""
    results: dict[str, float] = {}
    dim = next(module.parameters()).shape[1]
    for dtype in ("float32", "float64"):
        x = np.random.default_rng(0).standard_normal((inputs, dim), dtype=dtype)
        for library, works in contenders(module, dtype).items():
            batches = np.split(x, inputs // BATCH)
            if library != "NumPy":
                batches = [torch.from_numpy(b) for b in batches]
            # Each contender goes through the batches by itself, one after the other with the rest.
            turns = {what: through(work, batches) for what, work in works.items()}
            with torch.no_grad():
                times = paired_seconds(turns, len(batches))
            base = times.pop("network")
            results[f"{name}, {library}, {dtype}: network on 10^5 inputs, s"] = base * INPUTS / BATCH
            results |= {f"{name}, {library}, {dtype}: {what} / network": t / base for what, t in times.items()}
    return results


def through(work: Batched, batches: list[Any]) -> Callable[[], Any]:
    """A call that takes the next batch every time."""
    stream = itertools.cycle(batches)
    return lambda: work(next(stream))


def beside_dense(widths: tuple[int, ...], hidden: int, outputs: int) -> dict[str, Any]:
    """A quadratic in ridge form beside the same one as dense coefficients, in microseconds per input."""
    rng = np.random.default_rng(0)
    curves: dict[str, dict[str, list[float]]] = {
        name: {"x": list(widths), "y": []} for name in ("network", "ridge form", "dense coefficients")
    }
    for d in widths:
        net = mp.MLP(rng.standard_normal((hidden, d)) / d**0.5, None, rng.standard_normal((outputs, hidden)), None)
        ridge = mp.fit(net, mp.Gaussian.standard(d), 2)
        c = ridge.coefficients()
        dense = mp.DensePolynomial(np.zeros(d), c.constant, c.linear, c.quadratic)
        x = rng.standard_normal((BATCH, d))
        works = zip(curves, (net, ridge, dense), strict=True)
        times = paired_seconds({name: lambda f=f, x=x: f(x) for name, f in works}, 9)
        for name, took in times.items():
            curves[name]["y"].append(1e6 * took / BATCH)
    ratios = {
        f"quadratic of {d}-{hidden}-{outputs}, dense coefficients / ridge form": dense / ridge
        for d, dense, ridge in zip(widths, curves["dense coefficients"]["y"], curves["ridge form"]["y"], strict=True)
    }
    return {"curves": curves, **ratios}


def notes(results: dict[str, Any]) -> list[str]:
    """What a reader should not overlook."""
    ratios = {k: v for k, v in results.items() if k.endswith("degree 3 / network")}
    slowest = max(ratios, key=lambda k: ratios[k])
    dense = [k for k, v in results.items() if k.endswith("dense coefficients / ridge form") and v < 1]
    case = slowest.split(":")[0]
    said = [f"The slowest degree 3 takes {ratios[slowest]:.2f} times as long as its network ({case}); the goal is 2."]
    if dense:
        names = ", ".join(k.split(",")[0].removeprefix("quadratic of ") for k in dense)
        said.append(f"Dense coefficients win where the inputs are few beside the hidden units: {names}.")
    return said


def main(tiny: bool = False) -> None:
    """Both comparisons."""
    results: dict[str, Any] = {}
    for name, module in networks(tiny).items():
        print(f"evaluation: {name}", flush=True)
        results |= beside_network(name, module, 2 * BATCH if tiny else INPUTS)
    results |= beside_dense((4, 8) if tiny else WIDTHS, 16 if tiny else 256, 10)
    worst = max(v for k, v in results.items() if k.endswith("degree 3 / network"))
    save("evaluation", {**results, "slowest degree 3 / network (goal 2)": worst, "notes": notes(results)})


# -- pictures ----------------------------------------------------------------------------------------------------------


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Ratios to the network as bars, and time per input against the number of inputs."""
    return {"evaluation": draw_ratios(results), "evaluation-dense": draw_dense(results["curves"])}


def draw_ratios(results: dict[str, Any]) -> Figure:
    """One panel per network; groups of bars by library and dtype."""
    rows = [key.removesuffix(": degree 3 / network") for key in results if key.endswith(": degree 3 / network")]
    nets = list(dict.fromkeys(row.split(", ")[0] for row in rows))
    figure = Figure(figsize=(9, 4.0), layout="constrained")
    for ax, net in zip(figure.subplots(1, len(nets), sharey=True, squeeze=False)[0], nets, strict=True):
        cases = [row for row in rows if row.startswith(net + ",")]
        for i, k in enumerate(DEGREES):
            heights = [results[f"{case}: degree {k} / network"] for case in cases]
            places = np.arange(len(cases)) + 0.26 * (i - 1)
            ax.bar(places, heights, 0.24, color=COLOURS[k], label=f"degree {k}")
        ax.axhline(1, color=style.INK, linewidth=0.8)
        ax.axhline(2, color=style.INK, linewidth=0.8, linestyle=style.DASHED)
        labels = [case.removeprefix(net + ", ").replace(", ", "\n") for case in cases]
        ax.set_xticks(range(len(cases)), labels, rotation=40, ha="right", rotation_mode="anchor")
        style.tidy(ax, title=net)
    first = figure.axes[0]
    first.set_ylabel("time / time of the network", fontsize=style.NORMAL, color=style.INK)
    handles = [style.key(f"degree {k}", color=COLOURS[k], linewidth=6) for k in DEGREES]
    lines = [style.key("network", linewidth=0.8), style.key("goal for degree 3", linewidth=0.8, linestyle=style.DASHED)]
    style.legend_below(figure, [*handles, *lines], 5)
    return figure


def draw_dense(curves: dict[str, Any]) -> Figure:
    """Time per input of the three forms."""
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    ax = figure.subplots()
    colours = (style.NETWORK, style.QUADRATIC, style.LINEAR)
    for (name, curve), colour in zip(curves.items(), colours, strict=True):
        ax.plot(curve["x"], curve["y"], color=colour, marker="o", ms=3.5, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(curve["x"], [str(x) for x in curve["x"]])
    style.tidy(ax, "inputs d", "microseconds per input", "A quadratic in two forms, and its network")
    ax.legend(frameon=False, fontsize=style.SMALL)
    return figure


if __name__ == "__main__":
    main()
