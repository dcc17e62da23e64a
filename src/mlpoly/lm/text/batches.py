"""Batches of a model's inputs: which positions count, how many there are, and their hash."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlpoly.arrays import as_integer

Mask = Callable[[Tensor], Tensor]

_END = object()  # of an iterator


@dataclass(frozen=True, eq=False)
class Batch:
    """One batch and the n positions of it that count: of tokens, or of what a model makes of images and sounds."""

    number: int  # among all batches, from 0
    inputs: dict[str, Tensor]  # arguments of the model
    shape: tuple[int, int]  # sequences b and their length t, 0 where it is not known yet
    kept: Tensor  # (n,) places of the positions that count, in the batch laid out as b t rows
    positions: Tensor  # (n,) in their sequences, padding not counted
    tokens: Tensor  # (n,) ids
    decoder: "Batch | None" = None  # the tokens of the decoder, where the model was given some for it
    main: str = "input_ids"  # the input that the model reads, by its name
    _copies: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict, repr=False)
    _layouts: dict[int, "Batch"] = field(default_factory=dict, repr=False)

    @property
    def of_tokens(self) -> bool:
        """Whether the model reads token ids."""
        return self.main == "input_ids"

    def laid_out(self, places: int) -> "Batch":
        """Return the batch with this many positions in all samples together, with ids -1; one of token ids as it is."""
        if self.of_tokens:
            return self
        if places not in self._layouts:
            (b, _), mask = self.shape, self.inputs.get("attention_mask")
            shape = (b, places // b)
            if mask is None or bool(mask.all()):
                mask = torch.ones(shape)
            if places % b or tuple(mask.shape) != shape:
                raise ValueError(
                    f"batch {self.number} has {b} samples and an attention_mask {tuple(mask.shape)}, the model "
                    f"{places} positions, so that it is not known which of them are padding; pass samples without "
                    f"padding, or choose other blocks with blocks=."
                )
            attended = mask.cpu() != 0
            places_of = _places(attended, attended, torch.full(shape, -1))
            self._layouts[places] = replace(self, shape=shape, **places_of, _copies={}, _layouts={})
        return self._layouts[places]

    def of(self, name: str) -> "Batch":
        """Return the batch that a block of this name sees: a decoder has tokens and padding of its own."""
        return self.decoder if self.decoder is not None and "decoder" in name.split(".") else self

    def routed(self, places: Tensor) -> tuple["Batch", Tensor]:
        """Return the batch of those of its b t tokens that stand at `places` (m,), and which of them count."""
        places = places.cpu()
        order = torch.full((self.shape[0] * self.shape[1],), -1)
        order[self.kept] = torch.arange(len(self.kept))
        chosen = order[places]
        count = chosen >= 0
        own = chosen[count]
        parts: dict[str, Any] = {"kept": self.kept[own], "positions": self.positions[own], "tokens": self.tokens[own]}
        return replace(self, **parts, _copies={}, _layouts={}), count.nonzero().squeeze(1)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return `kept`, `positions` and `tokens` on a device; copied there once for all blocks."""
        if device not in self._copies:
            self._copies[device] = (self.kept.to(device), self.positions.to(device), self.tokens.to(device))
        return self._copies[device]


def _places(attended: Tensor, counted: Tensor, ids: Tensor, budget: int | None = None) -> dict[str, Any]:
    """Fields of a batch (b, t): the places that count, up to a number of them, their positions and their ids."""
    kept = counted.flatten().nonzero().squeeze(1)[:budget]
    positions = attended.long().cumsum(1) - 1  # counted from the first that is not padding
    return {"kept": kept, "positions": positions.flatten()[kept], "tokens": ids.flatten()[kept]}


def check_batches(batches: Any) -> None:
    """Raise for a single batch, which is an iterable too."""
    if isinstance(batches, (Tensor, np.ndarray, Mapping, str)) or not isinstance(batches, Iterable):
        raise TypeError(
            f"batches must be an iterable of token ids (b, t), got {type(batches).__name__}; put one batch in a list."
        )


class Reader:
    """Reads batches once, counting and hashing: token ids (b, t), or mappings from names to inputs of the model.

    With a number of `tokens`, the last batch is cut so that there are exactly this many. A `mask` of token ids (b, t)
    says which positions count, besides those that are not padding. Batches without token ids are hashed whole.
    """

    def __init__(self, batches: Iterable[Any], tokens: int | None = None, mask: Mask | None = None) -> None:
        check_batches(batches)
        if mask is not None and not callable(mask):
            raise TypeError(
                f"mask must be a function of token ids (b, t), got {type(mask).__name__}; padding needs none."
            )
        self._source, self._mask = iter(batches), mask
        self._budget = None if tokens is None else as_integer("tokens", tokens, 1)
        self._hash = hashlib.sha256()
        # Read so far, those of the batch that was handed out last included; samples, where the batches have no tokens.
        self.batches = self.tokens = 0
        self.of_tokens = True

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
        """Give the batches, but those of tokens of which none count."""
        while self._budget is None or self.tokens < self._budget:
            given = next(self._source, _END)
            if given is _END:
                return
            batch = self._read(given)
            if batch.kept.shape[0] or not batch.of_tokens:
                yield batch

    def _read(self, given: Any) -> Batch:
        """Return a batch, given in any of the forms, as the arguments of the model; count and hash it."""
        if isinstance(given, Mapping):
            named = {str(name): value for name, value in given.items() if value is not None and name != "labels"}
        else:
            named = {"input_ids": given}
        try:
            inputs = {name: v if isinstance(v, Tensor) else torch.tensor(v) for name, v in named.items()}
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"batch {self.batches} is not made of tensors ({error}); pass token ids (b, t), all sequences of one "
                f"length. A tokenizer gives them with return_tensors='pt' and padding=True."
            ) from None
        decoder = self._batch(inputs, "decoder_", None) if "decoder_input_ids" in inputs else None
        if "input_ids" in inputs:
            batch = self._batch(inputs, "", None if self._budget is None else self._budget - self.tokens, decoder)
        else:
            # Images, sounds or embeddings, whose positions only the model knows.
            main = next((name for name, value in inputs.items() if value.is_floating_point() and value.ndim > 1), None)
            if main is None:
                raise ValueError(
                    f"batch {self.batches} has neither 'input_ids' nor another input of floats, only {sorted(inputs)}."
                )
            if self._budget is not None or self._mask is not None:
                raise ValueError(
                    f"batch {self.batches} has no 'input_ids', only {sorted(inputs)}, so that tokens= and mask= do not "
                    f"apply; pass fewer batches instead."
                )
            none = torch.zeros(0, dtype=torch.long)
            batch = Batch(self.batches, inputs, (len(inputs[main]), 0), none, none, none, decoder, main)
            for name, value in sorted(inputs.items()):
                self._hash.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
                self._hash.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        self.batches += 1
        self.of_tokens = self.of_tokens and batch.of_tokens
        self.tokens += batch.kept.shape[0] if batch.of_tokens else batch.shape[0]
        for part in (batch if batch.of_tokens else None, decoder):
            if part is None:
                continue
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
                f"{name} of batch {self.batches} has shape {tuple(ids.shape)}, expected (b, t); use ids[None] for one."
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
                    f"mask gave {found.dtype} {tuple(found.shape)}, expected one boolean per token, {tuple(ids.shape)}."
                )
            counted = attended & found
        places = _places(attended, counted, ids, budget)
        return Batch(self.batches, inputs, (ids.shape[0], ids.shape[1]), **places, decoder=decoder)
