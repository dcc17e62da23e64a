"""Results of a study of a language model, and tables of them."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from mlpoly.codec import to_plain
from mlpoly.files import make_folder, write_csv
from mlpoly.lm.conversion.conversion import BlockErrors
from mlpoly.lm.evaluation.losses import Loss
from mlpoly.lm.reading.attribution import Attribution
from mlpoly.lm.reading.block_spectra import BlockSpectrum
from mlpoly.lm.reading.feature_reading import FeatureReading
from mlpoly.studies.study import Study


@dataclass(frozen=True)
class LmResults:
    """Results of a study of a language model."""

    about: dict[str, Any] = field(default_factory=dict)  # see `mlpoly.studies.study.Study`
    errors: tuple[BlockErrors, ...] = ()  # of every block's polynomial, by degree
    losses: tuple[Loss, ...] = ()  # of the model on held-out text, with all blocks replaced and with each
    spectra: tuple[BlockSpectrum, ...] = ()
    features: tuple[FeatureReading, ...] = ()  # of every block, and random directions as controls
    attribution: Attribution | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "losses", tuple(sorted(self.losses, key=_order)))

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "LmResults":
        """Read the results of a study, finished or not, from its folder."""
        return Study.open(folder, cls).results


def _order(loss: Loss) -> tuple[int, int]:
    """The original model, baselines, polynomials by degree, single blocks."""
    order = ("", "removed", "mean", "linear", "unbounded", "polynomial")
    return (order.index(loss.by) if loss.replaced in ("none", "all") else len(order)), loss.degree


def write_tables(results: LmResults, folder: Path) -> None:
    """Write every kind of result as a CSV file; a kind that there is nothing of has no file."""
    tables: dict[str, list[dict[str, Any]]] = {
        "fvu": [to_plain(errors) for errors in results.errors],
        "loss": [{k: v for k, v in to_plain(loss).items() if k != "cosine"} for loss in results.losses],
        "spectrum": [spectrum.row() for spectrum in results.spectra],
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
    scores = (to_plain(feature.causal) or {}).items()
    own = {"block": feature.block, "kind": feature.kind} | feature.row()
    own |= {"active": feature.active, "strength": feature.strength}
    return own | {f"causal_{name}": value for name, value in scores if name not in ("block", "feature")}
