"""A study in its folder, and its stages, one function each, which add what the results do not have yet."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mlpoly.codec import save_results
from mlpoly.importers.experts import is_expert
from mlpoly.lm.conversion.conversion import Conversion
from mlpoly.lm.conversion.convert import convert
from mlpoly.lm.evaluation.baselines import BASELINES
from mlpoly.lm.evaluation.losses import Loss, evaluate
from mlpoly.lm.model.tracing import trace
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.reading.attribution import attribute
from mlpoly.lm.reading.block_forms import block_forms
from mlpoly.lm.reading.block_spectra import block_spectra
from mlpoly.lm.reading.causality import check_features
from mlpoly.lm.reading.contexts import FeatureReadings, read_features, with_scores
from mlpoly.lm.reading.feature_set import FeatureKind, FeatureSet, block_features
from mlpoly.lm.reading.readability import readability
from mlpoly.progress_bars import progress_bar
from mlpoly.studies.language_model.options import LmConfig
from mlpoly.studies.language_model.results import LmResults

_CONTROLS = 5  # random directions of each block
_CHECKED = 512  # tokens on which the model runs with features changed, three times for each of them


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

    def polynomials(self, degree: int, measured: bool = False, lines: bool = True) -> Conversion:
        """Polynomials of one degree, with their errors if they are to be measured; without `lines`, everywhere."""
        # Under a Gaussian the spectra say what fits leave unexplained; to compute it again costs as much, each time.
        spectra = self.results.spectra if measured and self.config.method == "gaussian" else ()
        made = convert(
            self.model,
            self.moments,
            degree,
            method=self.config.method,
            bound=self.config.bound if lines else None,
            batches=self.train if self.config.method == "samples" else None,
            held_out=self.held_out if measured else None,
            closed_form=measured and not spectra,
        )
        known = {spectrum.block: spectrum.unexplained(degree) for spectrum in spectra}
        errors = {n: replace(e, closed_form=known.get(n, e.closed_form)) for n, e in made.errors.items()}
        return replace(made, errors=errors)


def study_spectra(study: LmStudy) -> None:
    """Degree spectra of all blocks, up to the highest degree that is fitted at least."""
    if study.config.spectrum and not study.results.spectra:
        with study.stage("spectra") as parts:
            highest = max(study.config.spectrum, *study.degrees)
            found = block_spectra(study.model, study.moments, highest)
            parts["spectra"] = tuple(found)


def study_degrees(study: LmStudy) -> Conversion | None:
    """Errors and losses of the polynomials of every degree; those of the chosen one are saved, and returned if new."""
    config, chosen = study.config, None
    options: dict[str, Any] = {"calibration": study.train}
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
            if config.bound is not None:
                everywhere = study.polynomials(degree, lines=False)
                found = evaluate(study.model, everywhere, study.held_out, baselines=(), **options)
                losses.append(replace(found.loss(), by="unbounded"))
            parts["errors"] = (*study.results.errors, *made.errors.values())
            parts["losses"] = tuple(sorted((*study.results.losses, *losses), key=_place))
    return chosen


def _place(loss: Loss) -> tuple[int, int]:
    """The original model, baselines, polynomials by degree, single blocks."""
    order = ("", "removed", "mean", "linear", "unbounded", "polynomial")
    return (order.index(loss.by) if loss.replaced in ("none", "all") else len(order)), loss.degree


def study_features(study: LmStudy, chosen: Conversion) -> None:
    """Features of every block on held-out text, with their scores and those of random directions; principal forms."""
    config, model, held_out = study.config, study.model, study.held_out
    if not config.features or config.degree < 2:
        return
    done = {feature.block for feature in study.results.features}
    readable = [name for name in chosen.polynomials if not is_expert(name)]  # an expert sees some of the tokens alone
    unread = [name for name in readable if name not in done]
    wiring, sets = trace(model, [0]), dict[str, list[FeatureSet]]()

    def features_of(name: str) -> list[FeatureSet]:
        if name not in sets:
            poly = chosen.polynomials[name]
            kinds: dict[FeatureKind, int] = {"principal": config.features, "random": _CONTROLS}
            inputs = study.moments.gaussian(name, like=poly.prototype)  # its root is made once
            options: dict[str, Any] = {"inputs": inputs, "wiring": wiring}
            sets[name] = [block_features(poly, model, name, kind, k, **options) for kind, k in kinds.items()]
        return sets[name]

    with progress_bar("features", len(unread)) as bar:
        for i, name in enumerate(unread):
            with study.stage("features") as parts:
                some = features_of(name)
                found = read_features(model, some, held_out, tokenizer=study.texts, wiring=wiring)
                causal = check_features(model, some, held_out, tokens=_CHECKED, wiring=wiring)
                parts["features"] = (*study.results.features, *with_scores(found, causal))
                forms = block_forms({name: chosen.polynomials[name]}, study.moments)
                parts["forms"] = (*study.results.forms, *forms)
            bar(i + 1, name)
    if any(feature.readability is None for feature in study.results.features):
        with study.stage("readability") as parts:  # one pass over the text for all blocks
            every = [some for name in readable for some in features_of(name)]
            scores = readability(model, every, study.train, held_out)
            parts["features"] = tuple(with_scores(FeatureReadings(study.results.features), readability=scores))


def study_attribution(study: LmStudy, chosen: Conversion, prompt: Sequence[int]) -> None:
    """Contributions of the blocks to the logits of a prompt, token by token."""
    direct = {name: poly for name, poly in chosen.polynomials.items() if not is_expert(name)}
    if direct:
        with study.stage("attribution") as parts:
            parts["attribution"] = attribute(study.model, direct, prompt, tokenizer=study.texts, centred=True)
