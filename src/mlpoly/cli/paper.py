"""The commands of the paper's experiments: all of them at once, and one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlpoly.studies.paper.bench import DynamicsConfig
from mlpoly.studies.paper.training import TrainConfig

__all__ = ["Attack", "Dynamics", "Features", "Report", "Reproduce", "Train"]


@dataclass(frozen=True)
class _Common:
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("out/study")
    """Folder of the study."""
    data_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Where to look for the data before MLPOLY_DATA and the user's cache."""
    device: str = "cpu"
    """A device of PyTorch, such as cuda."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """No progress bars. They are drawn on a terminal only."""


@dataclass(frozen=True)
class Reproduce(_Common):
    """Repeat the paper's experiments: train, fit every checkpoint, attack, and write report.html."""

    data: str = "digits"
    """digits, mnist, fashion-mnist, a folder of IDX files, or an .npz file."""
    seeds: int = 1
    """Networks to train, with seeds counted up from --seed."""
    label: int | None = None
    """Class shown in the printed figures, by default 3 as in the paper; the report has all of them."""
    train: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=TrainConfig)
    fits: Annotated[DynamicsConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=DynamicsConfig)

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.reproduce`."""
        from mlpoly.studies.paper.reproduce import reproduce

        found = reproduce(
            self.out,
            self.data,
            data_dir=self.data_dir,
            train=self.train,
            fits=self.fits,
            seeds=self.seeds,
            label=self.label,
            device=self.device,
            show_progress=not self.quiet,
        )
        return {"report": self.out / "report.html", "seconds": found.about["seconds"], "claims": found.claims}


@dataclass(frozen=True)
class Train(_Common):
    """Train networks as in the paper, with checkpoints at powers of two."""

    data: str = "digits"
    """digits, mnist, fashion-mnist, a folder of IDX files, or an .npz file."""
    seeds: int = 1
    """Networks to train, with seeds counted up from --seed."""
    train: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=TrainConfig)
    fits: Annotated[DynamicsConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=DynamicsConfig)

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_training`."""
        from mlpoly.studies.paper.reproduce import study_training
        from mlpoly.studies.paper.study import Study

        study = Study(self.out, self.data, self.data_dir, self.fits, self.device)
        study.create(self.train, self.seeds)
        study_training(study, self.train, self.seeds, show_progress=not self.quiet)
        last = {p.seed: p for p in study.results.training}
        return {"checkpoints": [r.folder for r in study.runs], "networks": list(last.values())}


@dataclass(frozen=True)
class _Step(_Common):
    def _study(self) -> Any:
        from mlpoly.studies.paper.study import Study

        return Study.open(self.out, self.data_dir, self.device)


@dataclass(frozen=True)
class Dynamics(_Step):
    """Fit linear and quadratic polynomials to every checkpoint and measure them (figures 2 and 3)."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_dynamics`."""
        from mlpoly.studies.paper.reproduce import study_dynamics

        found = study_dynamics(self._study(), show_progress=not self.quiet)
        steps = max(p.step for p in found.dynamics)
        return {"points": [p for p in found.dynamics if p.step == steps]}


@dataclass(frozen=True)
class Features(_Step):
    """Eigenfeatures of every class over training, and a few images explained (figure 1)."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_features`."""
        from mlpoly.studies.paper.reproduce import study_features

        found = study_features(self._study(), show_progress=not self.quiet).features
        steps = found.steps if found is not None else ()
        last = [s for s in steps if s.step == steps[-1].step]
        rows = [{"class": s.label, "positive": s.positive, "negative": s.negative} for s in last]
        return {"eigenvalues": rows}


@dataclass(frozen=True)
class Attack(_Step):
    """Remove singular directions from the images, and steer along eigenvectors (figures 4 and 5)."""

    label: int | None = None
    """Class whose image is shown, by default 3 as in the paper."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_attack`."""
        from mlpoly.studies.paper.reproduce import study_attack

        found = study_attack(self._study(), label=self.label, show_progress=not self.quiet)
        return {"ablation": [a for each in found.attack for a in each.ablations if a.directions == "singular"]}


@dataclass(frozen=True)
class Report(_Step):
    """Judge the claims and write tables, figures and report.html from the results in the folder."""

    label: int | None = None
    """Class shown in the printed figures, by default 3 as in the paper."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_report`."""
        from mlpoly.studies.paper.reproduce import study_report

        study = self._study()
        path = study_report(study, label=self.label)
        return {"report": path, "claims": study.results.claims}
