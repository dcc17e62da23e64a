"""The commands of the paper's experiments, all of them at once and one by one, and of their data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig

if TYPE_CHECKING:
    from mlpoly.studies.paper.study import Study

_SHOWN = "Class shown in the printed figures, by default 3 as in the paper; the report has all of them."
_Label = Annotated[int | None, tyro.conf.arg(metavar="CLASS", help=_SHOWN)]


@dataclass(frozen=True)
class _StudyCommand:
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("out/study")
    """Folder of the study."""
    data_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder in which the data is looked for before MLPOLY_DATA and the user's cache."""
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE")] = "cpu"
    """Device of PyTorch, such as cuda."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Draw no progress bars. They are drawn on a terminal only."""

    def _study(self) -> Study:
        from mlpoly.studies.paper.study import Study

        return Study.open(self.out, self.data_dir, self.device)


@dataclass(frozen=True)
class _TrainingCommand(_StudyCommand):
    data: Annotated[str, tyro.conf.arg(metavar="DATA")] = "digits"
    """digits, mnist, fashion-mnist, a folder of IDX files, or an .npz file."""
    seeds: int = 1
    """Number of networks to train, with seeds counted up from --seed."""
    train: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=TrainConfig)
    fits: Annotated[DynamicsConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=DynamicsConfig)


@dataclass(frozen=True)
class ReproduceCommand(_TrainingCommand):
    """Repeat the paper's experiments: train, fit every checkpoint, attack, and write report.html."""

    label: _Label = None
    figures: bool = True
    """Draw the figures for print as well (PNG and PDF); the report has its own."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.reproduce.reproduce`."""
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
            figures=self.figures,
        )
        return {"claims": found.claims, "seconds": found.about["seconds"], "report": self.out / "report.html"}


@dataclass(frozen=True)
class TrainCommand(_TrainingCommand):
    """Train networks as in the paper, with checkpoints at powers of two."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.reproduce.study_training`."""
        from mlpoly.studies.paper.reproduce import study_training
        from mlpoly.studies.paper.study import Study

        study = Study(self.out, self.data, self.data_dir, self.fits, self.device)
        found = study_training(study, self.train, self.seeds)
        last = {p.seed: p for p in found.training}
        return {"checkpoints": [r.folder for r in study.runs], "networks": list(last.values())}


@dataclass(frozen=True)
class DynamicsCommand(_StudyCommand):
    """Fit linear and quadratic polynomials to every checkpoint and measure them (figures 2 and 3)."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.reproduce.study_dynamics`."""
        from mlpoly.studies.paper.reproduce import study_dynamics

        points = study_dynamics(self._study()).dynamics
        return {"points": [p for p in points if p.step == max(p.step for p in points)]}


@dataclass(frozen=True)
class FeaturesCommand(_StudyCommand):
    """Compute eigenfeatures of every class over training, and explain a few images (figure 1)."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.reproduce.study_features`."""
        from mlpoly.studies.paper.reproduce import study_features

        found = study_features(self._study()).features
        last = [s for s in found.steps if s.step == found.steps[-1].step] if found else []
        return {"eigenvalues": [{"class": s.label, "positive": s.positive, "negative": s.negative} for s in last]}


@dataclass(frozen=True)
class AttackCommand(_StudyCommand):
    """Remove singular directions from the images, and steer along eigenvectors (figures 4 and 5)."""

    label: _Label = None

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.reproduce.study_attack`."""
        from mlpoly.studies.paper.reproduce import study_attack

        found = study_attack(self._study(), label=self.label)
        return {"ablation": [a for each in found.attack for a in each.ablations if a.directions == "singular"]}


@dataclass(frozen=True)
class ReportCommand(_StudyCommand):
    """Judge the claims and write tables, figures and report.html from the results in the folder."""

    label: _Label = None

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.reproduce.study_report`."""
        from mlpoly.studies.paper.reproduce import study_report

        study = self._study()
        page = study_report(study, label=self.label)
        return {"claims": study.results.claims, "report": page}


@dataclass(frozen=True)
class DataCommand:
    """Download a data set or a small model into the user's cache, or list the folders in which data is looked for."""

    action: tyro.conf.Positional[Literal["download", "where"]]
    """download: from the first mirror that answers, with progress and checksum. where: list the searched folders."""
    name: tyro.conf.Positional[Literal["mnist", "fashion-mnist", "stories260K"]] = "mnist"
    """The data set; or stories260K, a language model of 1 MB, with text of its own for mlpoly lm."""
    force: bool = False
    """Download it again even if it is there."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Draw no progress bar."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.download.download`."""
        from mlpoly.studies.paper.download import download
        from mlpoly.studies.paper.images import searched_folders

        if self.action == "download":
            folder = download(self.name, force=self.force)
            if self.name != "stories260K":
                return {"folder": folder}
            return {"folder": folder, "next": f"mlpoly lm {folder} --text {folder / 'tokens.npy'} --out out/stories"}
        return {"searched": searched_folders(self.name)}
