"""Batches for fine-tuning, determined by a seed: from a distribution, from rows of data, or from a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_float_array, check_finite, check_shape, namespace, take_rows, to_numpy
from mlpoly.inputs import Inputs, Samples, in_library

Draw = Callable[[int, int], Array]  # (n, seed) -> (n, d)

TRAINING, VALIDATION, CALIBRATION = 0, 1, 2  # streams of seeds, so that held-out samples are never trained on
_HELD_OUT = 5  # at most one row of data in five is held out


def draws(
    data: Any, validation: Any, size: int, seed: int, dim: int, like: Array, place: Array | None = None
) -> tuple[Draw, Array]:
    """Return a function that draws training batches, and the held-out samples.

    Parameters
    ----------
    data, validation : Gaussian, GaussianMixture, Samples, array (n, d) or callable
        Sources of batches and held-out samples. Without `validation` both come from `data`, and each row of an array or
        of samples is then used for only one of the two.
    size : int
        Number of held-out samples; a `validation` array is used whole, and so are samples without weights.
    like : array
        Array of the library that a distribution must have.
    place : array, optional
        Array in whose library and on whose device samples of a distribution are drawn.
    """
    spot = like if place is None else place
    held_out = stream_seed(seed, VALIDATION, 0)
    if validation is not None:
        if _is_data(validation):
            rows, weights = _rows_of("validation", validation, dim)
            held = rows if weights is None else _rows(rows, np.arange(rows.shape[0]), weights)(size, held_out)
            return _draw("data", data, dim, like, spot), held
        return _draw("data", data, dim, like, spot), _draw("validation", validation, dim, like, spot)(size, held_out)
    if not _is_data(data):
        draw = _draw("data", data, dim, like, spot)
        return draw, draw(size, held_out)
    data, weights = _rows_of("data", data, dim)
    count = min(size, data.shape[0] // _HELD_OUT)
    if count < 2:
        raise ValueError(f"data holds {data.shape[0]} rows, too few to hold some out; pass validation=... or 10 rows.")
    order = np.random.default_rng(held_out).permutation(data.shape[0])
    held = take_rows(data, order[:count]) if weights is None else _rows(data, order[:count], weights)(count, held_out)
    return _rows(data, order[count:], weights), held


def stream_seed(seed: int, stream: int, step: int) -> int:
    """A separate seed for every use."""
    return int(np.random.SeedSequence((seed, stream, step)).generate_state(1)[0])


def _is_data(value: Any) -> bool:
    return isinstance(value, Samples) or not (isinstance(value, Inputs) or callable(value))


def _draw(name: str, data: Any, dim: int, like: Array, place: Array) -> Draw:
    if isinstance(data, Inputs) and not isinstance(data, Samples):
        if data.dim != dim:
            raise ValueError(f"{name} has dimension {data.dim}, but the network takes {dim} inputs.")
        data = in_library(data, like)
        namespace(polynomial=like, **{name: data.mean})
        data = data.to(place)
        return lambda n, seed: _checked(f"a sample of {name}", data.sample(n, seed), (n, dim))
    if callable(data):
        return lambda n, seed: _checked(f"{name}(n, seed)", data(n, seed), (n, dim))
    data, weights = _rows_of(name, data, dim)
    return _rows(data, np.arange(data.shape[0]), weights)


def _rows_of(name: str, data: Any, dim: int) -> tuple[Array, np.ndarray | None]:
    """Rows (n, d) of an array or of samples, and the weights of the latter."""
    given = isinstance(data, Samples)
    weights = None if not given or data.weights is None else to_numpy(data.weights)
    return _checked(name, data.x if given else data, (None, dim)), weights


def _rows(data: Array, rows: np.ndarray, weights: np.ndarray | None = None) -> Draw:
    """Random rows of data, each at most once in a batch; with weights they are drawn with replacement."""
    chances = None if weights is None else weights[rows].astype(float)
    if chances is not None and not chances.sum() > 0:
        raise ValueError("too few samples of data have a weight above zero to hold some out; pass validation=...")

    def draw(n: int, seed: int) -> Array:
        rng = np.random.default_rng(seed)
        if chances is not None:
            return take_rows(data, rng.choice(rows, size=n, p=chances / chances.sum()))
        return take_rows(data, rng.choice(rows, size=min(n, rows.size), replace=False))

    return draw


def _checked(name: str, samples: Any, shape: tuple[int | None, int]) -> Array:
    try:
        samples = as_float_array(name, samples, integers=True)
    except TypeError as error:
        raise TypeError(
            f"{error} It may be a Gaussian, a GaussianMixture, Samples, an array of samples (n, d), or a function of "
            f"(n, seed) that returns one."
        ) from None
    check_shape(name, samples, shape, "samples in rows, as many columns as the network has inputs")
    if samples.shape[0] == 0:
        raise ValueError(f"{name} holds no samples.")
    check_finite(name, samples)
    return samples
