"""The paper's claims beside what was measured here, and whether they hold.

Every claim is a row of a table: what the paper says, a sentence with the numbers measured here, and the rule by which
those numbers decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import ge, gt, le, lt

import numpy as np

from mlpoly.studies.paper.results import Ablation, Claim, Features, Point

__all__ = ["judge_claims"]

# One threshold for each word of the paper, whichever claim uses it.
EARLY = 512  # "the first few hundred steps"
START, LATER, END = (
    512,
    1024,
    4096,
)  # "between 500 and 1K steps ... start to increase sharply ... until around 4K steps"
SHARP = (
    2.0  # "sharply": growth while the steps double from START to LATER; a curve that grows less lags behind the steps
)
FLAT = 1.2  # "nearly constant": largest over smallest; networks that differ in their seed alone differ by as much
FALL = 0.9  # "goes down": below this fraction of the first value; samples alone make a difference of a few per cent
MOST = 0.95  # "more than 95% of the variance"
HALF = 0.5  # "below 50%"
CHANCE = 0.05  # "no better than random": accuracy above chance by less than this
LOCKSTEP = 0.99  # "in lockstep": correlation above this
BAND = 3.0  # "agrees": standard errors
ROUGH = 1.02  # "no noise": roughness over that of samples; most of either is the true bend of the curve
_TINY = 1e-12

Numbers = dict[str, float]  # measured on one seed; NaN where they cannot be


class _Seeds(list[float]):
    """One number of all seeds; ``f"{seeds:.3g}"`` is their mean with their range, ``f"{seeds:each}"`` every one."""

    def __format__(self, form: str) -> str:
        if form == "each":
            found = ["never" if math.isinf(v) else f"{v:.0f}" for v in self]
            return ", ".join(found if len(set(found)) > 1 else found[:1])
        if any(math.isnan(v) for v in self):
            return "unknown"
        mean, low, high = (format(float(v), form) for v in (np.mean(self), min(self), max(self)))
        return mean if low == high else f"{mean} ({low} to {high})"


@dataclass(frozen=True)
class _Rule:
    """A claim before it is judged."""

    name: str
    paper: str
    measured: str  # with the names of numbers in braces
    figure: str
    tests: tuple[tuple[str, Callable[[float, float], bool], float], ...]  # number, comparison, threshold
    missing: str = ""  # in place of what is measured, where no seed has these numbers

    def judge(self, seeds: Sequence[Numbers]) -> Claim:
        """Return the claim; it holds if every seed says so, and one seed is enough to refute it."""
        known = [not any(math.isnan(seed[name]) for name, _, _ in self.tests) for seed in seeds]
        said = [all(compare(seed[name], limit) for name, compare, limit in self.tests) for seed in seeds]
        holds = None if not all(known) else True
        if any(k and not s for k, s in zip(known, said, strict=True)):
            holds = False
        words = self.measured if any(known) or not self.missing else self.missing
        measured = words.format(**{name: _Seeds(seed[name] for seed in seeds) for name in seeds[0]})
        return Claim(self.name, self.paper, measured, holds, self.figure)


def judge_claims(
    points: Sequence[Point], ablations: Sequence[Ablation] = (), features: Features | None = None, classes: int = 10
) -> tuple[Claim, ...]:
    """Return every claim of the paper's section 4 that these records can judge, then two about the exact curve.

    Parameters
    ----------
    points : sequence of Point
        Fits of all seeds.
    ablations : sequence of Ablation
    features : Features, optional
    classes : int
        Number of classes; chance is one over it.

    Returns
    -------
    tuple of Claim
        A claim holds if it holds for every seed.
    """
    seeds = [_training_numbers([p for p in points if p.seed == seed]) for seed in sorted({p.seed for p in points})]
    claims = [rule.judge(seeds) for rule in _TRAINING]
    if features is not None:
        claims.append(_readable(features))
    for step in sorted({a.step for a in ablations}):
        kept = [a for a in ablations if a.directions == "singular" and a.step == step]
        rows = [[a for a in kept if a.seed == seed] for seed in sorted({a.seed for a in kept})]
        found = [_attack_numbers(r, classes) for r in rows]
        claims += [replace(rule, name=f"{rule.name}, step {step}").judge(found) for rule in _ATTACK]
    return (*claims, *_exact_claims(points))


# -- training ----------------------------------------------------------------------------------------------------------


def _curve(points: Iterable[Point], inputs: str, degree: int, field: str) -> dict[int, float]:
    kept = sorted((p for p in points if (p.inputs, p.degree) == (inputs, degree)), key=lambda p: p.step)
    return {p.step: getattr(p, field) for p in kept}


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _training_numbers(points: Sequence[Point]) -> Numbers:
    numbers: Numbers = {}
    for degree, name in ((1, "linear"), (2, "quadratic")):
        fvu, kl = (_curve(points, "mixture", degree, field) for field in ("fvu_mixture", "kl_samples"))
        lowest, highest = min(fvu, key=lambda s: fvu[s]), max(fvu, key=lambda s: fvu[s])
        doubled = (s for s in fvu if s > lowest and fvu[s] >= 2 * fvu[lowest])
        numbers |= {
            f"{name}_doubled": next(doubled, math.inf),
            f"{name}_worst": 1 - fvu[highest],
            "worst_step": highest,
        }
        for kind, curve in (("fvu", fvu), ("kl", kl)):  # the smallest early value, relative to that before training
            early = [v for s, v in curve.items() if 0 < s <= EARLY]
            numbers[f"{name}_{kind}"] = _ratio(min(early), curve[0]) if early else math.nan
        whole = {START, LATER, END} <= set(fvu)
        period, rise = ([v for s, v in fvu.items() if s in range(low, END + 1)] for low in (START, LATER))
        period, rise = (period, rise) if whole else ([math.nan] * 2, [math.nan] * 2)
        numbers |= {
            f"{name}_start": _ratio(rise[0], period[0]),
            f"{name}_rest": _ratio(rise[-1], rise[0]),
            # From checkpoint to checkpoint, so that a rise that ends too early is seen.
            f"{name}_least": min(_ratio(b, a) for a, b in pairwise(rise)),
            f"{name}_after": _ratio(fvu[max(fvu)], rise[-1]),
            f"{name}_span": _ratio(max(period), min(period)),
            f"{name}_change": max(period) - min(period),
        }
    a, b = numbers["linear_doubled"], numbers["quadratic_doubled"]
    # If both double at the same checkpoint, or the linear one never does, nothing is known about the order.
    numbers["lag"] = math.nan if a in (b, math.inf) else b - a
    numbers["relative_change"] = _ratio(numbers["quadratic_change"], numbers["linear_change"])
    return numbers


_TRAINING = (
    _Rule(
        "Degrees in order",
        "The linear approximation gets worse first, the quadratic one only after it (section 4, hypothesis).",
        "Step at which the FVU has doubled from its lowest value: linear {linear_doubled:each}, quadratic "
        "{quadratic_doubled:each}.",
        "fvu",
        (("lag", gt, 0),),
    ),
    _Rule(
        "Early fall of the FVU",
        "In the first few hundred steps the FVU of both approximants goes down (section 4.2).",
        f"Within {EARLY} steps the FVU falls to {{linear_fvu:.0%}} of its value before training (linear) and to "
        f"{{quadratic_fvu:.0%}} (quadratic); below {FALL:.0%} is taken as a fall.",
        "fvu",
        (("linear_fvu", lt, FALL), ("quadratic_fvu", lt, FALL)),
    ),
    _Rule(
        "No early fall of the KL",
        "Measured by KL divergence, that early phase disappears (section 4.2, figure 3).",
        f"Within {EARLY} steps the KL divergence is at least {{linear_kl:.2f}} times that before training (linear) and "
        f"{{quadratic_kl:.2f}} times (quadratic); below {FALL} is taken as a fall.",
        "kl",
        (("linear_kl", ge, FALL), ("quadratic_kl", ge, FALL)),
    ),
    _Rule(
        "Rise of the linear FVU",
        "Between 500 and 1000 steps the FVU of the linear approximant starts to rise sharply, until about 4000.",
        f"From step {START} to {LATER} it changes by a factor of {{linear_start:.3g}} ({SHARP:g} or more is taken as "
        f"sharp), from there to step {END} by {{linear_rest:.3g}} (between two checkpoints by {{linear_least:.3g}} at "
        "least), and from there to the end by {linear_after:.3g}.",
        "fvu",
        (("linear_start", ge, SHARP), ("linear_least", gt, 1)),
        f"This run has no checkpoints up to step {END}.",
    ),
    _Rule(
        "Flat quadratic FVU",
        "Over the same period the FVU of the quadratic approximant is nearly constant.",
        f"Between steps {START} and {END} it changes by a factor of {{quadratic_span:.3g}} (up to {FLAT} is taken as "
        "constant); in absolute terms by {quadratic_change:.3g}, which is {relative_change:.0%} of the linear one's "
        "change.",
        "fvu",
        (("quadratic_span", le, FLAT),),
        f"This run has no checkpoints up to step {END}.",
    ),
    _Rule(
        "Quadratic R² above 0.95",
        f"Quadratic approximants explain more than {MOST:.0%} of the variance at every checkpoint.",
        "Lowest R² of the exact quadratic under the mixture: {quadratic_worst:.4f}, at step {worst_step:each}.",
        "fvu",
        (("quadratic_worst", gt, MOST),),
    ),
)


def _readable(features: Features) -> Claim:
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


def _attack_numbers(ablations: Sequence[Ablation], classes: int) -> Numbers:
    curve = sorted(ablations, key=lambda a: a.k)
    table = np.array([[a.network, a.linear, a.quadratic] for a in curve])
    moves = (np.ptp(table, axis=0) > 0).all()  # a standard deviation of equal numbers is zero but for rounding
    last = curve[-1]
    return {
        "four": curve[4].network if len(curve) > 4 else math.nan,
        "crossed": next((a.k for a in curve if a.network < HALF), math.inf),
        # A network that is below a half from the start proves nothing.
        "fallen": curve[4].network if len(curve) > 4 and curve[0].network >= HALF else math.nan,
        "correlation": float(np.corrcoef(table.T).min()) if moves else math.nan,
        "gap": float(np.abs(table[:, 1:] - table[:, :1]).max()),
        **{"k": last.k, "network": last.network, "linear": last.linear, "quadratic": last.quadratic},
        **{"chance": 1 / classes, "limit": 1 / classes + CHANCE, "above_chance": last.network - 1 / classes},
    }


_ATTACK = (
    _Rule(
        "Below 50% after four directions",
        "Ablating four singular directions brings the network's accuracy below 50% (section 4.4, figure 5).",
        "Accuracy of the network after four: {four:.1%}; it first falls below 50% at k = {crossed:each}.",
        "attack",
        (("fallen", lt, HALF),),
    ),
    _Rule(
        "Lockstep",
        "The accuracies of network, linear and quadratic approximant fall in lockstep.",
        "Smallest correlation between two of the three curves: {correlation:.4f}; largest distance of an approximant "
        f"from the network {{gap:.1%}}. A correlation above {LOCKSTEP} is taken as lockstep.",
        "attack",
        (("correlation", gt, LOCKSTEP),),
    ),
    _Rule(
        "Chance after ten",
        "Without all ten directions the network does no better than chance.",
        "Accuracy after {k:.0f}: network {network:.1%}, linear {linear:.1%}, quadratic {quadratic:.1%}; chance is "
        "{chance:.1%}, and less than {limit:.1%} is taken as chance.",
        "attack",
        (("above_chance", lt, CHANCE),),
    ),
)


# -- the exact curve ---------------------------------------------------------------------------------------------------


def _exact_claims(points: Sequence[Point]) -> list[Claim]:
    """Return claims of ours about the closed forms, on all seeds together."""
    kept = [p for p in points if p.inputs == "mixture" and p.fvu_samples_error > 0]
    errors = [abs(p.fvu_mixture - p.fvu_samples) / p.fvu_samples_error for p in kept]
    inside = sum(e <= BAND for e in errors)
    scatter, route, excess, ours, theirs = (list[float]() for _ in range(5))  # of the quadratic, by seed
    for seed in {p.seed for p in points}:
        mine = [p for p in points if p.seed == seed]
        kinds = (("mixture", "fvu_mixture"), ("mixture", "fvu_samples"), ("paper", "fvu_mixture"))
        exact, sampled, paper = (np.array(list(_curve(mine, kind, 2, field).values())) for kind, field in kinds)
        if min(exact.min(), sampled.min()) > 0:
            scatter.append(np.log(sampled / exact).std())
            route += [np.log(paper / exact).std()] if paper.size else []
            excess += [*(paper / exact - 1)] if paper.size else []
            for found, curve in ((ours, exact), (theirs, sampled)):
                found += [np.sqrt(np.mean(np.diff(np.log(curve), 2) ** 2))] if curve.size > 2 else []
    numbers = {
        **{"count": len(errors), "inside": inside, "furthest": max(errors, default=math.nan)},
        "fraction": _ratio(inside, len(errors)),
        **{"scatter": _mean(scatter), "roughness": _ratio(_mean(ours) + _TINY, _mean(theirs) + _TINY)},
        **{"route": _mean(route), "excess": _mean(excess)},
        **{"least": min(excess, default=0.0), "most": max(excess, default=0.0)},
    }
    said = "Scatter about the exact curve: on samples {scatter:.2%}"
    if excess:
        said += ", on the paper's route {route:.2%}, whose FVU is {excess:.1%} higher on average "
        said += "({least:.1%} to {most:.1%})"
    rules = (
        _Rule(
            "Exact beside sampled (ours)",
            "Not in the paper: the closed-form FVU agrees with the FVU on samples of the mixture.",
            f"{{inside:.0f}} of {{count:.0f}} points lie within {BAND:.0f} standard errors of the sampled one, the "
            "furthest at {furthest:.1f}.",
            "fvu",
            (("fraction", ge, 0.98), ("furthest", lt, 2 * BAND)),
        ),
        _Rule(
            "Smooth exact curve (ours)",
            "Not in the paper: without samples and SGD the quadratic curve has no noise.",
            f"{said}; its second differences are {{roughness:.2f}} times those of the sampled curve.",
            "fvu",
            (("roughness", le, ROUGH), ("least", gt, -1e-3)),  # SGD must not find a better one than the optimum
            "" if scatter else "The quadratic is the network itself, to rounding.",
        ),
    )
    return [rule.judge([numbers]) for rule in rules]
