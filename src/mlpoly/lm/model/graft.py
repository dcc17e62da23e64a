"""Putting polynomials, or anything else, in the place of a model's blocks, and the blocks back again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mlpoly.integrations import find_blocks
from mlpoly.integrations.blocks import Block
from mlpoly.integrations.torch import PolynomialModule
from mlpoly.lm.model.hooks import first_tensor
from mlpoly.polynomials import Polynomial

__all__ = ["Constant", "as_modules", "graft"]

_MARK = "_mlpoly_grafts"  # how many grafts a module stands in

# For every place that is grafted on, by parent and name there: the block itself, and what the open grafts put over it.
_layers: WeakKeyDictionary[nn.Module, dict[str, list[list[nn.Module | None]]]] = WeakKeyDictionary()


@contextmanager
def graft(model: nn.Module, polys: Any) -> Iterator[nn.Module]:
    """Run a model with polynomials in place of some of its blocks; afterwards it is as it was, whatever happens.

    The model's weights are not touched. A block that is a module of its own is taken out of the model meanwhile, in
    all places where it stands, and is not computed. Where the block is a part of a layer (OPT, BERT), its linear maps
    still run, and their output is replaced by the polynomial's. Inside a graft another one can be made; it goes over
    the blocks of the outer one. Inside it `find_blocks` sees only the blocks that are left.

    Parameters
    ----------
    model : nn.Module
    polys : Conversion, or mapping of str to Polynomial or nn.Module
        What takes the place of each block, by the names that `mlpoly.integrations.find_blocks` gives. A Conversion
        brings its bound; for one polynomial that is ``poly.bounded(3.0)``. A module must
        take the block's inputs (..., d), and give its outputs (..., o).

    Yields
    ------
    nn.Module
        The model.

    Raises
    ------
    ValueError
        If the model has no block of one of the names; the message lists those that it has.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.lm import graft
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp)
    >>> poly = mp.fit(mp.from_torch(mlp), mp.Gaussian.standard(4), degree=3)
    >>> with graft(model, {"1": poly}):
    ...     print(model[1])
    PolynomialModule(degree=3, 4 -> 4, gelu, least squares under a Gaussian)
    >>> model[1] is mlp
    True
    """
    wanted = as_modules(polys)
    # In the place of a block there may stand the module of an outer graft.
    found = {name: Block(name, m, m, m) for name, m in model.named_modules() if getattr(m, _MARK, 0)}
    if not set(wanted) <= set(found):
        found |= {block.name: block for block in find_blocks(model)}
    unknown = [name for name in wanted if name not in found]
    if unknown:
        listed = list(found)
        shown = ", ".join(listed if len(listed) <= 12 else [*listed[:6], "...", *listed[-6:]])
        raise ValueError(
            f"polys names the block {unknown[0]!r}, which {type(model).__name__} has not; its blocks are {shown}."
        )
    with ExitStack() as stack:
        for name, module in wanted.items():
            old = found[name].module
            there = next((t.device for t in (*old.parameters(), *old.buffers()) if not t.is_meta), None)
            here = {t.device for t in (*module.parameters(), *module.buffers())}
            placed = module.to(there) if there is not None and here - {there} else module
            stack.enter_context(_in_place(model, found[name], placed))
        yield model


def as_modules(polys: Any) -> dict[str, nn.Module]:
    """Modules by the names of the blocks that they replace.

    Raises
    ------
    TypeError
        For anything that is neither a Conversion nor a mapping to polynomials or modules.
    """
    given = getattr(polys, "grafts", polys)
    if not isinstance(given, Mapping):
        raise TypeError(
            f"polys must be a Conversion, or map names of blocks to polynomials or modules; got {type(polys).__name__}."
        )
    made: dict[str, nn.Module] = {}
    for name, value in given.items():
        if not isinstance(value, (Polynomial, nn.Module)):
            raise TypeError(f"polys[{name!r}] must be a polynomial or a torch.nn.Module, got {type(value).__name__}.")
        made[name] = PolynomialModule(value) if isinstance(value, Polynomial) else value
    return made


class Constant(nn.Module):
    """Gives the same output (o,) for every input."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """The value (..., o), one for each of x (..., d), in the dtype of x."""
        value: Any = self.value
        # In memory of its own, for models that add to it in place (Falcon).
        return value.to(x.dtype).expand(*x.shape[:-1], -1).clone(memory_format=torch.contiguous_format)


# ---------------------------------------------------------------------------------------------------------------------
# Places
# ---------------------------------------------------------------------------------------------------------------------


@contextmanager
def _in_place(model: nn.Module, block: Block, module: nn.Module) -> Iterator[None]:
    # Parents, and what they call the block; none if it is the model itself.
    places = [(m, key) for m in model.modules() for key, child in m._modules.items() if child is block.module]
    if not places or not block.entry is block.module is block.exit:
        with _hooked(block, module):
            yield
        return
    setattr(module, _MARK, getattr(module, _MARK, 0) + 1)
    layer: list[nn.Module | None] = [module]  # a list of its own, as one module may stand in several grafts
    try:
        for parent, key in places:
            _layers.setdefault(parent, {}).setdefault(key, [[parent._modules[key]]]).append(layer)
            parent._modules[key] = module
        yield
    finally:
        for parent, key in places:
            # Grafts may be left in another order than they nest: what is left on top then stays in place.
            layers = _layers[parent][key]
            del layers[next(i for i, other in enumerate(layers) if other is layer)]
            parent._modules[key] = layers[-1][0]
            if len(layers) == 1:
                del _layers[parent][key]
        setattr(module, _MARK, getattr(module, _MARK) - 1)


@contextmanager
def _hooked(block: Block, module: nn.Module) -> Iterator[None]:
    """The block computes, and its output is replaced."""
    inputs: list[Tensor] = []

    def remember(entry: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        inputs[:] = [first_tensor(args, kwargs)]

    def replace(exit: Any, args: Sequence[Any], output: Any) -> Any:
        if not inputs:
            raise RuntimeError(f"the exit of the block {block.name!r} was run without its entry.")
        return module(inputs.pop())

    # Hooks run in the order that they were put there, so that the inner of two grafts has the last word.
    handles = [
        block.entry.register_forward_pre_hook(remember, with_kwargs=True),
        block.exit.register_forward_hook(replace),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
