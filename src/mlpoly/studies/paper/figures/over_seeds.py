"""Records of several seeds as one curve, and the axis of training steps."""

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from mlpoly.charts.chart import Axis, Curve, Points

PHASES = (500, 1000, 4000)  # steps between which the paper sees phases of training


def curve_over_seeds(records: Iterable[Any], x: str, y: str | Callable[[Any], float], label: str, **look: Any) -> Curve:
    """Return a curve of the means over the seeds, with a band from the lowest seed to the highest.

    `x` and `y` are attributes of a record, of which there is one for each seed and x; `y` may be a function of it.
    Values that are not finite are left out, and so is an x without any other. `look`: further fields of the `Curve`.
    """
    value = attrgetter(y) if isinstance(y, str) else y
    groups: dict[float, list[float]] = {}
    for record in records:
        if math.isfinite(height := float(value(record))):
            groups.setdefault(getattr(record, x), []).append(height)
    order = sorted(groups)
    seeds = max(map(len, groups.values()), default=0)
    band: dict[str, Any] = {
        "low": [min(groups[key]) for key in order],
        "high": [max(groups[key]) for key in order],
        "spread": f"{seeds} seeds",
    }
    means = [math.fsum(groups[key]) / len(groups[key]) for key in order]
    return Curve(label, order, means, **look, **(band if seeds > 1 else {}))


def points_over_seeds(records: Sequence[Any], x: str, y: str, label: str, colour: str) -> Points:
    """Return the means over the seeds of a sampled quantity, with bars of two standard errors.

    Seeds may share their samples, so that their errors do not average out: the bars are means too.
    """
    heights, errors = curve_over_seeds(records, x, y, label), curve_over_seeds(records, x, f"{y}_error", label)
    return Points(label, heights.x, heights.y, [2 * error for error in errors.y], colour)


def step_axis(steps: Iterable[int], phases: bool = False) -> Axis:
    """Return a logarithmic axis of training steps, with step 0 one octave before step 1, and lines at the phases."""
    first, last = min(steps), max(1, *steps)
    jump = 2 if last > 64 else 1
    powers = [2**i for i in range(0, int(math.log2(last)) + 1, jump) if 2**i >= first]
    names = [f"{p >> 20}M" if p >= 2**20 else f"{p >> 10}k" if p >= 2**10 else str(p) for p in powers]
    ticks = [(0.5, "0")] * (first == 0) + list(zip(powers, names, strict=True))
    limits = (max(first, 0.5) / 1.25, 1.25 * last)
    guides = [(float(p), "") for p in PHASES if first < p < last] if phases else []
    return Axis("training step", "step", "log", ticks=ticks, limits=limits, guides=guides, zero=0.5)
