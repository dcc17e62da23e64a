"""One study, from a model and a text to a folder."""

import hashlib
import math
from contextlib import nullcontext
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlpoly.importers import find_blocks
from mlpoly.lm.conversion.conversion import discard
from mlpoly.lm.example.language import example_text
from mlpoly.lm.model.loading import describe_model, load_model
from mlpoly.lm.model.tracing import trace
from mlpoly.lm.moments.collect import collect
from mlpoly.lm.text.token_batches import Source, as_path, read_ids, split_text, title, token_batches
from mlpoly.lm.text.tokens import prompt_ids, vocabulary
from mlpoly.machine import check_device
from mlpoly.pages.language_model.page import write_lm_report
from mlpoly.studies.language_model.options import LmConfig
from mlpoly.studies.language_model.results import LmResults
from mlpoly.studies.language_model.stages import (
    LmStudy,
    study_attribution,
    study_degrees,
    study_features,
    study_spectra,
)
from mlpoly.studies.study import Study

_PROMPT = 48  # tokens of the held-out text that are taken apart, where no prompt is given
_HELD_OUT = 0.1  # fraction of a text that nothing is fitted to, where no other is given


def study_lm(
    model: str | PathLike[str] | None,
    text: Source | None,
    out: str | PathLike[str],
    config: LmConfig | None = None,
    *,
    held_out: Source | None = None,
    prompt: str | None = None,
    device: str = "cpu",
    resume: bool = True,
    **options: Any,
) -> LmResults:
    """Replace the blocks of a language model by polynomials, measure what that costs, and write it all to a folder.

    Parameters
    ----------
    model : str, path or None
        A folder, a .gguf file or a name on the hub, see `load_model`: a causal language model. None for the model that
        is shipped with the package.
    text : str, Path or None
        As `token_batches` takes it. None for text in the language of the shipped model, see `example_text`.
    out : path
        Folder for polynomials in ``<block>/``, moments, results/*.json, tables/*.csv and report.html. Run again, the
        study resumes; a folder with a study of another model, text or options is refused.
    config : LmConfig, optional
        Options; each can also be given by name, ``degree=2``.
    held_out : str or Path, optional
        Text or file for the errors and losses; by default the last tenth of `text`, which is then not used otherwise.
    prompt : str, optional
        Text that is taken apart token by token; by default the beginning of the held-out text.
    resume : bool
        Whether to use what the folder already has; otherwise, with --restart on the command line, it is replaced.
    """
    if model is not None and text is None:
        raise ValueError("text is missing: name a file, of which a few thousand words are enough (--text FILE).")
    config, device, folder = (config or LmConfig()).updated(options), check_device(device), Path(out)
    text = example_text() if text is None else text
    net, tokenizer = load_model(model, device=device, dtype=config.dtype)
    find_blocks(net, config.blocks)  # wrong patterns are refused before the work begins
    wiring = None if getattr(net.config, "is_encoder_decoder", False) else trace(net, [0])
    if wiring is None or wiring.final is None:
        raise TypeError(
            f"{type(net).__name__} is not a causal language model whose head reads the residual stream through one "
            f"norm, as a study needs; collect, convert and evaluate of mlpoly.lm take it."
        )
    length = _length(net, config.length)
    config = replace(config, length=length)
    texts = tokenizer or (vocabulary(model) if model and (Path(model) / "vocab.json").is_file() else None)
    train, judge = _study_batches(tokenizer, text, held_out, length, config)
    ids = prompt_ids(judge[0][0, :_PROMPT] if prompt is None else prompt, texts)
    path, described = as_path(text), describe_model(net)
    tokens = min(config.tokens, sum(batch.numel() for batch in train))
    data = {
        "text": path.name if path is not None else "a text",
        "tokens": tokens,
        "held_out": sum(batch.numel() for batch in judge),
    }
    digest = hashlib.sha256()  # of token ids, and of how they are cut into batches
    for batch in (*train, *judge):
        digest.update(f"{tuple(batch.shape)}".encode() + batch.numpy().tobytes())
    sources = {"model": described["weights"], "text": digest.hexdigest(), "prompt": str(ids)}
    store = Study.create(
        folder, LmResults, asdict(config), sources, device, restart=not resume, model=described, data=data, prompt=ids
    )
    if not resume:  # what another study left may not have all of the blocks and tables
        discard(folder)
        for table in folder.glob("tables/*.csv"):
            table.unlink()
    with nullcontext() if "moments" in store.parts else store.stage("moments"):  # a file of their own has them
        moments = collect(
            net, train, config.blocks, groups=config.groups, tokens=tokens, save_to=folder / "moments", resume=resume
        )
    study = LmStudy(store, config, net, texts, train, judge, moments, wiring)
    study_spectra(study)
    chosen = study_degrees(study)
    if not {"features", "attribution"} <= set(store.parts):
        chosen = chosen or study.polynomials(config.degree, bound=config.bound)
        study_features(study, chosen)
        study_attribution(study, chosen, ids)
    results = store.results
    store.write_tables(results.tables())
    write_lm_report(results, folder / "report.html")
    return results


def _length(model: Any, length: int | None) -> int:
    """Tokens in a sequence: as many as are asked for, if the model takes them."""
    longest: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if length is None:
        return 512 if longest is None else min(512, longest)
    if longest is not None and length > longest:
        raise ValueError(f"length is {length}, but the model takes {longest} tokens at most; use --length {longest}.")
    return length


def _study_batches(
    tokenizer: Any, text: Source, held_out: Source | None, length: int, config: LmConfig
) -> tuple[list[Tensor], list[Tensor]]:
    """Batches (b, t) of token ids to work with, and others to judge by."""
    path, size = as_path(text), config.batch_size
    if held_out is None and path is not None and path.suffix == ".npy":
        ids = torch.from_numpy(read_ids(path))
        if ids.ndim == 1:
            ids = ids[: len(ids) // length * length].reshape(-1, length)
        if ids.shape[0] < 2 or ids.shape[1] == 0:
            raise ValueError(
                f"{path} has {ids.shape[0]} sequences of {ids.shape[1]} tokens; two are needed at least, one of them "
                f"to judge by. Pass more, or a held-out file of its own."
            )
        last, ids = max(1, round(_HELD_OUT * ids.shape[0])), ids[:, :length]
        # As many rows as it takes to have so many tokens.
        rows = [math.ceil(tokens / ids.shape[1]) for tokens in (config.tokens, config.held_out_tokens)]
        return list(ids[:-last][: rows[0]].split(size)), list(ids[-last:][: rows[1]].split(size))
    if held_out is None:
        whole = str(text) if path is None else path.read_text(encoding="utf-8")
        if not whole.strip():
            raise ValueError(f"{title(text)} is empty; pass text of a few thousand words.")
        text, held_out = split_text(whole, _HELD_OUT)
    shape: dict[str, Any] = {"length": length, "batch_size": size}
    train = token_batches(tokenizer, text, tokens=config.tokens, **shape)
    return list(train), list(token_batches(tokenizer, held_out, tokens=config.held_out_tokens, **shape))
