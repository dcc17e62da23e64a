"""Feedforward blocks of Hugging Face transformers and of TransformerLens, recognised by the names of their parts.

Names do not show what a module does with its parts: if the module is the block, `probe` checks that.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from mlpoly.activations import get
from mlpoly.errors import UnknownActivationError
from mlpoly.importers.adapters import Adapter
from mlpoly.importers.advice import has_attention
from mlpoly.importers.parts import in_one_dtype, is_softmax, linear_weights
from mlpoly.importers.probe import check_computes, first_computed
from mlpoly.importers.torch_activations import activation_from_torch
from mlpoly.networks import GLU, MLP, Layer

_REMEDY = "Write an adapter for it, see mlpoly.importers.torch.register_adapter."
_ACTIVATIONS = ("act_fn", "act", "activation_fn", "activation", "intermediate_act_fn", "gelu_impl")


@dataclass(frozen=True)
class BlockFamily:
    """Names of the parts of a block in some architectures, `name`.

    A gated unit has two `first` Linears, the gate before the other factor, or one that holds both in this order if
    `fused`. With `residual` the module adds a second tensor that it takes, so that the block ends with its `last` part.
    The parts of a `layer` belong to a transformer layer, beside its attention, and not to a module of their own.
    """

    name: str
    first: tuple[str, ...]
    last: str
    activations: tuple[str, ...] = _ACTIVATIONS
    fused: bool = False
    residual: bool = False
    layer: bool = False

    @property
    def linears(self) -> tuple[str, ...]:
        """All linear parts."""
        return (*self.first, self.last)

    def activation(self, module: nn.Module) -> Any:
        """The activation of a module, or None."""
        parts = (_part(module, path) for path in self.activations)
        return next((part for part in parts if callable(part)), None)

    def matches(self, module: nn.Module) -> bool:
        """Whether a module has these parts, and no others that would change its result."""
        parts, others = [_part(module, path) for path in self.linears], (nn.Sequential, nn.modules.conv._ConvNd)
        # Whether a part is a linear map, `linear_weights` decides, and explains a refusal.
        if not all(isinstance(part, nn.Module) and not isinstance(part, others) for part in parts):
            return False
        if self.activation(module) is None:
            return False
        if self.layer:
            return "." in self.last or has_attention(module)  # names with a dot are unmistakable
        expected = {*self.linears, *self.activations}
        beside = [child for name, child in module.named_children() if name not in expected]
        own = [p for p in module._parameters.values() if p is not None]
        return not own and not any(is_softmax(child) or any(True for _ in child.parameters()) for child in beside)

    def convert(self, module: nn.Module) -> Layer:
        """The network of a module's block."""
        kind = type(module).__name__
        parts = [linear_weights(_part(module, path), f"{path} of {kind}", strict=self.layer) for path in self.linears]
        *first, last = in_one_dtype(parts)
        if self.fused:
            weight, bias = first[0]
            halves = (None, None) if bias is None else bias.chunk(2)
            first = list(zip(weight.chunk(2), halves, strict=True))  # views
        hidden, read = [weight.shape[0] for weight, _ in first], last[0].shape[1]
        if set(hidden) != {read}:
            raise TypeError(f"{kind} {self._unlike}: {hidden[0]} hidden units, of which it reads {read}. {_REMEDY}")
        activation = activation_from_torch(self.activation(module))
        net = GLU(*first[0], *first[1], *last, activation) if len(first) == 2 else MLP(*first[0], *last, activation)
        if not self.layer:
            check_computes(module, net, f"{kind} {self._unlike}", _REMEDY, residual=self.residual)
        return net

    @property
    def _unlike(self) -> str:
        return f"has parts named as in {self.name}, but is not the block that they form there"


def _part(module: nn.Module, path: str) -> Any:
    """The submodule at a dotted path, or None."""
    part: Any = module
    for name in path.split("."):
        part = getattr(part, name, None)
    return part


