"""Fit against sampling: how long do regression and descent on samples need to come near the closed form?

A GELU network under N(0, I), which flatters the peers: there the Hermite features that they estimate are orthonormal.
Every peer draws samples, evaluates the network on them and finds the coefficients; all of that is timed, with one
thread for everybody. Its excess error, the mean squared distance from the optimum over the variance of the network, is
not sampled: with symmetric tensors T_k of the Hermite coefficients it is sum_k k! |T_k - T*_k|^2 (MATH 2).
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from benchmarks.common import save, versions
from benchmarks.peers import BATCH, PEERS, Peer, Problem
from mlpoly.charts import style

TARGETS = (1e-2, 1e-3)  # excess error, as a share of the variance of the network
LAW = 0.2  # the excess falls like one over the number of samples from about here on, and not before
SAME = 1e-2  # relative error of the coefficients of the highest degree at which regression "matches"
COLOURS = {
    "scikit-learn": "#d55e00",
    "scikit-learn, normal equations": "#e69f00",
    "chaospy": "#009e73",
    "chaospy, quadrature": "#56b4e9",
    "SGD": "#cc79a7",
}


class Run(NamedTuple):
    """One run of a peer."""

    samples: int
    seconds: float
    excess: float
    top: float  # relative error of the coefficients of the highest degree


# -- what is run -------------------------------------------------------------------------------------------------------


def plan(problem: Problem) -> Iterator[tuple[str, list[int]]]:
    """Peers that are feasible, and their numbers of samples."""
    p, steps = problem.features, {8: (10, 40, 160), 32: (10, 40, 160, 640), 128: (40, 160, 640), 784: (5, 30)}
    if problem.d <= 32:
        yield "scikit-learn", [2 * p, 8 * p, 64 * p]
        many = [4096 * p] if problem == Problem(8) else []  # enough for 1 % of the coefficients
        yield "scikit-learn, normal equations", [2 * p, 8 * p, 64 * p, *many]
        yield "chaospy", [2 * p, 8 * p, 64 * p] if problem.d == 8 else [2 * p, 8 * p]
    if problem.d == 8 and problem.degree == 2:  # more nodes for a cubic take minutes
        yield "chaospy, quadrature", [nodes**8 for nodes in (3, 4)]
    if problem.d == 128:
        yield "scikit-learn, normal equations", [3 * p // 2]
    if problem.degree == 2:
        yield "SGD", [BATCH * s for s in steps[problem.d]]


def measure(problem: Problem) -> tuple[float, dict[str, list[Run]]]:
    """Seconds of the closed form, timed beside every run of a peer, and the runs."""
    problem.optimum  # noqa: B018 (made here, so that no timing contains it)
    ours: list[float] = []
    runs: dict[str, list[Run]] = {}
    for name, sizes in plan(problem):
        PEERS[name](Problem(8), 3**8, 1)  # imports
        runs[name] = []
        for n in sizes:
            repeats = 1 if name == "chaospy, quadrature" else {8: 5, 784: 3}.get(problem.d, 1)
            each = [_run(PEERS[name], problem, n, seed) for seed in range(repeats)]
            ours += [_seconds(problem.closed_form) for _ in range(5)]
            runs[name].append(Run(n, *(float(np.median(v)) for v in zip(*each, strict=True))))
    return float(np.median(ours)), runs


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _run(peer: Peer, problem: Problem, n: int, seed: int) -> tuple[float, float, float]:
    began = time.perf_counter()
    found = peer(problem, n, seed)
    took = time.perf_counter() - began
    return took, *problem.errors(found())


# -- what follows from the runs ----------------------------------------------------------------------------------------


def samples_for(name: str, runs: Sequence[Run], goal: float, features: int, error: Callable[[Run], float]) -> float:
    """Samples at which a squared error falls to the goal, by its law a / (n - features); a / n for descent.

    The scale a comes from all runs of a regression, and from the longest descent: short ones are still on their way.
    """
    used, taken = (runs[-1:], 0) if name == "SGD" else (runs, features)
    scale = np.exp(np.mean([math.log(error(r) * (r.samples - taken)) for r in used]))
    return taken + float(scale) / goal


def time_to(name: str, runs: Sequence[Run], goal: float, features: int) -> tuple[float | None, bool]:
    """Seconds until the excess error is at the goal, and whether that lies beyond the runs."""
    if min(r.excess for r in runs) > goal:
        if name == "chaospy, quadrature" or runs[-1].excess > LAW:
            return None, True  # quadrature has no law in the number of nodes
        samples = samples_for(name, runs, goal, features, lambda r: r.excess)
        # n p^2 for the normal equations and p^3 / 3 for their solution; descent costs the same at every sample.
        fixed = 0 if name == "SGD" else features / 3
        return runs[-1].seconds * (samples + fixed) / (runs[-1].samples + fixed), True
    for before, after in itertools.pairwise(runs):
        if after.excess <= goal < before.excess:
            share = math.log(before.excess / goal) / math.log(before.excess / after.excess)
            return before.seconds * (after.seconds / before.seconds) ** share, False
    return runs[0].seconds, False


def answers(problem: Problem, closed: float, runs: dict[str, list[Run]]) -> dict[str, float | None]:
    """Times and ratios at one size. A name with "extrapolated" lies beyond what was run."""
    made: dict[str, float | None] = {
        f"{problem}: FVU of the optimum": problem.fvu,
        f"{problem}: closed form with dense coefficients, ms": 1e3 * closed,
        f"{problem}: the fit alone, in its factored form, ms": 1e3 * problem.fit_seconds(),
    }
    for goal in TARGETS:
        times = {name: time_to(name, r, goal, problem.features) for name, r in runs.items()}
        for name, (took, beyond) in times.items():
            mark = " (extrapolated)" if beyond and took is not None else ""
            made[f"{problem}: {name} / closed form, to excess {goal:g}{mark}"] = took and took / closed
        known = {took: beyond for took, beyond in times.values() if took is not None}
        if known:
            mark = " (extrapolated)" if known[min(known)] else ""
            made[f"{problem}: fastest peer / closed form, to excess {goal:g}{mark}"] = min(known) / closed
    best = next((n for n in ("scikit-learn, normal equations", "scikit-learn") if n in runs), None)
    if best is not None:
        needed = samples_for(best, runs[best], SAME**2, problem.features, lambda r: r.top**2)
        mark = " (extrapolated)" if needed > runs[best][-1].samples else ""
        made[f"{problem}: samples at which regression has the top coefficients to 1 %{mark}"] = needed
    return made


def out_of_reach(
    large: Problem, small: Problem, runs: dict[Problem, dict[str, list[Run]]], closed: float
) -> dict[str, float]:
    """What d = 784 would take, from laws seen at d = 128; all extrapolated.

    With p features, the excess of either is a function of n / p. Normal equations take time p^2 (n + p / 3).
    """
    p, q = large.features, small.features
    solved, few = runs[small]["scikit-learn, normal equations"], runs[large]["SGD"]
    per_product = solved[-1].seconds / (q**2 * (solved[-1].samples + q / 3))
    per_sample = (few[-1].seconds - few[0].seconds) / (few[-1].samples - few[0].samples)
    made = {}
    for goal in TARGETS:
        rows, draws = (
            samples_for(name, runs[small][name], goal, q, lambda r: r.excess) * p / q
            for name in ("scikit-learn, normal equations", "SGD")
        )
        solving, descending = per_product * p**2 * (rows + p / 3), per_sample * draws
        made |= {
            f"{large}: normal equations, to excess {goal:g}, hours (extrapolated)": solving / 3600,
            f"{large}: memory of their features, to excess {goal:g}, GiB": 8 * p * rows / 2**30,
            f"{large}: SGD, to excess {goal:g}, hours (extrapolated)": descending / 3600,
            f"{large}: fastest peer / closed form, to excess {goal:g} (extrapolated)": min(solving, descending)
            / closed,
        }
    return made


PROBLEMS = (Problem(8), Problem(8, 3), Problem(32), Problem(128), Problem(784))


def main(tiny: bool = False) -> None:
    """All sizes, with one thread: on a busy machine more of them fight, and small problems gain nothing."""
    results: dict[str, Any] = {}
    curves, runs, closed = {}, {}, {}
    problems = PROBLEMS[:1] if tiny else PROBLEMS
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for problem in problems:
            print(f"sampling: {problem}", flush=True)
            closed[problem], runs[problem] = measure(problem)
            results |= answers(problem, closed[problem], runs[problem])
            curves[f"{problem}: closed form"] = {"x": [closed[problem]], "y": [0.0]}
            for name, each in runs[problem].items():
                curves[f"{problem}: {name}"] = {"x": [r.seconds for r in each], "y": [r.excess for r in each]}
    torch.set_num_threads(threads)
    if not tiny:
        results |= out_of_reach(Problem(784), Problem(128), runs, closed[Problem(784)])
    peers = versions("scikit-learn", "chaospy", "torch", "schedulefree")
    save("sampling", {**results, "curves": curves, "versions": peers})


# -- the picture -------------------------------------------------------------------------------------------------------


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Excess error against time, one panel per size; the closed form is a star on the floor, for it has none."""
    panels: dict[str, dict[str, dict[str, list[float]]]] = {}
    if "curves" not in results:  # which are not kept with the repository
        return {}
    for key, curve in results["curves"].items():
        size, name = key.split(": ", 1)
        panels.setdefault(size, {})[name] = curve
    figure = Figure(figsize=(style.WIDTH, 5.6), layout="constrained")
    axes = figure.subplots(2, 3, sharey=True).ravel()
    for ax, (size, curves) in zip(axes, panels.items(), strict=False):
        _panel(ax, size, curves)
    for ax in axes[len(panels) :]:
        ax.axis("off")
    marks = [style.key(name, color=colour, marker="o", markersize=4) for name, colour in COLOURS.items()]
    star = style.key("closed form (exact)", color=style.INK, marker="*", markersize=11, linestyle="")
    axes[-1].legend(handles=[star, *marks], frameon=False, fontsize=style.SMALL, loc="center left")
    for ax in axes[::3]:
        ax.set_ylabel("excess error / variance", fontsize=style.NORMAL, color=style.INK)
    return {"sampling": figure}


def _panel(ax: Axes, size: str, curves: dict[str, dict[str, list[float]]]) -> None:
    for name, curve in curves.items():
        if name == "closed form":
            ax.plot(curve["x"], [2e-6], "*", color=style.INK, markersize=12, clip_on=False, zorder=5)
        else:
            ax.plot(curve["x"], curve["y"], color=COLOURS[name], marker="o", markersize=3.5, linewidth=1.4)
    for goal in TARGETS:
        ax.axhline(goal, color=style.GUIDE, linewidth=0.8, zorder=0)
    ax.set(xscale="log", yscale="log", xlim=(1e-4, 1e2), ylim=(1e-6, 3))
    style.tidy(ax, "seconds", "", size)


if __name__ == "__main__":
    main()
