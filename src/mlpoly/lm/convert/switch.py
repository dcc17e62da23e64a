"""A block as several polynomials, one for each kind of token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.lm.convert.places import Places
from mlpoly.lm.moments.groups import Components

__all__ = ["Switch", "choose_rows"]


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

    Attributes
    ----------
    told : Places or None
        The batch that a model around it is running on, inside `mlpoly.lm.graft`.
    """

    def __init__(self, name: str, main: nn.Module, apart: Mapping[int, nn.Module], components: Components) -> None:
        super().__init__()
        self.name, self.components = name, components
        self.main = main
        self.apart = nn.ModuleDict({str(number): module for number, module in apart.items()})
        self.told: Places | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Values (..., o) at inputs (..., d)."""
        rows = x.reshape(-1, x.shape[-1])
        numbers = self.components.numbers(self.name, rows, *self._tokens(x))
        values: Tensor = self.main(rows)
        for number, module in self.apart.items():
            values = choose_rows(values, rows, numbers, int(number), module)
        return values.reshape(*x.shape[:-1], -1)

    def _tokens(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Positions and token ids (n,) of the inputs; without a model around, the last axis but one is a sequence."""
        if self.told is None:
            length = x.shape[-2] if x.ndim > 1 else 1
            positions, tokens = torch.arange(length, device=x.device).expand(x.shape[:-1]), None
        else:
            positions, tokens = self.told
            if positions.numel() != x.shape[:-1].numel():  # some models flatten the batch before a block
                raise ValueError(
                    f"{self.name!r} was given inputs of shape {tuple(x.shape)} while the model runs on a batch of "
                    f"{tuple(positions.shape)} tokens, so that it is not known which is which; use another method."
                )
        if tokens is None and self.components.needs_tokens:
            raise ValueError(
                f"the component function of {self.name!r} asks for token ids, which are known only while the model "
                f"runs on input_ids inside mlpoly.lm.graft."
            )
        flat = positions.reshape(-1).to(x.device)
        return flat, torch.full_like(flat, -1) if tokens is None else tokens.reshape(-1).to(x.device)


def choose_rows(values: Tensor, rows: Tensor, numbers: Tensor | None, number: int, function: Any) -> Tensor:
    """The values (n, o), with those of one kind computed from their inputs (n, d) by a function of their own."""
    if numbers is None:
        return values
    chosen = (numbers == number).nonzero().squeeze(1)
    if not chosen.shape[0]:
        return values
    return values.index_copy(0, chosen, function(rows[chosen]).to(values.dtype))
