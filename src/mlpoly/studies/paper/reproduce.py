"""The paper's experiments in a study's folder, one function for each stage, and `reproduce`, which runs them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from mlpoly.arrays import as_integer
from mlpoly.datasets import Images, load_images
from mlpoly.extras import explain_missing
from mlpoly.machine import check_device
from mlpoly.progress_bars import announce, progress_bar
from mlpoly.studies.paper.claims import judge_claims
from mlpoly.studies.paper.options import DynamicsConfig, Stage, TrainConfig
from mlpoly.studies.study import Study

with explain_missing("mlpoly.studies.paper.reproduce"):
    from mlpoly.pages.network.fits import Fits, fit_degrees
    from mlpoly.pages.network.page import write_page
    from mlpoly.pages.network.subject import Subject, check_subject
    from mlpoly.pages.paper.page import write_report
    from mlpoly.studies.paper.attack import AttackCase, ablation_curve, ablation_pictures
    from mlpoly.studies.paper.class_features import align, feature_step
    from mlpoly.studies.paper.dynamics import Setting, dynamics, load_fits
    from mlpoly.studies.paper.figures import write_figures
    from mlpoly.studies.paper.results import Attack, Features, FeatureStep, Results
    from mlpoly.studies.paper.training import TrainingRun, training_points
    from mlpoly.studies.paper.training import train as train_network

_PAPERS = 512  # steps: the network of the paper's own curve has the accuracy of this checkpoint
_SHOWN = 3  # the class of the paper's figures
# Options that may differ in a folder: training continues, seeds have folders, fits note what they were made from.
_MAY_CHANGE = ("steps", "seed", "seeds", "device", *(f.name for f in fields(DynamicsConfig)))


@dataclass(frozen=True)
class PaperStudy:
    """The folder of a study, with its data."""

    store: Study[Results]
    images: Images
    fits: DynamicsConfig
    device: str

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> "PaperStudy":
        """The study in a folder, with its data."""
        store = Study.open(folder, Results)
        config, data = store.about["config"], store.about["data"]
        images = load_images(data["name"], data["folder"])
        if images.fingerprint != store.about["sources"]["data set"]:
            raise ValueError(f"the data {data['name']!r} have changed since the study in {folder} was made.")
        fits = DynamicsConfig(**{f.name: config[f.name] for f in fields(DynamicsConfig)})
        return cls(store, images, fits, check_device(config["device"]))

    @cached_property
    def setting(self) -> Setting:
        """Inputs and test images on the device."""
        return Setting(self.images, self.fits, self.device)

    @cached_property
    def network(self) -> tuple[Subject, Fits]:
        """The first network at its last checkpoint, with its polynomials under one Gaussian, in closed form."""
        run, images = self.runs[0], self.images
        subject = check_subject(
            run.net(run.steps[-1], self.device),
            images.test,
            images.test_labels,
            image_shape=images.shape,
            inputs=self.setting.gaussian,
            outputs=images.classes,
        )
        return subject, fit_degrees(subject, None, lambda note: None)

    def seed_folder(self, seed: int, kind: str) -> Path:
        """Folder of the "checkpoints" or the "fits" of a seed."""
        return self.store.folder / f"seed-{seed}" / kind

    @property
    def runs(self) -> list[TrainingRun]:
        """The trained networks, by seed."""
        return sorted(map(TrainingRun.open, self.store.folder.glob("seed-*/checkpoints")), key=lambda run: run.seed)


def reproduce(
    out: str | PathLike[str],
    data: str = "digits",
    *,
    data_dir: str | None = None,
    train: TrainConfig | None = None,
    fits: DynamicsConfig | None = None,
    seeds: int = 1,
    label: int | None = None,
    device: str = "cpu",
    until: Stage = "report",
    figures: bool = True,
) -> Results:
    """Train, fit, measure, attack, draw, and write the report: sections 4.1 to 4.4 of the paper.

    Parameters
    ----------
    out : path
        Folder for everything; ``report.html`` in it is the file to open. Run again after an interruption, it resumes.
        ``network.html``, a page about the first network, is there as soon as that is trained.
    data, data_dir : str, path
        "digits", "mnist", "fashion-mnist", or a path, and the folder in which it is looked for first; see
        `mlpoly.datasets.load_images`.
    train, fits : TrainConfig, DynamicsConfig, optional
        Options of the training, whose seed is the first of `seeds` seeds, and of fits and measures.
    label : int, optional
        Class shown in the printed figures; the report has all of them. By default 3, as in the paper, or the last
        one of data with fewer classes.
    until : {"training", "dynamics", "features", "attack", "report"}
        Last stage to run.
    figures : bool
        Whether to draw the figures for print as well (PNG and PDF); the report has its own.
    """
    train, fits = train or TrainConfig(), fits or DynamicsConfig()
    device, seeds, images = check_device(device), as_integer("seeds", seeds, 1), load_images(data, data_dir)
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
    store = Study.create(out, Results, config, sources, device, may_change=_MAY_CHANGE, data=about)
    study = PaperStudy(store, images, fits, device)
    label = _shown(study, label)  # before hours of work depend on it
    stages: dict[Stage, Callable[[], None]] = {
        "training": lambda: study_training(study, train, seeds),
        "dynamics": lambda: study_dynamics(study),
        "features": lambda: study_features(study),
        "attack": lambda: study_attack(study, label),
        "report": lambda: study_report(study, label, figures=figures),
    }
    for stage, work in stages.items():
        work()
        if stage == until:
            break
    return study.store.results


def write_up(out: str | PathLike[str], label: int | None = None, figures: bool = True) -> Results:
    """Judge the claims, and write tables, figures and report.html, of what the study in a folder has so far."""
    study = PaperStudy.open(out)
    study_report(study, _shown(study, label), figures=figures)
    return study.store.results


def _shown(study: PaperStudy, label: int | None) -> int:
    """The class that the printed figures show."""
    classes = study.images.classes
    if label is None:
        return min(_SHOWN, len(classes) - 1)
    if as_integer("label", label, 0) >= len(classes):
        listed = ", ".join(f"{i} ({name})" if name != str(i) else name for i, name in enumerate(classes))
        raise ValueError(f"label is {label}, but the classes of the data are {listed}.")
    return label


def study_training(study: PaperStudy, config: TrainConfig, seeds: int = 1) -> None:
    """Train one network per seed, and write network.html, a first look at one of them, which takes seconds."""
    announce(f"Training {seeds} {'network' if seeds == 1 else 'networks'} of {config.hidden} units")
    with study.store.stage("training") as found:
        for seed in range(config.seed, config.seed + seeds):
            options, folder = replace(config, seed=seed), study.seed_folder(seed, "checkpoints")
            train_network(study.images, folder, options, device=study.device)
        runs = study.runs
        study.store.about["config"] |= {"seed": runs[0].seed, "seeds": len(runs), "steps": runs[0].steps[-1]}
        found["training"] = tuple(p for run in runs for p in training_points(run, study.images, study.device))
    page = write_page(*study.network, study.store.folder / "network.html", "The network as a polynomial")
    announce(f"{page.resolve()} is a first look at the network")


def study_dynamics(study: PaperStudy) -> None:
    """Figures 2 and 3: fit and judge every checkpoint of every seed."""
    announce("Fitting polynomials to every checkpoint")
    with study.store.stage("dynamics") as found:
        judged = [dynamics(run, study.setting, study.seed_folder(run.seed, "fits")) for run in study.runs]
        found["dynamics"] = tuple(p for points, _ in judged for p in points)
        found["spectra"] = tuple(s for _, spectra in judged for s in spectra)


def study_features(study: PaperStudy) -> None:
    """Figure 1: features of every class at every checkpoint of the first seed; then the report for the first time."""
    run = study.runs[0]
    folder = study.seed_folder(run.seed, "fits")
    steps: list[FeatureStep] = []
    with study.store.stage("features") as found, progress_bar("features", len(run.steps)) as update:
        for done, step in enumerate(run.steps):
            update(done, f"step {step}")
            steps += feature_step(step, *load_fits(folder, step, study.device), inputs=study.setting.metric)
        found["features"] = Features(run.seed, align(steps))
    page = write_report(study.store.results, study.store.folder / "report.html", study.network)
    announce(f"{page.resolve()} can be opened now; attacks, claims and tables are still to come")


def study_attack(study: PaperStudy, label: int) -> None:
    """Figures 4 and 5, on the last checkpoint of every seed and on an early one."""
    cases = [
        (run, step) for run in study.runs for step in sorted({run.steps[-1], max(s for s in run.steps if s <= _PAPERS)})
    ]
    with study.store.stage("attack") as found, progress_bar("attack", len(cases)) as update:
        setting, attacks = study.setting, []
        for done, (run, step) in enumerate(cases):
            update(done, f"seed {run.seed}, step {step}")
            fits = load_fits(study.seed_folder(run.seed, "fits"), step, study.device)
            case = AttackCase(run.net(step, study.device), *fits, setting.test, setting.test_labels)
            ablations = ablation_curve(case, setting.gaussian.covariance, seed=run.seed, step=step)
            attacks.append(Attack(tuple(ablations), ablation_pictures(case, label), step))
        found["attack"] = tuple(sorted(attacks, key=lambda a: -a.step))


def study_report(study: PaperStudy, label: int, *, figures: bool = True) -> None:
    """Judge the claims; write tables, figures if they are wanted, and report.html."""
    with study.store.stage("report") as found:
        results = study.store.results
        ablations = [a for attack in results.attack for a in attack.ablations]
        if results.dynamics:
            found["claims"] = judge_claims(results.dynamics, ablations, results.features, len(study.images.classes))
        results = replace(results, claims=found.get("claims", ()))
        tables = {name: getattr(results, name) for name in ("training", "dynamics", "spectra", "claims")}
        study.store.write_tables(tables | {"ablation": ablations})
        if figures:
            write_figures(results, study.store.folder / "figures", label)
    write_report(study.store.results, study.store.folder / "report.html", study.network)
