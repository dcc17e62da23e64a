"""Readability: features planted in tokens are read perfectly, noise is not, and areas are those of scikit-learn."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import tiny_models
from support.mistakes import assert_explained, mistakes
from support.tiny_models import VOCABULARY, D, token_ids

from mlpoly.importers import find_blocks
from mlpoly.lm import FeatureSet, readability
from mlpoly.lm.model.identity import weights_fingerprint

MODEL = tiny_models.llama(initializer_range=0.3)
BLOCK = find_blocks(MODEL)[0]
TRAIN, HELD_OUT = token_ids(8, b=16, t=24), token_ids(4, b=16, t=24, seed=1)


def planted(*rules: Callable[[Any], Any]) -> FeatureSet:
    """Features whose values are functions of the token ids (b, t) that the model is running on."""
    running: list[Any] = []
    MODEL.register_forward_pre_hook(lambda m, a, k: running.append(k["input_ids"]), with_kwargs=True)
    MODEL.model.register_forward_pre_hook(lambda m, a, k: running.append(k["input_ids"]), with_kwargs=True)
    k = len(rules)
    return FeatureSet(
        BLOCK.name, "neuron", tuple(f"rule {i}" for i in range(k)), torch.zeros(k, D), torch.ones(k), torch.zeros(D),
        weights_fingerprint(BLOCK.module),
        reader=lambda x: torch.stack([rule(running[-1]).float().flatten() for rule in rules], 1),
    )  # fmt: skip


def before(ids: Any, steps: int) -> Any:
    """The ids some steps earlier, 0 before the beginning."""
    return torch.nn.functional.pad(ids, (steps, 0))[:, : ids.shape[1]]


@pytest.fixture(autouse=True)
def no_hooks_stay() -> Any:
    yield
    for module in (MODEL, MODEL.model):
        module._forward_pre_hooks.clear()
        module._forward_pre_hooks_with_kwargs.clear()


def test_a_feature_of_one_token_is_read_from_it() -> None:
    rare, common = planted(lambda ids: ids == 7), planted(lambda ids: -1.0 * (ids % 8 == 3))
    for features, side in ((rare, "positive"), (common, "negative")):  # of equal values all are active, or none
        (found,) = readability(MODEL, features, TRAIN, HELD_OUT)
        assert (found.current, found.recent, found.tree) == pytest.approx((1.0, 1.0, 1.0), abs=1e-14)  # trapezia
        assert found.side == side


def test_a_feature_of_the_token_before_is_read_from_the_last_few() -> None:
    (found,) = readability(MODEL, planted(lambda ids: before(ids, 1) == 7), TRAIN, HELD_OUT)
    assert (found.recent, found.tree) == (1.0, 1.0)
    assert abs(found.current - 0.5) < 4 * error_of_chance(HELD_OUT, lambda ids: before(ids, 1) == 7)
    (short,) = readability(MODEL, planted(lambda ids: before(ids, 1) == 7), TRAIN, HELD_OUT, last=1)
    assert short.recent == pytest.approx(short.current, abs=0.02)


def test_a_tree_reads_what_a_sum_cannot() -> None:
    """An exclusive or: one of two groups of tokens, then one of two other groups."""

    def either(ids: Any) -> Any:
        return ((ids < 8) == (before(ids, 1) % 3 == 0)) & (ids % 2 == 1) & (before(ids, 1) > 0)

    (found,) = readability(MODEL, planted(either), TRAIN, HELD_OUT, active=0.3)
    assert found.tree > found.recent + 0.05 and found.tree > 0.9


def error_of_chance(batches: list[Any], rule: Callable[[Any], Any]) -> float:
    """Standard error of the area under the curve of scores that know nothing."""
    truth = torch.cat([rule(ids).flatten() for ids in batches]).double()
    yes, no = float(truth.sum()), float((1 - truth).sum())
    return math.sqrt((yes + no + 1) / (12 * yes * no))


def test_noise_is_read_by_chance() -> None:
    """Sixteen features of noise, each the better of two sides: their mean is at most that of maxima of two."""
    generators = [torch.Generator().manual_seed(i) for i in range(16)]
    noise = planted(*(lambda ids, g=g: torch.randn(ids.shape, generator=g) for g in generators))
    found = readability(MODEL, noise, TRAIN, HELD_OUT)
    n = sum(ids.numel() for ids in HELD_OUT)
    error = math.sqrt((n + 1) / (12 * 0.05 * 0.95 * n * n))
    for name in ("current", "recent", "tree"):
        areas = np.array([getattr(score, name) for score in found])
        assert np.abs(areas - 0.5).max() < 4.5 * error, name
        # The better side by the mean of three: on average less than the mean of the larger of two, error / sqrt(pi).
        assert -4 * error / 4 < areas.mean() - 0.5 < error / math.sqrt(math.pi) + 4 * error / 4, name


def test_columns_and_sets_are_scored_as_each_by_itself() -> None:
    rules = [lambda ids, i=i: (ids == i) + 0.5 * (before(ids, 1) == i + 1) for i in range(1, 4)]
    together = readability(MODEL, [planted(*rules[:2]), planted(rules[2])], TRAIN, HELD_OUT)
    apart = [readability(MODEL, planted(rule), TRAIN, HELD_OUT)[0] for rule in rules]
    assert [(s.current, s.recent, s.tree, s.side) for s in together] == [
        (s.current, s.recent, s.tree, s.side) for s in apart
    ]
    assert [s.feature for s in together] == ["rule 0", "rule 1", "rule 0"]


def test_padding_is_no_token() -> None:
    rule = lambda ids: before(ids, 1) == 7  # noqa: E731
    padded = [
        {"input_ids": torch.nn.functional.pad(ids, (0, 2)), "attention_mask": (torch.arange(26) < 24).expand(16, 26)}
        for ids in TRAIN
    ]
    features = planted(rule)
    (plain,) = readability(MODEL, features, TRAIN, HELD_OUT)
    trimmed = planted(lambda ids: rule(ids)[:, :24])
    (same,) = readability(MODEL, trimmed, padded, HELD_OUT)
    assert (same.current, same.recent, same.tree) == (plain.current, plain.recent, plain.tree)


def test_sequences_of_one_token() -> None:
    train, new = torch.arange(1, VOCABULARY).repeat(4)[:, None], torch.arange(1, VOCABULARY)[:, None]
    (found,) = readability(MODEL, planted(lambda ids: ids == 7), [train], [new])
    assert (found.current, found.recent, found.tree) == (1.0, 1.0, 1.0)


def other_model() -> Any:
    features = planted(lambda ids: ids == 7)
    other = tiny_models.llama(initializer_range=0.1)
    return readability(other, features, TRAIN, HELD_OUT)


def called(*text: Any, **options: Any) -> Callable[[], Any]:
    return lambda: readability(MODEL, planted(lambda ids: ids == 7), *text, **options)


@mistakes([
    ("another model", other_model, ValueError, "belong to a block with other weights", "block_features"),
    ("no text", called([], HELD_OUT), ValueError, "batches held no tokens", "iterator"),
    ("no held-out text", called(TRAIN, []), ValueError, "batches held no tokens", "iterator"),
    ("no features", lambda: readability(MODEL, [], TRAIN, HELD_OUT), ValueError, "features is empty", "FeatureSet"),
    ("no last tokens", called(TRAIN, HELD_OUT, last=0), ValueError, "last", "1"),
    ("all active", called(TRAIN, HELD_OUT, active=1.0), ValueError, "active", "such as 0.05"),
])  # fmt: skip
def test_mistakes_are_explained(act: Any, exception: Any, patterns: Any) -> None:
    assert_explained(act, exception, patterns)
