"""Batches for fine-tuning: from a distribution, from rows of data, or from a function, by seed alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_float_array, check_finite, check_shape, namespace, on, take_rows
from mlpoly.inputs import Gaussian, GaussianMixture

__all__ = ["CALIBRATION", "TRAINING", "VALIDATION", "Draw", "draws", "stream_seed"]

Draw = Callable[[int, int], Array]  # (n, seed) -> (n, d)

TRAINING, VALIDATION, CALIBRATION = 0, 1, 2  # streams of seeds, so that held-out samples are never trained on
_HELD_OUT = 5  # one row of data in five, at most, is held out


def draws(
    data: Any, validation: Any, size: int, seed: int, dim: int, like: Array, place: Array | None = None
) -> tuple[Draw, Array]:
    """A function that draws batches to train on, and held-out samples.

    Parameters
    ----------
    data, validation : Gaussian, GaussianMixture, array (n, d) or callable
        Without `validation`, it is drawn from `data`, and rows of an array are then used for one of the two only.
    size : int
        Held-out samples to draw; a `validation` array is used whole.
    like : array
        Tells the array library that a distribution must have.
    place : array, optional
        Where samples of a distribution are wanted: they are drawn there, in its library and on its device.
    """
    spot = like if place is None else place
    held_out = stream_seed(seed, VALIDATION, 0)
    if validation is not None:
        if _is_data(validation):
            return _draw("data", data, dim, like, spot), _checked("validation", validation, (None, dim))
        return _draw("data", data, dim, like, spot), _draw("validation", validation, dim, like, spot)(size, held_out)
    if not _is_data(data):
        draw = _draw("data", data, dim, like, spot)
        return draw, draw(size, held_out)
    data = _checked("data", data, (None, dim))
    count = min(size, data.shape[0] // _HELD_OUT)
    if count < 2:
        raise ValueError(f"data holds {data.shape[0]} rows, too few to hold some out; give validation=... or 10 rows.")
    order = np.random.default_rng(held_out).permutation(data.shape[0])
    return _rows(data, order[count:]), take_rows(data, order[:count])


def stream_seed(seed: int, stream: int, step: int) -> int:
    """A seed of its own for every use."""
    return int(np.random.SeedSequence((seed, stream, step)).generate_state(1)[0])


def _is_data(value: Any) -> bool:
    return not isinstance(value, (Gaussian, GaussianMixture)) and not callable(value)


def _draw(name: str, data: Any, dim: int, like: Array, place: Array) -> Draw:
    if isinstance(data, (Gaussian, GaussianMixture)):
        if data.dim != dim:
            raise ValueError(f"{name} has dimension {data.dim}, but the network takes {dim} inputs.")
        data = data.like(like)
        namespace(polynomial=like, **{name: data.mean})
        data = _at(data, place)
        return lambda n, seed: _checked(f"a sample of {name}", data.sample(n, seed), (n, dim))
    if callable(data):
        return lambda n, seed: _checked(f"{name}(n, seed)", data(n, seed), (n, dim))
    data = _checked(name, data, (None, dim))
    return _rows(data, np.arange(data.shape[0]))


def _at(data: Gaussian | GaussianMixture, place: Array) -> Gaussian | GaussianMixture:
    if isinstance(data, Gaussian):
        return data.to(place)
    return GaussianMixture.of(on(data.weights, place), [g.to(place) for g in data.components])


def _rows(data: Array, rows: np.ndarray) -> Draw:
    """Random rows of data, each at most once in a batch."""

    def draw(n: int, seed: int) -> Array:
        chosen = np.random.default_rng(seed).choice(rows, size=min(n, rows.size), replace=False)
        return take_rows(data, chosen)

    return draw


def _checked(name: str, samples: Any, shape: tuple[int | None, int]) -> Array:
    try:
        samples = as_float_array(name, samples, integers=True)
    except TypeError as error:
        raise TypeError(
            f"{error} It may be a Gaussian, a GaussianMixture, an array of samples (n, d), or a function of "
            f"(n, seed) that returns one."
        ) from None
    check_shape(name, samples, shape, "samples in rows, as many columns as the network has inputs")
    if samples.shape[0] == 0:
        raise ValueError(f"{name} holds no samples.")
    check_finite(name, samples)
    return samples
