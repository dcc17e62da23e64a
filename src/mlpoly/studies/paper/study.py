"""A study in a folder: what it is about, its trained networks, and the results so far."""

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
from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_json, write_json
from mlpoly.integrations.devices import check_device, describe_machine
from mlpoly.studies.paper.bench import Bench, DynamicsConfig
from mlpoly.studies.paper.checkpoints import Run
from mlpoly.studies.paper.data import Images, load_images
from mlpoly.studies.paper.results import Results
from mlpoly.studies.paper.storage import load_results, save_results
from mlpoly.studies.paper.training import TrainConfig, check_run

__all__ = ["Study"]

_NOTHING = Results({"seconds": {}}, (), (), ())


@dataclass(frozen=True)
class Study:
    """A folder with everything about one data set.

    Attributes
    ----------
    folder : Path
    data : str
        Name or path, see `load_images`.
    data_dir : str or None
    dynamics : DynamicsConfig
    device : str
    fingerprint : str
        Of the data; other data of the same name is refused. Empty if it is not known.
    """

    folder: Path
    data: str = "digits"
    data_dir: str | None = None
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    device: str = "cpu"
    fingerprint: str = ""

    def create(self, train: TrainConfig | None = None, seeds: int = 1) -> Study:
        """Make the folder, and say on disk what the study is; a folder that does not belong to it is left as it is.

        Parameters
        ----------
        train : TrainConfig, optional
            How networks will be trained in it, so that others that are there already are refused.
        seeds : int
            How many.

        Raises
        ------
        FileFormatError
            If the folder is about other data, or holds networks of other options, or damaged results.
        """
        check_device(self.device)
        seeds = as_integer("seeds", seeds, 1)
        path = self.folder / "study.json"
        found = _described(path) if path.is_file() else {"data": self.data}
        if found["data"] != self.data:
            raise FileFormatError(
                f"{self.folder} is a study of {found['data']!r}, not of {self.data!r}; choose another --out."
            )
        self._check_data(self.images, found.get("fingerprint", ""))
        _ = self.results  # damaged ones are refused here, before anything is changed
        for config in [] if train is None else [replace(train, seed=train.seed + i) for i in range(seeds)]:
            check_run(self.seed_folder(config.seed, "checkpoints"), config, self.images)
        make_folder(self.folder)
        about = {"data": self.data, "data_dir": self.data_dir, "fingerprint": self.images.fingerprint}
        write_json(path, about | {"dynamics": asdict(self.dynamics)})
        return self

    @classmethod
    def open(cls, folder: str | Path, data_dir: str | None = None, device: str = "cpu") -> Study:
        """The study in a folder.

        Raises
        ------
        FileNotFoundError
            If nothing was trained there.
        """
        path = Path(folder) / "study.json"
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no study; make one with `mlpoly train --out {folder}` first.")
        found = _described(path)
        config, place = DynamicsConfig(**found["dynamics"]), data_dir or found["data_dir"]
        return cls(Path(folder), found["data"], place, config, check_device(device), found.get("fingerprint", ""))

    @cached_property
    def images(self) -> Images:
        """The data, read once.

        Raises
        ------
        FileFormatError
            If it is not what it was when the study was made.
        """
        images = load_images(self.data, self.data_dir)
        self._check_data(images, self.fingerprint)
        return images

    def _check_data(self, images: Images, expected: str) -> None:
        if expected not in ("", images.fingerprint):  # studies of older versions do not say
            raise FileFormatError(
                f"the data {self.data!r} is not what it was when the study in {self.folder} was made: its images or "
                f"labels have changed. Put the old ones back, or choose another --out."
            )

    @cached_property
    def bench(self) -> Bench:
        """Inputs and test images on the device."""
        return Bench(self.images, self.dynamics, self.device)

    def seed_folder(self, seed: int, kind: str) -> Path:
        """Where the checkpoints or the fits of a seed are."""
        return self.folder / f"seed-{seed}" / kind

    @property
    def runs(self) -> list[Run]:
        """The trained networks, by seed.

        Raises
        ------
        FileNotFoundError
        """
        found = [Run.open(p) for p in self.folder.glob("seed-*/checkpoints")]
        if not found:
            raise FileNotFoundError(
                f"no trained network in {self.folder}; run `mlpoly train --out {self.folder}` first."
            )
        return sorted(found, key=lambda run: run.seed)

    @property
    def results(self) -> Results:
        """The results so far; empty ones if there are none."""
        if (self.folder / "results.json").is_file():
            return load_results(self.folder)
        return _NOTHING

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Collect parts of the results in a dictionary; at the end they are saved, with the seconds that it took.

        Raises
        ------
        FileFormatError
            If the results that they would be added to are damaged, or none of ours: they are never replaced. Or if
            the data has changed.
        """
        _ = self.results, self.images  # before anything is done
        parts: dict[str, Any] = {}
        began = time.perf_counter()
        yield parts
        before = self.results
        seconds = {**before.about.get("seconds", {}), name: round(time.perf_counter() - began, 2)}
        about = {**before.about, **self.about(), "seconds": seconds}
        save_results(replace(before, **parts, about=about), self.folder)

    def about(self) -> dict[str, Any]:
        """What is studied, with what, and how to do it again."""
        import scipy

        runs = self.runs
        config = {k: v for k, v in runs[0].config.items() if k != "seed"}
        config |= {**asdict(self.dynamics), "seed": runs[0].seed, "seeds": len(runs), "device": self.device}
        data = {
            "name": self.data,
            "train": len(self.images.train),
            "test": len(self.images.test),
            "image_shape": list(self.images.shape),
            "classes": list(self.images.classes),
        }
        words = ["mlpoly", "reproduce", "--data", self.data]  # the command line that does it again
        for name, value in config.items():
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                words += [flag] if value else []
            else:
                words += [flag, str(value)]
        return {
            "version": __version__,
            "command": shlex.join(words),
            "config": config,
            "data": data,
            "machine": {**describe_machine(self.device), "scipy": scipy.__version__},
        }


def _described(path: Path) -> dict[str, Any]:
    """What study.json says, if it is one of ours."""
    found = read_json(path)
    try:
        texts = (found["data"], found["data_dir"] or "", found.get("fingerprint", ""))
        DynamicsConfig(**found["dynamics"])
        damage = "" if all(isinstance(text, str) for text in texts) else "data, data_dir or fingerprint is no text"
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        damage = repr(error)
    if damage:
        raise FileFormatError(
            f"{path} is damaged or of another version ({damage}); choose another folder, or delete it."
        )
    described: dict[str, Any] = found
    return described
