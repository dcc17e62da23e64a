"""The stages of a study of a language model, one function each, which add what the results do not have yet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from mlpoly.importers.experts import is_expert
from mlpoly.lm.conversion.conversion import Conversion
from mlpoly.lm.conversion.convert import convert
from mlpoly.lm.evaluation.baselines import BASELINES
from mlpoly.lm.evaluation.losses import evaluate
from mlpoly.lm.model.tracing import Trace
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.reading.attribution import attribute
from mlpoly.lm.reading.block_features import block_features
from mlpoly.lm.reading.block_spectra import block_spectra
from mlpoly.lm.reading.causality import check_features
from mlpoly.lm.reading.contexts import read_features
from mlpoly.lm.reading.feature_reading import with_scores
from mlpoly.lm.reading.feature_set import FeatureSet
from mlpoly.studies.language_model.options import LmConfig
from mlpoly.studies.language_model.results import LmResults
from mlpoly.studies.study import Study

_CONTROLS = 5  # random directions of each block
_CHECKED = 512  # tokens on which the model runs with features removed, twice for each of them


@dataclass
class LmStudy:
    """All that the stages of a study work with."""

    store: Study[LmResults]
    config: LmConfig
    model: nn.Module
    texts: Any  # tokenizer or list, the source of the texts of tokens
    train: Sequence[Tensor]  # token ids (b, t) to fit to
    held_out: Sequence[Tensor]  # and to judge by
    moments: Moments
    wiring: Trace

    @property
    def degrees(self) -> list[int]:
        """Degrees of the polynomials, in ascending order."""
        return sorted({*self.config.degrees, self.config.degree})

    def polynomials(self, degree: int, measured: bool = False, bound: Any = None) -> Conversion:
        """Polynomials of one degree, with their errors if they are to be measured."""
        # Under a Gaussian the spectra say what fits leave unexplained; to compute it again costs as much, each time.
        spectra = self.store.results.spectra if measured and self.config.method == "gaussian" else ()
        conversion = convert(
            self.model,
            self.moments,
            degree,
            method=self.config.method,
            bound=bound,
            batches=self.train if self.config.method == "samples" else None,
            held_out=self.held_out if measured else None,
            closed_form=measured and not spectra,
        )
        exact = {spectrum.block: spectrum.unexplained(degree) for spectrum in spectra}
        errors = {n: replace(e, closed_form=exact.get(n, e.closed_form)) for n, e in conversion.errors.items()}
        return replace(conversion, errors=errors)


def study_spectra(study: LmStudy) -> None:
    """Degree spectra of all blocks, up to the highest degree that is fitted at least."""
    if study.config.spectrum_degree:
        highest = max(study.config.spectrum_degree, *study.degrees)
        study.store.run("spectra", lambda: {"spectra": tuple(block_spectra(study.model, study.moments, highest))})


def study_degrees(study: LmStudy) -> Conversion | None:
    """Errors and losses of the polynomials of every degree; those of the chosen one are saved, and returned if new."""
    chosen, config = None, study.config
    for degree in study.degrees:
        if f"degree {degree}" in study.store.parts:
            continue
        own = degree == config.degree
        with study.store.stage(f"degree {degree}") as found:
            conversion = study.polynomials(degree, measured=True, bound=config.bound)
            if own:
                conversion.save(study.store.folder)
            others: dict[str, Any] = {}
            if config.bound is not None:
                # What samples say within the bound is not what they say without one.
                sampled = config.method == "samples"
                others["unbounded"] = study.polynomials(degree) if sampled else conversion.unbounded
            rows = evaluate(
                study.model,
                conversion,
                study.held_out,
                # With the chosen degree also the original model, the baselines, and each block alone.
                baselines=BASELINES if own else (),
                each=own and config.single_blocks,
                others=others,
                calibration=study.train,
            ).rows
            found["errors"] = tuple(conversion.errors.values())
            found["losses"] = tuple(rows if own else rows[1:])
        chosen = conversion if own else chosen
    return chosen


def study_features(study: LmStudy, chosen: Conversion) -> None:
    """Features of every block on held-out text, with their scores and those of random directions."""
    if not study.config.features_per_block or study.config.degree < 2 or "features" in study.store.parts:
        return
    with study.store.stage("features") as found:
        model, held_out = study.model, study.held_out
        # Experts see some tokens.
        polys = {name: poly for name, poly in chosen.polynomials.items() if not is_expert(name)}
        wiring, sets = study.wiring, list[FeatureSet]()
        for name, poly in polys.items():
            inputs = study.moments.gaussian(name, like=poly.prototype)  # its root is made once
            options: dict[str, Any] = {"inputs": inputs, "wiring": wiring}
            sets.append(block_features(poly, model, name, "principal", study.config.features_per_block, **options))
            sets.append(block_features(poly, model, name, "random", _CONTROLS, **options))
        if sets:
            readings = read_features(model, sets, held_out, tokenizer=study.texts, wiring=wiring)
            causal = check_features(model, sets, held_out, tokens=_CHECKED, wiring=wiring)
            found["features"] = tuple(with_scores(readings, causal))


def study_attribution(study: LmStudy, chosen: Conversion, prompt: Sequence[int]) -> None:
    """Contributions of the blocks to the logits of a prompt, token by token."""
    polys = {name: poly for name, poly in chosen.polynomials.items() if not is_expert(name)}
    if polys:
        options: dict[str, Any] = {"tokenizer": study.texts, "centred": True}
        study.store.run("attribution", lambda: {"attribution": attribute(study.model, polys, prompt, **options)})
