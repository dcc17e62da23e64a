"""A study of the paper's experiments in its folder: data, options, trained networks, and the results so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from os import PathLike
from pathlib import Path

from mlpoly.arrays import as_integer
from mlpoly.datasets import Images, load_images
from mlpoly.machine import check_device
from mlpoly.pages.network.fits import Fits, fit_degrees
from mlpoly.pages.network.subject import Subject, check_subject
from mlpoly.studies.paper.approximants import Setting
from mlpoly.studies.paper.checkpoints import TrainingRun
from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig
from mlpoly.studies.paper.results import Results
from mlpoly.studies.study import Study

# A longer training continues a shorter one, seeds have folders of their own, and fits know what they were made from.
_MAY_CHANGE = ("steps", "seed", "seeds", "device", *(f.name for f in fields(DynamicsConfig)))


@dataclass(frozen=True)
class PaperStudy:
    """A folder with everything about one data set."""

    store: Study[Results]
    images: Images
    fits: DynamicsConfig
    device: str = "cpu"

    @classmethod
    def create(
        cls,
        folder: str | PathLike[str],
        data: str = "digits",
        train: TrainConfig | None = None,
        fits: DynamicsConfig | None = None,
        seeds: int = 1,
        data_dir: str | None = None,
        device: str = "cpu",
    ) -> PaperStudy:
        """Make the folder, or take up the study in it; one of other data or networks is refused and left as it is."""
        train, fits = train or TrainConfig(), fits or DynamicsConfig()
        device, seeds = check_device(device), as_integer("seeds", seeds, 1)
        images = load_images(data, data_dir)
        about = {
            "name": data,
            "folder": data_dir,
            "train": len(images.train),
            "test": len(images.test),
            "image_shape": list(images.shape),
            "classes": list(images.classes),
        }
        config = asdict(train) | asdict(fits) | {"seeds": seeds, "device": device}
        sources = {"data set": images.fingerprint}
        store = Study.create(folder, Results, config, sources, device, may_change=_MAY_CHANGE, data=about)
        return cls(store, images, fits, device)

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> PaperStudy:
        """The study in a folder, with its data."""
        store = Study.open(folder, Results)
        config, data = store.about["config"], store.about["data"]
        images = load_images(data["name"], data["folder"])
        if images.fingerprint != store.about["sources"]["data set"]:
            raise ValueError(f"the data {data['name']!r} have changed since the study in {folder} was made.")
        fits = DynamicsConfig(**{f.name: config[f.name] for f in fields(DynamicsConfig)})
        return cls(store, images, fits, check_device(config["device"]))

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.store.folder

    @cached_property
    def setting(self) -> Setting:
        """Inputs and test images on the device."""
        return Setting(self.images, self.fits, self.device)

    @cached_property
    def network(self) -> tuple[Subject, Fits]:
        """The first network at its last checkpoint, with its polynomials under one Gaussian, in closed form."""
        run, images = self.runs[0], self.images
        subject = check_subject(
            self.setting.net(run, run.steps[-1]),
            images.test,
            images.test_labels,
            image_shape=images.shape,
            inputs=self.setting.gaussian,
            outputs=images.classes,
        )
        return subject, fit_degrees(subject, None, lambda note: None)

    def seed_folder(self, seed: int, kind: str) -> Path:
        """Folder of the "checkpoints" or the "fits" of a seed."""
        return self.folder / f"seed-{seed}" / kind

    @property
    def runs(self) -> list[TrainingRun]:
        """The trained networks, by seed."""
        return sorted(map(TrainingRun.open, self.folder.glob("seed-*/checkpoints")), key=lambda run: run.seed)