FAMILIES = (
    BlockFamily("GPT-2, GPT-Neo, StarCoder", ("c_fc",), "c_proj"),
    BlockFamily("GPT-J, CodeGen", ("fc_in",), "fc_out"),
    BlockFamily("GPT-NeoX, Pythia, Falcon", ("dense_h_to_4h",), "dense_4h_to_h", activations=("act",)),
    BlockFamily("BLOOM", ("dense_h_to_4h",), "dense_4h_to_h", activations=("gelu_impl",), residual=True),
    BlockFamily("ViT, CLIP, SigLIP, Phi", ("fc1",), "fc2"),
    BlockFamily("DistilBERT, SAM", ("lin1",), "lin2"),
    BlockFamily("Wav2Vec2, HuBERT", ("intermediate_dense",), "output_dense"),
    BlockFamily("Nemotron, Arcee", ("up_proj",), "down_proj"),
    BlockFamily("T5", ("wi",), "wo"),
    BlockFamily("T5 v1.1, FLAN-T5", ("wi_0", "wi_1"), "wo"),
    BlockFamily("Llama, Mistral, Qwen, SmolLM, Gemma, OLMo", ("gate_proj", "up_proj"), "down_proj"),
    BlockFamily("Phi-3, GLM", ("gate_up_proj",), "down_proj", fused=True),
    BlockFamily("OPT, BART, Whisper layers", ("fc1",), "fc2", layer=True),
    BlockFamily("torch.nn.Transformer layers", ("linear1",), "linear2", layer=True),
    BlockFamily("ALBERT layers", ("ffn",), "ffn_output", layer=True),
    BlockFamily("BERT, RoBERTa, ELECTRA layers", ("intermediate.dense",), "output.dense",
                ("intermediate.intermediate_act_fn",), layer=True),
)  # fmt: skip


_LENS = {"W_in", "b_in", "W_gate", "b_gate", "W_out", "b_out"}


def from_transformer_lens(module: Any) -> Layer:
    """Convert a block of TransformerLens: parameters (inputs, outputs) of the block itself, and the function act_fn."""
    keys = [key for key in ("gate", "in", "out") if getattr(module, f"W_{key}", None) is not None]
    weights = in_one_dtype([(getattr(module, f"W_{key}").T, getattr(module, f"b_{key}", None)) for key in keys])
    try:  # one of TransformerLens, such as gelu_new, by its name, which test inputs confirm
        activation = get(getattr(module.act_fn, "__name__", ""))
    except UnknownActivationError:
        activation = activation_from_torch(module.act_fn)
    if len(weights) == 2:
        candidates: list[Layer] = [MLP(*weights[0], *weights[1], activation)]
    else:
        gate, (W1, b1), (W2, b2) = weights
        # TransformerLens adds b_in to the product of gate and W_in x, where W_out carries it to the outputs.
        moved = None if b1 is None else W2 @ b1
        shift = b2 if moved is None else moved if b2 is None else moved + b2
        candidates = [GLU(*gate, W1, None, W2, shift, activation), GLU(*gate, W1, b1, W2, b2, activation)]
    unlike = f"{type(module).__name__} has parameters named as in TransformerLens, but is not the block they form there"
    net = first_computed(module, candidates, unlike, _REMEDY)
    assert isinstance(net, Layer)
    return net


def _is_lens_block(module: nn.Module) -> bool:
    own = {name: p for name, p in module._parameters.items() if p is not None}
    matrices = [p for name, p in own.items() if name.startswith("W_")]
    inside = any(True for child in module.children() for _ in child.parameters())
    named = {"W_in", "W_out"} <= set(own) <= _LENS
    return named and not inside and all(p.ndim == 2 for p in matrices) and callable(getattr(module, "act_fn", None))


ADAPTERS = (
    Adapter(_is_lens_block, from_transformer_lens),
    *(Adapter(f.matches, f.convert, *((f.first[0], f.last) if f.layer or f.residual else ("", ""))) for f in FAMILIES),
)
