"""The command line: each command is a dataclass of options that calls one public function."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mlpoly._version import __version__
from mlpoly.lm.study import LmConfig
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

        study = Study(self.out, self.data, self.data_dir, self.fits, self.device)
        study.create(self.train, self.seeds)
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
class Lm:
    """Replace the blocks of a language model by polynomials: measure, read, and write report.html."""

    model: tyro.conf.Positional[str]
    """A folder, a .gguf file, or a name on the Hugging Face hub."""
    text: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """Text in UTF-8, or an .npy file of token ids (n, t)."""
    out: _Folder = Path("out/lm")
    """Folder of the study."""
    held_out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text to judge by; by default the last tenth of --text."""
    prompt: str | None = None
    """What is taken apart token by token; by default the beginning of the held-out text."""
    device: str = "cpu"
    """A device of PyTorch, such as cuda."""
    restart: bool = False
    """Collect moments again, even if the folder has them."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """No progress bars. They are drawn on a terminal only."""
    config: Annotated[LmConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=LmConfig)

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.lm.study.study_lm`."""
        from mlpoly.lm.study import study_lm

        if self.quiet or not sys.stderr.isatty():
            _silence_transformers()
        found = study_lm(
            self.model,
            self.text,
            self.out,
            self.config,
            held_out=self.held_out,
            prompt=self.prompt,
            device=self.device,
            resume=not self.restart,
            show_progress=not self.quiet,
        )
        whole = [loss for loss in found.losses if loss.replaced in ("none", "all")]
        return {"report": self.out / "report.html", "seconds": found.about["seconds"], "losses": whole}


def _silence_transformers() -> None:
    """No bars of its own, which it would draw into files too."""
    with suppress(ImportError):  # load_model says what is missing
        from transformers.utils import logging

        logging.disable_progress_bar()


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
    "lm": Lm,
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
