"""Moments of the inputs of a language model's blocks, in one pass over data."""

from collections.abc import Iterable, Sequence
from itertools import chain
from os import PathLike
from typing import Any, get_args

import torch
from torch import Tensor, nn

from mlpoly.importers import find_blocks
from mlpoly.importers.blocks import Block
from mlpoly.inputs import MomentAccumulator
from mlpoly.lm.distributed import exchange, gather, world
from mlpoly.lm.model.identity import describe_model
from mlpoly.lm.model.running import check_reached, watching
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.moments.checkpoint import Checkpoint, Progress
from mlpoly.lm.moments.groups import Groups, as_grouping
from mlpoly.lm.moments.row_sums import Precision, RowSums, merge_groups
from mlpoly.lm.text.batches import Batch, Mask, Reader
from mlpoly.machine import versions
from mlpoly.progress_bars import progress_bar


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

    The model runs in evaluation mode, without its language-model head. The inputs of an expert of a mixture are those
    of the tokens that are routed to it; experts that get none are left out, with a warning. Under torchrun (see
    `mlpoly.lm.distributed.initialise`) every process must be given the same batches: each runs its part of them, and
    all return the moments of the whole.

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
        Groups of tokens with moments of their own: none; the first token of each sequence; inputs of unusual length;
        clusters of inputs, four by default; or a function of inputs x (n, d), positions (n,) and token ids (n,), -1
        where there are none, that returns the number of the group of each (n,).
    tokens : int, optional
        Number of tokens to use, exactly; by default all.
    mask : callable, optional
        Function from token ids (b, t) to booleans (b, t), which positions count besides padding:
        ``lambda ids: ids != bos``.
    precision : "single" or "double", optional
        Precision of the products of a few thousand inputs at a time; they are added up in float64. By default double on
        the CPU up to 1024 inputs wide, and single elsewhere: covariances are then good to about 1e-5 of the variances.
    save_to, save_every : path, float, optional
        Folder for the result and for what is done so far, saved every so many seconds (more rarely where a save takes
        long). If the pass is killed, the same call resumes it, unless `groups` is a function of your own: whether it
        is still the same cannot be seen.
    resume : bool
        Whether to resume the pass that `save_to` holds, instead of starting again.

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
