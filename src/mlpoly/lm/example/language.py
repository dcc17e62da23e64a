"""A small language whose rules are known, so that what a model has learned can be compared with them.

Each sentence is of one of four kinds, and each kind has one word that follows from two or more words before it:

- agreement: `today the dog near the trees is old .` The copula follows from the tense and from the number of the first
  noun: is, are, was or were.
- double negation: `it is false that dogs are not old ? yes .` The answer is the product of two signs, true or false and
  the presence of "not"; no sum of functions of the two decides it.
- sums: `3 + 9 = 2 .` The last digit of the sum of two digits.
- brackets: `( [ ] ) .` A closing bracket is of the kind that was opened last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_NOUNS = {"dog": "dogs", "cat": "cats", "tree": "trees", "bird": "birds", "child": "children", "king": "kings"}
_ADJECTIVES = ("old", "young", "small", "big", "quiet", "loud")
_COPULAS = {("today", 0): "is", ("today", 1): "are", ("yesterday", 0): "was", ("yesterday", 1): "were"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_DEEPEST = 4  # brackets that are open at one time
_NUMBERS = tuple(map(tuple, (_NOUNS, _NOUNS.values())))  # singular and plural nouns

# Tokens in the order of their ids, after those of the tokenizer itself.
WORDS = (
    *(".", "the", "near", "is", "are", "was", "were", "today", "yesterday"),
    *("it", "true", "false", "that", "not", "?", "yes", "no", "+", "="),
    *(word for pair in _NOUNS.items() for word in pair),
    *_ADJECTIVES,
    *map(str, range(10)),
    *(bracket for pair in _CLOSING.items() for bracket in pair),
)


@dataclass(frozen=True)
class Sentence:
    """Words of a sentence, and the information of each in nats: minus the log of its probability after those before."""

    kind: str
    words: tuple[str, ...]
    nats: tuple[float, ...]


class _Draws:
    """The words of a sentence as they are drawn, with the probability of each."""

    def __init__(self, kind: str, rng: np.random.Generator, kinds: int) -> None:
        self.kind, self.rng = kind, rng
        self.words: list[str] = []
        self.nats: list[float] = []
        self.pending = math.log(kinds)  # the kind is known from the first word, which carries its information

    def say(self, *words: str) -> None:
        """Add words that follow from those before."""
        for word in words:
            self.words.append(word)
            self.nats.append(self.pending)
            self.pending = 0.0

    def one_of(self, *words: str) -> str:
        """Add one of some words, all of the same probability, and return it."""
        word = words[self.rng.integers(len(words))]
        self.pending += math.log(len(words))
        self.say(word)
        return word

    def noun(self) -> int:
        """Add a noun and return its number, 0 or 1."""
        word = self.one_of(*_NUMBERS[0], *_NUMBERS[1])
        return int(word in _NUMBERS[1])


def _agreement(draws: _Draws) -> None:
    tense = draws.one_of("today", "yesterday")
    draws.say("the")
    number = draws.noun()
    # A second noun, of any number, stands between the two in half of the sentences.
    draws.pending += math.log(2)
    if draws.rng.integers(2):
        draws.say("near", "the")
        draws.noun()
    draws.say(_COPULAS[tense, number])
    draws.one_of(*_ADJECTIVES)


def _negation(draws: _Draws) -> None:
    draws.say("it", "is")
    sign = draws.one_of("true", "false") == "true"
    draws.say("that")
    draws.one_of(*_NUMBERS[1])
    draws.say("are")
    draws.pending += math.log(2)
    negated = bool(draws.rng.integers(2))
    if negated:
        draws.say("not")
    draws.one_of(*_ADJECTIVES)
    draws.say("?", "yes" if sign != negated else "no")


def _sum(draws: _Draws) -> None:
    digits = tuple(map(str, range(10)))
    first = draws.one_of(*digits)
    draws.say("+")
    second = draws.one_of(*digits)
    draws.say("=", str((int(first) + int(second)) % 10))


def _brackets(draws: _Draws) -> None:
    stack = [draws.one_of(*_CLOSING)]
    while stack:
        if len(stack) < _DEEPEST:
            draws.pending += math.log(2)
            if draws.rng.integers(2):
                stack.append(draws.one_of(*_CLOSING))
                continue
        draws.say(_CLOSING[stack.pop()])


_KINDS = {"agreement": _agreement, "negation": _negation, "sum": _sum, "brackets": _brackets}


def sentences(n: int, seed: int = 0) -> list[Sentence]:
    """Draw n sentences of the language, of kinds of the same probability."""
    rng, names, drawn = np.random.default_rng(seed), tuple(_KINDS), []
    for _ in range(n):
        draws = _Draws(names[rng.integers(len(names))], rng, len(names))
        _KINDS[draws.kind](draws)
        draws.say(".")
        drawn.append(Sentence(draws.kind, tuple(draws.words), tuple(draws.nats)))
    return drawn


def example_text(n: int = 8_000, seed: int = 1) -> str:
    """Text in the language of the shipped model, a sentence in each line.

    Parameters
    ----------
    n : int
        Number of sentences, of eight tokens on average.
    seed : int
        Seed of the draws; 0 is the text that the model was trained on.

    Examples
    --------
    >>> from mlpoly.lm import example_text
    >>> print(example_text(2), end="")
    it is false that children are not old ? yes .
    yesterday the kings were young .
    """
    return "\n".join(" ".join(sentence.words) for sentence in sentences(n, seed)) + "\n"
