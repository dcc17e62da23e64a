"""A study in a folder: its data and options, its trained networks, and the results so far."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mlpoly._version import __version__
from mlpoly.arrays import as_integer
from mlpoly.codec import from_plain, save_results
from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_json, write_json
from mlpoly.importers.devices import check_device, describe_machine
from mlpoly.studies.paper.approximants import Setting
from mlpoly.studies.paper.checkpoints import TrainingRun
from mlpoly.studies.paper.images import Images, load_images
from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig
from mlpoly.studies.paper.results import Results, read_results
from mlpoly.studies.paper.training import check_run


@dataclass(frozen=True)
class Study:
    """A folder with everything about one data set."""

    folder: Path
    data: str = "digits"  # name or path, see `load_images`
    data_dir: str | None = None
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    device: str = "cpu"
    fingerprint: str = ""  # of the data, where it is known; other data of the same name is refused

    def create(self, train: TrainConfig, seeds: int = 1) -> None:
        """Make the folder and write study.json.

        A folder that is about other data, or holds damaged results, or networks of other options than those of `train`,
        of which there will be `seeds`, is refused and left as it is.
        """
        check_device(self.device)
        seeds = as_integer("seeds", seeds, 1)
        if (self.folder / "study.json").is_file():
            found = _described(self.folder)
            if found.data != self.data:
                raise FileFormatError(
                    f"{self.folder} is a study of {found.data!r}, not of {self.data!r}; choose another --out."
                )
            self._check_data(self.images, found.fingerprint)
        _ = self.images, self.results  # missing or damaged ones are refused here, before anything is changed
        for seed in range(train.seed, train.seed + seeds):
            check_run(self.seed_folder(seed, "checkpoints"), replace(train, seed=seed), self.images)
        make_folder(self.folder)
        about = _Description(self.data, self.data_dir, asdict(self.dynamics), self.images.fingerprint)
        write_json(self.folder / "study.json", asdict(about))

    @classmethod
    def open(cls, folder: str | Path, data_dir: str | None = None, device: str = "cpu") -> Study:
        """The study in a folder in which something was trained."""
        if not (Path(folder) / "study.json").is_file():
            raise FileNotFoundError(f"{folder} holds no study; make one with `mlpoly train --out {folder}` first.")
        found = _described(Path(folder))
        return replace(found, data_dir=data_dir or found.data_dir, device=check_device(device))

    @cached_property
    def images(self) -> Images:
        """The data, read once; refused if it is not what it was when the study was made."""
        images = load_images(self.data, self.data_dir)
        self._check_data(images, self.fingerprint)
        return images

    def _check_data(self, images: Images, expected: str) -> None:
        if expected not in ("", images.fingerprint):  # studies of older versions have none
            raise FileFormatError(
                f"the data {self.data!r} is not what it was when the study in {self.folder} was made: its images or "
                f"labels have changed. Put the old ones back, or choose another --out."
            )

    @cached_property
    def setting(self) -> Setting:
        """Inputs and test images on the device."""
        return Setting(self.images, self.dynamics, self.device)

    def seed_folder(self, seed: int, kind: str) -> Path:
        """Folder of the "checkpoints" or the "fits" of a seed."""
        return self.folder / f"seed-{seed}" / kind

    @property
    def runs(self) -> list[TrainingRun]:
        """The trained networks, by seed."""
        found = [TrainingRun.open(p) for p in self.folder.glob("seed-*/checkpoints")]
        if not found:
            raise FileNotFoundError(
                f"no trained network in {self.folder}; run `mlpoly train --out {self.folder}` first."
            )
        return sorted(found, key=lambda run: run.seed)

    @property
    def results(self) -> Results:
        """The results so far; empty ones if there are none."""
        there = (self.folder / "results.json").is_file()
        return read_results(self.folder) if there else Results({"seconds": {}}, (), (), ())

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Collect parts of the results in a dictionary; at the end they are saved, with the seconds that it took.

        Results that are damaged, or not ours, are refused before anything is done, as is data that has changed.
        """
        _ = self.results, self.images
        parts: dict[str, Any] = {}
        began = time.perf_counter()
        yield parts
        before = self.results
        seconds = {**before.about.get("seconds", {}), name: round(time.perf_counter() - began, 2)}
        about = {**before.about, **self.about(), "seconds": seconds}
        save_results(self.folder / "results.json", replace(before, **parts, about=about))

    def about(self) -> dict[str, Any]:
        """Version, command line, options, data and machine."""
        import scipy

        runs = self.runs
        config = {k: v for k, v in runs[0].config.items() if k != "seed"}
        config |= {**asdict(self.dynamics), "seed": runs[0].seed, "seeds": len(runs), "device": self.device}
        words = ["mlpoly", "reproduce", "--data", self.data]  # the command line that makes the study again
        for name, value in config.items():
            flag = "--" + name.replace("_", "-")
            words += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
        return {
            "version": __version__,
            "command": shlex.join(words),
            "config": config,
            "data": {
                "name": self.data,
                "train": len(self.images.train),
                "test": len(self.images.test),
                "image_shape": list(self.images.shape),
                "classes": list(self.images.classes),
            },
            "machine": {**describe_machine(self.device), "scipy": scipy.__version__},
        }


@dataclass(frozen=True)
class _Description:
    """The contents of study.json."""

    data: str
    data_dir: str | None
    dynamics: dict[str, Any]
    fingerprint: str = ""


def _described(folder: Path) -> Study:
    """The study that study.json describes."""
    path = folder / "study.json"
    content = read_json(path)
    try:
        found = from_plain(_Description, content)
        return Study(folder, found.data, found.data_dir, DynamicsConfig(**found.dynamics), "cpu", found.fingerprint)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise FileFormatError(
            f"{path} is damaged or of another version ({error}); choose another folder, or delete it."
        ) from error
