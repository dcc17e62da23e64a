"""Polynomials that one process fitted, on all of them: sent without the weights, which every process has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from mlpoly.integrations.blocks import Block
from mlpoly.lm.convert.conversion import Quality
from mlpoly.lm.convert.fitters import Fitter
from mlpoly.lm.distributed import exchange, exchange_tensors
from mlpoly.polynomials import BoundedPolynomial, Polynomial, RidgePolynomial, Source
from mlpoly.records import arrays_of, replace
from mlpoly.units import Gate, Series, Units

__all__ = ["share_polynomials", "share_quality"]


def share_polynomials(
    found: Mapping[str, Polynomial], blocks: Sequence[Block], fitter: Fitter
) -> dict[str, Polynomial]:
    """The polynomials of all blocks, in their order, from those that each process has fitted."""
    sent: dict[str, Any] = {}
    for name, poly in found.items():
        arrays = {key.removeprefix("inner."): a for key, a in arrays_of(replace(poly, inputs=None)).items()}
        # What is not the network's own: all but directions, readout and biases.
        own = [key for key in arrays if key.split(".")[-1] not in ("directions", "readout", "bias")]
        sent |= {f"{name}/{key}": arrays[key] for key in own}
    sources = exchange({name: asdict(poly.source) for name, poly in found.items()})
    merged: dict[str, Polynomial] = dict(found)
    for named, arrays in zip(sources, exchange_tensors(sent), strict=True):
        for block in (b for b in blocks if b.name in named and b.name not in merged):
            source = Source(**named[block.name])
            merged[block.name] = _receive(block, source, _under(arrays, f"{block.name}/"), fitter)
    return {block.name: merged[block.name] for block in blocks}


def share_quality(found: Mapping[str, Quality], blocks: Sequence[Block]) -> dict[str, Quality]:
    """How well the polynomials of all blocks do, from what each process knows of its own."""
    told = {name: q for part in exchange({n: asdict(q) for n, q in found.items()}) for name, q in part.items()}
    return {block.name: Quality(**told[block.name]) for block in blocks}


def _under(arrays: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in arrays.items() if name.startswith(prefix)}


def _receive(block: Block, source: Source, sent: dict[str, Tensor], fitter: Fitter) -> Any:
    net = block.net()
    arrays = {name: tensor.to(net.prototype.device) for name, tensor in sent.items()}
    forms, gate = net.forms, _under(arrays, "units.gate.")
    second = Gate(forms.gate_directions, gate["shifts"], gate["slopes"], forms.gate_bias) if gate else None
    units = Units(forms.directions, arrays["units.shifts"], arrays["units.scales"], forms.bias, second)
    series = Series(arrays["series.plain"], arrays.get("series.gated"))
    inner = RidgePolynomial(units, series, net.readout, net.bias, net.activation, source=source)
    inputs = fitter.inputs(block.name, net.prototype)
    if "bounds" not in arrays:
        return replace(inner, inputs=inputs)
    return BoundedPolynomial(inner, arrays["bounds"], arrays["slopes"], arrays.get("gate_slopes"), inputs, source)
