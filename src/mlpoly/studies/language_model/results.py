"""Results of a study of a language model, and tables of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from mlpoly.codec import load_results, to_plain
from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, write_csv
from mlpoly.lm.conversion.block_errors import BlockErrors
from mlpoly.lm.evaluation.losses import Loss
from mlpoly.lm.reading.attribution import Attribution
from mlpoly.lm.reading.block_forms import FormSpectrum
from mlpoly.lm.reading.block_spectra import BlockSpectrum
from mlpoly.lm.reading.contexts import FeatureReading


@dataclass(frozen=True)
class LmResults:
    """Results of a study of a language model."""

    about: dict[str, Any]  # "version", "command", "config", "model", "data", "prompt", "machine", "seconds" (by stage)
    errors: tuple[BlockErrors, ...]  # of every block's polynomial, by degree
    losses: tuple[Loss, ...]  # of the model on held-out text, with all blocks replaced and with each
    spectra: tuple[BlockSpectrum, ...] = ()
    features: tuple[FeatureReading, ...] = ()  # of every block, and random directions as controls
    forms: tuple[FormSpectrum, ...] = ()
    attribution: Attribution | None = None

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> LmResults:
        """Read the results of a study, finished or not, from its folder."""
        try:
            return load_results(Path(folder) / "results.json", cls)
        except FileFormatError as error:
            raise FileFormatError(f"{error} Or choose another --out.") from None

    def check_resumes(self, about: dict[str, Any], folder: Path) -> None:
        """Raise if the results in the folder are those of another study; warn if another machine made them."""
        old = {"config": {}, "model": {}, "data": {}, "machine": {}} | self.about
        options, machine = old["config"], {"mlpoly": old.get("version"), **old["machine"]}
        changed = [f"{name} {options.get(name)!r}" for name, v in about["config"].items() if options.get(name) != v]
        # The first that differs: tokens depend on the options, and the prompt, if none is given, on the tokens.
        differences = {
            "another model": any(old["model"].get(k) != about["model"][k] for k in ("architecture", "weights")),
            ", ".join(changed): bool(changed),
            "another text": old["data"].get("fingerprint") != about["data"]["fingerprint"],
            "another prompt": old.get("prompt") != about["prompt"],
        }
        for what, differs in differences.items():
            if differs:
                raise ValueError(
                    f"{folder} holds a study with {what}; choose another --out, or replace it with --restart "
                    f"(resume=False)."
                )
        here = {"mlpoly": about["version"], **about["machine"]}
        moved = [f"{name} {machine.get(name)}, now {v}" for name, v in here.items() if machine.get(name) != v]
        if moved:
            warnings.warn(
                f"the results in {folder} are kept although the machine or versions have changed ({'; '.join(moved)}); "
                f"--restart (resume=False) computes them again.",
                stacklevel=3,
            )


def write_tables(results: LmResults, folder: Path) -> None:
    """Write every kind of result as a CSV file; a kind that there is nothing of has no file."""
    tables: dict[str, list[dict[str, Any]]] = {
        "fvu": [to_plain(errors) for errors in results.errors],
        "loss": [{k: v for k, v in to_plain(loss).items() if k != "cosine"} for loss in results.losses],
        "spectrum": [spectrum.row() for spectrum in results.spectra],
        "forms": [forms.row() for forms in results.forms],
        "features": [_feature_row(feature) for feature in results.features],
        "contexts": [
            {"block": f.block, "kind": f.kind, "name": f.name, "side": side, "value": c.value, "text": str(c)}
            for f in results.features
            for side in ("positive", "negative")
            for c in getattr(f, side)
        ],
        "attribution": results.attribution.rows() if results.attribution is not None else [],
    }
    make_folder(folder)
    for name, rows in tables.items():
        if rows:
            write_csv(folder / f"{name}.csv", rows)


def _feature_row(feature: FeatureReading) -> dict[str, Any]:
    """A feature in a line, with all of its scores."""
    scores = {
        f"{part}_{name}": value
        for part in ("causal", "readability")
        for name, value in (to_plain(getattr(feature, part)) or {}).items()
        if name not in ("block", "feature")
    }
    own = {"block": feature.block, "kind": feature.kind} | feature.row()
    return own | {"active": feature.active, "strength": feature.strength} | scores
