"""Results of a study of a language model."""

from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from mlpoly.codec import to_plain
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
        # The original model, baselines, polynomials by degree, single blocks.
        order = ("", "removed", "mean", "linear", "unbounded", "polynomial")
        ranks = [(order.index(x.by) if x.replaced in ("none", "all") else len(order), x.degree) for x in self.losses]
        losses = tuple(self.losses[i] for i in sorted(range(len(ranks)), key=ranks.__getitem__))
        object.__setattr__(self, "losses", losses)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "LmResults":
        """Read the results of a study, finished or not, from its folder."""
        return Study.open(folder, cls).results

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of the CSV files, by their names."""
        features = []
        for found in self.features:
            scores = (to_plain(found.causal) or {}).items()
            own = {"block": found.block, "kind": found.kind} | found.row()
            own |= {"active": found.active, "strength": found.strength}
            features.append(own | {f"causal_{name}": v for name, v in scores if name not in ("block", "feature")})
        return {
            "fvu": [to_plain(errors) for errors in self.errors],
            "loss": [{k: v for k, v in to_plain(loss).items() if k != "cosine"} for loss in self.losses],
            "spectrum": [spectrum.row() for spectrum in self.spectra],
            "features": features,
            "contexts": [
                {"block": f.block, "kind": f.kind, "name": f.name, "side": side, "value": c.value, "text": str(c)}
                for f in self.features
                for side in ("positive", "negative")
                for c in getattr(f, side)
            ],
            "attribution": self.attribution.rows() if self.attribution is not None else [],
        }
