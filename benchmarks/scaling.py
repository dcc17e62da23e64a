"""How does the cost of every step grow, and how should it? Slopes of time against size, in logarithms.

The slope of the upper part of each curve stands beside the exponent of the largest term of the algorithm, at sizes at
which that term should decide. Small sizes measure overhead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import mlpoly as mp
from benchmarks.common import paired_seconds, save, slope
from mlpoly.charts import style

UPPER = 3  # points at the end of a curve that its slope is taken from


@dataclass(frozen=True)
class Size:
    """Of a network, its inputs and its polynomial."""

    d: int = 512
    h: int = 512
    outputs: int = 16
    degree: int = 3
    components: int = 1
    rows: int = 1000  # of inputs that are evaluated


@dataclass(frozen=True)
class Curve:
    """One step against one size."""

    step: str
    axis: str
    values: tuple[int, ...]
    ideal: float
    why: str
    base: Size = Size()

    @property
    def name(self) -> str:
        return f"{self.step} against {self.axis}"


def network(size: Size) -> mp.MLP:
    """A random ReLU network."""
    rng = np.random.default_rng(0)
    W1, b1 = rng.standard_normal((size.h, size.d)) / size.d**0.5, rng.standard_normal(size.h)
    return mp.MLP(W1, b1, rng.standard_normal((size.outputs, size.h)) / size.h**0.5, None, "relu")


def distribution(size: Size) -> mp.Gaussian | mp.GaussianMixture:
    """Full covariances; one component is a Gaussian."""
    rng = np.random.default_rng(1)
    parts = []
    for _ in range(size.components):
        # A diagonal and some directions: as full as any for the library, and quickly made.
        A = rng.standard_normal((size.d, 16)) / 4
        parts.append(mp.Gaussian(rng.standard_normal(size.d) / 3, A @ A.T + np.eye(size.d)))
    return parts[0] if size.components == 1 else mp.GaussianMixture.of(np.full(len(parts), 1 / len(parts)), parts)


def fitting(size: Size) -> Callable[[], Any]:
    """Fit: neuron by neuron under a mixture."""
    net, inputs = network(size), distribution(size)
    return lambda: mp.fit(net, inputs, size.degree, method="neuronwise")


def evaluation(size: Size) -> Callable[[], Any]:
    """The polynomial on `rows` inputs."""
    poly = fitting(size)()
    x = np.random.default_rng(2).standard_normal((size.rows, size.d))
    return lambda: poly(x)


def exact_fvu(size: Size) -> Callable[[], Any]:
    """Error in closed form."""
    net, inputs = network(size), distribution(size)
    poly = mp.fit(net, inputs, size.degree, method="neuronwise")
    return lambda: mp.fvu(net, poly, inputs)


def features(size: Size) -> Callable[[], Any]:
    """Five eigenfeatures of one output."""
    poly = fitting(size)()
    return lambda: mp.eigenfeatures(poly, output=0, k=5)


STEPS = {"fit": fitting, "evaluation": evaluation, "exact FVU": exact_fvu, "eigenfeatures": features}
WIDE, FEW = Size(h=2048, d=1024), Size(d=32, h=1024)
CURVES = (
    Curve("fit", "d", (256, 512, 1024, 2048, 4096), 2, "one product W S, h d²"),
    Curve("fit", "h", (512, 1024, 2048, 4096, 8192), 1, "one product W S, h d²"),
    Curve("fit", "degree", (1, 2, 4, 8, 16), 0, "the product does not know the degree", WIDE),
    Curve("fit", "components", (2, 4, 8, 16), 1, "one product per component"),
    Curve("fit", "outputs", (16, 64, 256, 1024), 0, "the readout is handed on as it is", WIDE),
    Curve("evaluation", "d", (256, 512, 1024, 2048, 4096), 1, "one product x W', n h d"),
    Curve("evaluation", "h", (256, 512, 1024, 2048, 4096), 1, "products and recurrence, n h (d + o + degree)"),
    Curve("evaluation", "degree", (4, 8, 16, 32, 64), 1, "n h numbers per step of the recurrence", FEW),
    Curve("evaluation", "components", (2, 4, 8, 16), 0, "one polynomial, whatever it was fitted under"),
    Curve("evaluation", "outputs", (256, 512, 1024, 2048, 4096), 1, "one product with the readout, n h o", FEW),
    Curve("exact FVU", "d", (512, 1024, 2048, 4096), 2, "W S, h d², where h is small", Size(h=128)),
    Curve(
        "exact FVU", "h", (128, 256, 512, 1024, 2048), 2, "pairs, h² (d + o); large h saves half of them", Size(d=256)
    ),
    Curve("exact FVU", "degree", (16, 32, 64, 128, 256), 1, "one term per pair and degree", Size(d=32, h=128)),
    Curve("exact FVU", "components", (2, 4, 8, 16), 1, "one sum over pairs per component", Size(d=256, h=256)),
    Curve("exact FVU", "outputs", (1024, 2048, 4096, 8192, 16384), 1, "pairs read out, h² o", Size(d=32, h=256)),
    Curve("eigenfeatures", "d", (128, 256, 512, 1024), 3, "a dense eigenproblem up to d = 1024, d³", Size(h=64)),
    Curve("eigenfeatures", "larger d", (2048, 4096, 8192, 16384), 1, "products with W from d = 1025 on", Size(h=64)),
    Curve("eigenfeatures", "h", (2048, 4096, 8192, 16384), 1, "the form W' diag W, h d²", Size(d=128)),
    Curve("eigenfeatures", "degree", (2, 4, 8, 16), 0, "only the quadratic part is read", Size(d=256)),
    Curve("eigenfeatures", "outputs", (16, 64, 256, 1024), 0, "only one output is read", Size(d=256)),
)


def measure(curve: Curve, values: tuple[int, ...], repeats: int) -> list[float]:
    """Seconds at every value of the axis, measured in turn."""
    field = curve.axis.removeprefix("larger ")
    works = {}
    for value in values:
        size = replace(curve.base, **{field: value})
        if curve.axis == "larger d":  # no d x d matrix: these polynomials come from N(0, I)
            poly = mp.fit(network(size), mp.Gaussian.standard(size.d), 2)
            works[str(value)] = lambda p=poly: mp.eigenfeatures(p, output=0, k=5)
        else:
            works[str(value)] = STEPS[curve.step](size)
    # The fastest of each: whatever else the machine does only ever adds time, and bends the curve.
    return list(paired_seconds(works, repeats, of=min).values())


def run(curves: tuple[Curve, ...], largest: int | None = None, repeats: int = 5) -> dict[str, Any]:
    """All curves, or their values up to `largest`, and the slopes of their upper parts."""
    results: dict[str, Any] = {"curves": {}, "ideals": {}}
    for curve in curves:
        values = tuple(v for v in curve.values if largest is None or v <= largest) or curve.values[:2]
        times = measure(curve, values, repeats)
        found = slope(values[-UPPER:], times[-UPPER:])
        results["curves"][curve.name] = {"x": values, "y": times}
        results["ideals"][curve.name] = {"slope": curve.ideal, "why": curve.why}
        results[f"{curve.name}: slope, ideal {curve.ideal:g}"] = found
        print(f"  {curve.name:28s} {found:5.2f}  ideal {curve.ideal:g}  ({curve.why})", flush=True)
    return results


def shares() -> dict[str, float]:
    """Share of the rate of the bare matrix product that fit and moments reach on this machine."""
    rng = np.random.default_rng(0)
    size = Size(d=1024, h=2048)
    net, inputs = network(size), distribution(size)
    x = rng.standard_normal((4096, size.d))
    times = paired_seconds(
        {
            "product": lambda: net.W1 @ inputs.cov,
            "fit": lambda: mp.fit(net, inputs, 3),
            "square": lambda: x.T @ x,
            "moments": lambda: mp.MomentAccumulator(size.d).update(x),
        },
        9,
    )
    return {
        "fit at degree 3, 1024-2048-16, all threads: share of the rate of the product W S (goal 0.6)": times["product"]
        / times["fit"],
        "moments of 4096 rows, d = 1024, all threads: share of the rate of x' x (goal 0.6)": times["square"]
        / times["moments"],
    }


def notes(results: dict[str, Any], tolerance: float = 0.3) -> list[str]:
    """Curves that grow faster than they should; slower only means that the largest term does not decide yet."""
    fast = []
    for name, ideal in results["ideals"].items():
        found = results[f"{name}: slope, ideal {ideal['slope']:g}"]
        if found > ideal["slope"] + tolerance:
            fast.append(f"{name} ({found:.2f} where {ideal['slope']:g} is ideal)")
    if not fast:
        return [f"No curve is steeper than its ideal by more than {tolerance:g}."]
    return [f"Steeper than the ideal by more than {tolerance:g}: {', '.join(fast)}."]


def main(tiny: bool = False) -> None:
    """All curves on one thread: slopes of the algorithm, not of how well threads share small products."""
    with threadpool_limits(1):
        results = run(CURVES[:2], largest=1024, repeats=1) if tiny else run(CURVES)
    if not tiny:
        results |= shares()
    save("scaling", {**results, "notes": notes(results)}, threads=1)


# -- pictures ----------------------------------------------------------------------------------------------------------


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """A panel per curve, with a dashed line of the ideal slope through the last point."""
    curves, ideals = results["curves"], results["ideals"]
    steps = list(dict.fromkeys(name.split(" against ")[0] for name in curves))
    rows = [[n for n in curves if n.startswith(step + " against")] for step in steps]
    figure = Figure(figsize=(11, 2.35 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), max(map(len, rows)), squeeze=False)
    for axes, names in zip(grid, rows, strict=True):
        for ax in axes[len(names) :]:
            ax.set_axis_off()
        for ax, name in zip(axes, names, strict=False):
            draw_curve(ax, name, curves[name], ideals[name]["slope"])
        axes[0].set_ylabel(f"{names[0].split(' against ')[0]}, ms", fontsize=style.NORMAL, color=style.INK)
    return {"scaling": figure}


def draw_curve(ax: Any, name: str, curve: dict[str, list[float]], ideal: float) -> None:
    """Measured points, and the line that they should end on."""
    x, y = np.array(curve["x"], float), 1e3 * np.array(curve["y"])
    found = slope(x[-UPPER:], y[-UPPER:])
    ax.plot(x, y[-1] * (x / x[-1]) ** ideal, linestyle=style.DASHED, color=style.FAINT, linewidth=1.2)
    ax.plot(x, y, color=style.QUADRATIC, marker="o", ms=3.5)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(x, [f"{v / 1024:g}k" if v >= 1024 else f"{v:g}" for v in x])
    ax.xaxis.minorticks_off()
    low, high = y.min() / 1.2, y.max() * 1.2
    stretch = max((10 * low / high) ** 0.5, 1)  # a decade at least, so that a flat curve looks flat
    ax.set_ylim(low / stretch, high * stretch)
    ax.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
    ax.yaxis.set_minor_formatter("")
    if not any(low / stretch <= 10.0**e <= high * stretch for e in range(-3, 6)):
        ax.yaxis.set_minor_formatter(lambda v, _: f"{v:g}" if f"{v:.0e}"[0] in "25" else "")
    style.tidy(ax, name.split(" against ")[1], title=f"slope {found:.2f}, ideal {ideal:g}")
    ax.title.set_fontsize(style.SMALL)


if __name__ == "__main__":
    main()
