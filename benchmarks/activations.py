"""Accuracy of activation moments over the (mean, std) plane, beside fixed 50-point Gauss-Hermite quadrature.

The error at a point is that of the orthonormal Hermite coefficients c_0 .. c_5 under N(m, s^2), the largest of the six,
over the size sqrt(E act^2) of the activation there; stricter, it is also given over the largest of the coefficients.

The reference shares no code with the library: its own formulas in 80-bit floats, integrated by 32 Gauss-Legendre nodes
on each of more than a hundred panels, which end at every kink. The run checks it against the tests' table of 50 digits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import mlpoly as mp
from benchmarks.common import paired_seconds, save, versions
from mlpoly.charts import style

MEANS = np.array([0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0])
MEANS = np.float32([*-MEANS[:0:-1], *MEANS])  # a float32 is also a float64: one reference for both
STDS = np.float32(np.logspace(-3, 2, 11))
DEGREE, NODES = 5, 50
SHOWN = ("relu", "gelu", "silu", "tanh")
TABLE = Path(__file__).parents[1] / "tests" / "reference" / "hermite.npz"
# Sizes below these are lost to underflow in either dtype, and no error relative to them can be told.
SMALLEST = {"float64": 1e-290, "float32": 1e-30}

Real = np.longdouble
PI = Real("3.14159265358979323846264338327950288")


# -- the activations in 80-bit floats ----------------------------------------------------------------------------------


def _erfc(x: np.ndarray) -> np.ndarray:
    """Complementary error function: series of equal signs near zero, continued fraction beyond."""
    size = np.abs(x)
    near, far = np.minimum(size, 2), np.maximum(size, 2)
    term = total = near
    for n in range(1, 60):
        term = term * 2 * near**2 / (2 * n + 1)
        total = total + term
    tail = far
    for n in range(100, 0, -1):
        tail = far + Real(n) / 2 / tail
    inner = 1 - 2 / np.sqrt(PI) * np.exp(-(near**2)) * total
    upper = np.where(size < 2, inner, np.exp(-(far**2)) / (np.sqrt(PI) * tail))
    return np.where(x < 0, 2 - upper, upper)


def _sigmoid(y: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(y))
    return np.where(y > 0, 1, small) / (1 + small)


def _softplus(y: np.ndarray) -> np.ndarray:
    return np.maximum(y, 0) + np.log1p(np.exp(-np.abs(y)))


def _mish(y: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(y))
    return y * np.where(y > 0, (1 + 2 * e) / (1 + 2 * e + 2 * e * e), e * (e + 2) / (e * (e + 2) + 2))


def _tanhshrink(y: np.ndarray) -> np.ndarray:
    """Near zero as (y cosh y - sinh y) / cosh y, by a series of equal signs."""
    near = np.clip(y, -1, 1)
    power, total = near, Real(0)
    for n in range(1, 14):
        power = power * near**2 / (2 * n * (2 * n + 1))
        total = total + 2 * n * power
    return np.where(np.abs(y) < 1, total / np.cosh(near), y - np.tanh(y))


def _elu(y: np.ndarray) -> np.ndarray:
    return np.where(y > 0, y, np.expm1(np.minimum(y, 0)))


SELU_ALPHA, SELU_SCALE = Real(1.6732632423543772848170429916717), Real(1.0507009873554804934193349852946)
CUBIC, QUICK, SLOPE = Real(0.044715), Real(1.702), Real(0.01)  # the doubles that every implementation has
KINKS = (-3.0, -1.0, 0.0, 1.0, 3.0, 6.0)

FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda y: y,
    "square": lambda y: y * y,
    "cube": lambda y: y**3,
    "abs": np.abs,
    "relu": lambda y: np.maximum(y, 0),
    "relu2": lambda y: np.maximum(y, 0) ** 2,
    "relu6": lambda y: np.clip(y, 0, 6),
    "leaky_relu": lambda y: np.where(y > 0, y, SLOPE * y),
    "step": lambda y: np.where(y > 0, Real(1), Real(0)),
    "jumprelu": lambda y: np.where(y > 1, y, 0),
    "threshold": lambda y: np.where(y > 1, y, 0),
    "hardtanh": lambda y: np.clip(y, -1, 1),
    "hardsigmoid": lambda y: np.clip(y + 3, 0, 6) / 6,
    "hardswish": lambda y: y * np.clip(y + 3, 0, 6) / 6,
    "gelu": lambda y: y * _erfc(-y / np.sqrt(Real(2))) / 2,
    "gelu_tanh": lambda y: y * _sigmoid(2 * np.sqrt(2 / PI) * (y + CUBIC * y**3)),
    "quick_gelu": lambda y: y * _sigmoid(QUICK * y),
    "silu": lambda y: y * _sigmoid(y),
    "sigmoid": _sigmoid,
    "logsigmoid": lambda y: -_softplus(-y),
    "softplus": _softplus,
    "tanh": np.tanh,
    "tanhshrink": _tanhshrink,
    "mish": _mish,
    "softsign": lambda y: y / (1 + np.abs(y)),
    "elu": _elu,
    "celu": _elu,
    "selu": lambda y: SELU_SCALE * np.where(y > 0, y, SELU_ALPHA * np.expm1(np.minimum(y, 0))),
    "erf": lambda y: np.sign(y) * (1 - _erfc(np.abs(y))),
    "gaussian": lambda y: np.exp(-y * y / 2),
    "sin": np.sin,
    "cos": np.cos,
}


# -- the reference -----------------------------------------------------------------------------------------------------


@cache
def _legendre(order: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1]: NumPy's, with two steps of Newton in 80-bit floats."""
    x = np.polynomial.legendre.leggauss(order)[0].astype(Real)
    for _ in range(3):
        before, value = np.ones_like(x), x
        for n in range(1, order):
            before, value = value, ((2 * n + 1) * x * value - n * before) / (n + 1)
        slope = order * (before - x * value) / (1 - x * x)
        x = x - value / slope
    return x, 2 / ((1 - x * x) * slope**2)


