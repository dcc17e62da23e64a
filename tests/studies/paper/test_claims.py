"""The paper's sentences, judged on invented curves for which the answer is known."""

import numpy as np
import pytest

from mlpoly.studies.paper.claims import judge_claims
from mlpoly.studies.paper.results import Ablation, Point

STEPS = (0, *(2**k for k in range(15)))
RISE, FLAT = "Rise of the linear FVU", "Flat quadratic FVU"
ORDER, FALL, KL = "Degrees in order", "Early fall of the FVU", "No early fall of the KL"
EXPLAINED = "Quadratic R² above 0.95"
FOUR, LOCKSTEP, CHANCE = "Below 50% after four directions", "Lockstep", "Chance after ten"
BAND, SMOOTH = "Exact beside sampled (ours)", "Smooth exact curve (ours)"


def point(step, degree, fvu, seed=0, inputs="mixture", **more):
    values = {
        "fvu_own": fvu, "fvu_mixture": fvu, "fvu_flattened": fvu, "fvu_samples": fvu, "fvu_samples_error": 0.01 * fvu,
        "fvu_test": fvu, "fvu_test_error": 0.0, "kl_samples": 0.1, "kl_samples_error": 0.0, "kl_test": 0.1,
        "kl_test_error": 0.0, "accuracy": 0.9, "agreement": 0.9, "iterations": 0, "seconds": 0.0,
    }  # fmt: skip
    return Point(seed=seed, step=step, degree=degree, inputs=inputs, **(values | more))


def curve(degree, value, steps=STEPS, seed=0, **more):
    """A point for every step; `value` and further fields are functions of the step."""
    return [point(s, degree, value(s), seed, **{k: v(s) for k, v in more.items()}) for s in steps]


def linear_as_in_the_paper(step):
    """Falls to a half by step 256, stays until 512, doubles and a quarter by 1024, and again until 4096."""
    if step <= 256:
        return 0.1 - 0.05 * step / 256
    return 0.05 * 2.25 ** (np.clip(np.log2(step / 512), 0, 1) + np.clip(np.log2(step / 1024), 0, 2) / 2)


def quadratic_as_in_the_paper(step):
    return 0.01 - 0.005 * min(step, 256) / 256


def as_in_the_paper(seeds=(0,)):
    return [
        p
        for seed in seeds
        for p in curve(1, linear_as_in_the_paper, seed=seed) + curve(2, quadratic_as_in_the_paper, seed=seed)
    ]


def judged(points, name, *arguments, **options):
    found = [c for c in judge_claims(points, *arguments, **options) if c.name == name]
    assert len(found) == 1, name
    return found[0]


def flat(value):
    return lambda step: value


def test_all_hold_as_in_the_paper():
    claims = judge_claims(as_in_the_paper((0, 1)))
    assert [c.name for c in claims] == [ORDER, FALL, KL, RISE, FLAT, EXPLAINED, BAND, SMOOTH]
    assert [c.holds for c in claims] == [True] * 8
    assert [c.figure for c in claims] == ["fvu", "fvu", "kl", "fvu", "fvu", "fvu", "fvu", "fvu"]
    for c in claims:
        assert c.paper.endswith((".", ").")) and c.measured.endswith(".")


def test_one_seed_that_fails_is_enough():
    good, bad = as_in_the_paper((0,)), curve(1, flat(0.05), seed=1) + curve(2, flat(0.06), seed=1)
    holds = {c.name: c.holds for c in judge_claims(good + bad)}
    assert [holds[name] for name in (FALL, RISE, EXPLAINED)] == [False] * 3
    assert holds[FLAT] is True


def test_network_that_is_a_polynomial():
    """Where nothing is left unexplained there is nothing to divide by."""
    zero = {"fvu_samples_error": flat(0.0), "kl_samples": flat(0.0)}
    points = curve(1, flat(0.1)) + curve(2, flat(0.0), **zero)
    holds = {c.name: c.holds for c in judge_claims(points)}
    assert holds[FALL] is holds[KL] is holds[SMOOTH] is None
    assert holds[EXPLAINED] is True
    points = curve(1, flat(0.0), **zero) + curve(2, flat(0.0), **zero)
    holds = {c.name: c.holds for c in judge_claims(points)}
    assert holds[RISE] is holds[FLAT] is holds[BAND] is None


LATE, STILL = curve(1, lambda s: 1.0 if s >= 4096 else 0.1), curve(1, flat(0.1))
PAPERS_LINEAR, PAPERS_QUADRATIC = curve(1, linear_as_in_the_paper), curve(2, quadratic_as_in_the_paper)
SHORT = "no checkpoints up to step 4096"


