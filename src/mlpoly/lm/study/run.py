"""One study, stage by stage, from a model and a text to a folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mlpoly._version import __version__
from mlpoly.files import make_folder
from mlpoly.integrations import find_blocks
from mlpoly.integrations.devices import check_device, describe_machine
from mlpoly.lm.convert.conversion import Conversion
from mlpoly.lm.convert.convert import convert
from mlpoly.lm.evaluate.baselines import BASELINES
from mlpoly.lm.evaluate.losses import evaluate
from mlpoly.lm.model.identity import describe_model
from mlpoly.lm.model.loading import load_model
from mlpoly.lm.model.tracing import trace
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.moments.collect import collect
from mlpoly.lm.reading.attribution import attribute
from mlpoly.lm.reading.block_spectra import BlockSpectrum, block_spectra
from mlpoly.lm.reading.token_features import block_features
from mlpoly.lm.study.config import LmConfig, command_line, with_options
from mlpoly.lm.study.lm_results import BlockErrors, LmResults, LmStore, Loss, write_tables
from mlpoly.lm.study.report import write_lm_report
from mlpoly.lm.study.study_data import fingerprint, frequent_tokens, study_batches
from mlpoly.lm.text.sources import Source, as_path
from mlpoly.lm.text.token_batches import vocabulary
from mlpoly.lm.text.tokens import prompt_ids, token_text
from mlpoly.progress import progress

__all__ = ["study_lm"]

_PROMPT = 48  # tokens of the held-out text that are taken apart, where no prompt is given


def study_lm(
    model: str | PathLike[str],
    text: Source,
    out: str | PathLike[str],
    config: LmConfig | None = None,
    *,
    held_out: Source | None = None,
    prompt: str | None = None,
    device: str = "cpu",
    resume: bool = True,
    show_progress: bool = True,
    **options: Any,
) -> LmResults:
    """Replace the blocks of a language model by polynomials, measure what that costs, and write it all to a folder.

    Parameters
    ----------
    model : str or path
        A folder, a .gguf file or a name on the hub, see `load_model`.
    text : str or path
        A text file, the text itself, or an .npy file of token ids (n, t), as models without a tokenizer need.
    out : path
        Folder for everything: polynomials in ``<block>/``, moments, tables/*.csv, results.json and report.html. Run
        again after an interruption, the study resumes: stages that are done are not computed again.
    config : LmConfig, optional
        Options; each can also be given by name, ``degree=2``.
    held_out : str or path, optional
        Text for the errors and losses; by default the last tenth of `text`, which is then not used otherwise.
    prompt : str, optional
        Text that is taken apart token by token; by default the beginning of the held-out text.
    device : str
        A device of PyTorch.
    resume : bool
        Whether to use moments and results that the folder already has; on the command line, --restart says no.
    show_progress : bool
        Whether long work on a terminal draws a progress bar.

    Returns
    -------
    LmResults
    """
    config, device, folder = with_options(config, options), check_device(device), Path(out)
    # Results of something else, wrong patterns and prompts are refused here, before the work begins.
    before = LmResults.load(folder) if (folder / "results.json").is_file() else None
    make_folder(folder)
    began = time.perf_counter()
    net, tokenizer = load_model(model, device=device, dtype=config.dtype)
    find_blocks(net, config.blocks)
    texts = tokenizer or (vocabulary(model) if (Path(model) / "vocab.json").is_file() else None)
    train, judge = study_batches(tokenizer, text, held_out, config)
    ids = prompt_ids(judge[0][0, :_PROMPT] if prompt is None else prompt, texts)
    loaded = time.perf_counter()
    moments = collect(
        net,
        train,
        config.blocks,
        components=config.components,
        tokens=min(config.tokens, sum(batch.numel() for batch in train)),
        save_to=folder / "moments",
        resume=resume,
        show_progress=show_progress,
    )
    import transformers

    path = as_path(text)
    held = None if held_out is None else as_path(held_out)
    paths = {"text": "TEXT.txt" if path is None else path, "out": folder, "held-out": held}
    about = {
        "version": __version__,
        "command": command_line(model, config, paths, prompt, device),
        "config": asdict(config),
        "model": describe_model(net),
        "data": {
            "text": path.name if path is not None else "a text",
            "tokens": moments.tokens,
            "held_out": sum(batch.numel() for batch in judge),
            "fingerprint": fingerprint([*train, *judge]),
        },
        "prompt": ids,
        "machine": {**describe_machine(device), "transformers": transformers.__version__},
        "seconds": {"load": loaded - began, "collect": time.perf_counter() - loaded},
    }
    store = LmStore(folder, about, before if resume else None)

    degrees = sorted({*config.degrees, config.degree})
    shown: dict[str, Any] = {"show_progress": show_progress}
    if config.spectrum and not store.results.spectra:
        with store.stage("spectra") as parts:
            parts["spectra"] = tuple(block_spectra(net, moments, max(config.spectrum, *degrees), **shown))
    chosen: Conversion | None = None
    for degree in degrees:
        if all(errors.degree != degree for errors in store.results.errors):
            with store.stage(f"degree {degree}") as parts:
                made = fit_degree(net, moments, degree, config, train, judge, store.results.spectra, **shown)
                if degree == config.degree:
                    chosen = made
                    made.save(folder)
                losses = losses_of(net, made, degree, config, train, judge, **shown)
                parts["errors"] = (*store.results.errors, *errors_of(made, degree))
                parts["losses"] = tuple(sorted((*store.results.losses, *losses), key=_loss_order))
    done = {feature.block for feature in store.results.features}
    wanted = moments.names if config.features and config.outputs and config.degree >= 2 else []
    unread = [name for name in wanted if name not in done]
    if chosen is None and (unread or store.results.attribution is None):
        chosen = fit_degree(net, moments, config.degree, config, train, **shown)  # again, as the study was resumed
    if chosen is not None and unread:
        outputs, wiring = frequent_tokens(train, token_text(texts), config.outputs), trace(net, [0])
        with progress("features", len(unread), show_progress) as bar:
            for i, name in enumerate(unread):
                with store.stage("features") as parts:
                    poly = chosen.polynomials[name]
                    inputs = moments.gaussian(name, like=poly.prototype)  # its root is made once
                    more: dict[str, Any] = {
                        "k": config.features,
                        "inputs": inputs,
                        "tokenizer": texts,
                        "wiring": wiring,
                    }
                    found = [f for token in outputs for f in block_features(poly, net, name, token=token, **more)]
                    parts["features"] = (*store.results.features, *found)
                bar(i + 1, name)
    if chosen is not None and store.results.attribution is None:
        with store.stage("attribution") as parts:
            parts["attribution"] = attribute(net, chosen, ids, tokenizer=texts, centred=True)
    write_tables(store.results, folder / "tables")
    write_lm_report(store.results, folder / "report.html")
    return store.results


def fit_degree(
    model: nn.Module,
    moments: Moments,
    degree: int,
    config: LmConfig,
    train: Sequence[Tensor],
    held_out: Sequence[Tensor] | None = None,
    spectra: Sequence[BlockSpectrum] = (),
    *,
    show_progress: bool = True,
) -> Conversion:
    """Polynomials of one degree, with their errors where there is held-out text."""
    # Under a Gaussian the spectra say what fits leave unexplained; to compute it again costs as much, each time.
    known = {s.block: s.unexplained(degree) for s in spectra} if config.method == "gaussian" else {}
    made = convert(
        model,
        moments,
        degree,
        method=config.method,
        bound=config.bound,
        batches=train if config.method == "samples" else None,
        held_out=held_out,
        closed_form=held_out is not None and not known,
        show_progress=show_progress,
    )
    return replace(
        made, quality={n: replace(q, closed_form=known.get(n, q.closed_form)) for n, q in made.quality.items()}
    )


def errors_of(made: Conversion, degree: int) -> list[BlockErrors]:
    nan = float("nan")
    return [
        BlockErrors(
            n,
            degree,
            *(
                nan if e is None else float(e)
                for e in (q.closed_form, q.held_out, q.held_out_unbounded, q.typical, q.beyond)
            ),
        )
        for n, q in made.quality.items()
    ]


def losses_of(
    model: nn.Module,
    made: Conversion,
    degree: int,
    config: LmConfig,
    train: Sequence[Tensor],
    held_out: Sequence[Tensor],
    *,
    show_progress: bool = True,
) -> list[Loss]:
    """Losses with all blocks replaced; with the study's own degree also the baselines, and each block alone."""
    own = degree == config.degree
    options: dict[str, Any] = {"calibration": train, "show_progress": show_progress}
    found = evaluate(model, made, held_out, baselines=BASELINES if own else (), each=own and config.each, **options)
    rows = list(found.rows if own else found.rows[1:])  # the original model comes first, and is needed once
    if config.bound is not None:  # the same polynomials without their lines
        row = evaluate(model, made.unbounded(), held_out, baselines=(), **options).loss()
        rows.append(replace(row, by="unbounded"))
    return [
        Loss(r.replaced, r.by, degree if r.by in ("polynomial", "unbounded") else 0, r.cross_entropy, r.kl)
        for r in rows
    ]


def _loss_order(loss: Loss) -> tuple[int, int]:
    """The original model, baselines, polynomials by degree, single blocks."""
    order = ("", "removed", "mean", "linear", "unbounded", "polynomial")
    return (order.index(loss.by) if loss.replaced in ("none", "all") else len(order)), loss.degree
