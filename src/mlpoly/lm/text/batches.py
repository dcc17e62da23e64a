"""Batches of token ids as they come from a tokenizer: which positions count, how many there are, and their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlpoly.arrays import as_integer

__all__ = ["Batch", "Mask", "Reader"]

Mask = Callable[[Tensor], Tensor]

_END = object()  # of an iterator


@dataclass(frozen=True, eq=False)
class Batch:
    """One batch and the n positions of it that count."""

    number: int  # among all batches, from 0
    inputs: dict[str, Tensor]  # arguments of the model
    shape: tuple[int, int]  # sequences b and their length t
    kept: Tensor  # (n,) places of the positions that count, in the batch laid out as b t rows
    positions: Tensor  # (n,) in their sequences, padding not counted
    tokens: Tensor  # (n,) ids
    decoder: Batch | None = None  # the tokens of the decoder, where the model was given some for it
    _copies: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def of(self, name: str) -> Batch:
        """Return the batch that a block of this name sees: a decoder has tokens and padding of its own."""
        return self.decoder if self.decoder is not None and "decoder" in name.split(".") else self

    def routed(self, places: Tensor) -> tuple[Batch, Tensor]:
        """Return the batch of those of its b t tokens that stand at `places` (m,), and which of them count."""
        places = places.cpu()
        order = torch.full((self.shape[0] * self.shape[1],), -1)
        order[self.kept] = torch.arange(len(self.kept))
        chosen = order[places]
        count = chosen >= 0
        own = chosen[count]
        parts = (self.kept[own], self.positions[own], self.tokens[own])
        return Batch(self.number, self.inputs, self.shape, *parts), count.nonzero().squeeze(1)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return `kept`, `positions` and `tokens` on a device; copied there once for all blocks."""
        if device not in self._copies:
            self._copies[device] = (self.kept.to(device), self.positions.to(device), self.tokens.to(device))
        return self._copies[device]


class Reader:
    """Reads batches once, counting and hashing: token ids (b, t), or mappings that have them as "input_ids".

    With a number of `tokens`, the last batch is cut so that there are exactly this many. A `mask` of token ids (b, t)
    says which positions count, besides those that are not padding. The hash is over the tokens that count, sequence by
    sequence, so that it does not depend on padding or on how sequences are put into batches.
    """

    def __init__(self, batches: Iterable[Any], tokens: int | None = None, mask: Mask | None = None) -> None:
        if isinstance(batches, (Tensor, np.ndarray, Mapping, str)) or not isinstance(batches, Iterable):
            raise TypeError(
                f"batches must be an iterable of token ids (b, t), got {type(batches).__name__}; put one batch in a "
                f"list, and make batches of text with mlpoly.lm.token_batches."
            )
        if mask is not None and not callable(mask):
            raise TypeError(
                f"mask must be a function of token ids (b, t), got {type(mask).__name__}; padding needs none, give it "
                f"as the attention_mask of a batch."
            )
        self._source, self._mask = iter(batches), mask
        self._budget = None if tokens is None else as_integer("tokens", tokens, 1)
        self._hash = hashlib.sha256()
        self.batches = self.tokens = 0  # read so far, those of the batch that was handed out last included

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the tokens read so far."""
        return self._hash.hexdigest()

    def skip(self, batches: int, fingerprint: str) -> None:
        """Read past this many batches, which must have this hash."""
        for given in islice(self._source, batches):
            self._read(given)
        if batches and (self.batches < batches or self.fingerprint != fingerprint):
            raise ValueError(
                f"the data is not that of the pass to be resumed: its first {batches} batches had the hash "
                f"{fingerprint[:12]}, now there are {self.batches} with {self.fingerprint[:12]}. Pass the same "
                f"batches in the same order, or start again with resume=False or another save_to (in a study "
                f"--restart or another --out)."
            )

    def __iter__(self) -> Iterator[Batch]:
        """Give the batches that have tokens that count."""
        while self._budget is None or self.tokens < self._budget:
            given = next(self._source, _END)
            if given is _END:
                return
            batch = self._read(given)
            if batch.kept.shape[0]:
                yield batch

    def _read(self, given: Any) -> Batch:
        """Return a batch, given in any of the forms, as the arguments of the model; count and hash it."""
        if isinstance(given, Mapping):
            if "input_ids" not in given:
                raise ValueError(f"batch {self.batches} has no 'input_ids', only {sorted(map(str, given))}.")
            named = {str(name): value for name, value in given.items() if value is not None and name != "labels"}
        else:
            named = {"input_ids": given}
        try:
            inputs = {name: v if isinstance(v, Tensor) else torch.tensor(v) for name, v in named.items()}
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"batch {self.batches} cannot be turned into tensors ({error}); pass token ids (b, t), all sequences "
                f"of one length. A tokenizer gives them with return_tensors='pt' and padding=True."
            ) from None
        decoder = self._batch(inputs, "decoder_", None) if "decoder_input_ids" in inputs else None
        batch = self._batch(inputs, "", None if self._budget is None else self._budget - self.tokens, decoder)
        self.batches += 1
        self.tokens += batch.kept.shape[0]
        for part in (batch,) if decoder is None else (decoder, batch):
            rows = torch.div(part.kept, part.shape[1], rounding_mode="floor")
            for tokens in part.tokens.split(rows.bincount(minlength=part.shape[0]).tolist()):
                if len(tokens):
                    self._hash.update(len(tokens).to_bytes(8, "little"))
                    self._hash.update(tokens.numpy().astype("<i8").tobytes())
        return batch

    def _batch(self, inputs: dict[str, Tensor], kind: str, budget: int | None, decoder: Batch | None = None) -> Batch:
        """Return the batch with the places of the tokens that count; `kind` begins the names of its inputs."""
        name, ids = f"{kind}input_ids", inputs[f"{kind}input_ids"]
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise TypeError(f"{name} of batch {self.batches} must hold integer token ids, got {ids.dtype}.")
        if ids.ndim != 2:
            raise ValueError(
                f"{name} of batch {self.batches} has shape {tuple(ids.shape)}, expected (b, t): sequences in rows. For "
                f"one sequence use ids[None, :]."
            )
        inputs[name] = ids.long()
        ids, padding = inputs[name].cpu(), inputs.get(f"{kind}attention_mask")
        if padding is not None and padding.shape != ids.shape:
            raise ValueError(
                f"{kind}attention_mask of batch {self.batches} has shape {tuple(padding.shape)}, expected that of "
                f"{name}, {tuple(ids.shape)}: 1 for a token, 0 for padding."
            )
        attended = torch.ones(ids.shape, dtype=torch.bool) if padding is None else padding.cpu() != 0
        counted = attended
        if self._mask is not None:
            found = torch.as_tensor(self._mask(ids)).cpu()
            if found.shape != ids.shape or found.dtype != torch.bool:
                raise ValueError(
                    f"mask gave {found.dtype} of shape {tuple(found.shape)} for token ids of shape {tuple(ids.shape)}; "
                    f"it must give one boolean per token."
                )
            counted = attended & found
        kept = counted.flatten().nonzero().squeeze(1)[:budget]
        positions = attended.long().cumsum(1) - 1  # counted from the first token that is not padding
        places = kept, positions.flatten()[kept], ids.flatten()[kept]
        return Batch(self.batches, inputs, (ids.shape[0], ids.shape[1]), *places, decoder)
