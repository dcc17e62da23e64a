"""Moments of what goes into the blocks of a language model, in one pass over data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from os import PathLike
from typing import Any, get_args

import torch
from torch import Tensor, nn

from mlpoly.integrations.blocks import Block
from mlpoly.lm.distributed import exchange, reduce_components, world
from mlpoly.lm.model.hooks import Watcher
from mlpoly.lm.model.identity import describe_model, versions
from mlpoly.lm.model.running import Runner, evaluating, explained_memory_errors
from mlpoly.lm.model.visit import chosen_blocks
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.moments.checkpoint import Progress, Shards
from mlpoly.lm.moments.groups import Components, as_components
from mlpoly.lm.moments.row_sums import Component, Precision, RowSums, merge_components
from mlpoly.lm.text.batches import Batch, Mask, Reader
from mlpoly.progress import progress

__all__ = ["collect"]

Hookpoints = dict[str, dict[int, Component]]


def collect(
    model: nn.Module,
    batches: Iterable[Any],
    hookpoints: str | Sequence[str] | None = None,
    *,
    components: str | Components | Callable[[Tensor, Tensor, Tensor], Tensor] = "none",
    tokens: int | None = None,
    mask: Mask | None = None,
    precision: Precision | None = None,
    dtype: torch.dtype = torch.float64,
    save_to: str | PathLike[str] | None = None,
    save_every: float = 60.0,
    resume: bool = True,
    show_progress: bool = True,
) -> Moments:
    """Mean and covariance of the inputs of every feedforward block of a model, in one pass over batches of tokens.

    The model runs in evaluation mode without gradients, and without its language-model head; afterwards it is as it
    was. Under torchrun (see `initialise`) every process must be given the same batches: each runs its share of them,
    and all return the moments of the whole.

    Parameters
    ----------
    model : torch.nn.Module
        Of Hugging Face transformers, or your own.
    batches : iterable
        Of integer tensors (b, t), token ids, or of mappings as a tokenizer gives them: "input_ids", "attention_mask"
        and others that the model takes. Positions where the attention mask is 0 are left out.
    hookpoints : str or sequence of str, optional
        Which blocks, as in a shell: "model.layers.*.mlp"; see `mlpoly.integrations.find_blocks`. By default all.
    components : {"none", "first", "norm"}, NormOutliers or callable
        Which inputs get moments of their own: none; the first token of each sequence; those of unusual length, see
        `NormOutliers`; or a function of inputs x (n, d), positions (n,) and token ids (n,) that gives integers (n,).
    tokens : int, optional
        How many tokens to use, exactly; by default all.
    mask : callable, optional
        From token ids (b, t) to booleans (b, t), which positions count besides padding: ``lambda ids: ids != bos``.
    precision : {"single", "double"}, optional
        Of the products of a few thousand inputs at a time; they are added up in float64. By default double on the CPU
        up to 1024 inputs wide, and single elsewhere: covariances are then good to about 1e-5 of the variances.
    dtype : torch.dtype
        Of the Gaussians that the result gives.
    save_to : path, optional
        A folder for the result, and for what is done so far: every `save_every` seconds while the pass runs. If it is
        killed, the same call goes on from there. A function for `components` must then be the same one: its code is
        compared, with its constants and what it closes over.
    save_every : float
        Seconds. For large models, where a save takes long, it is done less often.
    resume : bool
        Whether to go on from what `save_to` holds, instead of starting again.
    show_progress : bool
        Whether a terminal shows a bar.

    Returns
    -------
    Moments

    Raises
    ------
    ValueError
        If an input of a block is NaN or infinite, if a batch has the wrong form, or if `save_to` holds a pass over
        other data or with other options.
    MemoryError
        If the device's memory is full.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.lm import collect
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp)
    >>> moments = collect(model, [torch.arange(10).reshape(2, 5)])
    >>> moments
    Moments(Sequential, 1 hookpoints, 10 tokens, 1 component)
    >>> moments.gaussian("1")
    Gaussian(dim=4, full covariance)
    """
    if precision not in (None, *get_args(Precision)):
        raise ValueError(f"precision must be 'single', 'double' or None, got {precision!r}.")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating dtype of torch, got {dtype!r}.")
    blocks = chosen_blocks(model, hookpoints, "hookpoints")
    split = as_components(components)
    reader = Reader(batches, tokens, mask)
    about = describe_model(model)
    names = {"model weights": about["weights"], "hookpoints": [block.name for block in blocks]}
    masked = None if mask is None else getattr(mask, "__qualname__", type(mask).__qualname__)
    options = {"components": split.kind, "tokens": tokens, "mask": masked, "precision": precision}
    options["code of components"] = split.fingerprint  # functions may share a name, as all lambdas do
    shards = Shards(save_to, names | options, save_every)
    run = _Pass(blocks, reader, split, shards, precision)
    with evaluating(model), run.watcher, explained_memory_errors(), progress("collect", tokens, show_progress) as bar:
        run.go(Runner(model, blocks), resume, bar)
        own = run.hookpoints()
    found = reduce_components(own)
    if len({*exchange(reader.fingerprint)}) > 1:
        raise ValueError("the processes were given different batches; give all of them the same, each takes its share.")
    if reader.tokens == 0:
        raise ValueError("batches held no tokens; were they an iterator that was used before?")
    missed = [block.name for block in blocks if not found[block.name]]
    if missed:
        raise ValueError(
            f"{missed[0]!r} was never reached while the model ran on the batches ({len(missed)} of {len(blocks)} "
            f"hookpoints); choose others with hookpoints=, or pass the inputs that lead there."
        )
    extra = {"data": reader.fingerprint, "tokens": reader.tokens, "components": split.describe()}
    moments = Moments(found, about | extra | {"precision": precision, "versions": versions()}, dtype)
    shards.finish(moments, run.progress)
    return moments


class _Pass:
    """One pass over the data, from the start or from where an earlier one was killed."""

    def __init__(
        self, blocks: Sequence[Block], reader: Reader, split: Components, shards: Shards, precision: Precision | None
    ) -> None:
        self.reader, self.split, self.shards, self.precision = reader, split, shards, precision
        self.watcher = Watcher(blocks, self._add)
        self.sums: dict[str, dict[int, RowSums]] = {block.name: {} for block in blocks}
        self.earlier: Hookpoints = {}

    def go(self, runner: Runner, resume: bool, bar: Callable[[int, str], None]) -> None:
        self.earlier, done = self.shards.start(resume)
        self.reader.skip(done.batches, done.fingerprint)
        self.split.state = done.components
        here, batches = world(), iter(self.reader)
        if self.split.calibrates:  # it is shown the first batch, which does not count yet
            first = next(batches, None)
            if first is not None and not self.split.state:
                self.watcher.see = lambda block, x, _: self.split.calibrate(block.name, x)
                self.watcher.watch(runner, first)
                self.watcher.see = self._add
            # All processes must draw the same line.
            self.split.state = next((state for state in exchange(self.split.state) if state), {})
            batches = chain([] if first is None else [first], batches)
        for batch in batches:
            if batch.number % here.size == here.rank:
                self.watcher.watch(runner, batch)
                if self.shards.due:
                    self.shards.save(Moments(self.hookpoints(), {}), self.progress)
            bar(self.reader.tokens, "tokens")

    def _add(self, block: Block, x: Tensor, batch: Batch) -> None:
        """Sum the inputs (n, d) of a block, by component."""
        _, positions, tokens = batch.on(x.device)
        numbers = self.split.numbers(block.name, x, positions, tokens)
        found, parts = [0], (x,)
        if numbers is not None:
            # The processor waits for the GPU once here, not once for each component.
            found, counts = (part.tolist() for part in numbers.unique(return_counts=True))
            if len(found) > 1:
                parts = x.index_select(0, numbers.argsort(stable=True)).split(counts)
        for number, rows in zip(found, parts, strict=True):
            self.sums[block.name].setdefault(number, RowSums(self.precision)).add(rows)

    @property
    def progress(self) -> Progress:
        return Progress(self.reader.batches, self.reader.fingerprint, self.split.state)

    def hookpoints(self) -> Hookpoints:
        """What was found so far, by this process alone."""
        found = {name: {n: sums[n].result() for n in sorted(sums)} for name, sums in self.sums.items()}
        known = {name: {n: part for n, part in parts.items() if part is not None} for name, parts in found.items()}
        return {name: merge_components(self.earlier.get(name, {}), parts) for name, parts in known.items()}