def up_to(last, points):
    return [p for p in points if p.step <= last]


def doubling(at):
    return curve(2, lambda s: 0.02 if s >= at else 0.01)


def bump(factor, at=2048):
    """Quadratics that are nearly constant but for one checkpoint."""
    return curve(2, lambda s: 0.01 * (factor if s == at else 1))


def kl_of(quadratic):
    return curve(1, flat(0.1), kl_samples=lambda s: 0.1 + s) + curve(2, flat(0.1), kl_samples=quadratic)


def rising(*factors):
    """The linear FVU grows by these factors from step 512 to 1024, to 2048, to 4096, and then stays."""
    levels = dict(zip((512, 1024, 2048, 4096), 0.05 * np.cumprod([1, *factors]), strict=True))
    return curve(1, lambda s: levels[min(max(s, 512), 4096)]) + curve(2, flat(0.01))


@pytest.mark.parametrize(
    ("name", "points", "holds", "words"),
    [
        # The linear one is lowest, 0.05, at 256 and 512, and at 1024 it is 0.05 * 2.25 = 0.1125.
        (ORDER, as_in_the_paper(), True, "lowest value: linear 1024, quadratic never."),
        (ORDER, LATE + doubling(8192), True, "linear 4096, quadratic 8192"),
        (ORDER, LATE + doubling(1024), False, "linear 4096, quadratic 1024"),
        (ORDER, LATE + doubling(4096), None, "linear 4096, quadratic 4096"),  # neither "only after it" nor the opposite
        (ORDER, STILL + curve(2, flat(0.1)), None, ""),
        (FALL, as_in_the_paper(), True, "falls to 50% of its value before training (linear) and to 50% (quadratic)"),
        # It fell, but not early; and 5 % count as nothing.
        (FALL, curve(1, lambda s: 0.1 if s <= 512 else 0.01) + PAPERS_QUADRATIC, False, "to 100% of its value before"),
        (FALL, PAPERS_LINEAR + curve(2, lambda s: 0.01 if s == 0 else 0.0095), False, "to 95% (quadratic)"),
        (KL, kl_of(lambda s: 0.2 + s), True, "at least 11.00 times that before training (linear) and 6.00 times (qua"),
        (KL, kl_of(lambda s: 0.2 - 0.1 * (s == 64)), False, "0.50 times (quadratic)"),
        (KL, kl_of(lambda s: 0.2 - 0.1 * (s > 512)), True, ""),
        (RISE, as_in_the_paper((0, 1)), True, "From step 512 to 1024 it changes by a factor of 2.25 (2 or more is "
         "taken as sharp), from there to step 4096 by 2.25 (between two checkpoints by 1.5 at least), and from there "
         "to the end by 1."),
        (RISE, STILL + curve(2, flat(0.1)), False, "by a factor of 1 (2 or more"),
        (RISE, up_to(2048, as_in_the_paper()), None, SHORT),
        (RISE, up_to(4096, as_in_the_paper()), True, ""),
        (RISE, rising(2.01, 1.01, 1.01), True, ""),
        (RISE, rising(1.99, 1.01, 1.01), False, ""),  # a rise, but not a sharp one
        (RISE, rising(2.01, 0.99, 1.5), False, ""),
        (RISE, rising(1.9, 2.0, 2.0), False, ""),  # a rise, but it starts later
        (RISE, rising(0.813, 1.3, 1.72), False, ""),  # falls in the interval of the claim, and rises afterwards
        (RISE, rising(4.0, 0.9, 1.2), False, ""),  # does not go on until 4000
        (RISE, rising(2.1, 1.1, 0.95), False, ""),
        (FLAT, STILL + bump(1.15), True, "Between steps 512 and 4096 it changes by a factor of 1.15 (up to 1.2 is"),
        (FLAT, STILL + bump(1.6), False, "by a factor of 1.6 "),
        (FLAT, STILL + bump(1.6), False, "in absolute terms by 0.006, which is unknown of the linear one's change"),
        (FLAT, PAPERS_LINEAR + curve(2, lambda s: 0.03 if s == 2048 else 0.015), False,
         "in absolute terms by 0.015, which is 7% of the linear one's change"),
        (FLAT, STILL + curve(2, lambda s: 0.01 if 512 <= s <= 4096 else 0.1), True, ""),
        (FLAT, up_to(256, STILL + bump(1)), None, SHORT),
        (FLAT, up_to(2048, STILL + bump(1)), None, SHORT),  # the period is not over
        (EXPLAINED, STILL + bump(4.9, 128), True, "0.9510, at step 128"),
        (EXPLAINED, STILL + bump(5.1, 128), False, "0.9490, at step 128"),
        (EXPLAINED, [p for seed, worst in ((0, 0.01), (1, 0.03))
                     for p in curve(1, flat(0.1), seed=seed) + curve(2, flat(worst), seed=seed)],
         True, "0.9800 (0.9700 to 0.9900), at step 0"),
    ],
)  # fmt: skip
def test_verdicts_on_training(name, points, holds, words):
    found = judged(points, name)
    assert found.holds is holds
    assert words in found.measured


