"""Conversion from and to other libraries, which are imported only when they are needed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mlpoly.extras import library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from mlpoly.integrations.blocks import Block
    from mlpoly.networks import Layer

__all__ = ["feedforward_blocks", "find_blocks", "from_torch"]


def from_torch(module: nn.Module) -> Layer:
    """Return the weights of a torch module as a network that `fit` takes.

    Nothing is copied or detached: the network holds the module's own parameters, so results computed from it can be
    differentiated with respect to them, and an optimiser step on the module changes the network.

    Parameters
    ----------
    module : torch.nn.Module
        An ``nn.Sequential`` of Linear, activation, Linear; without the second Linear the hidden units are the outputs.
        Dropout and Identity are ignored: the network is the module in evaluation mode. A class of your own with these
        three parts, under any names, works too if it computes them in this order. Weights that are computed
        (parametrisations, spectral_norm, PReLU's slopes) are taken with their present values.

        A feedforward block of Hugging Face transformers: GPT-2, GPT-NeoX, Llama and its many relatives, Phi, T5, and
        others with the same parts. If the block has no module of its own (OPT, BERT, Whisper), pass the layer: the
        network is its feedforward block alone, without residual connection and normalisation.

        Any other module needs an adapter, see `mlpoly.integrations.torch.register_adapter`.

    Returns
    -------
    MLP or GLU

    Raises
    ------
    TypeError
        For a module without an adapter, or a Sequential of other parts; for quantised weights; for a module that has
        the parts of a known block but computes something else, which a few test inputs reveal (they run the forward
        hooks of a Sequential once). The message says what to do.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> mp.from_torch(module)
    MLP(3 -> 8 -> 2, gelu)
    """
    return _integration("torch", "from_torch").from_torch(module)


def find_blocks(model: nn.Module, blocks: str | Sequence[str] | None = None) -> list[Block]:
    """Find the feedforward blocks of a model that `from_torch` knows, in the order of the model.

    Blocks inside a mixture of experts are left out: they are terms of a sum that a router weights.

    Parameters
    ----------
    model : torch.nn.Module
        A model of Hugging Face transformers, or your own.
    blocks : str or sequence of str, optional
        Names or patterns as in a shell: "model.layers.*.mlp", "*.layers.[0-3].mlp". Leading parts of the names may be
        left out: "layers.*.mlp". All blocks by default.

    Returns
    -------
    list of Block
        Each has a name, the modules `entry` and `exit` to hook, and `net()`, the network that `fit` takes.

    Raises
    ------
    TypeError
        If the model has no known block.
    ValueError
        If a pattern matches none of the blocks; the message lists them.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.integrations import find_blocks
    >>> class Layer(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.mlp = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    >>> model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Layer(), Layer()])})
    >>> find_blocks(model)
    [Block('layers.0.mlp', Sequential), Block('layers.1.mlp', Sequential)]
    >>> find_blocks(model, "1.mlp")[0].net()
    MLP(3 -> 8 -> 3, gelu)
    """
    return _integration("blocks", "find_blocks").find_blocks(model, blocks)


def feedforward_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of `find_blocks` by name, such as "model.layers.0.mlp"; `from_torch` takes each of them."""
    return _integration("blocks", "feedforward_blocks").feedforward_blocks(model)


def _integration(module: str, purpose: str) -> Any:
    library("torch", "PyTorch", purpose)
    return importlib.import_module(f"mlpoly.integrations.{module}")
