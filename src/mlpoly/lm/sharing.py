"""Polynomials that one process fitted, on all of them: sent without the weights, which every process has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from mlpoly.integrations.blocks import Block
from mlpoly.lm.conversion import Quality
from mlpoly.lm.distributed import exchange, exchange_tensors
from mlpoly.lm.fits import Fitter, Parts
from mlpoly.polynomials import Gate, RidgePolynomial, Source, Tails

__all__ = ["share_polynomials", "share_quality"]

_OWN = ("shifts", "scales", "series")
_GATE = ("shifts", "slopes", "series")
_TAILS = ("slopes", "gate")


def share_polynomials(found: Mapping[str, Parts], blocks: Sequence[Block], fitter: Fitter) -> dict[str, Parts]:
    """The polynomials of all blocks, in their order, from those that each process has fitted."""
    sent = {f"{name}/{n}/{key}": t for name, parts in found.items() for n, p in parts.items() for key, t in _send(p)}
    ours: Mapping[str, dict[int, Any]] = found  # every form has a source, though not by contract
    sources = exchange({name: {n: asdict(p.source) for n, p in parts.items()} for name, parts in ours.items()})
    merged: dict[str, Parts] = dict(found)
    for named, arrays in zip(sources, exchange_tensors(sent), strict=True):
        for block in (b for b in blocks if b.name in named and b.name not in merged):
            merged[block.name] = {
                int(n): _receive(block, int(n), Source(**source), _under(arrays, f"{block.name}/{n}/"), fitter)
                for n, source in named[block.name].items()
            }
    return {block.name: merged[block.name] for block in blocks}


def share_quality(found: Mapping[str, Quality], blocks: Sequence[Block]) -> dict[str, Quality]:
    """How well the polynomials of all blocks do, from what each process knows of its own."""
    told = {name: q for part in exchange({n: asdict(q) for n, q in found.items()}) for name, q in part.items()}
    return {block.name: Quality(**told[block.name]) for block in blocks}


def _send(poly: Any) -> list[tuple[str, Tensor]]:
    """What is not the network's: all but directions, readout and bias."""
    parts = [("", poly, _OWN), ("gate.", poly.gate, _GATE), ("tails.", poly.tails, _TAILS)]
    named = [(f"{key}{name}", getattr(part, name)) for key, part, names in parts if part is not None for name in names]
    return [(name, tensor) for name, tensor in named if tensor is not None]


def _under(arrays: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in arrays.items() if name.startswith(prefix)}


def _receive(block: Block, number: int, source: Source, sent: dict[str, Tensor], fitter: Fitter) -> RidgePolynomial:
    net: Any = block.net()
    like = net.prototype
    arrays = {name: tensor.to(like.device) for name, tensor in sent.items()}
    gate, tails, bound = _under(arrays, "gate."), _under(arrays, "tails."), fitter.bound
    return RidgePolynomial(
        directions=net.forms.directions,
        **{name: arrays[name] for name in _OWN},
        readout=net.readout,
        bias=net.bias,
        gate=Gate(directions=net.forms.gate_directions, **gate) if gate else None,
        tails=Tails(**tails, bound=bound) if tails and bound is not None else None,
        inputs=fitter.inputs(block.name, number, like),
        source=source,
    )
