"""The paper's experiments, one function each, and `reproduce`, which runs them all.

Every function works in a study's folder: it reads what the ones before it left there and adds its part to
results.json. A killed one goes on where it was.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlpoly.arrays import as_integer
from mlpoly.extras import explain_missing
from mlpoly.progress import progress
from mlpoly.studies.paper.claims import judge_claims

with explain_missing("mlpoly.studies.paper.reproduce"):
    import torch

    from mlpoly.studies.paper.attack import ablation_curve, ablation_pictures, steering_curve
    from mlpoly.studies.paper.bench import DynamicsConfig
    from mlpoly.studies.paper.checkpoints import Run
    from mlpoly.studies.paper.dynamics import dynamics, load_fits
    from mlpoly.studies.paper.features import align, choose_examples, explain, feature_step
    from mlpoly.studies.paper.figures import write_figures, write_tables
    from mlpoly.studies.paper.formulas import formulas
    from mlpoly.studies.paper.report.assemble import write_report
    from mlpoly.studies.paper.results import Attack, Features, FeatureStep, Results
    from mlpoly.studies.paper.study import Study
    from mlpoly.studies.paper.training import TrainConfig, train, training_points

__all__ = ["reproduce", "study_attack", "study_dynamics", "study_features", "study_report", "study_training"]

_PAPERS = 512  # steps
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
    show_progress: bool = True,
) -> Results:
    """Train, fit, measure, attack, draw, and write the report: sections 4.1 to 4.4 of the paper.

    Parameters
    ----------
    out : path
        Folder for everything; ``report.html`` in it is what to open. Run again after an interruption, it goes on.
    data : str
        "digits", "mnist", "fashion-mnist", or a path, see `mlpoly.studies.paper.data.load_images`.
    data_dir : path, optional
        Where to look for the data first.
    train : TrainConfig, optional
        Its seed is the first of `seeds` seeds.
    fits : DynamicsConfig, optional
    seeds : int
        Networks to train.
    label : int, optional
        The class shown in the printed figures; the report has all of them. By default 3, as in the paper, or the last
        one of data with fewer classes.
    device : str
        A device of PyTorch.
    show_progress : bool

    Returns
    -------
    Results
    """
    config = train or TrainConfig()
    study = Study(Path(out), str(data), data_dir, fits or DynamicsConfig(), device)
    label = _shown(study, label)  # before hours of work depend on it
    study.create(config, seeds)
    study_training(study, config, seeds, show_progress=show_progress)
    study_dynamics(study, show_progress=show_progress)
    study_features(study, show_progress=show_progress)
    study_attack(study, label=label, show_progress=show_progress)
    study_report(study, label=label)
    return study.results


def _shown(study: Study, label: int | None) -> int:
    """The class that the printed figures show."""
    classes = len(study.images.classes)
    if label is None:
        return min(_SHOWN, classes - 1)
    if as_integer("label", label, 0) >= classes:
        raise ValueError(f"label is {label}, but the data has {classes} classes: 0 to {classes - 1}.")
    return label


def study_training(study: Study, config: TrainConfig, seeds: int = 1, *, show_progress: bool = True) -> list[Run]:
    """Train one network per seed."""
    seeds = as_integer("seeds", seeds, 1)
    with study.stage("training") as parts:
        runs = [
            train(
                study.images,
                study.seed_folder(config.seed + i, "checkpoints"),
                replace(config, seed=config.seed + i),
                device=study.device,
                show_progress=show_progress,
            )
            for i in range(seeds)
        ]
        parts["training"] = tuple(p for run in study.runs for p in training_points(run, study.images, study.device))
    return runs


def study_dynamics(study: Study, *, show_progress: bool = True) -> Results:
    """Figures 2 and 3: fit and judge every checkpoint of every seed."""
    with study.stage("dynamics") as parts:
        found = [
            dynamics(run, study.bench, study.seed_folder(run.seed, "fits"), show_progress=show_progress)
            for run in study.runs
        ]
        parts["dynamics"] = tuple(p for points, _ in found for p in points)
        parts["spectra"] = tuple(s for _, spectra in found for s in spectra)
    return study.results


def study_features(study: Study, *, show_progress: bool = True) -> Results:
    """Figure 1: what every class reads at every checkpoint of the first seed, and a few images explained."""
    run = study.runs[0]
    folder = _fits(study, run)
    steps: list[FeatureStep] = []
    with study.stage("features") as parts:
        with progress("features", len(run.steps), show_progress) as update:
            for done, step in enumerate(run.steps):
                update(done, f"step {step}")
                steps += feature_step(step, *load_fits(folder, step, study.device), inputs=study.bench.metric)
        # Images of every class that the last network gets right, and ones that it gets wrong, explained by its choice.
        bench, last = study.bench, run.steps[-1]
        net, (_, quadratic) = bench.net(run, last), load_fits(folder, last, study.device)
        mean, chosen = bench.gaussian.mean, choose_examples(net, bench.test, bench.test_labels)
        outputs = net(bench.test[torch.as_tensor(chosen, device=bench.test.device)]).argmax(1).tolist()
        explanations = [
            explain(net, quadratic, mean, bench.test[i], int(bench.test_labels[i]), output, inputs=bench.metric)
            for i, output in zip(chosen, outputs, strict=True)
        ]
        written = formulas(quadratic, bench.metric)
        parts["features"] = Features(run.seed, align(steps), tuple(explanations), written)
    return study.results


def study_attack(study: Study, *, label: int | None = None, show_progress: bool = True) -> Results:
    """Figures 4 and 5, and steering, on the last checkpoint of every seed and on an early one."""
    label = _shown(study, label)
    # The last checkpoint, and that at step 512: the network of the paper's own curve has the accuracy of that one.
    cases = [
        (run, step) for run in study.runs for step in sorted({run.steps[-1], max(s for s in run.steps if s <= _PAPERS)})
    ]
    with study.stage("attack") as parts, progress("attack", len(cases), show_progress) as update:
        bench, attacks = study.bench, []
        test, labels, covariance = bench.test, bench.test_labels, bench.gaussian.covariance
        for done, (run, step) in enumerate(cases):
            update(done, f"seed {run.seed}, step {step}")
            models = (bench.net(run, step), *load_fits(_fits(study, run), step, study.device))
            ablations = [
                row
                for kind in ("singular", "random", "pca")
                for row in ablation_curve(
                    *models, test, labels, seed=run.seed, directions=kind, covariance=covariance, step=step
                )
            ]
            steering = steering_curve(*models, test[::_STEERED], labels[::_STEERED], seed=run.seed, inputs=bench.metric)
            pictures = ablation_pictures(models[0], models[1], test, labels, label=label)
            attacks.append(Attack(tuple(ablations), tuple(replace(s, step=step) for s in steering), pictures, step))
        parts["attack"] = tuple(sorted(attacks, key=lambda a: -a.step))
    return study.results


def _fits(study: Study, run: Run) -> Path:
    """Where the fits of a run are; they must be there for every checkpoint."""
    folder = study.seed_folder(run.seed, "fits")
    missing = [s for s in run.steps if not (folder / f"step-{s:07d}.json").is_file()]
    if missing:
        listed = ", ".join(map(str, missing[:4])) + (", ..." if len(missing) > 4 else "")
        raise FileNotFoundError(
            f"{folder} lacks the fits of steps {listed}; run `mlpoly dynamics --out {study.folder}` first."
        )
    return folder


def study_report(study: Study, *, label: int | None = None) -> Path:
    """Judge the claims; write tables, figures and report.html.

    Returns
    -------
    Path
        Of the report.
    """
    with study.stage("report") as parts:
        found = study.results
        if not found.training:
            raise FileNotFoundError(f"no results in {study.folder}; run `mlpoly train --out {study.folder}` first.")
        ablations = [a for attack in found.attack for a in attack.ablations]
        if found.dynamics:
            parts["claims"] = judge_claims(
                found.dynamics, ablations, found.features, len(found.about["data"]["classes"])
            )
        found = replace(found, **parts)
        write_tables(found, study.folder / "tables")
        write_figures(found, study.folder / "figures", _shown(study, label))
    return write_report(study.results, study.folder / "report.html")
