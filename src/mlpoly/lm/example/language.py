"""A small language whose rules are known, so that what a model has learned can be compared with them.

Each sentence is of one of four kinds, and each kind has one word that follows from two or more words before it:

- agreement: `today the dog near the trees is old .` The copula follows from the tense and from the number of the first
  noun: is, are, was or were.
- double negation: `it is false that dogs are not old ? yes .` The answer is the product of two signs, true or false and
  the presence of "not"; no sum of functions of the two decides it.
- sums: `3 + 9 = 2 .` The last digit of the sum of two digits.
- brackets: `( [ ] ) .` A closing bracket is of the kind that was opened last.
"""

import math
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

_NOUNS = {"dog": "dogs", "cat": "cats", "tree": "trees", "bird": "birds", "child": "children", "king": "kings"}
_ADJECTIVES = ("old", "young", "small", "big", "quiet", "loud")
_COPULAS = {("today", False): "is", ("today", True): "are", ("yesterday", False): "was", ("yesterday", True): "were"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_DEEPEST = 4  # brackets that are open at one time
_PLURALS = tuple(_NOUNS.values())
_DIGITS = tuple(map(str, range(10)))

# Tokens in the order of their ids, after those of the tokenizer itself.
WORDS = (
    *(".", "the", "near", "is", "are", "was", "were", "today", "yesterday"),
    *("it", "true", "false", "that", "not", "?", "yes", "no", "+", "="),
    *(word for pair in _NOUNS.items() for word in pair),
    *_ADJECTIVES,
    *_DIGITS,
    *(bracket for pair in _CLOSING.items() for bracket in pair),
)


@dataclass(frozen=True)
class Sentence:
    """Words of a sentence, and the information of each in nats: minus the log of its probability after those before."""

    kind: str
    words: tuple[str, ...]
    nats: tuple[float, ...]


# What a rule gives: the next word, or a choice of equal probabilities, to which the answer is the one that was drawn.
_Rule = Generator[str | tuple[Any, ...], Any, None]
_COIN = (False, True)


def _agreement() -> _Rule:
    tense = yield "today", "yesterday"
    yield "the"
    noun = yield (*_NOUNS, *_PLURALS)
    if (yield _COIN):  # a second noun, of any number, stands between the two in half of the sentences
        yield "near"
        yield "the"
        yield (*_NOUNS, *_PLURALS)
    yield _COPULAS[tense, noun in _PLURALS]
    yield _ADJECTIVES


def _negation() -> _Rule:
    yield from ("it", "is")
    truth = yield "true", "false"
    yield "that"
    yield _PLURALS
    yield "are"
    negated = yield _COIN
    if negated:
        yield "not"
    yield _ADJECTIVES
    yield from ("?", "yes" if (truth == "true") != negated else "no")


def _sum() -> _Rule:
    first = yield _DIGITS
    yield "+"
    second = yield _DIGITS
    yield from ("=", str((int(first) + int(second)) % 10))


def _brackets() -> _Rule:
    stack = [(yield tuple(_CLOSING))]
    while stack:
        if len(stack) < _DEEPEST and (yield _COIN):
            stack.append((yield tuple(_CLOSING)))
        else:
            yield _CLOSING[stack.pop()]


_KINDS = {"agreement": _agreement, "negation": _negation, "sum": _sum, "brackets": _brackets}


def sentences(n: int, seed: int = 0) -> list[Sentence]:
    """Draw n sentences of the language, of kinds of the same probability."""
    rng, kinds, drawn = np.random.default_rng(seed), tuple(_KINDS), []
    for _ in range(n):
        kind = kinds[rng.integers(len(kinds))]
        words, nats = list[str](), list[float]()
        pending = math.log(len(kinds))  # information that the next word carries; the first one has that of the kind
        rule, answer = _KINDS[kind](), None
        with suppress(StopIteration):
            while True:
                word, answer = rule.send(answer), None
                if isinstance(word, tuple):
                    pending += math.log(len(word))
                    word = answer = word[rng.integers(len(word))]
                if isinstance(word, str):
                    words.append(word)
                    nats.append(pending)
                    pending = 0.0
        drawn.append(Sentence(kind, (*words, "."), (*nats, 0.0)))
    return drawn


def example_text(n: int = 8_000, seed: int = 1) -> str:
    """Text in the language of the shipped model, a sentence of eight tokens on average in each of n lines.

    The seed 0 is that of the text which the model was trained on.

    Examples
    --------
    >>> from mlpoly.lm import example_text
    >>> print(example_text(2), end="")
    it is false that children are not old ? yes .
    yesterday the kings were young .
    """
    return "\n".join(" ".join(sentence.words) for sentence in sentences(n, seed)) + "\n"
