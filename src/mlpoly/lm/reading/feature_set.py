"""Features of a block: what each of them reads at an input, and what it writes into the block's output."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.arrays import as_integer, to_numpy
from mlpoly.features import decompose, eigenfeatures, principal_forms
from mlpoly.importers import find_blocks
from mlpoly.importers.blocks import Block, listed
from mlpoly.importers.torch import PolynomialModule
from mlpoly.inputs import Gaussian
from mlpoly.lm.model.identity import weights_fingerprint
from mlpoly.lm.model.tracing import NO_PATH, Trace, trace, unembedding
from mlpoly.lm.reading.attribution import polynomials_of
from mlpoly.polynomials import BoundedPolynomial, Polynomial, RidgePolynomial
from mlpoly.records import replace as changed
from mlpoly.tables import Table, Tabular
from mlpoly.units import energies

FeatureKind = Literal["principal", "token", "term", "form", "neuron", "direction", "pca", "random"]

_PER_FORM = 3  # eigenvectors of each principal form that compete for a place
_SAME = 0.9  # cosine from which two read directions count as one


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSet(Tabular):
    """Features of one block. Feature r adds ``amounts(x)[:, r] * writes[r]`` to the block's output.

    Most kinds read one direction: the value z of a feature is a coordinate of the input with mean 0 and variance 1
    under the moments of the block's inputs, and the feature enters as its square, with the amount z^2 - 1. For "form"
    and "neuron" value and amount are the same: a principal form or a hidden unit, less its mean, over its standard
    deviation.

    Attributes
    ----------
    block : str
    kind : str
    names : tuple of k str
    writes : Tensor (k, o)
        What one unit of the amount adds to the block's output.
    strengths : Tensor (k,)
        Standard deviations of what the features write, under the moments.
    center : Tensor (d,)
        Mean of the block's inputs.
    weights : str
        Fingerprint of the block's weights.
    functionals : Tensor (k, d) or None
        For squares: the value is functional . (x - center).
    directions : Tensor (k, d) or None
        For squares: how the input changes, on average, while the value rises by one.
    reader : callable or None
        Function from inputs (n, d) to values (n, k), for the other kinds.
    """

    block: str
    kind: FeatureKind
    names: tuple[str, ...]
    writes: Tensor
    strengths: Tensor
    center: Tensor
    weights: str
    functionals: Tensor | None = None
    directions: Tensor | None = None
    reader: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, which: int | slice | Sequence[int]) -> FeatureSet:
        """One feature, or some, as a set."""
        places = list(range(len(self)))
        chosen = [places[which]] if isinstance(which, int) else (
            places[which] if isinstance(which, slice) else [places[i] for i in which]
        )  # fmt: skip
        whole = self.reader
        return replace(
            self,
            names=tuple(self.names[i] for i in chosen),
            writes=self.writes[chosen],
            strengths=self.strengths[chosen],
            functionals=None if self.functionals is None else self.functionals[chosen],
            directions=None if self.directions is None else self.directions[chosen],
            reader=None if whole is None else lambda x: whole(x)[:, chosen],
        )

    @property
    def squares(self) -> bool:
        """Whether the features read directions, and enter as squares."""
        return self.functionals is not None

    def values(self, x: Tensor) -> Tensor:
        """Values (n, k) at inputs (n, d) of the block."""
        x = x.to(self.writes)
        if self.functionals is not None:
            return (x - self.center) @ self.functionals.T
        assert self.reader is not None  # one of the two is there
        return self.reader(x)

    def amounts(self, x: Tensor) -> Tensor:
        """Amounts (n, k), of mean zero under the moments, that multiply `writes`."""
        return self.amounts_of(self.values(x))

    def amounts_of(self, values: Tensor) -> Tensor:
        """Amounts that belong to values."""
        return values**2 - 1 if self.squares else values

    def to(self, device: torch.device | str) -> FeatureSet:
        """The same features on another device."""
        if self.writes.device == torch.device(device):
            return self
        names = ("writes", "strengths", "center", "functionals", "directions")
        moved = {name: t.to(device) for name in names if (t := getattr(self, name)) is not None}
        reader = self.reader
        if isinstance(reader, nn.Module):
            moved["reader"] = reader.to(device)
        return replace(self, **moved)

    def _table(self) -> Table:
        rows = zip(range(len(self)), self.names, self.strengths.tolist(), strict=True)
        return Table(("feature", "name", "strength"), tuple(rows), f"{self.kind} features of {self.block}", limit=20)

    def __repr__(self) -> str:
        return f"FeatureSet({self.block}, {self.kind}, k={len(self)})"


def as_sets(features: FeatureSet | Sequence[FeatureSet]) -> list[FeatureSet]:
    """One or several sets of features as a list, which must not be empty."""
    sets = [features] if isinstance(features, FeatureSet) else list(features)
    if not sets:
        raise ValueError("features is empty; pass one FeatureSet or several.")
    for some in sets:
        if not isinstance(some, FeatureSet):
            raise TypeError(f"features must be a FeatureSet, see block_features; got {type(some).__name__}.")
    return sets


def blocks_named(model: nn.Module, names: Sequence[str]) -> dict[str, Block]:
    """Blocks of a model by name; raises if it has not all of them."""
    blocks = {block.name: block for block in find_blocks(model)}
    for name in names:
        if name not in blocks:
            raise ValueError(f"the model has no block {name!r}; its blocks are {listed(list(blocks))}.")
    return {name: blocks[name] for name in names}


def blocks_of(model: nn.Module, sets: Sequence[FeatureSet]) -> dict[str, Block]:
    """The blocks that features belong to, by name; raises if they are not of this model."""
    blocks = blocks_named(model, [features.block for features in sets])
    weights = {name: weights_fingerprint(block.module) for name, block in blocks.items()}
    for features in sets:
        if features.weights != weights[features.block]:
            raise ValueError(
                f"the features of {features.block!r} belong to a block with other weights than that of this model; "
                f"make them again with block_features(poly, model, {features.block!r})."
            )
    return blocks


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
        - "direction": `directions` of your own.
        - "pca": principal components of the block's inputs; "random": random directions. These two are controls.
    k : int
        Number of features; fewer if there are fewer.
    token : int, optional
        Token id, for "token".
    difference : (int, int), optional
        Two token ids a, b, for the logit of a less that of b.
    directions : array (m, d), optional
        Input directions a_r for "direction": the value is a_r . x, standardised.
    inputs : Gaussian, optional
        Distribution of the block's inputs, ``moments.gaussian(block)``; by default that of the fit.
    seed : int
        Seed of "random" and "term".
    wiring : Trace, optional
        ``trace(model, [0])``, to save a run of the model where many blocks are read.

    Examples
    --------
    >>> import torch, transformers
    >>> from mlpoly.lm import block_features, collect, convert
    >>> sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_hidden_layers=1)).eval()
    >>> quadratic = convert(model, collect(model, [torch.arange(20).reshape(2, 10)]), degree=2)
    >>> name = "model.layers.0.mlp"
    >>> features = block_features(quadratic.polynomials[name], model, name, k=3)
    >>> len(features), features.values(torch.zeros(5, 8)).shape  # at five inputs of the block
    (3, torch.Size([5, 3]))
    """
    if kind not in get_args(FeatureKind):
        raise ValueError(f"kind must be one of {', '.join(map(repr, get_args(FeatureKind)))}, got {kind!r}.")
    k = as_integer("k", k, 1)
    place = blocks_named(model, [block])[block]
    net, made = place.net(), polynomials_of({block: poly})[block]
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
    if kind in ("form", "neuron"):
        names, writes, strengths, reader = (_forms if kind == "form" else _neurons)(ridge, net, under, k)
        fixed = weights_fingerprint(place.module)
        return FeatureSet(block, kind, names, writes, strengths, under.mean.to(writes), fixed, reader=reader)
    quadratic = ridge.rebase(under).truncate(2)
    vectors, names, writes = None, (), None
    if kind == "token":
        ids = [token] if difference is None else list(difference)
        if (token is None) == (difference is None):
            raise ValueError("give one of token (an id) and difference (two ids) for features of the kind 'token'.")
        weight = unembedding(model)
        ids = [as_integer("token", i, 0) for i in ids]
        if max(ids) >= len(weight):
            raise ValueError(f"token is {max(ids)}, but the model knows the tokens 0 to {len(weight) - 1}.")
        rows = logit_directions(model, block, weight[ids], wiring)
        u = rows[0] if difference is None else rows[0] - rows[1]
        eigen = eigenfeatures(quadratic, u.to(quadratic.prototype), k=k, metric="whitened", inputs=under)
        label = " − ".join(f"#{i}" for i in ids)
        vectors, names = eigen.vectors, tuple(f"towards {label}, {r}" for r in range(len(eigen.vectors)))
    elif kind == "principal":
        vectors, names = _principal(quadratic, under, k)
    elif kind == "term":
        terms = decompose(quadratic, k, under)
        vectors, writes = terms.vectors, terms.writes
        names = tuple(f"term {r}" for r in range(len(vectors)))
    elif kind == "direction":
        if directions is None:
            raise ValueError("give directions (m, d) in the space of the block's inputs for the kind 'direction'.")
        given = torch.atleast_2d(torch.as_tensor(to_numpy(directions))).to(under.mean)
        if given.ndim != 2 or given.shape[1] != ridge.dim_in:
            raise ValueError(f"directions has shape {tuple(given.shape)}, expected (m, {ridge.dim_in}).")
        vectors = given * under.root if under.root.ndim == 1 else given @ under.root
        vectors = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        names = tuple(f"direction {r}" for r in range(len(vectors)))
    elif kind == "pca":
        _, vectors = torch.linalg.eigh(under.covariance.double())
        vectors = vectors.T.flip(0)[:k]
        names = tuple(f"component {r}" for r in range(len(vectors)))
    else:
        noise = np.random.default_rng(as_integer("seed", seed, 0)).standard_normal((ridge.dim_in, k))
        vectors = torch.as_tensor(np.linalg.qr(noise)[0].T[:k])
        names = tuple(f"random {r}" for r in range(len(vectors)))
    fixed = weights_fingerprint(place.module)
    made_set = _squares(quadratic, under, vectors, writes, block, kind, names, fixed)
    if kind in ("token", "direction", "term", "principal"):  # these have an order of their own
        return made_set
    return made_set[made_set.strengths.argsort(descending=True).tolist()]


