"""What to say of ONNX graphs that `from_onnx` does not take."""

from __future__ import annotations

from typing import Any

CUT = (
    "onnx.utils.extract_model(path, 'part.onnx', [input], [output]) cuts out the part between two values of the graph; "
    "from_onnx(model, output=...) stops at a value."
)
_NOT_FULL = "it is not fully connected; take the part behind it"
_NORM = "it divides by the size of its own input, so it is neither affine nor an activation of single units"
_STATE = "it has a state; only feedforward networks can be converted"
_QUANTISED = "it is quantised; export the model without quantisation"
REASONS = {
    **dict.fromkeys(["Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "LpPool"], _NOT_FULL),
    **dict.fromkeys(["LayerNormalization", "InstanceNormalization", "RMSNormalization", "LpNormalization"], _NORM),
    **dict.fromkeys(["RNN", "LSTM", "GRU"], _STATE),
    **dict.fromkeys(["QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearMatMul"], _QUANTISED),
    "BatchNormalization": "it is not of rows of numbers",
    "Transpose": "rows of data must stay rows",
    "Gather": "it picks values by index; convert what follows it",
}


def where(node: Any) -> str:
    """Name of a node in messages."""
    return f"{node.op_type} (node {node.name or node.output[0]!r})"


def refusal(node: Any, reason: str) -> TypeError:
    """The error for a node that cannot be taken."""
    return TypeError(f"from_onnx cannot take the {where(node)}: {reason}. {CUT}")


def shortened(error: Exception) -> str:
    """An error's message on one line."""
    said = " ".join(str(error).split())
    return said if len(said) <= 200 else f"{said[:197]}..."
