"""Follow the data through the graph of an ONNX model, from its input to a value, piece by piece."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mlpoly.importers.branches import PAIRS, Branch, Branches, FinalSoftmax
from mlpoly.importers.onnx_nodes import (
    CUT,
    DOMAINS,
    FLOATS,
    FOLDED,
    REASONS,
    array_of,
    attributes_of,
    check_value,
    in_pairs,
    refusal,
    row_of,
    shortened,
    where,
    widened,
)
from mlpoly.importers.scalar_functions import elementwise
from mlpoly.networks import Affine, Network
from mlpoly.networks.assemble import Slopes

_NUMPY = (np.float16, np.float32, np.float64)


@dataclass
class Graph(Branches):
    """The nodes that a value depends on, in order, and what is known of their values."""

    model: Any
    output: str
    begin: str | None = None  # the value that is the input of the network, the graph's if None
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    paths: dict[str, Branch] = field(default_factory=dict)
    sizes: set[str] = field(default_factory=set)  # values that are computed from shapes alone
    rounded: list[str] = field(default_factory=list)  # nodes that quantise what they are given, which is passed over

    def __post_init__(self) -> None:
        graph = self.model.graph
        needed, self.nodes = {self.output}, list[Any]()
        for node in reversed([single for whole in graph.node for single in in_pairs(whole)]):
            if needed & set(node.output) and self.begin not in node.output:
                self.nodes.insert(0, node)
                needed |= set(node.input)
        for tensor in graph.initializer:
            if tensor.name in needed:
                self.constants[tensor.name] = array_of(tensor)
        stored = [helper.get_attribute_value(a) for n in self.nodes if n.op_type == "Constant" for a in n.attribute]
        arrays = [*self.constants.values(), *(array_of(a) for a in stored if isinstance(a, onnx.TensorProto))]
        weights = [a.dtype for a in arrays if a.dtype.kind == "f" and a.ndim > 1]
        inputs = [i for i in graph.input if i.name in needed and i.name not in self.constants]
        if self.begin is not None and self.begin not in [i.name for i in inputs]:
            check_value("input", self.begin, graph)
            known = {value.name: value for value in graph.value_info}
            inputs.append(known.get(self.begin) or helper.make_tensor_value_info(self.begin, FLOATS[0], None))
        if len(inputs) != 1:
            names = ", ".join(i.name for i in inputs) or "none"
            raise TypeError(
                f"{self.output!r} depends on {len(inputs)} inputs of the graph ({names}), but a network has one; {CUT}"
            )
        self.input = inputs[0]
        elements = helper.tensor_dtype_to_np_dtype(self.input.type.tensor_type.elem_type)
        self.dtype = np.result_type(*(weights or [elements if elements in _NUMPY else np.dtype(np.float32)]))
        self.like, dims = np.zeros(1, self.dtype), self.input.type.tensor_type.shape.dim
        self.inputs = dims[1].dim_value or None if len(dims) == 2 else None
        self.paths[self.input.name] = ()
        self.rows = len(dims) in (0, 2)  # whether values are rows of numbers by now

    def path(self) -> Branch:
        """The pieces from the input to the output."""
        for node in self.nodes:
            given = [name for name in node.input if name]
            for name in given:
                if not (name in self.constants or name in self.paths or name in self.sizes):
                    raise refusal(node, f"{name!r} is not the first output of a node before it")
            if node.domain not in DOMAINS:
                raise refusal(node, f"it is an operation of {node.domain!r}, not of ONNX itself")
            if any(a.HasField("g") or a.graphs for a in node.attribute):
                raise refusal(node, "it has graphs of its own, which are not followed; export without control flow")
            if all(name in self.constants for name in given):
                self._compute(node)
            elif node.op_type in ("Shape", "Size") or all(n in self.sizes or n in self.constants for n in given):
                self.sizes |= set(node.output)
            elif node.op_type in ("Split", "Slice") and node.input[0] in self.paths:
                for name, columns in zip(node.output, self._columns(node), strict=True):
                    self.paths[name] = self.part(node, self.paths[node.input[0]], columns)
            else:
                self.paths[node.output[0]] = self._follow(node)
        if self.output not in self.paths:
            raise TypeError(f"{self.output!r} does not depend on the values of the input; it is a constant.")
        return self.paths[self.output]

    def _columns(self, node: Any) -> list[slice]:
        """The units that a node which divides a value takes."""
        attributes, size = attributes_of(node, self.model.opset_import), self.size(self.paths[node.input[0]])
        numbers = [self.constants[n].tolist() if n in self.constants else None for n in node.input[1:]]
        if node.op_type == "Slice":
            names = ("starts", "ends", "axes", "steps")
            given = [numbers[i] if i < len(numbers) else attributes.get(name) for i, name in enumerate(names)]
            if given[2] in ([-1], [1]) and (given[3] or [1]) == [1] and given[0] and given[1] and size is not None:
                return [slice(*slice(given[0][0], given[1][0]).indices(size))]
        elif attributes["axis"] in (-1, 1) and size is not None:
            count = len(node.output)
            sizes = (numbers[0] if numbers else attributes.get("split")) or [-(-size // count)] * count
            ends = np.minimum(np.cumsum(sizes), size)
            return [slice(int(end - length), int(end)) for end, length in zip(ends, np.diff([0, *ends]), strict=True)]
        raise refusal(node, "it does not divide the units of a layer")

    def _compute(self, node: Any) -> None:
        """Constants of a node whose inputs are constants: a transposed weight, a number."""
        if node.op_type not in FOLDED:
            raise refusal(node, "it is not among the operations on constants that are computed")
        named = helper.make_empty_tensor_value_info
        graph = helper.make_graph([node], "node", [named(n) for n in node.input if n], [named(n) for n in node.output])
        model = helper.make_model(graph, opset_imports=self.model.opset_import)
        try:
            values = ReferenceEvaluator(model).run(None, {n: self.constants[n] for n in node.input if n})
        except Exception as error:
            raise refusal(node, f"its constants could not be computed ({shortened(error)})") from error
        self.constants |= {n: widened(np.asarray(v)) for n, v in zip(node.output, values, strict=True) if n}

    def _follow(self, node: Any) -> Branch:
        """The pieces to the first output of a node, of which an input depends on the graph's input."""
        op = node.op_type
        attributes = attributes_of(node, self.model.opset_import)
        operands = list(node.input)
        if op in PAIRS and len(operands) == 2 and all(name in self.paths for name in operands):
            return self.joined(node, op, self.paths[operands[0]], self.paths[operands[1]])
        if op == "Concat" and attributes["axis"] in (-1, 1) and all(name in self.paths for name in operands):
            return self.beside(node, [self.paths[name] for name in operands])
        data = [name for name in operands if name in self.paths]
        lost = [name for name in operands if name in self.sizes]
        if len(data) != 1:
            raise refusal(node, "it combines several values that depend on the input")
        if lost and op != "Reshape":
            raise refusal(node, f"it uses {lost[0]!r}, which is computed from the shape of a value")
        before, constant = self.paths[data[0]], partial(self._constant, node)
        if op in ("Identity", "Dropout"):
            return before
        if op == "DynamicQuantizeLinear":  # x is about scale (q - zero): the numbers themselves, with a scale of 1
            self.rounded.append(where(node))
            self.constants |= {node.output[1]: np.float32(1), node.output[2]: np.uint8(0)}
            return before
        if op == "Cast" and attributes["to"] in FLOATS:
            return before
        if op in ("Flatten", "Reshape", "Squeeze"):
            self._check_rows(node, attributes, before)
            self.rows = True
            return before
        if op in ("Softmax", "LogSoftmax"):
            if attributes["axis"] != -1 and not (attributes["axis"] == 1 and self.rows):
                raise refusal(node, "it is not over the outputs")
            return (*before, FinalSoftmax(where(node)))
        if op == "Gemm":
            if attributes["transA"] or data[0] != operands[0]:
                raise refusal(node, "its first factor is not rows of data")
            W = constant(1, 2) * self.dtype.type(attributes["alpha"])
            bias = row_of(node, constant(2)) * attributes["beta"] if len(operands) > 2 and operands[2] else None
            W = W if attributes["transB"] else W.T
            if bias is not None and bias.size not in (1, len(W)):
                raise refusal(node, f"its bias has {bias.size} entries for {len(W)} outputs")
            b = None if bias is None else np.broadcast_to(bias, W.shape[:1]).astype(self.dtype)
            return (*before, self._affine(node, W, b))
        if op in ("MatMul", "MatMulInteger"):
            if data[0] != operands[0]:
                raise refusal(node, "its first factor is not rows of data")
            W = constant(1)
            if op == "MatMulInteger":
                W = W.astype(self.dtype) - (constant(3) if len(operands) > 3 else 0)
            return (*before, self._affine(node, (W[:, None] if W.ndim == 1 else W).T, None))
        if op == "BatchNormalization" and self.rows:
            if attributes.get("training_mode"):
                raise refusal(node, "it is in training mode; export the model in evaluation mode")
            scale, shift, mean, variance = (constant(i, 1).astype(np.float64) for i in range(1, 5))
            scale = scale / np.sqrt(variance + attributes["epsilon"])
            return (*before, self.scaling(node, scale, shift - scale * mean))
        if op == "Scaler":  # of ai.onnx.ml, which converters of scikit-learn write
            scale, offset = (np.asarray(attributes[name], np.float64) for name in ("scale", "offset"))
            return (*before, self.scaling(node, scale, -scale * offset))
        if op in ("Add", "Sub", "Mul", "Div", "Sum"):
            c = row_of(node, constant(1 - operands.index(data[0])))
            return (*before, self.with_constant(node, op, c, data[0] == operands[0]))
        if op == "PRelu" and (slopes := row_of(node, constant(1))).size > 1:
            return (*before, Slopes(slopes.astype(self.dtype)))
        functions = elementwise(*self._numbers(node, attributes), where(node))
        if functions is None:
            raise refusal(node, REASONS.get(op, "it is not among the operations that from_onnx takes"))
        return (*before, *functions)

    def _constant(self, node: Any, i: int, ndim: int | None = None) -> np.ndarray:
        """The constant input of a node of this number."""
        a = self.constants.get(node.input[i])
        if a is None:
            raise refusal(node, f"{node.input[i]!r} depends on the input, but has to be a constant")
        if a.dtype.kind not in "fiu":
            raise refusal(node, f"{node.input[i]!r} holds {a.dtype}")
        if ndim is not None and a.ndim != ndim:
            raise refusal(node, f"{node.input[i]!r} has shape {a.shape}")
        return a

    def _affine(self, node: Any, W: np.ndarray, b: np.ndarray | None) -> Affine:
        if W.ndim != 2:
            raise refusal(node, f"its weight has {W.ndim} dimensions")
        if W.dtype.kind != "f":
            raise refusal(node, f"its weight holds {W.dtype}; export the model without quantisation")
        return Affine(W, b)

    def network(self, path: Sequence[Any], size: int | None = None) -> Network:
        """The network that computes pieces one after the other, in the dtype of the graph."""
        return super().network([p.to(self.like) if isinstance(p, Network) else p for p in path], size)

    def where(self, node: Any) -> str:
        """Name of a node in messages."""
        return where(node)

    def refusal(self, node: Any, reason: str) -> TypeError:
        """The error for a node that cannot be taken."""
        return refusal(node, reason)

    def _numbers(self, node: Any, attributes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Operation and numbers for `elementwise`; a maximum or minimum with a number is a Clip."""
        op, numbers = node.op_type, dict[str, Any]()
        for name, value in attributes.items():
            if isinstance(value, float):
                # Attributes are float32: in networks of that precision 0.1 is the number meant, and reads better.
                numbers[name] = value if self.dtype == np.float64 else float(str(np.float32(value)))
            else:
                numbers[name] = value.decode() if isinstance(value, bytes) else value
        names = {"Clip": ("", "min", "max"), "Pow": ("", "exponent"), "PRelu": ("", "alpha")}.get(op, ())
        if op in ("Max", "Min") and len(node.input) == 2:
            names = ("min" if op == "Max" else "max",) * 2
            op = "Clip"
        for name, given in zip(names, node.input, strict=False):
            if given in self.constants and self.constants[given].size == 1:
                numbers[name] = float(self.constants[given].reshape(()))
            elif name and given and given not in self.paths:
                raise refusal(node, f"{given!r} is not a single number")
        return ("LeakyRelu" if op == "PRelu" else op), numbers

    def _check_rows(self, node: Any, attributes: dict[str, Any], before: Branch) -> None:
        """Raise unless a change of shape leaves rows as they are, or makes rows of what was of another shape."""
        op, size = node.op_type, self.size(before)
        if op == "Flatten":
            fine = attributes["axis"] == 1
        elif op == "Squeeze":
            axes = self.constants.get(node.input[1]) if len(node.input) > 1 else attributes.get("axes")
            fine = size == 1 and axes is not None and list(np.asarray(axes)) in ([1], [-1])
        else:
            if node.input[1] in self.sizes:  # computed from the number of rows
                inferred = onnx.shape_inference.infer_shapes(self.model).graph
                shapes = {v.name: v.type.tensor_type.shape.dim for v in (*inferred.value_info, *inferred.output)}
                fine, last = len(shapes.get(node.output[0], ())) == 2, -1
            else:
                shape = [int(n) for n in self.constants[node.input[1]]]
                fine, last = len(shape) == 2, shape[-1] if shape else 0
            dims = [d.dim_value for d in self.input.type.tensor_type.shape.dim[1:]]
            known = size or (int(np.prod(dims)) if all(dims) else None)
            fine = fine and (last == -1 or last == known or (known is None and last > 0))
        if not fine:
            raise refusal(node, "it mixes the rows of a batch, or does not end with one row of numbers per input")