def _edges(m: Any, s: Any) -> np.ndarray:
    """Ends of panels in t: a unit grid, the images of kinks and bends, and a ladder around kinks in a tail."""
    images = (np.array([*KINKS, *(sign * 2.0**j for j in range(-4, 8) for sign in (-1, 1))], Real) - m) / s
    kinks = (np.array(KINKS, Real) - m) / s
    # Beyond 140 the density is 0 even in 80 bits; beside a kink at c it falls like exp(-|c| x).
    far = kinks[(np.abs(kinks) > 8) & (np.abs(kinks) < 140)]
    steps = np.array([sign * 2.0**-j for j in range(8) for sign in (-1, 1)])
    low, high = (float(np.clip(v, -100, 100)) for v in (min(-m / s, 0), max(-m / s, 0)))
    grid = np.arange(math.floor(low) - 45, math.ceil(high) + 46).astype(Real)
    every = np.concatenate([grid, images, np.ravel(far[:, None] + steps)])
    return np.unique(every[(every >= grid[0]) & (every <= grid[-1])])


def _nodes(m: Any, s: Any) -> tuple[np.ndarray, np.ndarray]:
    """Nodes t, and the weights with the density and the orthonormal he_0 .. he_5 in them, (6, nodes)."""
    edges, (x, w) = _edges(m, s), _legendre()
    half = np.diff(edges)[:, None] / 2
    t = np.ravel(edges[:-1, None] + half * (1 + x))
    rows = [np.ravel(half * w) * np.exp(-t * t / 2) / np.sqrt(2 * PI)]
    rows.append(t * rows[0])
    for k in range(1, DEGREE):
        rows.append((t * rows[k] - np.sqrt(Real(k)) * rows[k - 1]) / np.sqrt(Real(k + 1)))
    return t, np.stack(rows)


def _wave(name: str, m: Any, s: Any) -> tuple[np.ndarray, Any]:
    """Sine and cosine from the characteristic function: they oscillate too fast for panels."""
    phase = m + (PI / 2 if name == "cos" else 0)
    k = np.arange(DEGREE + 1)
    scale = np.exp(-s * s / 2) * s**k / np.sqrt([Real(math.factorial(j)) for j in k])
    return scale * np.sin(phase + k * PI / 2), np.sqrt((1 - np.exp(-2 * s * s) * np.cos(2 * phase)) / 2)


def reference(m: float, s: float) -> dict[str, tuple[np.ndarray, Any]]:
    """For each activation the coefficients c_0 .. c_5, and sqrt(E act^2), under N(m, s^2)."""
    m, s = Real(m), Real(s)
    t, weights = _nodes(m, s)
    y, made = m + s * t, {}
    for name, formula in FORMULAS.items():
        if name in ("sin", "cos"):
            made[name] = _wave(name, m, s)
        else:
            value = formula(y)
            made[name] = weights @ value, np.sqrt(weights[0] @ (value * value))
    return made


