"""How alike two classifiers are: divergence, accuracy and agreement of their outputs, which are logits.

A single output is the logit of class 1 against class 0, as of a binary classifier with a sigmoid.
"""

from typing import Any

import numpy as np

from mlpoly.arrays import Array, chunks, constant_index, namespace, readable, to_numpy, widen
from mlpoly.arrays.checks import as_float_array, check_shape
from mlpoly.scores.number import Estimate, checked_outputs, estimate

_ENTRIES = 2**22  # outputs whose softmax is taken at once


def kl_of_outputs(f: Array, p: Array, weights: Array | None = None) -> Estimate:
    """Mean KL(softmax f || softmax p) of logits (n, o) over samples, in nats; for one output, of the sigmoids."""
    f, p = checked_outputs(f, p)
    return estimate(divergences(f, p), f, weights)


def accuracy_of_outputs(f: Array, labels: Any, weights: Array | None = None) -> Estimate:
    """Fraction of samples whose largest output, of f (n, o), is that of their label; labels are integers (n,).

    For one output, the labels are 0 or 1, and class 1 is chosen where the output is above 0.
    """
    f = as_float_array("f", f)
    check_shape("f", f, (None, None), "one row per sample, outputs in columns")
    labels = checked_labels(labels, f)
    if f.shape[1] == 1:
        check_binary(labels)
    return estimate(chosen(f) == labels, f, weights)


def agreement_of_outputs(f: Array, p: Array, weights: Array | None = None) -> Estimate:
    """Fraction of samples on which the largest outputs of f and p (n, o), or the signs of single ones, agree."""
    f, p = checked_outputs(f, p)
    return estimate(chosen(f) == chosen(p), f, weights)


def checked_labels(labels: Any, samples: Array) -> Array:
    """Check integer labels (n,) of samples or outputs, and return them in their library and on their device."""
    vector = to_numpy(labels) if hasattr(labels, "shape") else np.asarray(labels)
    if vector.dtype.kind not in "iu":
        remedy = "labels.astype(int)"
        if vector.dtype.kind not in "fb":  # words
            remedy = "numpy.unique(labels, return_inverse=True)[1] if the outputs are in the order of the sorted words"
        raise TypeError(f"labels must be integers, got dtype {vector.dtype}; use {remedy}.")
    if vector.shape != tuple(samples.shape[:1]):
        raise ValueError(f"labels have shape {vector.shape}, expected ({samples.shape[0]},): one label per sample.")
    return constant_index(vector, samples)


def check_binary(labels: Array) -> None:
    """Raise unless all labels (n,) are 0 or 1, the classes of a network with one output."""
    values = to_numpy(labels) if readable(labels) else np.zeros(0)
    others = values[(values != 0) & (values != 1)]
    if others.size:
        remedy = f"use (labels == {values.max()}).astype(int)"
        raise ValueError(f"labels has {others[0]}, but the classes of a network with one output are 0 and 1; {remedy}.")


def chosen(outputs: Array) -> Array:
    """Class of each sample, (n,), as an integer: 16-bit floats can count only 256 classes."""
    return namespace(outputs=outputs).argmax(_logits(outputs), axis=-1)


def _logits(outputs: Array) -> Array:
    """Logits of all classes, (..., o): a single output is that of class 1, and class 0 has logit 0."""
    xp = namespace(outputs=outputs)
    return xp.concat([xp.zeros_like(outputs), outputs], axis=-1) if outputs.shape[-1] == 1 else outputs


def divergences(f: Array, p: Array) -> Array:
    """KL(softmax f || softmax p) of each sample, (n,), from outputs (n, o); for one output, of the sigmoids."""
    xp = namespace(f=f, p=p)

    def each(f: Array, p: Array) -> Array:
        log_f, log_p = _log_softmax(f), _log_softmax(p)
        return xp.sum(xp.exp(log_f) * (log_f - log_p), axis=1)

    return xp.concat([each(f[rows, ...], p[rows, ...]) for rows in _row_chunks(f)])


def cross_entropies(f: Array, labels: Array) -> Array:
    """-log softmax f at the label of each sample, (n,), from outputs (n, o) and integers (n,)."""
    parts = []
    for rows in _row_chunks(f):
        log_f = _log_softmax(f[rows, ...])
        parts.append(-log_f[constant_index(np.arange(log_f.shape[0]), log_f), labels[rows]])
    return namespace(f=f).concat(parts)


def _row_chunks(outputs: Array) -> list[slice]:
    return chunks(outputs.shape[0], max(_ENTRIES // max(outputs.shape[1], 1), 1))


def _log_softmax(outputs: Array) -> Array:
    xp, wide = namespace(outputs=outputs), _logits(widen(outputs))
    shifted = wide - xp.max(wide, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
