"""ONNX: chains of affine maps and activations, gated units and residual connections as networks."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

from mlpoly.errors import FileFormatError
from mlpoly.extras import explain_missing
from mlpoly.importers.onnx_graph import FLOATS, FinalSoftmax, Graph
from mlpoly.importers.onnx_refusals import shortened
from mlpoly.networks import Network

with explain_missing("from_onnx", "ONNX"):
    import onnx
    from onnx import inliner


def from_onnx(model: Any, output: str | None = None) -> Network:
    """See `mlpoly.from_onnx`."""
    proto = _loaded(model)
    graph = Graph(proto, _chosen_output(proto, output))
    path = graph.path()
    softmax = path[-1] if path and isinstance(path[-1], FinalSoftmax) else None
    net = graph.network(path if softmax is None else path[:-1])
    if softmax is not None:
        warnings.warn(
            f"from_onnx leaves out the {softmax.where} at the end: the network's outputs are the logits that enter it.",
            stacklevel=3,
        )
    return net


def _loaded(model: Any) -> Any:
    """The model with its functions inlined."""
    name = "the model"
    if isinstance(model, (str, PathLike)):
        name = str(Path(model))
        if not Path(model).is_file():
            raise FileNotFoundError(f"no ONNX file {name}.")
        try:
            model = onnx.load(str(model))
        except Exception as error:  # protobuf, missing or outlying files of weights, unknown formats
            raise FileFormatError(f"{name} is not a readable ONNX file ({shortened(error)}).") from error
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"model must be the path of an ONNX file or an onnx.ModelProto, got {type(model).__name__}.")
    if not model.graph.node:
        raise FileFormatError(f"{name} is not a valid ONNX model: it has no nodes; export it again.")
    return inliner.inline_local_functions(model) if model.functions else model


def _chosen_output(model: Any, output: str | None) -> str:
    """Name of the value that the network computes."""
    graph = model.graph
    if output is not None:
        known = [name for node in graph.node for name in node.output]
        if output not in known:
            shown = ", ".join(known[-12:])
            raise ValueError(f"output={output!r} is not a value of the graph; its last values are {shown}.")
        return output
    found = [o.name for o in graph.output if o.type.tensor_type.elem_type in FLOATS]
    if len(found) != 1:
        names = ", ".join(o.name for o in graph.output)
        raise TypeError(
            f"the graph has {len(found)} outputs of floating-point numbers (all: {names}), but a network has one; name "
            f"it: mlpoly.from_onnx(model, output=...), which may also be a value inside the graph."
        )
    return found[0]
