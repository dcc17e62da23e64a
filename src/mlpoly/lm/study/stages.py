"""The stages of a study, from the model to the parts of a prompt."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

from mlpoly._version import __version__
from mlpoly.integrations import find_blocks
from mlpoly.integrations.devices import describe_machine
from mlpoly.lm.convert.conversion import Conversion
from mlpoly.lm.convert.convert import convert
from mlpoly.lm.evaluate.losses import Evaluation, evaluate
from mlpoly.lm.model.identity import describe_model
from mlpoly.lm.model.loading import load_model
from mlpoly.lm.model.tracing import trace
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.moments.collect import collect
from mlpoly.lm.reading.attribution import attribute, plain_polynomials
from mlpoly.lm.reading.token_features import block_features, layer_spectra
from mlpoly.lm.study.config import LmConfig
from mlpoly.lm.study.lm_results import FitRow, LmResults, Loss
from mlpoly.lm.study.study_data import frequent_tokens, study_batches, texts_of
from mlpoly.lm.text.sources import Source, as_path
from mlpoly.lm.text.tokens import token_text
from mlpoly.progress import progress

__all__ = ["Stages"]

_PROMPT = 48  # tokens of the held-out text that are taken apart, where no prompt is given


class Stages:
    """The stages of a study, each of which adds to `results`."""

    def __init__(self, config: LmConfig, folder: Path, device: str, show_progress: bool) -> None:
        self.config, self.folder, self.device, self.show_progress = config, folder, device, show_progress
        import transformers

        machine = {**describe_machine(device), "transformers": transformers.__version__}
        self.results = LmResults({"version": __version__, "config": asdict(config), "machine": machine, "seconds": {}})
        self.polynomials: Conversion
        self.others: dict[int, Conversion] = {}  # by degree

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.results.about["seconds"][name] = time.perf_counter() - began

    def open(self, model: str | PathLike[str], text: Source, held_out: Source | None) -> None:
        """Load the model and cut the text."""
        with self._stage("load"):
            self.model, self.tokenizer = load_model(model, device=self.device, dtype=self.config.dtype)
            find_blocks(self.model, self.config.layers)  # a wrong pattern is told before the work begins
            self.texts: Any = self.tokenizer or texts_of(model)
            self.train, self.held_out = study_batches(self.tokenizer, text, held_out, self.config)
        self.results.about["model"] = describe_model(self.model)
        path = as_path(text)
        self.results.about["data"] = {
            "text": path.name if path is not None else "a text",
            "held_out": sum(batch.numel() for batch in self.held_out),
        }

    def collect(self, resume: bool) -> Moments:
        """Moments of all blocks, from the folder if they are there."""
        with self._stage("collect"):
            found = collect(
                self.model,
                self.train,
                self.config.layers,
                components=self.config.components,
                tokens=min(self.config.tokens, sum(batch.numel() for batch in self.train)),
                save_to=self.folder / "moments",
                resume=resume,
                show_progress=self.show_progress,
            )
        self.results.about["data"] |= {"tokens": found.tokens}
        return found

    def spectra(self, moments: Moments) -> None:
        """Shares of the degrees in every block; under its Gaussian they also say what any fit leaves unexplained."""
        if self.config.spectrum:
            with self._stage("spectra"):
                highest = max(self.config.spectrum, *self.config.degrees, self.config.degree)
                found = layer_spectra(self.model, moments, highest, show_progress=self.show_progress)
                self.results.spectra = found

    def convert(self, moments: Moments) -> None:
        """Polynomials of all degrees, measured; those of the chosen degree saved and put into the model."""
        degrees = sorted({*self.config.degrees, self.config.degree})
        with self._stage("convert"):
            for degree in degrees:
                self.others[degree] = self._converted(moments, degree)
                for block, q in self.others[degree].quality.items():
                    errors = (q.closed_form, q.held_out, q.held_out_unbounded, q.typical, q.beyond)
                    row = FitRow(block, degree, *(math.nan if error is None else float(error) for error in errors))
                    self.results.fits.append(row)
            self.polynomials = self.others.pop(self.config.degree)
            self.polynomials.save(self.folder)

    def _converted(self, moments: Moments, degree: int) -> Conversion:
        # The spectra say what these fits leave unexplained; to compute it again costs as much, for every degree.
        known = bool(self.results.spectra) and self.config.method == "gaussian"
        found = convert(
            self.model,
            moments,
            degree,
            method=self.config.method,
            bound=self.config.bound,
            batches=self.train if self.config.method == "samples" else None,
            held_out=self.held_out,
            closed_form=not known,
            show_progress=self.show_progress,
        )
        if not known:
            return found
        closed = {s.layer: s.unexplained(degree) for s in self.results.spectra}
        return replace(found, quality={n: replace(q, closed_form=closed[n]) for n, q in found.quality.items()})

    def evaluate(self) -> None:
        """Cross-entropy of the model with all blocks replaced, and with each."""
        options: dict[str, Any] = {"calibration": self.train, "show_progress": self.show_progress}
        with self._stage("evaluate"):
            found = evaluate(self.model, self.polynomials, self.held_out, each=self.config.each, **options)
            self.results.losses += _loss_rows(found, self.config.degree)
            for degree, other in self.others.items():
                found = evaluate(self.model, other, self.held_out, baselines=(), **options)
                self.results.losses += _loss_rows(found, degree)[1:]  # the model as it is was there already
            if self.config.bound is not None:  # the same polynomials where they are polynomials everywhere
                for degree, made in {self.config.degree: self.polynomials, **self.others}.items():
                    row = evaluate(self.model, made.unbounded(), self.held_out, baselines=(), **options).loss()
                    self.results.losses.append(Loss("all", "unbounded", degree, row.cross_entropy, row.kl))
        # The model as it is, baselines, polynomials by degree, single blocks.
        whole = ("", "removed", "mean", "linear", "unbounded", "polynomial")
        self.results.losses.sort(
            key=lambda x: (whole.index(x.by) if x.replaced in ("none", "all") else len(whole), x.degree)
        )

    def read(self, moments: Moments) -> None:
        """Features in tokens."""
        if not self.config.features or not self.config.outputs or self.config.degree < 2:
            return
        chosen = plain_polynomials(self.polynomials)
        with self._stage("features"), progress("features", len(chosen), self.show_progress) as bar:
            outputs = frequent_tokens(self.train, token_text(self.texts), self.config.outputs)
            options: dict[str, Any] = {"k": self.config.features, "tokenizer": self.texts}
            options |= {"wiring": trace(self.model, [0])}
            for i, (name, poly) in enumerate(chosen.items()):
                inputs = moments.gaussian(name, like=poly.prototype)  # its root is made once
                for token in outputs:
                    found = block_features(poly, self.model, name, token=token, inputs=inputs, **options)
                    self.results.features += found
                bar(i + 1, name)

    def take_apart(self, prompt: str | None) -> None:
        """Contributions to logits, token by token."""
        with self._stage("attribution"):
            given: Any = prompt if prompt is not None else self.held_out[0][0, :_PROMPT]
            found = attribute(self.model, self.polynomials, given, tokenizer=self.texts, centred=True)
            self.results.attribution = found


def _loss_rows(found: Evaluation, degree: int) -> list[Loss]:
    return [
        Loss(row.replaced, row.by, degree if row.by == "polynomial" else 0, row.cross_entropy, row.kl)
        for row in found.rows
    ]
