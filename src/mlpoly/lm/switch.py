"""A block as several polynomials, one for each kind of token, and how a running model tells which token is which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.lm.components import Components

__all__ = ["Switch", "choose_rows", "told_tokens"]


class Switch(nn.Module):
    """Several modules in the place of one block; the kind of a token says which of them computes it.

    Parameters
    ----------
    name : str
        Of the block.
    main : nn.Module
        For the tokens of all kinds that are not in `apart`.
    apart : mapping of int to nn.Module
        By the number of their kind.
    components : Components
        Tells the kinds apart; see `mlpoly.lm.collect`.
    """

    def __init__(self, name: str, main: nn.Module, apart: Mapping[int, nn.Module], components: Components) -> None:
        super().__init__()
        self.name, self.components = name, components
        self.main = main
        self.apart = nn.ModuleDict({str(number): module for number, module in apart.items()})
        self.told: tuple[Tensor, Tensor] | None = None  # positions and token ids (b, t) of the running batch

    def forward(self, x: Tensor) -> Tensor:
        """Values (..., o) at inputs (..., d)."""
        rows = x.flatten(0, -2)
        numbers = self.components.numbers(self.name, rows, *self._tokens(x))
        values: Tensor = self.main(rows)
        for number, module in self.apart.items():
            values = choose_rows(values, rows, numbers, int(number), module)
        return values.unflatten(0, x.shape[:-1])

    def _tokens(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Positions and token ids (n,) of the inputs; without a model around, they are one sequence in each row."""
        if self.told is not None and self.told[0].shape == x.shape[:-1]:
            positions, tokens = self.told
            return positions.flatten().to(x.device), tokens.flatten().to(x.device)
        if self.components.needs_tokens:
            raise ValueError(
                f"the component function of {self.name!r} asks for token ids, which are known only while the model "
                f"runs on input_ids inside mlpoly.lm.graft."
            )
        length = x.shape[-2] if x.ndim > 1 else 1
        positions = torch.arange(length, device=x.device).expand(x.shape[:-1]).flatten()
        return positions, torch.full_like(positions, -1)


def choose_rows(values: Tensor, rows: Tensor, numbers: Tensor | None, number: int, function: Any) -> Tensor:
    """The values (n, o), with those of one kind computed from their inputs (n, d) by a function of their own."""
    if numbers is None:
        return values
    chosen = (numbers == number).nonzero().squeeze(1)
    if not chosen.shape[0]:
        return values
    return values.index_copy(0, chosen, function(rows[chosen]).to(values.dtype))


@contextmanager
def told_tokens(model: nn.Module, modules: Sequence[nn.Module]) -> Iterator[None]:
    """While this is open, every batch that the model runs on is told to the switches among the modules."""
    switches = [module for module in modules if isinstance(module, Switch)]
    if not switches:
        yield
        return

    def tell(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        found = _positions(args, kwargs)
        for switch in switches:
            switch.told = found

    # Some callers run the model with its head, some without.
    body = getattr(model, getattr(model, "base_model_prefix", None) or "", None)
    parts = {id(part): part for part in (model, body) if isinstance(part, nn.Module)}
    handles = [part.register_forward_pre_hook(tell, with_kwargs=True) for part in parts.values()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for switch in switches:
            switch.told = None


def _positions(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Positions in their sequences, padding not counted, and token ids (b, t), of what a model is called with."""
    ids = kwargs.get("input_ids", args[0] if args else None)
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.ndim != 2:
        return None
    mask, past = kwargs.get("attention_mask"), kwargs.get("past_key_values")
    if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] >= ids.shape[1]:
        return (mask != 0).long().cumsum(1)[:, -ids.shape[1] :] - 1, ids
    seen = 0 if past is None else int(past.get_seq_length())
    return torch.arange(seen, seen + ids.shape[1], device=ids.device).expand(ids.shape), ids