def _squares(
    quadratic: RidgePolynomial,
    inputs: Gaussian,
    vectors: Tensor,
    writes: Tensor | None,
    block: str,
    kind: FeatureKind,
    names: tuple[str, ...],
    weights: str,
) -> FeatureSet:
    """Features that read unit vectors (k, d) in whitened coordinates; by default they write what the quadratic says."""
    vectors = vectors.to(quadratic.prototype)
    root, inverse = inputs.root.to(vectors), inputs.inverse_root.to(vectors)
    steps = vectors * root if root.ndim == 1 else vectors @ root
    functionals = vectors * inverse if inverse.ndim == 1 else vectors @ inverse
    center = inputs.mean.to(vectors)
    if writes is None:
        # The quadratic part of all outputs at the directions: a second difference, exact for a quadratic.
        writes = (quadratic(center + steps) + quadratic(center - steps)) / 2 - quadratic(center[None])
    writes = writes.to(vectors)
    strengths = math.sqrt(2) * torch.linalg.vector_norm(writes, dim=1)  # z^2 - 1 has variance 2
    tensors = (writes, strengths, center)
    return FeatureSet(block, kind, names, *tensors, weights, functionals=functionals, directions=steps)


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


def _forms(ridge: RidgePolynomial, net: Any, inputs: Gaussian, k: int) -> Any:
    """Principal forms: names, writes, strengths and reader."""
    forms = principal_forms(ridge, 2, k, inputs)
    scales = forms.values.sqrt()
    p = ridge.rebase(inputs).truncate(2)
    series = p.series
    # Degree exactly 2: the rows of P above 1, and of Q, which e multiplies, above 0.
    gated = None if series.gated is None else torch.cat([series.gated[:1] * 0, series.gated[1:]])
    part = changed(series, plain=torch.cat([series.plain[:2] * 0, series.plain[2:]]), gated=gated)
    directions = (forms.outputs / scales.clamp_min(torch.finfo(scales.dtype).tiny)[:, None]).to(p.prototype)
    only = directions @ changed(p, series=part, bias=None)
    names = tuple(f"form {j}" for j in range(len(scales)))
    return names, forms.outputs * scales[:, None], scales, only.to(ridge.prototype).to_torch()


def _neurons(ridge: RidgePolynomial, net: Any, inputs: Gaussian, k: int) -> Any:
    """The hidden units that write most: names, writes, strengths and reader."""
    p = ridge.rebase(inputs)
    spreads = energies(p.series, p.units)[1:].sum(0).sqrt()
    readout = torch.eye(len(spreads)).to(spreads) if p.readout is None else p.readout
    strengths = spreads * torch.linalg.vector_norm(readout, dim=0)
    chosen = strengths.argsort(descending=True)[:k]
    middle, width = p.series.plain[0, chosen].to(net.prototype), spreads[chosen].to(net.prototype)
    writes = (readout[:, chosen].T * spreads[chosen][:, None]).to(net.prototype)

    def reader(x: Tensor) -> Tensor:
        return (net.hidden(x.to(net.prototype))[:, chosen] - middle) / width

    names = tuple(f"neuron {int(i)}" for i in chosen)
    return names, writes, strengths[chosen].to(net.prototype), reader
