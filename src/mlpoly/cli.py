"""The command line: each command is a dataclass of options that calls one public function."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mlpoly._version import __version__
from mlpoly.studies.bench import DynamicsConfig
from mlpoly.studies.training import TrainConfig

__all__ = ["main"]

_Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True)
class _Common:
    out: _Folder = Path("out/study")
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
    label: int = 3
    """Class shown in the printed figures; the report has all of them."""
    train: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=TrainConfig)
    fits: Annotated[DynamicsConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=DynamicsConfig)

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.reproduce`."""
        from mlpoly.studies.reproduce import reproduce

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
        from mlpoly.studies.reproduce import study_training
        from mlpoly.studies.study import Study

        study = Study(self.out, self.data, self.data_dir, self.fits, self.device).create()
        study_training(study, self.train, self.seeds, show_progress=not self.quiet)
        last = {p.seed: p for p in study.results.training}
        return {"checkpoints": [r.folder for r in study.runs], "networks": list(last.values())}


@dataclass(frozen=True)
class _Step(_Common):
    def _study(self) -> Any:
        from mlpoly.studies.study import Study

        return Study.open(self.out, self.data_dir, self.device)


@dataclass(frozen=True)
class Dynamics(_Step):
    """Fit linear and quadratic polynomials to every checkpoint and measure them (figures 2 and 3)."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_dynamics`."""
        from mlpoly.studies.reproduce import study_dynamics

        found = study_dynamics(self._study(), show_progress=not self.quiet)
        steps = max(p.step for p in found.dynamics)
        return {"points": [p for p in found.dynamics if p.step == steps]}


@dataclass(frozen=True)
class Features(_Step):
    """Eigenfeatures of every class over training, and a few images explained (figure 1)."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_features`."""
        from mlpoly.studies.reproduce import study_features

        found = study_features(self._study(), show_progress=not self.quiet).features
        steps = found.steps if found is not None else ()
        last = [s for s in steps if s.step == steps[-1].step]
        rows = [{"class": s.label, "positive": s.positive, "negative": s.negative} for s in last]
        return {"eigenvalues": rows}


@dataclass(frozen=True)
class Attack(_Step):
    """Remove singular directions from the images, and steer along eigenvectors (figures 4 and 5)."""

    label: int = 3
    """Class whose image is shown."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_attack`."""
        from mlpoly.studies.reproduce import study_attack

        found = study_attack(self._study(), label=self.label, show_progress=not self.quiet)
        return {"ablation": [a for each in found.attack for a in each.ablations if a.directions == "singular"]}


@dataclass(frozen=True)
class Report(_Step):
    """Judge the claims and write tables, figures and report.html from the results in the folder."""

    label: int = 3
    """Class shown in the printed figures."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.study_report`."""
        from mlpoly.studies.reproduce import study_report

        study = self._study()
        path = study_report(study, label=self.label)
        return {"report": path, "claims": study.results.claims}


@dataclass(frozen=True)
class Data:
    """Fetch a data set into the user's cache, or say where data is looked for."""

    action: tyro.conf.Positional[Literal["download", "where"]]
    """download: fetch with progress, resume and checksum. where: the places that are searched."""
    name: tyro.conf.Positional[Literal["mnist", "fashion-mnist"]] = "mnist"
    """The data set."""
    force: bool = False
    """Fetch it again even if it is there."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """No progress bar."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.download`."""
        from mlpoly.studies.data import cache_dir
        from mlpoly.studies.download import download

        if self.action == "download":
            return {"folder": download(self.name, force=self.force, show_progress=not self.quiet)}
        places = [os.environ["MLPOLY_DATA"]] if os.environ.get("MLPOLY_DATA") else []
        return {"searched": [str(Path(p) / self.name) for p in [*places, str(cache_dir())]]}


_COMMANDS: dict[str, Any] = {
    "reproduce": Reproduce,
    "train": Train,
    "dynamics": Dynamics,
    "features": Features,
    "attack": Attack,
    "report": Report,
    "data": Data,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 after an error, 2 for wrong options, 130 after an interrupt."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        print(f"mlpoly {__version__}")
        return 0
    command = tyro.extras.subcommand_cli_from_dict(
        _COMMANDS, prog="mlpoly", description="Neural networks as polynomials, in closed form.", args=words
    )
    return _guarded(command)


def _guarded(command: Any) -> int:
    try:
        result = command.run()
    except KeyboardInterrupt:
        print("mlpoly: interrupted; the same command goes on where it was.", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, RuntimeError, ImportError, MemoryError) as error:
        if os.environ.get("MLPOLY_TRACEBACK"):
            raise
        first = " ".join(str(error).split()) or type(error).__name__
        print(f"mlpoly: error: {first}", file=sys.stderr)
        return 1
    _print(result, command.json)
    return 0


def _print(result: dict[str, Any], as_json: bool) -> None:
    from mlpoly.studies.tables import plain

    if as_json:
        print(json.dumps(plain(result), indent=2))
        return
    from mlpoly.studies.words import show

    show(result)


if __name__ == "__main__":
    sys.exit(main())