def against_table() -> float:
    """Largest error of the reference in the units of this benchmark, at the points of the tests' table in the plane."""
    with np.load(TABLE) as file:
        names, points, stored = [str(n) for n in file["names"]], file["points"], file["coefficients"]
    roots, worst = np.sqrt([math.factorial(k) for k in range(DEGREE + 1)]), 0.0
    for p, (m, s) in enumerate(points):
        if abs(m) <= 30 and 1e-3 <= s <= 100:
            for name, (exact, size) in reference(m, s).items():
                if name in names and size > SMALLEST["float64"]:
                    apart = np.abs(exact - stored[names.index(name), p, : DEGREE + 1] * roots)
                    worst = max(worst, float(np.max(apart) / size))
    return worst


# -- the two that are judged -------------------------------------------------------------------------------------------


def closed_form(name: str, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The library's Hermite coefficients a_0 .. a_5 = c_k / sqrt(k!)."""
    return np.asarray(mp.hermite_coefficients(name, m, s, DEGREE))


def gauss_hermite(name: str, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The same by the usual rule, in the dtype of m."""
    t, weights = (a.astype(m.dtype) for a in np.polynomial.hermite_e.hermegauss(NODES))
    rows = [weights / m.dtype.type(math.sqrt(2 * math.pi))]
    rows.append(t * rows[0])
    for k in range(1, DEGREE):
        rows.append((t * rows[k] - rows[k - 1]) / m.dtype.type(k + 1))
    values = mp.activations.get(name)(m[..., None] + s[..., None] * t)
    return np.moveaxis(values @ np.stack(rows).T, -1, 0)


METHODS = {"mlpoly": closed_form, "Gauss-Hermite 50": gauss_hermite}


def errors(found: np.ndarray, exact: np.ndarray, size: np.ndarray, smallest: float) -> np.ndarray:
    """Largest error of c_0 .. c_5, (6, ...), over a size (...); below the smallest size there is nothing to miss."""
    roots = np.sqrt([math.factorial(k) for k in range(DEGREE + 1)]).reshape(-1, *[1] * (found.ndim - 1))
    apart = np.max(np.abs(found * roots - exact), axis=0)
    told = size > smallest
    return np.where(told, apart / np.where(told, size, 1), 0).astype(float)


def measure(means: np.ndarray, stds: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Worst errors of all activations, and maps of some."""
    m, s = (a.copy() for a in np.broadcast_arrays(means[None, :], stds[:, None]))
    exact = [reference(a, b) for a, b in zip(m.ravel(), s.ravel(), strict=True)]
    table: dict[str, dict[str, float]] = {}
    maps = {}
    for name in mp.activations.names():
        c = np.stack([e[name][0] for e in exact], axis=1).reshape(DEGREE + 1, *m.shape)
        size = np.array([e[name][1] for e in exact]).reshape(m.shape)
        table[name] = {}
        for dtype in ("float64", "float32"):
            for method, compute in METHODS.items():
                found = compute(name, m.astype(dtype), s.astype(dtype))
                over_size = errors(found, c, size, SMALLEST[dtype])
                over_largest = errors(found, c, np.max(np.abs(c), axis=0), SMALLEST[dtype])
                table[name][f"{method}, {dtype}"] = float(over_size.max())
                table[name][f"{method}, {dtype}, over the largest coefficient"] = float(over_largest.max())
                if name in SHOWN:
                    maps[f"{name}, {method}, {dtype}"] = np.log10(np.maximum(over_size, 1e-18)).round(2).tolist()
    return table, maps


def speed() -> dict[str, float]:
    """Time of the library's coefficients over that of 50 nodes, for 4096 neurons."""
    rng = np.random.default_rng(0)
    m, s = rng.standard_normal(4096), 0.1 + rng.random(4096)
    made = {}
    for name in SHOWN:
        times = paired_seconds(
            {"ours": lambda n=name: closed_form(n, m, s), "rule": lambda n=name: gauss_hermite(n, m, s)}
        )
        made[f"{name}: time of mlpoly / time of Gauss-Hermite 50"] = times["ours"] / times["rule"]
    return made


def notes(results: dict[str, Any]) -> list[str]:
    """Where the fixed rule is faster, which is not seen in the errors."""
    said = ["An error of 0 is drawn at 10^-17. Where the size of an activation underflows, the error counts as 0."]
    for name in SHOWN:
        ratio = results[f"{name}: time of mlpoly / time of Gauss-Hermite 50"]
        if ratio > 1:
            said.append(f"Fifty fixed nodes are {ratio:.0f} times faster for {name}, which has no closed form.")
    return said


def main(tiny: bool = False) -> None:
    """The whole plane, the summary, and what the accuracy costs."""
    means, stds = (MEANS[::6], STDS[::5]) if tiny else (MEANS, STDS)
    table, maps = measure(means, stds)
    results: dict[str, Any] = {} if tiny else {"reference against a table of 50 digits, worst": against_table()}
    for column in (f"{method}, {dtype}" for dtype in ("float64", "float32") for method in METHODS):
        for suffix in ("", ", over the largest coefficient"):
            worst = max(table, key=lambda name: table[name][column + suffix])
            results[f"worst error of all activations: {column}{suffix}"] = table[worst][column + suffix]
            results[f"which one: {column}{suffix}"] = worst
    for name in SHOWN:
        results |= {
            f"{name}: worst error of {column}": table[name][column] for column in table[name] if "over" not in column
        }
    axes = {"mean": means.tolist(), "std": stds.tolist()}
    results |= speed()
    results["notes"] = notes(results)
    save("activations", {**results, "table": table, "maps": maps, "axes": axes, "versions": versions("numpy", "scipy")})


# -- the picture -------------------------------------------------------------------------------------------------------


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Maps of log10 error for some activations, and the worst error of every one."""
    return {"activations": _maps(results), "activations_worst": _worst(results)}


def _maps(results: dict[str, Any]) -> Figure:
    columns = [f"{method}, {dtype}" for dtype in ("float64", "float32") for method in METHODS]
    figure = Figure(figsize=(style.WIDTH, 8.2), layout="constrained")
    axes = figure.subplots(len(columns), len(SHOWN), sharex=True, sharey=True)
    for (row, column), (place, name) in itertools.product(enumerate(columns), enumerate(SHOWN)):
        ax, values = axes[row, place], results["maps"][f"{name}, {column}"]
        image = ax.imshow(values, origin="lower", aspect="auto", cmap="viridis", vmin=-17, vmax=0)
        style.tidy(
            ax,
            "mean m" if row == len(columns) - 1 else "",
            f"{column.replace(', ', chr(10))}\nstd s" if place == 0 else "",
            name if row == 0 else "",
        )
    means, stds = results["axes"]["mean"], results["axes"]["std"]
    shown = [i for i, m in enumerate(means) if m in (-30, -5, -1, 0, 1, 5, 30)]
    axes[0, 0].set_xticks(shown, [f"{means[i]:g}" for i in shown])
    decades = [i for i, s in enumerate(stds) if math.isclose(math.log10(s), round(math.log10(s)), abs_tol=1e-6)]
    axes[0, 0].set_yticks(decades, [f"{stds[i]:.3g}" for i in decades])
    bar = figure.colorbar(image, ax=axes, shrink=0.5)
    bar.set_label("log10 of the largest error of c_0 .. c_5 over sqrt(E act²)", fontsize=style.SMALL, color=style.INK)
    return figure


def _worst(results: dict[str, Any]) -> Figure:
    table = results["table"]
    names = sorted(table, key=lambda name: table[name]["Gauss-Hermite 50, float64"])
    figure = Figure(figsize=(style.WIDTH, 6.4), layout="constrained")
    ax = figure.subplots()
    looks = {
        "mlpoly, float64": (style.QUADRATIC, "o"),
        "mlpoly, float32": (style.QUADRATIC, "s"),
        "Gauss-Hermite 50, float64": (style.LINEAR, "o"),
        "Gauss-Hermite 50, float32": (style.LINEAR, "s"),
    }
    for column, (colour, marker) in looks.items():
        filled = colour if column.endswith("64") else "none"
        values = [max(table[name][column], 1e-17) for name in names]
        ax.plot(values, range(len(names)), marker, color=colour, markerfacecolor=filled, markersize=5, label=column)
    ax.set(xscale="log", yticks=range(len(names)))
    style.tidy(ax, "largest error of c_0 .. c_5 over sqrt(E act²), worst over the plane")
    ax.set_yticks(range(len(names)), names)
    ax.grid(axis="y", color=style.GUIDE, linewidth=0.5)
    style.legend_below(figure, ax.get_legend_handles_labels()[0], 4)
    return figure


if __name__ == "__main__":
    main()
