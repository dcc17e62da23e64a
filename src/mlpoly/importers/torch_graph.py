"""Follow the data through the forward of a torch module, as torch.fx traces it, from its input to its output."""

import inspect
import linecache
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional

from mlpoly.arrays import eye
from mlpoly.importers.adapters import has_own_adapter, matching_adapters
from mlpoly.importers.advice import NORM, reason_of
from mlpoly.importers.branches import Branch, Branches, FinalSoftmax
from mlpoly.importers.parts import batch_scaling, does_nothing, kind_of, linear_weights
from mlpoly.importers.probe import evaluated, is_plain, unwrapped
from mlpoly.importers.scalar_functions import Elementwise, composed, elementwise
from mlpoly.importers.torch_activations import activation_from_torch
from mlpoly.networks import GLU, Affine, Chain, Network
from mlpoly.networks.assemble import Slopes

_TORCH = os.path.dirname(torch.__file__)
Convert = Callable[[nn.Module], Network]


class TraceError(TypeError):
    """A forward that cannot be followed, or does what no network does."""


class _Sizes:
    """A value that is computed from shapes alone."""


@dataclass(frozen=True)
class _Flow:
    """A value that depends on the input, and the pieces that lead to it."""

    branch: Branch


class _Tracer(fx.Tracer):
    """Follows forward into classes, but for those of torch and those with an adapter."""

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """A node that knows its line of the caller's code; torch's own record of it imports its compiler."""
        node, frame = super().create_node(*args, **kwargs), inspect.currentframe()
        while frame is not None and (frame.f_code.co_name != "forward" or frame.f_code.co_filename.startswith(_TORCH)):
            frame = frame.f_back
        if frame is not None:
            code = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            node.meta["line"] = f"line {frame.f_lineno}, {code.strip()!r},"
        return node

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """The parts of a value that is divided into so many."""
        count = next((a for a in obj.node.args[1:] if isinstance(a, int)), 0) if _name(obj.node) == "chunk" else 0
        return (operator.getitem(obj, i) for i in range(count)) if count else super().iter(obj)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """A decision that depends on the input, which no network makes."""
        raise TraceError(f"{obj.node.meta.get('line', _name(obj.node))} decides by a value or a size of its input")

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if is_plain(m, nn.Sequential):
            return has_own_adapter(m)
        torchs_own = type(m).__module__.startswith("torch.nn.modules") or isinstance(m, torch.jit.ScriptModule)
        listed = any(adapter.listed or adapter.own for adapter in matching_adapters(m))
        return torchs_own or listed or kind_of(m) not in ("network", "unknown")