def ablations(network, linear=None, quadratic=None, seed=0, step=512, directions="singular"):
    linear, quadratic = linear or network, quadratic or network
    rows = zip(network, linear, quadratic, strict=True)
    return [Ablation(seed, directions, k, *row, step) for k, row in enumerate(rows)]


FALLING = [0.9, 0.8, 0.7, 0.55, 0.45, 0.4, 0.35, 0.3, 0.2, 0.15, 0.1]


def attacked(rows, name, classes=10, step=512):
    return judged(as_in_the_paper(), f"{name}, step {step}", rows, classes=classes)


def test_attack_as_in_the_paper():
    rows = ablations(FALLING) + ablations([0.9] * 11, directions="random") + ablations(FALLING, step=64)
    claims = judge_claims(as_in_the_paper(), rows)
    names = [c.name for c in claims if c.figure == "attack"]
    assert names == [f"{name}, step {step}" for step in (64, 512) for name in (FOUR, LOCKSTEP, CHANCE)]
    assert all(c.holds for c in claims)


@pytest.mark.parametrize(
    ("name", "rows", "classes", "holds", "words"),
    [
        (FOUR, ablations(FALLING), 10, True,
         "Accuracy of the network after four: 45.0%; it first falls below 50% at k = 4."),
        (FOUR, ablations([0.9] * 4 + [0.499] + [0.1] * 6), 10, True, ""),
        (FOUR, ablations([0.9] * 4 + [0.501] + [0.1] * 6), 10, False, ""),
        (FOUR, ablations([0.9] * 6 + [0.4] * 5), 10, False, "after four: 90.0%; it first falls below 50% at k = 6"),
        (FOUR, ablations([0.9] * 11), 10, False, "k = never"),
        (FOUR, ablations(FALLING) + ablations([0.9] * 11, seed=1), 10, False,
         "67.5% (45.0% to 90.0%); it first falls below 50% at k = 4, never"),
        # It needs five classes, and a network that has learnt.
        (FOUR, ablations([0.9, 0.6, 0.4, 0.3]), 3, None, "after four: unknown"),
        (FOUR, ablations([0.3] * 11), 10, None, "after four: 30.0%; it first falls below 50% at k = 0"),
        (CHANCE, ablations(FALLING, [0.2] * 11, [0.3] * 11), 10, True,
         "Accuracy after 10: network 10.0%, linear 20.0%, quadratic 30.0%; chance is 10.0%"),
        (CHANCE, ablations([*FALLING[:-1], 0.149]), 10, True, ""),
        (CHANCE, ablations([*FALLING[:-1], 0.151]), 10, False, ""),
        (CHANCE, ablations([0.9, 0.6, 0.4, 0.35]), 3, True, "chance is 33.3%"),
    ],
)  # fmt: skip
def test_verdicts_on_attacks(name, rows, classes, holds, words):
    found = attacked(rows, name, classes)
    assert found.holds is holds
    assert words in found.measured


def test_lockstep():
    shifted = [a - 0.05 for a in FALLING]
    found = attacked(ablations(FALLING, shifted, FALLING), LOCKSTEP)
    assert found.holds is True  # a constant distance is lockstep
    assert "1.0000; largest distance of an approximant from the network 5.0%" in found.measured
    crossing = attacked(ablations(FALLING, FALLING[::-1], FALLING), LOCKSTEP)
    assert crossing.holds is False
    expected = np.corrcoef(FALLING, FALLING[::-1])[0, 1]
    assert f"{expected:.4f}" in crossing.measured
    for noise, holds in ((0.03, True), (0.08, False)):
        other = [a + noise * (-1) ** k for k, a in enumerate(FALLING)]
        correlation = np.corrcoef(FALLING, other)[0, 1]
        assert (correlation > 0.99) is np.bool_(holds) and abs(correlation - 0.99) < 0.06
        assert attacked(ablations(FALLING, other, FALLING), LOCKSTEP).holds is holds
    still = attacked(ablations(FALLING, [0.1] * 11, FALLING), LOCKSTEP)
    assert still.holds is None  # what does not move has no correlation
    assert "unknown" in still.measured
    assert "80.0%" in still.measured
