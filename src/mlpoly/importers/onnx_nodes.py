"""Nodes and tensors of ONNX, and what to say of those that `from_onnx` does not take."""

from difflib import get_close_matches
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mlpoly.errors import FileFormatError

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
# What exporters leave to compute on constants. No control flow, and nothing that makes large arrays of small ones: a
# file may come from anywhere.
FOLDED = {
    *("Constant", "Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Cast", "CastLike", "Shape"),
    *("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Neg", "Sqrt", "Reciprocal", "Pow", "Exp", "MatMul"),
    *("Concat", "Gather", "Slice", "DequantizeLinear"),
}
CUT = "from_onnx(model, output=..., input=...) takes the part between two values of the graph, given their names."
_NOT_FULL = "it is not fully connected; take the part behind it"
_NORM = "it divides by the size of its own input, so it is neither affine nor an activation of single units"
_SUM = "it runs over the units, as a layer norm or a softmax written out does"
_STATE = "it has a state; only feedforward networks can be converted"
_QUANTISED = "it rounds to a range of its own; export the model without quantisation, or quantise dynamically"
REASONS = {
    **dict.fromkeys(["Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "LpPool"], _NOT_FULL),
    **dict.fromkeys(["LayerNormalization", "InstanceNormalization", "RMSNormalization", "LpNormalization"], _NORM),
    **dict.fromkeys(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"], _SUM),
    **dict.fromkeys(["RNN", "LSTM", "GRU"], _STATE),
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear", "QLinearMatMul", "QGemm"], _QUANTISED),
    "BatchNormalization": "it is not of rows of numbers",
    "Transpose": "rows of data must stay rows",
    "Gather": "it picks values by index; convert what follows it",
}


def where(node: Any) -> str:
    """Name of a node in messages."""
    return f"{node.op_type} (node {node.name or node.output[0]!r})"


def refusal(node: Any, reason: str) -> TypeError:
    """The error for a node, or what is called so, that cannot be taken."""
    name = node.where if hasattr(node, "where") else where(node)
    return TypeError(f"from_onnx cannot take the {name}: {reason}. {CUT}")


def check_value(argument: str, name: str, graph: Any) -> str:
    """Return the name of a value of a graph, or raise."""
    values = [*(given.name for given in graph.input), *(value for node in graph.node for value in node.output)]
    if name not in values:
        close = get_close_matches(name, values, 5, 0.3) or values[-5:]
        raise ValueError(f"{argument}={name!r} is not a value of the graph; such are {', '.join(close)}.")
    return name


def shortened(error: Exception) -> str:
    """An error's message on one line."""
    said = " ".join(str(error).split())
    return said if len(said) <= 200 else f"{said[:197]}..."


def attributes_of(node: Any, opsets: Any) -> dict[str, Any]:
    """Attributes of a node, those with their default included, given the opsets that a model imports."""
    version = next((o.version for o in opsets if o.domain == node.domain), 1)
    try:
        schema = list(onnx.defs.get_schema(node.op_type, version, node.domain).attributes.values())
    except onnx.defs.SchemaError:
        schema = []
    defaults = [a.default_value for a in schema if a.default_value.type]
    return {a.name: helper.get_attribute_value(a) for a in (*defaults, *node.attribute)}


def in_pairs(node: Any) -> list[Any]:
    """A sum, maximum or minimum of any number of values as nodes that combine two, and any other node alone."""
    if node.op_type not in ("Sum", "Max", "Min") or len(node.input) == 2:
        return [node]
    if len(node.input) == 1:
        return [helper.make_node("Identity", node.input, node.output, node.name)]
    first, *others = node.input
    values = [f"{node.output[0]} of {k}" for k in range(2, len(node.input))] + list(node.output)
    return [
        helper.make_node(node.op_type, pair, [value], node.name)
        for pair, value in zip(zip([first, *values], others, strict=False), values, strict=True)
    ]


def array_of(tensor: Any) -> np.ndarray:
    """The numbers of a tensor."""
    try:
        return widened(numpy_helper.to_array(tensor))
    except Exception as error:
        raise FileFormatError(f"the tensor {tensor.name!r} of the model is damaged ({shortened(error)}).") from error


def widened(a: np.ndarray) -> np.ndarray:
    """An array in a dtype of NumPy, which bfloat16 is not."""
    return a if a.dtype.isbuiltin == 1 else a.astype(np.float32)


def row_of(node: Any, a: np.ndarray) -> np.ndarray:
    """A constant that is the same for all rows, (n,) or ()."""
    if a.size == a.shape[-1] if a.ndim else True:
        return a.astype(np.float64).reshape(-1) if a.size > 1 else a.astype(np.float64).reshape(())
    raise refusal(node, f"its constant of shape {a.shape} is not one row of numbers")
