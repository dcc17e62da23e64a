"""Features of a block, made from its polynomial: directions to read, or a function, and vectors to write."""

import math
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.arrays import as_integer, to_numpy
from mlpoly.features import decompose, eigenfeatures, principal_forms
from mlpoly.importers.torch import PolynomialModule
from mlpoly.inputs import Gaussian
from mlpoly.lm.model.loading import weights_fingerprint
from mlpoly.lm.model.tracing import NO_PATH, Trace, trace, unembedding
from mlpoly.lm.reading.attribution import polynomials_of
from mlpoly.lm.reading.feature_set import FeatureKind, FeatureSet, blocks_named
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial, Polynomial, RidgePolynomial
from mlpoly.records import replace as changed
from mlpoly.units import energies

_PER_FORM = 3  # eigenvectors of each principal form that compete for a place
_SAME = 0.9  # cosine from which two read directions count as one


def block_features(
    poly: Polynomial | PolynomialModule,
    model: nn.Module,
    block: str,
    kind: FeatureKind = "principal",
    k: int = 10,
    *,
    token: int | None = None,
    difference: tuple[int, int] | None = None,
    directions: Any = None,
    inputs: Gaussian | None = None,
    seed: int = 0,
    wiring: Trace | None = None,
) -> FeatureSet:
    """Features of a block, strongest first.

    Parameters
    ----------
    poly : polynomial or module of one
        Polynomial of the block, of degree 2 or more.
    model : torch.nn.Module
        A language model of transformers.
    block : str
        Name of the block.
    kind : str
        - "principal": eigenvectors of the principal forms, see `mlpoly.principal_forms`; no output is chosen.
        - "token": eigenvectors of the quadratic towards the logit of `token`, or a `difference` of two logits.
        - "term": terms of the shared decomposition of the quadratic, see `mlpoly.decompose`.
        - "form": the principal forms themselves.
        - "neuron": hidden units.
        - "direction": `directions` (m, d) of the inputs of your own.
        - "pca": principal components of the block's inputs; "random": random directions, by a seed. These are controls.
    k : int
        Number of features; fewer if there are fewer.
    token, difference : int or (int, int), optional
        For "token": a token id, or two ids a, b for the logit of a less that of b.
    inputs : Gaussian, optional
        Distribution of the block's inputs, ``moments.gaussian(block)``; by default that of the fit.
    wiring : Trace, optional
        ``trace(model, [0])``, to save a run of the model where many blocks are read.

    Examples
    --------
    >>> import torch
    >>> from mlpoly.lm import block_features, collect, convert, load_model
    >>> model, name = load_model()[0], "model.layers.1.mlp"
    >>> quadratic = convert(model, collect(model, [torch.arange(50)[None]], name), degree=2, closed_form=False)
    >>> block_features(quadratic.polynomials[name], model, name, k=3)
    FeatureSet(model.layers.1.mlp, principal, k=3)
    """
    if kind not in get_args(FeatureKind):
        raise ValueError(f"kind must be one of {', '.join(map(repr, get_args(FeatureKind)))}, got {kind!r}.")
    k, module = as_integer("k", k, 1), blocks_named(model, [block])[block]
    net, made = module.net(), polynomials_of({block: poly})[block]
    ridge = made.polynomial if isinstance(made, BoundedPolynomial) else made
    if not isinstance(ridge, RidgePolynomial):
        raise TypeError(f"poly must be the polynomial of one block, see convert; got {type(made).__name__}.")
    if (ridge.dim_in, ridge.dim_out) != (net.dim_in, net.dim_out):
        raise ValueError(
            f"poly maps {ridge.dim_in} inputs to {ridge.dim_out} outputs, the block {block!r} {net.dim_in} to "
            f"{net.dim_out}; pass the polynomial of this block."
        )
    under = ridge.inputs if inputs is None else inputs
    if not isinstance(under, Gaussian):
        raise TypeError(
            f"inputs must be a Gaussian, got {type(under).__name__}; pass inputs=moments.gaussian({block!r})."
        )
    ridge, under = ridge.to(net.prototype), under.to(net.prototype)
    common: dict[str, Any] = {"block": block, "kind": kind, "weights": weights_fingerprint(module.module)}
    if kind in ("form", "neuron"):
        return FeatureSet(**common, **(_forms if kind == "form" else _neurons)(ridge, net, under, k))
    quadratic = ridge.rebase(under).truncate(2)
    names, writes = None, None
    if kind == "principal":
        vectors, names = _principal(quadratic, under, k)
    elif kind == "token":
        u, label = _towards(model, block, token, difference, wiring)
        vectors = eigenfeatures(quadratic, u.to(quadratic.prototype), k=k, metric="whitened", inputs=under).vectors
    elif kind == "term":
        label, terms = "term", decompose(quadratic, k, under)
        vectors, writes = terms.vectors, terms.writes
    elif kind == "direction":
        if directions is None:
            raise ValueError("give directions (m, d) in the space of the block's inputs for the kind 'direction'.")
        rows = torch.atleast_2d(torch.as_tensor(to_numpy(directions))).to(under.mean)
        if rows.ndim != 2 or rows.shape[1] != under.dim:
            raise ValueError(f"directions has shape {tuple(rows.shape)}, expected (m, {under.dim}).")
        rows = rows * under.root if under.root.ndim == 1 else rows @ under.root
        label, vectors = "direction", nn.functional.normalize(rows)
    elif kind == "pca":
        label, vectors = "component", torch.linalg.eigh(under.covariance.double())[1].T.flip(0)[:k]
    else:
        noise = np.random.default_rng(as_integer("seed", seed, 0)).standard_normal((ridge.dim_in, k))
        label, vectors = "random", torch.as_tensor(np.linalg.qr(noise)[0].T[:k])
    names = names or tuple(f"{label} {r}" for r in range(len(vectors)))
    features = FeatureSet(**common, names=names, **_squares(quadratic, under, vectors, writes))
    # The others have an order of their own.
    return features[features.strengths.argsort(descending=True).tolist()] if kind in ("pca", "random") else features


