"""Moments of the inputs of a language model's blocks, in one pass over data, which is resumed if it is killed."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder
from mlpoly.importers import find_blocks
from mlpoly.importers.blocks import Block
from mlpoly.inputs import MomentAccumulator
from mlpoly.lm.distributed import exchange, gather, world
from mlpoly.lm.model.loading import describe_model
from mlpoly.lm.model.running import check_reached, watching
from mlpoly.lm.moments.block_moments import MOMENTS_FILE, Moments, read_moments, write_moments
from mlpoly.lm.moments.groups import Groups, as_grouping
from mlpoly.lm.moments.row_sums import Precision, RowSums, merge_groups
from mlpoly.lm.text.batches import Batch, Mask, Reader
from mlpoly.machine import versions
from mlpoly.progress_bars import progress_bar

_PATIENCE = 10  # times as long as the last save took: for large models it is not free


def collect(
    model: nn.Module,
    batches: Iterable[Any],
    blocks: str | Sequence[str] | None = None,
    *,
    groups: Groups = "none",
    tokens: int | None = None,
    mask: Mask | None = None,
    precision: Precision | None = None,
    save_to: str | PathLike[str] | None = None,
    save_every: float = 60.0,
    resume: bool = True,
) -> Moments:
    """Return mean and covariance of the inputs of every feedforward block of a model, in one pass over tokens.

    The inputs of an expert of a mixture are those of the tokens that are routed to it; experts that get none are left
    out, with a warning. Under torchrun (see `mlpoly.lm.distributed.initialise`) every process must be given the same
    batches: each runs its part of them, and all return the moments of the whole.

    Parameters
    ----------
    model : torch.nn.Module
        Model of Hugging Face transformers, or your own.
    batches : iterable
        Integer tensors (b, t) of token ids, or mappings from names to arguments of the model: as a tokenizer gives
        them ("input_ids", "attention_mask"), or for models of images and sounds a processor ("pixel_values",
        "input_values", "input_features"), or "inputs_embeds". Positions where the attention mask is 0 are left out.
    blocks : str or sequence of str, optional
        Names or patterns of blocks, "model.layers.*.mlp"; see `mlpoly.importers.find_blocks`. All blocks by default.
    groups : {"none", "first", "norm", "clusters"}, NormOutliers, TokenClusters or callable
        Tokens with moments of their own: none; the first of each sequence; inputs of unusual length; clusters of
        inputs, four by default; or a function from inputs x (n, d), positions (n,) and token ids (n,), -1 where there
        are none, to numbers of groups (n,).
    tokens : int, optional
        Number of tokens to use, exactly; by default all.
    mask : callable, optional
        Function from token ids (b, t) to booleans (b, t), which positions count besides padding:
        ``lambda ids: ids != bos``.
    precision : "single" or "double", optional
        Precision of the products of a few thousand inputs, which are added up in float64. By default double on the CPU
        up to 1024 inputs wide, and single elsewhere: good to about 1e-5 of the variances.
    save_to, save_every : path, float, optional
        Folder for the result and for what is done so far, saved every so many seconds.
    resume : bool
        Whether to resume the pass that `save_to` holds, unless `groups` is a function of your own.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.lm import collect
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp)
    >>> collect(model, [torch.arange(10).reshape(2, 5)]).gaussian("1")
    Gaussian(dim=4, full covariance)
    """
    if precision not in (None, *get_args(Precision)):
        raise ValueError(f"precision must be 'single', 'double' or None, got {precision!r}.")
    chosen, rule, reader = find_blocks(model, blocks), as_grouping(groups), Reader(batches, tokens, mask)
    names, about, here = [block.name for block in chosen], describe_model(model), world()
    masked = None if mask is None else getattr(mask, "__qualname__", type(mask).__qualname__)
    options = {"model weights": about["weights"], "blocks": names, "groups": rule.kind, "tokens": tokens}
    options |= {"mask": masked, "precision": precision}
    checkpoint = Checkpoint(save_to, options, save_every)
    found, done = checkpoint.start(resume)
    if done.batches and not rule.resumes:
        raise ValueError(
            f"groups is a function, and whether it is that of the pass in {save_to} cannot be seen; start again with "
            f"resume=False or another save_to."
        )
    reader.skip(done.batches, done.fingerprint)
    rule.state = dict(done.calibration)
    sums: dict[str, dict[int, RowSums]] = {name: {} for name in names}

    def add(block: Block, x: Tensor, batch: Batch) -> None:
        """Sum the inputs (n, d) of a block, by group."""
        numbers = rule.numbers(block.name, x, *batch.on(x.device)[1:])
        present, parts = [0], (x,)
        if numbers is not None:
            # The processor waits for the GPU once here, not once for each group.
            present, counts = (part.tolist() for part in numbers.unique(return_counts=True))
            if len(present) > 1:
                parts = x.index_select(0, numbers.argsort(stable=True)).split(counts)
        for number, rows in zip(present, parts, strict=True):
            sums[block.name].setdefault(number, RowSums(precision)).add(rows)

    def fold() -> Progress:
        """Move the sums into `found`, so that memory holds what a file does: a resumed pass gives the same bits."""
        for name, parts in sums.items():
            found[name] = merge_groups(found.get(name, {}), {n: part.result() for n, part in parts.items()})
            parts.clear()
        return Progress(reader.batches, reader.fingerprint, rule.state)

    with watching(model, chosen) as watch, progress_bar("collect", tokens) as bar:
        remaining = iter(reader)
        if rule.calibrates:  # the first batch is run for it alone, and then once more
            first = next(remaining, None)
            if first is not None and not rule.state:
                watch(first, lambda block, x, _: rule.calibrate(block.name, x))
            # All processes must draw the same line.
            rule.state = next((state for state in exchange(rule.state) if state), {})
            remaining = chain([] if first is None else [first], remaining)
        for batch in remaining:
            if batch.number % here.size == here.rank:
                watch(batch, add)
                if checkpoint.due:
                    reached = fold()
                    checkpoint.save(Moments(found, {}), reached)
            bar(reader.tokens, "tokens")
        reached = fold()
    found = _over_processes(found)
    if len({*exchange(reader.fingerprint)}) > 1:
        raise ValueError("the processes were given different batches; give all of them the same, each takes its part.")
    check_reached(reader.tokens, [name for name in names if not found[name]])
    found = {name: parts for name, parts in found.items() if parts}
    # Of samples that are no tokens, the positions that the model makes of them are counted.
    rows = max(sum(part.count for part in parts.values()) for parts in found.values())
    seen = reader.tokens if reader.of_tokens else rows
    extra = {"data": reader.fingerprint, "tokens": seen, "groups": rule.describe()}
    moments = Moments(found, about | extra | {"precision": precision, "versions": versions()})
    checkpoint.finish(moments, reached)
    return moments


def _over_processes(found: dict[str, dict[int, MomentAccumulator]]) -> dict[str, dict[int, MomentAccumulator]]:
    """Return the moments of the inputs that all processes saw, on every process, merged in the order of the ranks."""
    if world().size == 1:
        return found
    # Processes may have seen different groups, or nothing at all; they must send the same ones in the same order.
    seen = exchange({name: {n: part.dim for n, part in parts.items()} for name, parts in found.items()})
    merged: dict[str, dict[int, MomentAccumulator]] = {name: {} for name in found}
    for name, parts in found.items():
        for number, d in sorted({(int(number), d) for table in seen for number, d in table[name].items()}):
            row, part = torch.zeros(1 + d + d * d, dtype=torch.float64), parts.get(number)
            if part is not None:
                row = torch.cat([row[:1] + part.count, part.mean, part.scatter.flatten()])
            for sent in gather(row):
                if count := int(sent[0]):
                    sums = MomentAccumulator.from_moments(count, sent[1 : 1 + d], sent[1 + d :].reshape(d, d))
                    merged[name] = merge_groups(merged[name], {number: sums})
    return merged


class Progress(NamedTuple):
    """Batches read by all processes, the hash of their tokens, and the calibration of the groups."""

    batches: int = 0
    fingerprint: str = ""
    calibration: dict[str, Any] = {}  # noqa: RUF012 - never changed


class Checkpoint:
    """The files of one pass: one per process while it runs, "moments.safetensors" at the end; without a folder, none.

    A pass is resumed only with the same `options`, which must be JSON. `every` is the time between saves, in seconds.
    """

    def __init__(self, folder: str | PathLike[str] | None, options: Mapping[str, Any], every: float) -> None:
        wait: Any = every
        if isinstance(wait, bool) or not isinstance(wait, Real) or not float(wait) >= 0:
            raise ValueError(f"save_every must be a number of seconds >= 0, got {every!r}.")
        self._folder = None if folder is None else make_folder(folder)
        self._name = "partial-{}-of-{}.safetensors".format(*world())
        self._options = json.loads(json.dumps(options))
        self._every, self._took, self._last = float(every), 0.0, time.monotonic()

    def start(self, resume: bool) -> tuple[dict[str, dict[int, MomentAccumulator]], Progress]:
        """Return moments and progress that an earlier pass left; without `resume` they are deleted."""
        if self._folder is None:
            return {}, Progress()
        if not resume:
            for old in (self._folder / MOMENTS_FILE, *self._folder.glob("partial-*.safetensors")):
                old.unlink(missing_ok=True)
            exchange(None)  # no process may delete what another has saved since
            return {}, Progress()
        rank, size = world()
        found, progress = self._read(self._folder / MOMENTS_FILE) if rank == 0 else ({}, Progress())
        # A finished pass counts once: rank 0 has its moments, and the others pass over its batches.
        first = Progress(*exchange(progress)[0])
        if first.batches:
            return found, first
        other = [p for p in self._folder.glob("partial-*.safetensors") if f"-of-{size}." not in p.name]
        if other:
            raise ValueError(
                f"{self._folder} holds a pass of {other[0].stem.rsplit('-', 1)[1]} processes, now there are {size}. "
                f"Use as many, or start again with resume=False or another save_to."
            )
        return self._read(self._folder / self._name)

    def _read(self, path: Path) -> tuple[dict[str, dict[int, MomentAccumulator]], Progress]:
        if not path.exists():
            return {}, Progress()
        moments, state = read_moments(path)
        if "progress" not in state:
            raise FileFormatError(f"{path} has no progress of a pass; start again with resume=False.")
        for key, value in self._options.items():
            before = state["options"].get(key)
            if before != value:
                raise ValueError(
                    f"{path.parent} holds a pass with other options: {key} was {before!r:.80}, now it is "
                    f"{value!r:.80}. Use the same, or start again with resume=False or another save_to (in a study "
                    f"--restart or another --out)."
                )
        return {name: dict(parts) for name, parts in moments.blocks.items()}, Progress(*state["progress"])

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        waited = time.monotonic() - self._last
        return self._folder is not None and waited >= max(self._every, _PATIENCE * self._took)

    def save(self, moments: Moments, progress: Progress) -> None:
        """Keep what this process has so far."""
        began = time.monotonic()
        assert self._folder is not None
        write_moments(self._folder / self._name, moments, {"options": self._options, "progress": progress})
        self._last = time.monotonic()
        self._took = self._last - began if self._every else 0.0

    def finish(self, moments: Moments, progress: Progress) -> None:
        """Keep the moments of all processes, and delete the files of the way there."""
        if self._folder is None:
            return
        if world().rank == 0:
            write_moments(self._folder / MOMENTS_FILE, moments, {"options": self._options, "progress": progress})
        exchange(None)  # the others wait for rank 0
        (self._folder / self._name).unlink(missing_ok=True)
