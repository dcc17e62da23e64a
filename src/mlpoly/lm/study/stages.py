"""A study in its folder, and its stages, one function each, which add what the results do not have yet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mlpoly.codec import save_results
from mlpoly.integrations.experts import is_expert
from mlpoly.lm.convert.conversion import Conversion
from mlpoly.lm.convert.convert import convert
from mlpoly.lm.evaluate.baselines import BASELINES
from mlpoly.lm.evaluate.losses import Loss, evaluate
from mlpoly.lm.model.tracing import trace
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.reading.attribution import attribute
from mlpoly.lm.reading.block_spectra import block_spectra
from mlpoly.lm.reading.token_features import block_features
from mlpoly.lm.study.lm_results import LmResults
from mlpoly.lm.text.tokens import token_text
from mlpoly.lm_config import LmConfig
from mlpoly.progress import progress

__all__ = ["LmStudy", "study_attribution", "study_degrees", "study_features", "study_spectra"]


@dataclass
class LmStudy:
    """A study in its folder: all that its stages work with, and the results so far."""

    folder: Path
    config: LmConfig
    results: LmResults  # saved to results.json after every stage, so that a killed study resumes
    model: nn.Module
    texts: Any  # tokenizer or list, the source of the texts of tokens
    train: Sequence[Tensor]  # token ids (b, t) to fit to
    held_out: Sequence[Tensor]  # and to judge by
    moments: Moments
    show_progress: bool

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Collect fields of the results in a dictionary; at the end they are saved, with the seconds that it took."""
        parts: dict[str, Any] = {}
        began = time.perf_counter()
        yield parts
        seconds = dict(self.results.about["seconds"])
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began
        self.results = replace(self.results, **parts, about=self.results.about | {"seconds": seconds})
        save_results(self.folder / "results.json", self.results)

    @property
    def degrees(self) -> list[int]:
        """Degrees of the polynomials, in ascending order."""
        return sorted({*self.config.degrees, self.config.degree})

    def polynomials(self, degree: int, measured: bool = False) -> Conversion:
        """Polynomials of one degree, with their errors if they are to be measured."""
        # Under a Gaussian the spectra say what fits leave unexplained; to compute it again costs as much, each time.
        spectra = self.results.spectra if measured and self.config.method == "gaussian" else ()
        made = convert(
            self.model,
            self.moments,
            degree,
            method=self.config.method,
            bound=self.config.bound,
            batches=self.train if self.config.method == "samples" else None,
            held_out=self.held_out if measured else None,
            closed_form=measured and not spectra,
            show_progress=self.show_progress,
        )
        known = {spectrum.block: spectrum.unexplained(degree) for spectrum in spectra}
        errors = {n: replace(e, closed_form=known.get(n, e.closed_form)) for n, e in made.errors.items()}
        return replace(made, errors=errors)


def study_spectra(study: LmStudy) -> None:
    """Degree spectra of all blocks, up to the highest degree that is fitted at least."""
    if study.config.spectrum and not study.results.spectra:
        with study.stage("spectra") as parts:
            highest = max(study.config.spectrum, *study.degrees)
            found = block_spectra(study.model, study.moments, highest, show_progress=study.show_progress)
            parts["spectra"] = tuple(found)


def study_degrees(study: LmStudy) -> Conversion | None:
    """Errors and losses of the polynomials of every degree; those of the chosen one are saved, and returned if new."""
    config, chosen = study.config, None
    options: dict[str, Any] = {"calibration": study.train, "show_progress": study.show_progress}
    for degree in study.degrees:
        if any(errors.degree == degree for errors in study.results.errors):
            continue
        with study.stage(f"degree {degree}") as parts:
            made, own = study.polynomials(degree, measured=True), degree == config.degree
            if own:
                chosen = made
                made.save(study.folder)
            # With the chosen degree also the original model, the baselines, and each block alone.
            baselines, each = BASELINES if own else (), own and config.each
            rows = evaluate(study.model, made, study.held_out, baselines=baselines, each=each, **options).rows
            losses = list(rows if own else rows[1:])
            if config.bound is not None:  # the same polynomials where they are polynomials everywhere
                found = evaluate(study.model, made.unbounded(), study.held_out, baselines=(), **options)
                losses.append(replace(found.loss(), by="unbounded"))
            parts["errors"] = (*study.results.errors, *made.errors.values())
            parts["losses"] = tuple(sorted((*study.results.losses, *losses), key=_place))
    return chosen


def _place(loss: Loss) -> tuple[int, int]:
    """The original model, baselines, polynomials by degree, single blocks."""
    order = ("", "removed", "mean", "linear", "unbounded", "polynomial")
    return (order.index(loss.by) if loss.replaced in ("none", "all") else len(order)), loss.degree


def study_features(study: LmStudy, chosen: Conversion) -> None:
    """Features of every block in terms of tokens, towards the most frequent tokens of the text."""
    config = study.config
    done = {feature.block for feature in study.results.features}
    unread = [name for name in chosen.polynomials if name not in done and not is_expert(name)]
    if not (unread and config.features and config.outputs and config.degree >= 2):
        return
    outputs, wiring = _frequent_tokens(study.train, token_text(study.texts), config.outputs), trace(study.model, [0])
    options: dict[str, Any] = {"k": config.features, "tokenizer": study.texts, "wiring": wiring}
    with progress("features", len(unread), study.show_progress) as bar:
        for i, name in enumerate(unread):
            with study.stage("features") as parts:
                poly = chosen.polynomials[name]
                options["inputs"] = study.moments.gaussian(name, like=poly.prototype)  # its root is made once
                found = [block_features(poly, study.model, name, token=token, **options) for token in outputs]
                parts["features"] = (*study.results.features, *(feature for some in found for feature in some))
            bar(i + 1, name)


def _frequent_tokens(batches: Sequence[Tensor], text: Callable[[int], str], count: int) -> list[int]:
    """The most frequent tokens with a letter in their text; any, if none has one."""
    counts = Counter(int(i) for batch in batches for i in batch.flatten().tolist())
    order = [i for i, _ in counts.most_common()]
    named = [i for i in order if any(c.isalpha() for c in text(i)) and not text(i).strip().startswith("<")]
    return (named or order)[:count]


def study_attribution(study: LmStudy, chosen: Conversion, prompt: Sequence[int]) -> None:
    """Contributions of the blocks to the logits of a prompt, token by token."""
    direct = {name: poly for name, poly in chosen.polynomials.items() if not is_expert(name)}
    if direct:
        with study.stage("attribution") as parts:
            parts["attribution"] = attribute(study.model, direct, prompt, tokenizer=study.texts, centred=True)
