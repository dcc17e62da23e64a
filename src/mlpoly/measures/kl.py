"""How alike two classifiers are on data: Kullback-Leibler divergence, accuracy, agreement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlpoly.arrays import (
    Array,
    as_float_array,
    cast_result,
    check_finite,
    check_shape,
    chunks,
    constant_index,
    namespace,
    readable,
    scalar,
    to_numpy,
    widen,
)
from mlpoly.measures.components import check_models
from mlpoly.measures.fvu import outputs_of
from mlpoly.measures.number import Number
from mlpoly.records import record

__all__ = ["Estimate", "accuracy", "agreement", "checked_labels", "chosen", "divergence", "kl", "mean_of"]

_ROWS = 8192  # samples at a time


@record
class Estimate(Number):
    """A mean over samples; where one number is wanted it stands for `mean`.

    Attributes
    ----------
    mean : array ()
    standard_error : array ()
        Standard deviation of the samples over the root of their number; zero for a single one.
    """

    mean: Array
    standard_error: Array

    def _number(self) -> Array:
        return self.mean

    def __repr__(self) -> str:
        if not readable(self.mean):
            return "Estimate(traced)"
        return f"Estimate({scalar(self.mean):.4g} +- {scalar(self.standard_error):.1g})"


def kl(net: Callable[[Array], Array], poly: Callable[[Array], Array], *, samples: Array) -> Estimate:
    """Mean KL(softmax f || softmax p) over samples, in nats, with its standard error.

    Parameters
    ----------
    net : MLP, GLU, or any callable from (n, d) to (n, o)
        Its outputs f are logits.
    poly : Polynomial, or any callable
    samples : array (n, d)
    """
    return _estimate(lambda x: divergence(*outputs_of(net, poly, x)), samples, check_models(net, poly))


def divergence(f: Array, p: Array) -> Array:
    """KL(softmax f || softmax p) of each sample, (n,), from outputs (n, o)."""
    log_p, log_q = _log_softmax(f), _log_softmax(p)
    xp = namespace(log_p=log_p)
    return xp.sum(xp.exp(log_p) * (log_p - log_q), axis=1)


def accuracy(model: Callable[[Array], Array], samples: Array, labels: Any) -> Estimate:
    """Share of samples whose largest output is that of their label.

    Parameters
    ----------
    model : MLP, GLU, Polynomial, or any callable from (n, d) to (n, o)
    samples : array (n, d)
    labels : integers (n,)
    """
    samples = as_float_array("samples", samples, integers=True)
    targets = checked_labels(labels, samples)
    place = iter(chunks(samples.shape[0], _ROWS))
    return _estimate(lambda x: chosen(model(x)) == targets[next(place)], samples, None)


def checked_labels(labels: Any, samples: Array) -> Array:
    """Labels (n,) as integers beside the samples."""
    found = to_numpy(labels) if hasattr(labels, "shape") else np.asarray(labels)
    if found.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers, got dtype {found.dtype}; use labels.astype(int).")
    if found.shape != tuple(samples.shape[:1]):
        raise ValueError(f"labels have shape {found.shape}, expected ({samples.shape[0]},): one label per sample.")
    return constant_index(found, samples)


def agreement(net: Callable[[Array], Array], poly: Callable[[Array], Array], samples: Array) -> Estimate:
    """Share of samples on which the largest outputs of two models are the same one."""
    return _estimate(lambda x: chosen(net(x)) == chosen(poly(x)), samples, None)


def chosen(outputs: Array) -> Array:
    """Place of the largest output of each sample, (n,), as an integer: 16-bit floats end at 256 classes."""
    return namespace(outputs=outputs).argmax(outputs, axis=-1)


def _log_softmax(outputs: Array) -> Array:
    xp = namespace(outputs=outputs)
    shifted = widen(outputs) - xp.max(widen(outputs), axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def _estimate(each: Callable[[Array], Array], samples: Array, dim: int | None) -> Estimate:
    """Mean and standard error of a function of samples, evaluated in blocks of rows."""
    samples = as_float_array("samples", samples, integers=True)
    check_shape("samples", samples, (None, dim), "n samples in rows, as many columns as the network has inputs")
    if samples.shape[0] == 0:
        raise ValueError("samples is empty; a mean needs at least one sample.")
    check_finite("samples", samples)
    xp = namespace(samples=samples)
    kind = widen(samples).dtype
    values = xp.concat([xp.astype(each(samples[b, ...]), kind) for b in chunks(samples.shape[0], _ROWS)])
    return mean_of(values, samples)


def mean_of(values: Array, like: Array) -> Estimate:
    """Mean and standard error of one number per sample, (n,)."""
    xp = namespace(values=values)
    error = xp.std(values) / math.sqrt(max(values.shape[0] - 1, 1))
    return Estimate(cast_result(xp.mean(values), like), cast_result(error, like))