def _squares(quadratic: RidgePolynomial, inputs: Gaussian, vectors: Tensor, writes: Tensor | None) -> dict[str, Any]:
    """Features that read unit vectors (k, d) in whitened coordinates; by default they write what the quadratic does."""
    vectors = vectors.to(quadratic.prototype)
    root, inverse, center = (t.to(vectors) for t in (inputs.root, inputs.inverse_root, inputs.mean))
    directions = vectors * root if root.ndim == 1 else vectors @ root
    functionals = vectors * inverse if inverse.ndim == 1 else vectors @ inverse
    if writes is None:
        # The quadratic part of all outputs at the directions: a second difference, exact for a quadratic.
        writes = (quadratic(center + directions) + quadratic(center - directions)) / 2 - quadratic(center[None])
    writes = writes.to(vectors)
    strengths = math.sqrt(2) * torch.linalg.vector_norm(writes, dim=1)  # z^2 - 1 has variance 2
    own = {"writes": writes, "strengths": strengths, "center": center}
    return own | {"functionals": functionals, "directions": directions}


def _towards(
    model: nn.Module, block: str, token: int | None, difference: tuple[int, int] | None, wiring: Trace | None
) -> tuple[Tensor, str]:
    """Direction (o,) of a block's output towards the logit of a token, or a difference of two, and its name."""
    if (token is None) == (difference is None):
        raise ValueError("give one of token (an id) and difference (two ids) for features of the kind 'token'.")
    weight = unembedding(model)
    ids = [as_integer("token", i, 0) for i in ([token] if difference is None else difference)]
    if max(ids) >= len(weight):
        raise ValueError(f"token is {max(ids)}, but the model knows the tokens 0 to {len(weight) - 1}.")
    rows = logit_directions(model, block, weight[ids], wiring)
    return rows[0] if difference is None else rows[0] - rows[1], f"towards {' − '.join(f'#{i}' for i in ids)},"


