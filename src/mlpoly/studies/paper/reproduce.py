"""The paper's experiments, one function each, and `reproduce`, which runs them all.

Every function works in a study's folder: it reads what the ones before it left there and adds its part to
results.json. A killed one resumes where it was.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlpoly.arrays import as_integer
from mlpoly.extras import explain_missing
from mlpoly.progress_bars import announce, progress_bar
from mlpoly.studies.paper.claims import judge_claims
from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig

with explain_missing("mlpoly.studies.paper.reproduce"):
    import torch

    from mlpoly.pages.network.page import write_report as write_network_page
    from mlpoly.pages.paper.page import write_report
    from mlpoly.studies.paper.attack import AttackCase, ablation_curve, ablation_pictures, steering_curve
    from mlpoly.studies.paper.checkpoints import TrainingRun
    from mlpoly.studies.paper.class_features import align, choose_examples, explain_image, feature_step
    from mlpoly.studies.paper.dynamics import dynamics, load_fits
    from mlpoly.studies.paper.figures import write_figures, write_tables
    from mlpoly.studies.paper.formulas import formulas
    from mlpoly.studies.paper.results import Attack, Features, FeatureStep, Results
    from mlpoly.studies.paper.study import Study
    from mlpoly.studies.paper.training import train, training_points

_PAPERS = 512  # steps: the network of the paper's own curve has the accuracy of this checkpoint
_SHOWN = 3  # the class of the paper's figures
_STEERED = 5  # every fifth test image: steering evaluates the network a hundred times


def reproduce(
    out: str | Path,
    data: str = "digits",
    *,
    data_dir: str | None = None,
    train: TrainConfig | None = None,
    fits: DynamicsConfig | None = None,
    seeds: int = 1,
    label: int | None = None,
    device: str = "cpu",
    figures: bool = True,
) -> Results:
    """Train, fit, measure, attack, draw, and write the report: sections 4.1 to 4.4 of the paper.

    Parameters
    ----------
    out : path
        Folder for everything; ``report.html`` in it is the file to open. Run again after an interruption, it resumes.
        ``network.html``, a page about the first network, is there as soon as that is trained.
    data : str
        "digits", "mnist", "fashion-mnist", or a path, see `mlpoly.studies.paper.images.load_images`.
    data_dir : path, optional
        Folder in which the data is looked for first.
    train : TrainConfig, optional
        Options of the training; its seed is the first of `seeds` seeds.
    fits : DynamicsConfig, optional
    seeds : int
        Number of networks to train.
    label : int, optional
        Class shown in the printed figures; the report has all of them. By default 3, as in the paper, or the last
        one of data with fewer classes.
    device : str
        A device of PyTorch.
    figures : bool
        Whether to draw the figures for print as well (PNG and PDF); the report has its own.
    """
    config = train or TrainConfig()
    study = Study(Path(out), str(data), data_dir, fits or DynamicsConfig(), device)
    label = _shown(study, label)  # before hours of work depend on it
    study.create(config, seeds)  # what is refused is refused before anything is announced
    announce(f"Training {seeds} {'network' if seeds == 1 else 'networks'} of {config.hidden} units")
    study_training(study, config, seeds)
    page = study_network_page(study)
    announce(f"{page.resolve()} is a first look at the network; now its polynomials at every checkpoint")
    study_dynamics(study)
    study_features(study)
    page = write_report(study.results, study.folder / "report.html")
    announce(f"{page.resolve()} can be opened now; attacks, claims and tables are still to come")
    study_attack(study, label=label)
    study_report(study, label=label, figures=figures)
    return study.results


def _shown(study: Study, label: int | None) -> int:
    """The class that the printed figures show."""
    classes = study.images.classes
    if label is None:
        return min(_SHOWN, len(classes) - 1)
    if as_integer("label", label, 0) >= len(classes):
        listed = ", ".join(f"{i} ({name})" if name != str(i) else name for i, name in enumerate(classes))
        raise ValueError(f"label is {label}, but the classes of the data are {listed}.")
    return label


def study_training(study: Study, config: TrainConfig, seeds: int = 1) -> Results:
    """Train one network per seed, in a folder that is made if it is missing."""
    study.create(config, seeds)
    with study.stage("training") as parts:
        for seed in range(config.seed, config.seed + seeds):
            options, folder = replace(config, seed=seed), study.seed_folder(seed, "checkpoints")
            train(study.images, folder, options, device=study.device)
        parts["training"] = tuple(p for run in study.runs for p in training_points(run, study.images, study.device))
    return study.results


def study_network_page(study: Study) -> Path:
    """Write network.html, the page of `mlpoly.report` about the first network at its last checkpoint; return its path.

    It takes seconds, because its polynomials are those under one Gaussian, in closed form.
    """
    run, images = study.runs[0], study.images
    return write_network_page(
        study.setting.net(run, run.steps[-1]),
        images.test,
        images.test_labels,
        image_shape=images.shape,
        out=study.folder / "network.html",
        inputs=study.setting.gaussian,
        outputs=images.classes,
        title="The network as a polynomial",
    )


def study_dynamics(study: Study) -> Results:
    """Figures 2 and 3: fit and judge every checkpoint of every seed."""
    with study.stage("dynamics") as parts:
        found = [dynamics(run, study.setting, study.seed_folder(run.seed, "fits")) for run in study.runs]
        parts["dynamics"] = tuple(p for points, _ in found for p in points)
        parts["spectra"] = tuple(s for _, spectra in found for s in spectra)
    return study.results


def study_features(study: Study) -> Results:
    """Figure 1: features of every class at every checkpoint of the first seed, and a few images explained."""
    run = study.runs[0]
    folder = _fits(study, run)
    steps: list[FeatureStep] = []
    with study.stage("features") as parts:
        setting = study.setting
        with progress_bar("features", len(run.steps)) as update:
            for done, step in enumerate(run.steps):
                update(done, f"step {step}")
                steps += feature_step(step, *load_fits(folder, step, study.device), inputs=setting.metric)
        # Images of every class that the last network gets right, and ones that it gets wrong, explained by its choice.
        test, labels, last = setting.test, setting.test_labels, run.steps[-1]
        net, (_, quadratic) = setting.net(run, last), load_fits(folder, last, study.device)
        chosen = choose_examples(net, test, labels)
        outputs = net(test[torch.as_tensor(chosen, device=test.device)]).argmax(1).tolist()
        explanations = tuple(
            explain_image(net, quadratic, setting.metric, test[i], int(labels[i]), output)
            for i, output in zip(chosen, outputs, strict=True)
        )
        written = formulas(quadratic, setting.metric)
        parts["features"] = Features(run.seed, align(steps), explanations, written)
    return study.results


def study_attack(study: Study, *, label: int | None = None) -> Results:
    """Figures 4 and 5, and steering, on the last checkpoint of every seed and on an early one."""
    label = _shown(study, label)
    cases = [
        (run, step) for run in study.runs for step in sorted({run.steps[-1], max(s for s in run.steps if s <= _PAPERS)})
    ]
    with study.stage("attack") as parts, progress_bar("attack", len(cases)) as update:
        setting, attacks = study.setting, []
        test, labels = setting.test, setting.test_labels
        for done, (run, step) in enumerate(cases):
            update(done, f"seed {run.seed}, step {step}")
            models = (setting.net(run, step), *load_fits(_fits(study, run), step, study.device))
            case = AttackCase(*models, test, labels)
            ablations = ablation_curve(case, setting.gaussian.covariance, seed=run.seed, step=step)
            few = AttackCase(*models, test[::_STEERED], labels[::_STEERED])
            steering = steering_curve(few, setting.metric, seed=run.seed, step=step)
            attacks.append(Attack(tuple(ablations), tuple(steering), ablation_pictures(case, label), step))
        parts["attack"] = tuple(sorted(attacks, key=lambda a: -a.step))
    return study.results


def _fits(study: Study, run: TrainingRun) -> Path:
    """Folder of the fits of a run, which must be there for every checkpoint."""
    folder = study.seed_folder(run.seed, "fits")
    missing = [s for s in run.steps if not (folder / f"step-{s:07d}.json").is_file()]
    if missing:
        listed = ", ".join(map(str, missing[:4])) + (", ..." if len(missing) > 4 else "")
        raise FileNotFoundError(
            f"{folder} lacks the fits of steps {listed}; run `mlpoly dynamics --out {study.folder}` first."
        )
    return folder


def study_report(study: Study, *, label: int | None = None, figures: bool = True) -> Path:
    """Judge the claims; write tables, figures if they are wanted, and report.html, whose path is returned."""
    label = _shown(study, label)
    with study.stage("report") as parts:
        found = study.results
        if not found.training:
            raise FileNotFoundError(f"no results in {study.folder}; run `mlpoly train --out {study.folder}` first.")
        if found.dynamics:
            ablations = [a for attack in found.attack for a in attack.ablations]
            classes = len(found.about["data"]["classes"])
            parts["claims"] = judge_claims(found.dynamics, ablations, found.features, classes)
        found = replace(found, **parts)
        write_tables(found, study.folder / "tables")
        if figures:
            write_figures(found, study.folder / "figures", label)
    return write_report(study.results, study.folder / "report.html")
