"""The feedforward blocks of a whole model, by name, with the modules whose hooks see their inputs and outputs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

import mlpoly.importers.torch  # noqa: F401 -- registers the adapters
from mlpoly.importers.adapters import find_adapter
from mlpoly.importers.advice import check_visible, is_mixture, register
from mlpoly.importers.experts import experts_of, is_expert, is_stacked
from mlpoly.importers.probe import unwrapped
from mlpoly.importers.torch_modules import convert
from mlpoly.networks import Layer, check_layer
from mlpoly.records import map_arrays

# What was read from each module, and which weights it had then: the conversion tests the module on random inputs.
_read: WeakKeyDictionary[nn.Module, tuple[Any, Layer]] = WeakKeyDictionary()


@dataclass(frozen=True, repr=False)
class Block:
    """One feedforward block of a model.

    Forward hooks on `entry` and `exit` see its inputs and outputs; a hook that keeps a tensor should copy it, because
    some models later add to it in place (Falcon).

    Attributes
    ----------
    name : str
        Name of `module` in the model: "model.layers.0.mlp". For an expert of a mixture "model.layers.0.mlp.experts.5",
        also where the model has no such module; `mlpoly.lm` then runs the model with one.
    entry, exit, module : nn.Module
        Modules whose first positional input is the block's input (..., d), and whose output is its output (..., o):
        `module` twice, or two inside it if the block is a part of a layer, as in BERT.
    """

    name: str
    entry: nn.Module
    exit: nn.Module
    module: nn.Module

    def net(self, dtype: torch.dtype | None = None) -> Layer:
        """The block's weights as a network that `mlpoly.fit` takes, detached from autograd.

        By default in the module's own dtype, without a copy; but in float32, and a copy, for 16-bit weights.
        """
        module = self.module
        try:
            state = [(w.data_ptr(), w._version, w.shape, w.dtype) for w in (*module.parameters(), *module.buffers())]
        except (RuntimeError, NotImplementedError):  # weights that cannot be told apart: inside torch.func, for one
            state = None
        if state is None or any(w.is_meta for w in module.parameters()):
            net = check_layer(convert(unwrapped(module), part=True))
        else:
            if module not in _read or _read[module][0] != state:
                _read[module] = state, check_layer(convert(unwrapped(module), part=True))
            net = _read[module][1]
        wide = torch.promote_types(net.prototype.dtype, torch.float32) if dtype is None else dtype
        return map_arrays(net, lambda weight: weight.detach().to(wide))

    def __repr__(self) -> str:
        return f"Block({self.name!r}, {type(self.module).__name__})"


def find_blocks(model: nn.Module, blocks: str | Sequence[str] | None = None) -> list[Block]:
    """Find the feedforward blocks of a model that `from_torch` knows, in the order of the model.

    Each expert of a mixture is a block, also where transformers keeps all of them in one module (Mixtral, Qwen, OLMoE,
    DeepSeek), but not those that clamp their gates (gpt-oss) or scale their inputs (Llama 4).

    Parameters
    ----------
    model : torch.nn.Module
        A model of Hugging Face transformers, or your own.
    blocks : str or sequence of str, optional
        Names or patterns as in a shell: ``model.layers.*.mlp``, ``*.layers.[0-3].mlp``. Leading parts of the names may
        be left out: ``layers.*.mlp``. All blocks by default. What matches none of them may match other modules, if
        `from_torch` makes a network of one hidden layer of each.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.importers import find_blocks
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    >>> model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.ModuleDict({"mlp": mlp})])})
    >>> find_blocks(model)
    [Block('layers.0.mlp', Sequential)]
    >>> find_blocks(model, "0.mlp")[0].net()
    MLP(3 -> 8 -> 3, gelu)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    check_visible(model)
    found: list[Block] = []
    inside: str | None = None  # prefix of names within the last block, whose parts are not blocks again
    for path, module in model.named_modules():  # a module used several times comes once
        *outer, last = path.split(".")
        # What torch.compile wrapped is looked at as the wrapper.
        within = inside is not None and path.startswith(inside)
        if within or last == "_orig_mod" or isinstance(module, torch.jit.ScriptModule):
            continue
        name = ".".join(part for part in (*outer, last) if part != "_orig_mod")
        original = unwrapped(module) if "_orig_mod" in module._modules else module
        if is_stacked(original):
            found += [Block(f"{name}.{e.number}".lstrip("."), e, e, e) for e in experts_of(original)]
            continue
        adapter = find_adapter(original)
        if adapter is None or not adapter.listed:
            continue
        if not adapter.entry:
            inside = f"{path}." if path else ""
        entry, exit = (original.get_submodule(end) if end else module for end in (adapter.entry, adapter.exit))
        found.append(Block(name, entry, exit, module))
    if not found and blocks is None:
        classes = Counter(type(module).__name__ for module in model.modules())
        raise TypeError(
            f"find_blocks found no feedforward block that it knows in {type(model).__name__}."
            f"{_mixture_note(model, '*', found)} The model has modules of the classes {', '.join(classes)}. "
            f"{register('TheBlocksClass')}"
        )
    if blocks is None:
        return found
    patterns = [blocks] if isinstance(blocks, str) or not isinstance(blocks, Sequence) else list(blocks)
    if not patterns:
        raise ValueError("blocks is empty; pass None for all blocks, or a pattern such as 'layers.*.mlp'.")
    for pattern in patterns:
        if any(_fits(block.name, pattern) for block in found):
            continue
        chosen, reason = [Block(n, m, m, m) for n, m in model.named_modules() if n and _fits(n, pattern)], ""
        try:
            for block in chosen:
                block.net()
        except TypeError as error:
            chosen, reason = [], f" {error}"
        if not chosen:
            raise ValueError(
                f"blocks={pattern!r} matches no feedforward block of {type(model).__name__}."
                f"{_mixture_note(model, pattern, found)} Its blocks ({len(found)}) are "
                f"{listed([b.name for b in found])}.{reason}"
            )
        found += chosen
    return [block for block in found if any(_fits(block.name, pattern) for pattern in patterns)]


def listed(names: Sequence[str]) -> str:
    """Return names for an error message, those in the middle left out if there are many."""
    return ", ".join(names if len(names) <= 12 else [*names[:6], "...", *names[-6:]])


def _fits(name: str, pattern: str) -> bool:
    if not isinstance(pattern, str):
        raise TypeError(f"blocks must be a pattern such as 'layers.*.mlp', or several, got {type(pattern).__name__}.")
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")


def _mixture_note(model: nn.Module, pattern: str, blocks: Sequence[Block]) -> str:
    mixtures = (name for name, module in model.named_modules() if is_mixture(module) and not is_expert(name))
    name = next((name for name in mixtures if _fits(name, pattern)), None)
    if name is None:
        return ""
    known = any(block.name.startswith(f"{name}.") for block in blocks)
    advice = f"choose them with {name + '.*'!r}" if known else "its experts are of a kind that is not known"
    return f" {name!r} is a mixture of experts, several blocks behind a router; {advice}."
