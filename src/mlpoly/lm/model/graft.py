"""Polynomials, or other modules, in place of a model's blocks for a while."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.importers import find_blocks
from mlpoly.importers.blocks import Block, listed
from mlpoly.importers.experts import unrolled
from mlpoly.importers.torch import PolynomialModule
from mlpoly.lm.model.running import hooked
from mlpoly.polynomials import Polynomial

_MARK = "_mlpoly_grafts"  # how many grafts a module stands in


@contextmanager
def graft(model: nn.Module, polys: Any) -> Iterator[nn.Module]:
    """Run a model with polynomials in place of some of its blocks; afterwards it is as it was, whatever happens.

    A block that is a module of its own is not computed meanwhile; where it is a part of a larger module (OPT, BERT),
    its linear maps still run. An expert of a mixture is replaced for the tokens that the router gives it. Grafts can be
    nested; the inner one wins.

    Parameters
    ----------
    model : nn.Module
    polys : Conversion, or mapping of str to Polynomial or nn.Module
        Replacement of each block, by the names that `mlpoly.importers.find_blocks` gives. A module must take the
        block's inputs (..., d) and return outputs (..., o).

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.lm import graft
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp)
    >>> poly = mp.fit(mp.from_torch(mlp), mp.Gaussian.standard(4), degree=3)
    >>> with graft(model, {"1": poly}):
    ...     print(type(model[1]).__name__)
    PolynomialModule
    """
    modules = as_modules(polys)
    with replaced(model, replacements(standing(model, modules), modules)):
        yield model


def standing(model: nn.Module, names: Iterable[str]) -> dict[str, Block]:
    """Blocks of a model by name, those of some names among them; some may be modules of an outer graft."""
    names, blocks = list(names), grafted(model)
    if not set(names) <= set(blocks):
        blocks |= {block.name: block for block in find_blocks(model)}
    unknown = [name for name in names if name not in blocks]
    if unknown:
        raise ValueError(
            f"polys names {unknown[0]!r}, which the model does not have; its blocks are {listed(list(blocks))}."
        )
    return blocks


def replacements(blocks: Mapping[str, Block], modules: Mapping[str, nn.Module]) -> list[tuple[Block, nn.Module]]:
    """Blocks with the modules that are to replace them, on the blocks' devices."""
    pairs = []
    for name, module in modules.items():
        old = blocks[name].module
        there = next((t.device for t in (*old.parameters(), *old.buffers()) if not t.is_meta), None)
        here = {t.device for t in (*module.parameters(), *module.buffers())}
        pairs.append((blocks[name], module.to(there) if there is not None and here - {there} else module))
    return pairs


@contextmanager
def replaced(model: nn.Module, pairs: Sequence[tuple[Block, nn.Module]]) -> Iterator[None]:
    """Run a model with modules in place of blocks, see `replacements`."""
    with ExitStack() as stack:
        stack.enter_context(unrolled(model, [block.module for block, _ in pairs]))
        for block, module in pairs:
            stack.enter_context(_in_place(model, block, module))
        yield


def grafted(model: nn.Module) -> dict[str, Block]:
    """The modules of grafts that stand in the places of blocks now, by the names of the blocks."""
    return {name: Block(name, m, m, m) for name, m in model.named_modules() if getattr(m, _MARK, 0)}


def as_modules(polys: Any) -> dict[str, nn.Module]:
    """Return modules by the names of the blocks that they replace."""
    given = getattr(polys, "polynomials", polys)  # of a Conversion
    if not isinstance(given, Mapping):
        raise TypeError(
            f"polys must be a Conversion, or map names of blocks to polynomials or modules; got {type(polys).__name__}."
        )
    for name, value in given.items():
        if not isinstance(value, (Polynomial, nn.Module)):
            raise TypeError(f"polys[{name!r}] must be a polynomial or a torch.nn.Module, got {type(value).__name__}.")
    return {name: PolynomialModule(p) if isinstance(p, Polynomial) else p for name, p in given.items()}


class Constant(nn.Module):
    """The same output (o,) for every input."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return the value (..., o), one for each of x (..., d), in the dtype of x."""
        value: Any = self.value
        # In memory of its own, for models that add to it in place (Falcon).
        return value.to(x.dtype).expand(*x.shape[:-1], -1).clone(memory_format=torch.contiguous_format)


@contextmanager
def _in_place(model: nn.Module, block: Block, module: nn.Module) -> Iterator[None]:
    # Parents, and what they call the block; none if it is the model itself.
    places = [(m, key) for m in model.modules() for key, child in m._modules.items() if child is block.module]
    if not places or not block.entry is block.module is block.exit:
        inputs: list[Tensor] = []

        def remember(x: Tensor) -> None:
            inputs[:] = [x]

        def replacement(x: Tensor | None, output: Any) -> Any:
            if not inputs:
                raise RuntimeError(f"the exit of the block {block.name!r} was run without its entry.")
            return module(inputs.pop())

        # The block computes, and its output is replaced.
        with hooked([(block.entry, remember)], [(block.exit, replacement)]):
            yield
        return
    setattr(module, _MARK, getattr(module, _MARK, 0) + 1)
    try:
        for parent, key in places:
            parent._modules[key] = module
        yield
    finally:
        for parent, key in places:
            parent._modules[key] = block.module
        setattr(module, _MARK, getattr(module, _MARK) - 1)