class Forward(Branches):
    """The forward of a module in evaluation mode, traced; `convert` makes networks of modules with an adapter."""

    def __init__(self, module: nn.Module, convert: Convert) -> None:
        self.name, self.convert = type(module).__name__, convert
        weights = [p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()]
        if not weights:
            raise TypeError(f"{self.name} has no weights, such as those of a Linear, which a network needs.")
        weight = max(weights, key=lambda p: p.ndim)  # not the statistics of a batch norm, which may be wider
        self.like = torch.zeros(1, dtype=weight.dtype, device=weight.device)
        self.original, self.module = unwrapped(module), evaluated(module)
        try:
            parameters = list(inspect.signature(self.module.forward).parameters.values())[1:]
            defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
            self.graph = _Tracer().trace(self.module, defaults)
        except TraceError as error:
            raise TraceError(f"from_torch cannot follow the forward of {self.name}: {error}.") from None
        except Exception as error:  # the module's own code, on an input without numbers, may raise anything
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
            raise TraceError(f"from_torch cannot follow the forward of {self.name} ({said}).") from error

    def where(self, node: Any) -> str:
        """Name of a node in messages, with its line of code."""
        if not isinstance(node, fx.Node):
            return str(node.where)
        return f"{_name(node)!r} in {node.meta['line']}" if "line" in node.meta else repr(_name(node))

    def refusal(self, node: Any, reason: str) -> TypeError:
        """The error for a node that cannot be taken."""
        return TraceError(f"from_torch cannot take {self.where(node)} of {self.name}: {reason.rstrip('.')}.")

    def path(self) -> Branch:
        """The pieces from the input to the output."""
        values: dict[fx.Node, Any] = {}
        # What has a default, as a mask has, was replaced by it.
        inputs = [node for node in self.graph.nodes if node.op == "placeholder" and node.users and not node.args]
        for node in self.graph.nodes:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.op == "placeholder":
                values[node] = _Flow(()) if node in inputs else next(iter(args), None)
            elif node.op == "get_attr":
                values[node] = operator.attrgetter(node.target)(self.module)
            elif node.op == "output":
                break
            else:
                values[node] = self._value(node, args, kwargs)
        if len(inputs) != 1:
            names = ", ".join(str(node.target) for node in inputs) or "none"
            raise TraceError(f"the forward of {self.name} takes {len(inputs)} inputs ({names}), but a network has one.")
        if not isinstance(args[0], _Flow):
            kind = type(args[0]).__name__.removeprefix("immutable_")
            raise TraceError(f"the forward of {self.name} returns a {kind}, not one tensor that depends on its input.")
        return args[0].branch

    def _value(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What a node computes: a flow or several, a constant, or sizes."""
        given = _leaves((args, kwargs))
        flows = [a for a in given if isinstance(a, _Flow)]
        module = self.module.get_submodule(str(node.target)) if node.op == "call_module" else None
        if not flows:
            return _Sizes() if any(isinstance(a, _Sizes) for a in given) else _call(node, module)(*args, **kwargs)
        name, before = _name(node), flows[0].branch
        if name in ("size", "dim", "numel") or (name == "getattr" and args[1] in ("shape", "ndim", "dtype", "device")):
            return _Sizes()
        if name == "getitem" and not isinstance(args[0], _Flow):
            return args[0][args[1]]
        if name == "getitem" and _is_part(args[1]) and any(isinstance(p, Affine) for p in before):
            column = args[1][1]
            end = (column + 1) or None if isinstance(column, int) else None
            try:
                return _Flow(self.part(node, before, slice(column, end) if isinstance(column, int) else column))
            except TraceError:  # not of an affine map: a map of its own
                pass
        if name in ("cat", "concat", "concatenate"):
            return _Flow(self._beside(node, args, kwargs))
        if module is not None:
            return _Flow((*before, *self._module(node, module, flows)))
        if name in ("chunk", "split", "tensor_split", "glu"):
            return self._parts(node, name, before, args, kwargs)
        if (piece := self._linear(node, name, args, kwargs)) is not None:
            return _Flow((*before, *piece))
        if name in _ROWS:
            self._check_rows(node, name, tuple(kwargs.values()) or args[1:], before)
            return flows[0]
        if name in ("softmax", "log_softmax"):
            if (kwargs.get("dim", args[1] if len(args) > 1 else None)) not in (-1, 1):
                raise self.refusal(node, "it is not over the outputs")
            return _Flow((*before, FinalSoftmax(self.where(node), getattr(functional, name))))
        op = _OPERATIONS.get(name, "") if len(args) == 2 and not kwargs else ""
        if op and len(flows) == 1:
            first = isinstance(args[0], _Flow)
            return _Flow((*before, self.with_constant(node, op, self._row(node, args[int(first)]), first)))
        if function := self._function(node, args, kwargs, flows):
            return _Flow(function)
        if op:
            return _Flow(self.joined(node, op, flows[0].branch, flows[1].branch))
        if len(flows) == 1 and (found := self._map(node, args, kwargs, before)):
            return _Flow((*before, found))
        unknown = "" if self.size(before) else ", as far as can be seen before the number of inputs is known"
        raise self.refusal(node, _REASONS.get(name, f"it is neither affine nor a function of single units{unknown}"))

    def _beside(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Branch:
        """The pieces to units of several values, one after the other."""
        dim = next((v for k, v in kwargs.items() if k in ("dim", "axis")), args[1] if len(args) > 1 else 0)
        values = args[0] if args else kwargs["tensors"]
        if dim not in (-1, 1) or not all(isinstance(value, _Flow) for value in values):
            raise self.refusal(node, "it does not put units side by side that depend on the input")
        return self.beside(node, [value.branch for value in values]) if len(values) > 1 else values[0].branch

    def _map(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any], before: Branch) -> Affine | None:
        """The affine map of the units of each row that a node computes, as its values show; None if it is another."""

        def values(x: torch.Tensor) -> torch.Tensor:
            put = fx.node.map_aggregate((args, kwargs), lambda a: x if isinstance(a, _Flow) else a)
            return _call(node)(*put[0], **put[1]).reshape(len(x), -1)

        weights = [a for a in _leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        known = self.size(before)
        for size in [known] if known else sorted({n for a in weights for n in a.shape}):
            one, x = eye(size, self.like), torch.linspace(-3, 2, 5 * size).sin().reshape(5, size).to(self.like)
            try:
                b = values(one[:1] * 0)[0]
                W = (values(one) - b).T
                scale = W.abs().sum(1) + b.abs()
                gap = (values(x) - x @ W.T - b).abs() / scale.where(scale > 0, 1)
                if gap.numel() and bool((gap <= 100 * torch.finfo(x.dtype).eps).all()):
                    return Affine(W, b if bool(b.any()) else None)
            except Exception:  # it may need sizes, another number of rows, or weights that can be read
                continue
        return None

    def _module(self, node: fx.Node, module: nn.Module, flows: Sequence[_Flow]) -> Branch:
        """The pieces of a module that is not followed."""
        if isinstance(module, torch.jit.ScriptModule):
            raise self.refusal(node, reason_of(module))
        if isinstance(module, nn.Bilinear):
            return self._bilinear(node, flows, module.weight, module.bias)
        if len(flows) > 1:
            raise self.refusal(node, reason_of(module) or "it takes several values that depend on the input")
        if does_nothing(module):
            return ()
        kind = kind_of(module)
        if kind == "linear":
            return (Affine(*linear_weights(module, repr(node.target))),)
        if kind == "batch norm":
            return (batch_scaling(module),)
        if kind == "softmax":
            log = isinstance(module, nn.LogSoftmax)
            return (FinalSoftmax(type(module).__name__, functional.log_softmax if log else functional.softmax),)
        if kind == "activation":
            if isinstance(module, nn.PReLU) and module.weight.numel() > 1:
                return (Slopes(module.weight),)
            activation = activation_from_torch(module)
            return (Elementwise(activation.function, self.where(node), activation),)
        if kind == "unknown":
            if not (reason := reason_of(module)) and not any(True for _ in module.parameters()):
                activation_from_torch(module)  # whose message lists the activations that are known
            raise self.refusal(node, reason or "it is neither affine nor an activation of single units")
        own = self.original
        for name in str(node.target).split("."):  # not the copy in evaluation mode, which is not the caller's
            own = unwrapped(own.get_submodule(name))
        net = self.convert(own)
        return tuple(net.layers) if isinstance(net, Chain) else (net,)

    def _linear(self, node: fx.Node, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Branch | None:
        """An affine map that is written as a product, or slopes."""
        if name == "linear":
            return (Affine(*(_bound(functional.linear, args, kwargs)[i] for i in (1, 2))),)
        if name in ("matmul", "mm") and isinstance(args[0], _Flow) and getattr(args[1], "ndim", 0) == 2:
            return (Affine(args[1].T, None),)
        if name == "addmm" and len(args) == 3 and isinstance(args[1], _Flow) and not kwargs:
            return (Affine(args[2].T, args[0]),)
        if name == "bilinear":
            one, two, weight, bias = _bound(functional.bilinear, args, kwargs)
            return self._bilinear(node, [one, two], weight, bias)
        if name == "prelu" and args[1].numel() > 1:
            return (Slopes(args[1]),)
        return None

    def _bilinear(self, node: fx.Node, flows: Sequence[_Flow], weight: Any, bias: Any) -> Branch:
        """The products of all pairs of entries, summed with weights (o, d, d), as a gated layer of o d units."""
        if len(flows) != 2 or flows[0] != flows[1] or weight.shape[1] != weight.shape[2]:
            raise self.refusal(node, "its two inputs are not the same value")
        o, d, _ = weight.shape
        readout = torch.repeat_interleave(eye(o, weight), d, dim=1)
        first = eye(d, weight).repeat(o, 1)
        return (GLU(first, None, weight.reshape(o * d, d), None, readout, bias, "identity"),)

    def _parts(self, node: fx.Node, name: str, before: Branch, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Some units of a value each: what gated units make of one product."""
        size = self.size(before)
        options = dict(zip(("dim",) if name == "glu" else ("count", "dim"), args[1:], strict=False)) | kwargs
        count = 2 if name == "glu" else next((v for k, v in options.items() if k != "dim"), None)
        if size is None or options.get("dim", -1 if name == "glu" else 0) not in (-1, 1):
            raise self.refusal(node, "it does not divide the units of a layer")
        places = getattr(torch, "chunk" if name == "glu" else name)(torch.arange(size), count)
        parts = [_Flow(self.part(node, before, slice(int(p[0]), int(p[-1]) + 1))) for p in places]
        if name != "glu":
            return parts
        gate = (*parts[1].branch, Elementwise(lambda y: 1 / (1 + np.exp(-y)), self.where(node)))
        return _Flow(self.joined(node, "Mul", parts[0].branch, gate))

    def _function(
        self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any], flows: Sequence[_Flow]
    ) -> Branch | None:
        """The pieces to a function of single units, if a node is one: the same for any order and number of them."""
        name, others = _name(node), [a for a in _leaves((args, kwargs)) if not isinstance(a, _Flow)]
        if any(isinstance(a, _Sizes) or (isinstance(a, torch.Tensor) and a.numel() > 1) for a in others):
            return None
        shared = min(len(flow.branch) for flow in flows)
        while any(f.branch[i] is not flows[0].branch[i] for f in flows for i in range(shared)):
            shared -= 1
        common, runs = flows[0].branch[:shared], [f.branch[shared:] for f in flows]
        if not all(isinstance(piece, Elementwise) for run in runs for piece in run):
            return None
        where = self.where(node)
        if name in _MODULES:  # whose parameters have names
            kind, names = _MODULES[name]
            options = {k: v for k, v in (dict(zip(names, args[1:], strict=False)) | kwargs).items() if k != "inplace"}
            known = activation_from_torch(kind(**options))
            return (*flows[0].branch, Elementwise(known.function, where, known))
        if name in ("relu", "clamp", "clip"):
            limits = {
                k: float(v)
                for k, v in (dict(zip(("min", "max"), args[1:], strict=False)) | kwargs).items()
                if v is not None
            }
            return (*flows[0].branch, *(elementwise("Relu" if name == "relu" else "Clip", limits, where) or ()))

        def function(y: np.ndarray) -> np.ndarray:
            values = iter([torch.as_tensor(composed(run)(y)) for run in runs])
            with torch.no_grad():
                put = fx.node.map_aggregate((args, kwargs), lambda a: next(values) if isinstance(a, _Flow) else a)
                return np.asarray(_call(node)(*put[0], **put[1]))

        try:
            y = np.linspace(-3, 3, 17) + 0.003
            order = np.random.default_rng(0).permutation(17)
            separate = np.concatenate([function(y[order[:7]]), function(y[order[7:]])])
            if not np.allclose(separate, function(y)[order], rtol=1e-12, atol=1e-12, equal_nan=True):
                return None
        except Exception:  # it may need rows, or several tensors
            return None
        return (*common, Elementwise(function, where))

    def _row(self, node: fx.Node, constant: Any) -> Any:
        """A constant that is the same for all rows: a number, or (n,)."""
        if not isinstance(constant, torch.Tensor):
            return float(constant)
        if constant.numel() > max(1, constant.shape[-1] if constant.ndim else 1):
            raise self.refusal(node, f"its constant of shape {tuple(constant.shape)} is not one row of numbers")
        return constant.reshape(-1).to(torch.promote_types(constant.dtype, torch.float32))

    def _check_rows(self, node: fx.Node, name: str, shape: Sequence[Any], before: Branch) -> None:
        """Raise unless a change of shape leaves rows as they are, or makes rows of the input."""
        if self.size(before) == 1 and (name == "squeeze" or tuple(shape) == (-1,)):
            fine = shape in ((), (-1,), (1,))
        elif name == "flatten":
            fine = (*shape, -1)[:2] == (1, -1)
        elif name in ("view", "reshape"):
            shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, _Sizes)) else shape
            fine = len(shape) == 2 and (isinstance(shape[1], _Sizes) or shape[1] in (-1, self.size(before)))
        else:
            fine = name != "squeeze"
        if not fine:
            raise self.refusal(node, "it mixes the rows of a batch, or does not end with one row of numbers per input")


