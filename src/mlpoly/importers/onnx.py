"""ONNX: chains of affine maps and activations, gated units and residual connections as networks."""

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import onnx
from onnx import inliner

from mlpoly.errors import FileFormatError
from mlpoly.importers.branches import FinalSoftmax
from mlpoly.importers.onnx_graph import Graph
from mlpoly.importers.onnx_nodes import FLOATS, check_value, shortened
from mlpoly.networks import Network


def from_onnx(model: str | PathLike[str] | Any, output: str | None = None, input: str | None = None) -> Network:
    """Return the network of an ONNX model, or of the part between two of its values, in NumPy and in its dtype.

    Nothing of the file is run. Of a transformer this takes the feedforward blocks, between two layer norms.

    Parameters
    ----------
    model : path or onnx.ModelProto
        A chain from one input: Gemm, MatMul, sums and products with constants, BatchNormalization, and activations, as
        one node or as the many that exporters write. Products of two branches become a `GLU`, sums of a value and a
        branch that starts at it a `Residual`. What makes rows of the input (Flatten, Reshape) is passed over. A Softmax
        or LogSoftmax at the end is left out with a warning, and the outputs are the logits. Products of values that are
        rounded to 8 bits as they come (DynamicQuantizeLinear) are taken without this rounding, also with a warning.
    output : str, optional
        Name of the value that the network computes, also one inside the graph. By default the graph's only output of
        floating-point numbers.
    input : str, optional
        Name of the value that is the network's input, also one inside the graph, such as the output of a layer norm.
        By default the graph's input.

    Returns
    -------
    MLP, GLU, Affine, Chain or Residual

    Examples
    --------
    >>> import mlpoly as mp
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model(
    ...     '<ir_version: 8, opset_import: ["" : 17]> agraph (double[N, 2] x) => (double[N, 2] y)'
    ...     '<double[2, 2] W = {1.0, 0.0, 0.0, 1.0}> { h = MatMul (x, W) y = Relu (h) }'
    ... )
    >>> mp.from_onnx(model)  # or mp.from_onnx("model.onnx")
    MLP(2 -> 2 -> 2, relu)
    """
    name = "the model"
    if isinstance(model, (str, PathLike)):
        name = str(model)
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
    proto = inliner.inline_local_functions(model) if model.functions else model
    if output is None:
        floating = [o.name for o in proto.graph.output if o.type.tensor_type.elem_type in FLOATS]
        if len(floating) != 1:
            names = ", ".join(o.name for o in proto.graph.output)
            raise TypeError(
                f"the graph has {len(floating)} outputs of floating-point numbers (all: {names}), but a network has "
                f"one; name it: mlpoly.from_onnx(model, output=...), which may also be a value inside the graph."
            )
        output = floating[0]
    else:
        check_value("output", output, proto.graph)
    graph = Graph(proto, output, input)
    path = graph.path()
    softmax = path[-1] if path and isinstance(path[-1], FinalSoftmax) else None
    net = graph.network(path if softmax is None else path[:-1])
    if softmax is not None:
        warnings.warn(
            f"from_onnx leaves out the {softmax.where} at the end: the network's outputs are the logits that enter it.",
            stacklevel=2,
        )
    if graph.rounded:
        warnings.warn(
            f"{', '.join(graph.rounded)} of the model rounds to 8 bits what it is given; the network does not. Its "
            f"weights are those that the model stores.",
            stacklevel=2,
        )
    return net