def _principal(quadratic: RidgePolynomial, inputs: Gaussian, k: int) -> tuple[Tensor, tuple[str, ...]]:
    """The strongest eigenvectors of the leading principal forms, each direction once."""
    forms = principal_forms(quadratic, 2, k, inputs)
    found: list[tuple[float, Tensor, str]] = []
    for j in range(len(forms.values)):
        eigen = forms.features(j, _PER_FORM)
        for r, (value, vector) in enumerate(zip(eigen.values.tolist(), eigen.vectors, strict=True)):
            found.append((abs(value), vector, f"form {j}, eigenvector {r}"))
    kept: list[tuple[float, Tensor, str]] = []
    for item in sorted(found, key=lambda item: -item[0]):
        if len(kept) < k and all(abs(float(item[1] @ other)) < _SAME for _, other, _ in kept):
            kept.append(item)
    return torch.stack([vector for _, vector, _ in kept]), tuple(name for _, _, name in kept)


def _forms(ridge: RidgePolynomial, net: Layer, inputs: Gaussian, k: int) -> dict[str, Any]:
    """The principal forms themselves."""
    forms = principal_forms(ridge, 2, k, inputs)
    scales = forms.values.sqrt()
    p = ridge.rebase(inputs).truncate(2)
    series = p.series
    # Degree exactly 2: the rows of P above 1, and of Q, which e multiplies, above 0.
    gated = None if series.gated is None else torch.cat([series.gated[:1] * 0, series.gated[1:]])
    part = changed(series, plain=torch.cat([series.plain[:2] * 0, series.plain[2:]]), gated=gated)
    directions = (forms.outputs / scales.clamp_min(torch.finfo(scales.dtype).tiny)[:, None]).to(p.prototype)
    only = directions @ changed(p, series=part, bias=None)
    own = {"writes": forms.outputs * scales[:, None], "strengths": scales, "center": inputs.mean}
    names = tuple(f"form {j}" for j in range(len(scales)))
    return own | {"names": names, "reader": only.to(ridge.prototype).to_torch()}


def _neurons(ridge: RidgePolynomial, net: Layer, inputs: Gaussian, k: int) -> dict[str, Any]:
    """The hidden units that write most."""
    p = ridge.rebase(inputs)
    spreads = energies(p.series, p.units)[1:].sum(0).sqrt()
    readout = torch.eye(len(spreads)).to(spreads) if p.readout is None else p.readout
    strengths = spreads * torch.linalg.vector_norm(readout, dim=0)
    chosen = strengths.argsort(descending=True)[:k]
    middle, width = p.series.plain[0, chosen].to(net.prototype), spreads[chosen].to(net.prototype)
    writes = (readout[:, chosen].T * spreads[chosen][:, None]).to(net.prototype)

    def reader(x: Tensor) -> Tensor:
        return (net.hidden(x.to(net.prototype))[:, chosen] - middle) / width

    own = {"writes": writes, "strengths": strengths[chosen].to(writes), "center": inputs.mean}
    return own | {"names": tuple(f"neuron {int(i)}" for i in chosen), "reader": reader}


def logit_directions(model: nn.Module, block: str, rows: Tensor, wiring: Trace | None = None) -> Tensor:
    """Rows (..., d) of the unembedding as directions (..., o) of a block's output.

    A direction is the change of a logit with the block's output, up to the divisors of the norms in between, which
    depend on the text: the row times the weight of the final norm, less its mean if that norm is a LayerNorm.
    """
    seen = trace(model, [0]) if wiring is None else wiring
    if block not in seen.inputs:
        raise ValueError(seen.without(block))
    if seen.final is None:
        raise ValueError(f"{type(model).__name__}: {NO_PATH}; pass directions of your own.")
    rows = rows.double()
    for norm in (seen.final, seen.after[block]):
        rows = rows if norm is None else norm.scaled(rows)
    return rows