def _name(node: fx.Node) -> str:
    """The name of what a node calls, without the mark of what works in place."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return name.rstrip("_") if node.op != "call_module" else name


def _call(node: fx.Node, module: nn.Module | None = None) -> Callable[..., Any]:
    """What a node calls."""
    if module is not None or node.op == "call_function":
        return module or node.target  # type: ignore[return-value]
    return lambda own, *args, **kwargs: getattr(own, str(node.target))(*args, **kwargs)


def _is_part(index: Any) -> bool:
    """Whether an index takes some of the units."""
    pair = isinstance(index, tuple) and len(index) == 2 and index[0] in (Ellipsis, slice(None))
    return pair and isinstance(index[1], (slice, int))


def _leaves(value: Any) -> list[Any]:
    """What is in nested tuples, lists and dictionaries."""
    leaves: list[Any] = []
    fx.node.map_aggregate(value, leaves.append)
    return leaves


def _bound(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The values of all parameters of a function of torch, None for a missing bias."""
    names = {
        functional.linear: ("input", "weight", "bias"),
        functional.bilinear: ("input1", "input2", "weight", "bias"),
    }
    values = dict(zip(names[function], args, strict=False)) | kwargs
    return [values.get(name) for name in names[function]]


# Functions with parameters: the module that computes the same, and the names of its parameters.
_MODULES: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "gelu": (nn.GELU, ("approximate",)),
    "leaky_relu": (nn.LeakyReLU, ("negative_slope",)),
    "elu": (nn.ELU, ("alpha",)),
    "celu": (nn.CELU, ("alpha",)),
    "hardtanh": (nn.Hardtanh, ("min_val", "max_val")),
    "threshold": (nn.Threshold, ("threshold", "value")),
    "softplus": (nn.Softplus, ("beta", "threshold")),
}
# Functions that change nothing in rows of numbers, if they leave them as rows.
_ROWS = {
    *("flatten", "view", "reshape", "contiguous", "clone", "to", "type_as", "float", "double", "half", "bfloat16"),
    *("dropout", "alpha_dropout", "feature_dropout", "detach", "squeeze"),
}
_OPERATIONS = {
    **{"add": "Add", "iadd": "Add", "sub": "Sub", "isub": "Sub", "mul": "Mul", "imul": "Mul", "multiply": "Mul"},
    **{"truediv": "Div", "itruediv": "Div", "div": "Div", "divide": "Div", "subtract": "Sub"},
}
_REASONS = {
    **dict.fromkeys(("layer_norm", "rms_norm", "normalize", "group_norm", "rsqrt", "norm", "var", "std"), NORM),
    "stack": "it puts values side by side along a new axis",
    **dict.fromkeys(("scaled_dot_product_attention", "bmm"), "it mixes the positions of a sequence"),
    **dict.fromkeys(("embedding", "one_hot"), "it takes indices; convert what follows it"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "it is not fully connected"),
}
