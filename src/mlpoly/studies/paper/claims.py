"""The paper's claims beside what was measured here: a table of rules, each with its words and its tests of numbers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import ge, gt, le, lt

import numpy as np

from mlpoly.studies.paper.results import Ablation, Claim, Features, Point

# One threshold for each word of the paper, whichever claim uses it.
EARLY = 512  # "the first few hundred steps"
START, LATER, END = 512, 1024, 4096  # "between 500 and 1K steps ... increase sharply ... until around 4K steps"
SHARP = 2.0  # "sharply": growth while the steps double from START to LATER; less would lag behind the steps
FLAT = 1.2  # "nearly constant": largest over smallest; networks that differ in their seed alone differ by as much
FALL = 0.9  # "goes down": below this fraction of the first value; samples alone make a difference of a few per cent
MOST = 0.95  # "more than 95% of the variance"
HALF = 0.5  # "below 50%"
CHANCE = 0.05  # "no better than random": accuracy above chance by less than this
LOCKSTEP = 0.99  # "in lockstep": correlation above this
BAND = 3.0  # "agrees": standard errors
ROUGH = 1.02  # "no noise": roughness over that of samples; most of either is the true bend of the curve

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
class _ClaimRule:
    """A claim before it is judged."""

    name: str
    paper: str
    measured: str  # with the names of numbers in braces
    tests: tuple[tuple[str, Callable[[float, float], bool], float], ...]  # number, comparison, threshold
    figure: str = "fvu"
    missing: str = ""  # said where no seed has these numbers

    def judge(self, seeds: Sequence[Numbers]) -> Claim:
        """Return the claim; it holds if it does for every seed, and one seed is enough to refute it."""
        verdicts = set()
        for numbers in seeds:
            known = not any(math.isnan(numbers[name]) for name, _, _ in self.tests)
            verdicts.add(all(passes(numbers[name], limit) for name, passes, limit in self.tests) if known else None)
        holds = False if False in verdicts else None if None in verdicts else True
        words = self.missing if self.missing and verdicts == {None} else self.measured
        measured = words.format(**{name: _Seeds(numbers[name] for numbers in seeds) for name in seeds[0]})
        return Claim(self.name, self.paper, measured, holds, self.figure)


def judge_claims(
    points: Sequence[Point], ablations: Sequence[Ablation] = (), features: Features | None = None, classes: int = 10
) -> tuple[Claim, ...]:
    """Return every claim of the paper's section 4 that these records can judge, then two about the exact curve.

    Records are those of all seeds, and a claim holds if it does for every seed. Chance is one over `classes`.
    """
    seeds = [[p for p in points if p.seed == seed] for seed in sorted({p.seed for p in points})]
    claims = [rule.judge([_training_numbers(seed) for seed in seeds]) for rule in _TRAINING]
    if features is not None:
        claims.append(_readable(features))
    for step in sorted({a.step for a in ablations}):
        kept = [a for a in ablations if a.directions == "singular" and a.step == step]
        curves = [[a for a in kept if a.seed == seed] for seed in sorted({a.seed for a in kept})]
        found = [_attack_numbers(curve, classes) for curve in curves]
        claims += [replace(rule, name=f"{rule.name}, step {step}").judge(found) for rule in _ATTACK]
    agrees, smooth = _EXACT
    if any(p.inputs == "paper" for p in points):
        smooth = replace(smooth, measured=smooth.measured + _ROUTE)
    return (*claims, *(rule.judge([_exact_numbers(seeds)]) for rule in (agrees, smooth)))


def _curve(points: Sequence[Point], inputs: str, degree: int, field: str) -> dict[int, float]:
    kept = sorted((p for p in points if (p.inputs, p.degree) == (inputs, degree)), key=lambda p: p.step)
    return {p.step: getattr(p, field) for p in kept}


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan


# -- training ----------------------------------------------------------------------------------------------------------


def _training_numbers(points: Sequence[Point]) -> Numbers:
    numbers: Numbers = {}
    for degree, name in ((1, "linear"), (2, "quadratic")):
        fvu, kl = (_curve(points, "mixture", degree, field) for field in ("fvu_mixture", "kl_samples"))
        lowest, highest = min(fvu, key=lambda s: fvu[s]), max(fvu, key=lambda s: fvu[s])
        doubled = (s for s in fvu if s > lowest and fvu[s] >= 2 * fvu[lowest])
        found = {"doubled": next(doubled, math.inf), "worst": 1 - fvu[highest], "worst_step": highest}
        for kind, curve in (("fvu", fvu), ("kl", kl)):  # the smallest early value, relative to that before training
            early = [v for s, v in curve.items() if 0 < s <= EARLY]
            found[kind] = _ratio(min(early), curve[0]) if early else math.nan
        period, rise = [math.nan] * 2, [math.nan] * 2
        if {START, LATER, END} <= set(fvu):
            period, rise = ([v for s, v in fvu.items() if low <= s <= END] for low in (START, LATER))
        found |= {"start": _ratio(rise[0], period[0]), "rest": _ratio(rise[-1], rise[0])}
        # From checkpoint to checkpoint, so that a rise that ends too early is seen.
        found |= {"least": min(_ratio(b, a) for a, b in pairwise(rise)), "after": _ratio(fvu[max(fvu)], rise[-1])}
        found |= {"span": _ratio(max(period), min(period)), "change": max(period) - min(period)}
        numbers |= {f"{name}_{key}": value for key, value in found.items()}
    a, b = numbers["linear_doubled"], numbers["quadratic_doubled"]
    # If both double at the same checkpoint, or the linear one never does, nothing is known about the order.
    numbers["lag"] = math.nan if a in (b, math.inf) else b - a
    numbers["relative_change"] = _ratio(numbers["quadratic_change"], numbers["linear_change"])
    return numbers


_TRAINING = (
    _ClaimRule(
        "Degrees in order",
        "The linear approximation gets worse first, the quadratic one only after it (section 4, hypothesis).",
        "Step at which the FVU has doubled from its lowest value: linear {linear_doubled:each}, quadratic "
        "{quadratic_doubled:each}.",
        (("lag", gt, 0),),
    ),
    _ClaimRule(
        "Early fall of the FVU",
        "In the first few hundred steps the FVU of both approximants goes down (section 4.2).",
        f"Within {EARLY} steps the FVU falls to {{linear_fvu:.0%}} of its value before training (linear) and to "
        f"{{quadratic_fvu:.0%}} (quadratic); below {FALL:.0%} is taken as a fall.",
        (("linear_fvu", lt, FALL), ("quadratic_fvu", lt, FALL)),
    ),
    _ClaimRule(
        "No early fall of the KL",
        "Measured by KL divergence, that early phase disappears (section 4.2, figure 3).",
        f"Within {EARLY} steps the KL divergence is at least {{linear_kl:.2f}} times that before training (linear) and "
        f"{{quadratic_kl:.2f}} times (quadratic); below {FALL} is taken as a fall.",
        (("linear_kl", ge, FALL), ("quadratic_kl", ge, FALL)),
        "kl",
    ),
    _ClaimRule(
        "Rise of the linear FVU",
        "Between 500 and 1000 steps the FVU of the linear approximant starts to rise sharply, until about 4000.",
        f"From step {START} to {LATER} it changes by a factor of {{linear_start:.3g}} ({SHARP:g} or more is taken as "
        f"sharp), from there to step {END} by {{linear_rest:.3g}} (between two checkpoints by {{linear_least:.3g}} at "
        "least), and from there to the end by {linear_after:.3g}.",
        (("linear_start", ge, SHARP), ("linear_least", gt, 1)),
        missing=f"This run has no checkpoints up to step {END}.",
    ),
    _ClaimRule(
        "Flat quadratic FVU",
        "Over the same period the FVU of the quadratic approximant is nearly constant.",
        f"Between steps {START} and {END} it changes by a factor of {{quadratic_span:.3g}} (up to {FLAT} is taken as "
        "constant); in absolute terms by {quadratic_change:.3g}, which is {relative_change:.0%} of the linear one's "
        "change.",
        (("quadratic_span", le, FLAT),),
        missing=f"This run has no checkpoints up to step {END}.",
    ),
    _ClaimRule(
        "Quadratic R² above 0.95",
        f"Quadratic approximants explain more than {MOST:.0%} of the variance at every checkpoint.",
        "Lowest R² of the exact quadratic under the mixture: {quadratic_worst:.4f}, at step "
        "{quadratic_worst_step:each}.",
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
    said = "Features look like digits between steps 2^12 and 2^14 (section 4.3); judged by eye."
    found = f"See the figure. Mean cosine of a class's linear coefficients with those at the end, by step: {rows}."
    return Claim("Readable features late in training", said, found, None, "features")


# -- attack ------------------------------------------------------------------------------------------------------------


def _attack_numbers(ablations: Sequence[Ablation], classes: int) -> Numbers:
    curve = sorted(ablations, key=lambda a: a.k)
    table = np.array([[a.network, a.linear, a.quadratic] for a in curve])
    moves = (np.ptp(table, axis=0) > 0).all()  # a standard deviation of equal numbers is zero but for rounding
    four = curve[4].network if len(curve) > 4 else math.nan
    return {
        "four": four,
        "fallen": four if curve[0].network >= HALF else math.nan,  # below a half from the start proves nothing
        "crossed": next((a.k for a in curve if a.network < HALF), math.inf),
        "correlation": float(np.corrcoef(table.T).min()) if moves else math.nan,
        "gap": float(np.abs(table[:, 1:] - table[:, :1]).max()),
        "k": curve[-1].k,
        **dict(zip(("network", "linear", "quadratic"), table[-1], strict=True)),
        "chance": 1 / classes,
        "limit": 1 / classes + CHANCE,
        "above_chance": table[-1, 0] - 1 / classes,
    }


_ATTACK = (
    _ClaimRule(
        "Below 50% after four directions",
        "Ablating four singular directions brings the network's accuracy below 50% (section 4.4, figure 5).",
        "Accuracy of the network after four: {four:.1%}; it first falls below 50% at k = {crossed:each}.",
        (("fallen", lt, HALF),),
        "attack",
    ),
    _ClaimRule(
        "Lockstep",
        "The accuracies of network, linear and quadratic approximant fall in lockstep.",
        "Smallest correlation between two of the three curves: {correlation:.4f}; largest distance of an approximant "
        f"from the network {{gap:.1%}}. A correlation above {LOCKSTEP} is taken as lockstep.",
        (("correlation", gt, LOCKSTEP),),
        "attack",
    ),
    _ClaimRule(
        "Chance after ten",
        "Without all ten directions the network does no better than chance.",
        "Accuracy after {k:.0f}: network {network:.1%}, linear {linear:.1%}, quadratic {quadratic:.1%}; chance is "
        "{chance:.1%}, and less than {limit:.1%} is taken as chance.",
        (("above_chance", lt, CHANCE),),
        "attack",
    ),
)


# -- the exact curve ---------------------------------------------------------------------------------------------------


def _exact_numbers(seeds: Sequence[Sequence[Point]]) -> Numbers:
    """Numbers of all seeds together: of both degrees under the mixture, then of the quadratic."""
    kept = [p for points in seeds for p in points if p.inputs == "mixture" and p.fvu_samples_error > 0]
    errors = np.array([abs(p.fvu_mixture - p.fvu_samples) / p.fvu_samples_error for p in kept])
    scatter, route, excess, ours, theirs = (list[float]() for _ in range(5))  # by seed
    for points in seeds:
        exact, sampled, paper = (
            np.array(list(_curve(points, inputs, 2, field).values()))
            for inputs, field in (("mixture", "fvu_mixture"), ("mixture", "fvu_samples"), ("paper", "fvu_mixture"))
        )
        if min(*exact, *sampled) > 0:
            scatter.append(np.std(np.log(sampled / exact)))
            ours.append(float(np.linalg.norm(np.diff(np.log(exact), 2))) if exact.size > 2 else math.nan)
            theirs.append(float(np.linalg.norm(np.diff(np.log(sampled), 2))))
            route += [np.std(np.log(paper / exact))] if paper.size else []
            excess += list(paper / exact - 1) if paper.size else []
    inside = float(np.sum(errors <= BAND))
    found = {"count": errors.size, "inside": inside, "fraction": _ratio(inside, errors.size)}
    found |= {"furthest": errors.max(initial=0), "least": min(excess, default=0.0), "most": max(excess, default=0.0)}
    means = {"scatter": scatter, "route": route, "excess": excess, "ours": ours, "theirs": theirs}
    found |= {name: float(np.mean(values)) if values else math.nan for name, values in means.items()}
    return found | {"roughness": (found["ours"] + 1e-12) / (found["theirs"] + 1e-12)}


_EXACT = (
    _ClaimRule(
        "Exact beside sampled (ours)",
        "Not in the paper: the closed-form FVU agrees with the FVU on samples of the mixture.",
        f"{{inside:.0f}} of {{count:.0f}} points lie within {BAND:.0f} standard errors of the sampled one, the "
        "furthest at {furthest:.1f}.",
        (("fraction", ge, 0.98), ("furthest", lt, 2 * BAND)),
    ),
    _ClaimRule(
        "Smooth exact curve (ours)",
        "Not in the paper: without samples and SGD the quadratic curve has no noise.",
        "On samples the curve scatters about the exact one by {scatter:.2%}, and the second differences of the exact "
        "one are {roughness:.2f} times those on samples.",
        (("roughness", le, ROUGH), ("least", gt, -1e-3)),  # SGD must not find anything better than the optimum
        missing="The quadratic is the network itself, to rounding, or there are too few checkpoints.",
    ),
)
_ROUTE = (
    " The paper's route scatters about it by {route:.2%}; its FVU is {excess:.1%} higher on average ({least:.1%} to "
    "{most:.1%})."
)
