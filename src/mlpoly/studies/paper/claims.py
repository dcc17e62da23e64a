"""The paper's sentences beside what was measured here, and whether they hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mlpoly.studies.paper.results import Ablation, Claim, Features, Point

__all__ = ["judge_claims"]

_EARLY = 512  # "the first few hundred steps"
_RISE = (512, 1024, 4096)  # "between 500 and 1K training steps ... start to increase sharply ... until around 4K steps"
_NOTABLE = 0.1  # relative change that counts as a fall
# What lies between the next two is neither flat nor sharp.
_FLAT = 1.2  # largest over smallest that still counts as nearly constant
_SHARP = 2.0  # growth over the doubling of the steps from 512 to 1024 that counts as sharp: as fast as the steps
_CHANCE = 0.05  # above chance, and still "no better than random"
_LOCKSTEP = 0.99  # correlation
_BAND = 3.0  # standard errors

Curves = dict[int, dict[int, float]]  # seed -> step -> value


def judge_claims(
    points: Sequence[Point], ablations: Sequence[Ablation] = (), features: Features | None = None, classes: int = 10
) -> tuple[Claim, ...]:
    """Every claim of the paper's section 4 that these records can judge, then two about the exact curve.

    Parameters
    ----------
    points : sequence of Point
        Of all seeds.
    ablations : sequence of Ablation
    features : Features, optional
    classes : int
        Chance is one over this.

    Returns
    -------
    tuple of Claim
        A claim holds if it holds for every seed.
    """
    linear, quadratic = (_curves(points, "mixture", degree, "fvu_mixture") for degree in (1, 2))
    made = [
        _increasing_degree(linear, quadratic),
        *_early_falls(points),
        _rise(linear),
        _flat(linear, quadratic),
        _explained(quadratic),
    ]
    if features is not None:
        made.append(_digit_like(features))
    if ablations:
        for step in sorted({a.step for a in ablations}):
            kept = [a for a in ablations if a.directions == "singular" and a.step == step]
            made += [replace(c, name=f"{c.name}, step {step}") for c in _attack_claims(kept, classes)]
    return (*made, _inside_band(points), _smooth(points))


def _curves(points: Iterable[Point], inputs: str, degree: int, field: str) -> Curves:
    curves: Curves = {}
    for p in sorted(points, key=lambda p: (p.seed, p.step)):
        if (p.inputs, p.degree) == (inputs, degree):
            curves.setdefault(p.seed, {})[p.step] = getattr(p, field)
    return curves


def _span(values: Iterable[float], form: str = "{:.3g}") -> str:
    """Mean of the seeds, and their range if there are several."""
    found = list(values)
    if any(math.isnan(v) for v in found):
        return "unknown"
    text = form.format(float(np.mean(found)))
    return text if len(found) == 1 else f"{text} ({form.format(min(found))} to {form.format(max(found))})"


# -- training ----------------------------------------------------------------------------------------------------------


def _increasing_degree(linear: Curves, quadratic: Curves) -> Claim:
    """The step at which each FVU has doubled from its lowest value."""
    pairs = [(_doubled(linear[s]), _doubled(quadratic[s])) for s in linear]
    said = "; ".join(f"linear {_step(a)}, quadratic {_step(b)}" for a, b in pairs)
    # At the same checkpoint, nothing is known about the order.
    judged = [None if a is None or a == b else b is None or b > a for a, b in pairs]
    return Claim(
        "Degrees in order",
        "The linear approximation gets worse first, the quadratic one only after it (section 4, hypothesis).",
        f"The FVU has doubled from its lowest value by step: {said}.",
        False if False in judged else None if None in judged else True,
        "fvu",
    )


def _doubled(curve: dict[int, float]) -> int | None:
    lowest = min(curve, key=lambda s: curve[s])
    return next((s for s in curve if s > lowest and curve[s] >= 2 * curve[lowest]), None)


def _step(step: int | None) -> str:
    return "not within this run" if step is None else str(step)


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan


def _every(values: Iterable[float], holds: Callable[[float], bool]) -> bool | None:
    """Whether it holds for all; None if one of them is not known."""
    found = list(values)
    return None if any(math.isnan(v) for v in found) else all(holds(v) for v in found)


def _early_falls(points: Sequence[Point]) -> list[Claim]:
    """That of the FVU, and that there is none of the KL."""

    def early(curve: dict[int, float]) -> float:
        """Smallest value in the first few hundred steps, relative to that before training; NaN without either."""
        found = [v for s, v in curve.items() if 0 < s <= _EARLY]
        return _ratio(min(found), curve[0]) if found else math.nan

    fvu, kl = (
        [[early(c) for c in _curves(points, "mixture", degree, field).values()] for degree in (1, 2)]
        for field in ("fvu_mixture", "kl_samples")
    )
    return [
        Claim(
            "Early fall of the FVU",
            "In the first few hundred steps the FVU of both approximants goes down (section 4.2).",
            f"Within {_EARLY} steps the FVU falls to {_span(fvu[0], '{:.0%}')} of its value before training (linear) "
            f"and to {_span(fvu[1], '{:.0%}')} (quadratic); below {1 - _NOTABLE:.0%} is taken as a fall.",
            _every([*fvu[0], *fvu[1]], lambda f: f < 1 - _NOTABLE),
            "fvu",
        ),
        Claim(
            "No early fall of the KL",
            "Measured by KL divergence, that early phase disappears (section 4.2, figure 3).",
            f"Within {_EARLY} steps the KL divergence is at least {_span(kl[0], '{:.2f}')} times that before training "
            f"(linear) and {_span(kl[1], '{:.2f}')} times (quadratic); below {1 - _NOTABLE} is taken as a fall.",
            _every([*kl[0], *kl[1]], lambda f: f > 1 - _NOTABLE),
            "kl",
        ),
    ]


def _rise(linear: Curves) -> Claim:
    first, start, last = _RISE
    paper = "Between 500 and 1000 steps the FVU of the linear approximant starts to rise sharply, until about 4000."
    if not all(set(_RISE) <= set(c) for c in linear.values()):
        return Claim("Rise of the linear FVU", paper, f"This run has no checkpoints up to step {last}.", None, "fvu")
    known = list(linear.values())
    begun, whole = [_ratio(c[start], c[first]) for c in known], [_ratio(c[last], c[start]) for c in known]
    # From checkpoint to checkpoint, so that a rise that ends before is seen.
    periods = [[v for s, v in sorted(c.items()) if start <= s <= last] for c in known]
    slowest = [min(_ratio(b, a) for a, b in pairwise(values)) for values in periods]
    ends = [max(c) for c in known]
    later = [_ratio(c[end], c[last]) for c, end in zip(known, ends, strict=True)]
    beyond = f", and by {_span(later)} to step {ends[0]}" if ends[0] > last else ""
    sharp, goes_on = _every(begun, lambda r: r >= _SHARP), _every(slowest, lambda r: r > 1)
    return Claim(
        "Rise of the linear FVU",
        paper,
        f"From step {first} to {start} it changes by a factor of {_span(begun)} ({_SHARP:g} or more is taken as "
        f"sharp), from there to step {last} by {_span(whole)} (between two checkpoints by {_span(slowest)} at least)"
        f"{beyond}.",
        None if sharp is None or goes_on is None else sharp and goes_on,
        "fvu",
    )


def _flat(linear: Curves, quadratic: Curves) -> Claim:
    first, _, last = _RISE
    paper = "Over the same period the FVU of the quadratic approximant is nearly constant."
    windows = [[v for s, v in c.items() if first <= s <= last] for c in quadratic.values()]
    if not all({first, last} <= set(c) for c in quadratic.values()):
        return Claim("Flat quadratic FVU", paper, f"This run has no checkpoints up to step {last}.", None, "fvu")
    ratios = [_ratio(max(w), min(w)) for w in windows]
    change = [max(w) - min(w) for w in windows]
    beside = [max(w) - min(w) for w in ([v for s, v in c.items() if first <= s <= last] for c in linear.values())]
    share = [_ratio(a, b) for a, b in zip(change, beside, strict=True)]
    return Claim(
        "Flat quadratic FVU",
        paper,
        f"Between steps {first} and {last} it changes by a factor of {_span(ratios)} (up to {_FLAT} is taken as "
        f"constant); in absolute terms by {_span(change)}, which is {_span(share, '{:.0%}')} of the linear "
        "one's change.",
        _every(ratios, lambda r: r <= _FLAT),
        "fvu",
    )


def _explained(quadratic: Curves) -> Claim:
    worst = [1 - max(c.values()) for c in quadratic.values()]
    where = [max(c, key=lambda s: c[s]) for c in quadratic.values()]
    steps = ", ".join(map(str, sorted(set(where))))
    return Claim(
        "Quadratic R² above 0.95",
        "Quadratic approximants explain more than 95 % of the variance at every checkpoint.",
        f"Lowest R² of the exact quadratic under the mixture: {_span(worst, '{:.4f}')}, at step {steps}.",
        all(w > 0.95 for w in worst),
        "fvu",
    )


def _digit_like(features: Features) -> Claim:
    """How much the linear coefficients of a class look like those at the end; what they show is for the eye."""
    last = max(s.step for s in features.steps)
    final = {s.label: s.linear for s in features.steps if s.step == last}
    alike: dict[int, list[float]] = {}
    for s in features.steps:
        length = max(float(np.linalg.norm(s.linear) * np.linalg.norm(final[s.label])), 1e-30)
        alike.setdefault(s.step, []).append(float(np.dot(s.linear, final[s.label]) / length))
    rows = ", ".join(f"{step}: {np.mean(v):.2f}" for step, v in sorted(alike.items()) if step >= 64 or step == last)
    return Claim(
        "Readable features late in training",
        "Features look like digits between steps 2^12 and 2^14 (section 4.3); a judgement of the eye.",
        f"See the figure. Mean cosine of a class's linear coefficients with those at the end, by step: {rows}.",
        None,
        "features",
    )


# -- attack ------------------------------------------------------------------------------------------------------------


def _attack_claims(ablations: Sequence[Ablation], classes: int) -> list[Claim]:
    seeds = sorted({a.seed for a in ablations})
    curves = {s: sorted((a for a in ablations if a.seed == s), key=lambda a: a.k) for s in seeds}
    four = [c[4].network if len(c) > 4 else math.nan for c in curves.values()]
    learnt = all(c[0].network >= 0.5 for c in curves.values())
    crossed = [next((a.k for a in c if a.network < 0.5), None) for c in curves.values()]
    said = ", ".join("never" if k is None else str(k) for k in crossed)
    lowest, gaps = [], []
    for c in curves.values():
        table = np.array([[a.network, a.linear, a.quadratic] for a in c])
        spread = np.ptp(table, axis=0)  # a standard deviation of equal numbers is zero but for rounding
        lowest.append(float(np.corrcoef(table.T).min()) if (spread > 0).all() else math.nan)
        gaps.append(float(np.abs(table[:, 1:] - table[:, :1]).max()))
    last = [c[-1] for c in curves.values()]
    return [
        Claim(
            "Below 50 % after four directions",
            "Ablating four singular directions brings the network's accuracy below 50 % (section 4.4, figure 5).",
            f"Accuracy of the network after four: {_span(four, '{:.1%}')}; it first falls below 50 % at k = {said}.",
            _every(four, lambda a: a < 0.5) if learnt else None,
            "attack",
        ),
        Claim(
            "Lockstep",
            "The accuracies of network, linear and quadratic approximant fall in lockstep.",
            f"Smallest correlation between two of the three curves: {_span(lowest, '{:.4f}')}; largest distance of an "
            f"approximant from the network {_span(gaps, '{:.1%}')}. A correlation above {_LOCKSTEP} is taken as "
            "lockstep.",
            _every(lowest, lambda c: c > _LOCKSTEP),
            "attack",
        ),
        Claim(
            "Chance after ten",
            "Without all ten directions the network does no better than chance.",
            f"Accuracy after {last[0].k}: network {_span([a.network for a in last], '{:.1%}')}, linear "
            f"{_span([a.linear for a in last], '{:.1%}')}, quadratic {_span([a.quadratic for a in last], '{:.1%}')}; "
            f"chance is {1 / classes:.1%}, and less than {1 / classes + _CHANCE:.1%} is taken as chance.",
            all(a.network < 1 / classes + _CHANCE for a in last),
            "attack",
        ),
    ]


# -- the exact curve ---------------------------------------------------------------------------------------------------


def _inside_band(points: Sequence[Point]) -> Claim:
    kept = [p for p in points if p.inputs == "mixture" and p.fvu_samples_error > 0]
    errors = [abs(p.fvu_mixture - p.fvu_samples) / p.fvu_samples_error for p in kept]
    inside = sum(e <= _BAND for e in errors)
    return Claim(
        "Exact beside sampled (ours)",
        "Not in the paper: the closed-form FVU agrees with the FVU on samples of the mixture.",
        f"{inside} of {len(errors)} points lie within {_BAND:.0f} standard errors of the sampled one, the furthest at "
        f"{max(errors, default=math.nan):.1f}.",
        inside >= 0.98 * len(errors) and max(errors) < 2 * _BAND if errors else None,
        "fvu",
    )


def _smooth(points: Sequence[Point]) -> Claim:
    exact = _curves(points, "mixture", 2, "fvu_mixture")
    sampled, paper = _curves(points, "mixture", 2, "fvu_samples"), _curves(points, "paper", 2, "fvu_mixture")
    name = "Smooth exact curve (ours)"
    claim = "Not in the paper: without samples and SGD the quadratic curve has no noise."
    if any(v <= 0 for curves in (exact, sampled) for curve in curves.values() for v in curve.values()):
        return Claim(name, claim, "The quadratic is the network itself, to rounding.", None, "fvu")
    said = f"Scatter about the exact curve: on samples {_scatter(sampled, exact):.2%}"
    ours, theirs = (
        [float(np.sqrt(np.mean(np.diff(np.log(list(c.values())), 2) ** 2))) if len(c) > 2 else math.nan for c in curves]
        for curves in (exact.values(), sampled.values())
    )
    # Most of the roughness is the true bend of the curve, in all of them.
    holds = None if any(map(math.isnan, ours)) else bool(np.mean(ours) <= 1.02 * np.mean(theirs))
    if paper:
        excess = [curve[s] / exact[seed][s] - 1 for seed, curve in paper.items() for s in curve]
        said += (
            f", on the paper's route {_scatter(paper, exact):.2%}, whose FVU is {100 * float(np.mean(excess)):.1f} % "
            f"higher on average ({100 * min(excess):.1f} % to {100 * max(excess):.1f} %)"
        )
        holds = None if holds is None else holds and min(excess) > -1e-3
    return Claim(name, claim, f"{said}.", holds, "fvu")


def _scatter(curves: Curves, exact: Curves) -> float:
    """Standard deviation over the steps of the logarithm of the ratio, mean over seeds."""
    ratios = [np.log([curve[s] / exact[seed][s] for s in curve]) for seed, curve in curves.items()]
    return float(np.mean([r.std() for r in ratios]))
