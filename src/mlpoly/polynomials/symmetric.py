"""Symmetric tensors by their entries at ascending indices i_1 <= i_2 <= ... <= i_k, in colexicographic order.

Of d^k entries these are C(d + k - 1, k), and those with indices below v come before all others.
"""

import itertools
import math
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=64)
def multisets(variables: int, size: int) -> np.ndarray:
    """Ascending indices (t, size) of all entries."""
    if not size:
        return np.zeros((1, 0), dtype=np.int16)
    shorter = multisets(variables, size - 1)
    parts = []
    for last in range(variables):
        head = shorter[: math.comb(last + size - 1, size - 1)]
        parts.append(np.concatenate([head, np.full((len(head), 1), last, dtype=np.int16)], axis=1))
    return np.concatenate(parts)


def places(indices: np.ndarray) -> np.ndarray:
    """Numbers (...) of the entries with indices (..., k) in any order."""
    ascending = np.sort(indices, axis=-1).astype(np.int64)
    total = np.zeros(ascending.shape[:-1], dtype=np.int64)
    for m in range(ascending.shape[-1]):
        each = [math.comb(v + m, m + 1) for v in range(int(ascending.max(initial=0)) + 1)]
        total += np.asarray(each, dtype=np.int64)[ascending[..., m]]
    return total


@lru_cache(maxsize=256)
def factors(variables: int, one: int, two: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """For each way to give `one` of the factors of a product to the first tensor: the entries of both, (t,)."""
    rows = multisets(variables, one + two)
    ways = (list(way) for way in itertools.combinations(range(one + two), one))
    return tuple((places(rows[:, way]), places(np.delete(rows, way, axis=1))) for way in ways)
