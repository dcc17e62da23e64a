"""Tables (CSV) and printed figures (PNG and PDF) of a study."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from mlpoly.codec import write_table
from mlpoly.files import make_folder
from mlpoly.plots import save_figure
from mlpoly.studies.paper.figures_attack import plot_ablation, plot_ablation_pictures, plot_steering
from mlpoly.studies.paper.figures_dynamics import plot_accuracy, plot_dynamics, plot_spectra
from mlpoly.studies.paper.figures_training_features import (
    plot_explanation,
    plot_spectrum_of_class,
    plot_training_features,
)
from mlpoly.studies.paper.results import Results

__all__ = ["write_figures", "write_tables"]


def write_tables(results: Results, folder: Path) -> list[Path]:
    """One CSV file for each kind of record that there is."""
    make_folder(folder)
    tables = {
        "training": results.training,
        "dynamics": results.dynamics,
        "spectra": results.spectra,
        "ablation": [a for attack in results.attack for a in attack.ablations],
        "steering": [s for attack in results.attack for s in attack.steering],
        "claims": results.claims,
    }
    written = []
    for name, records in tables.items():
        if records:
            write_table(folder / f"{name}.csv", records)
            written.append(folder / f"{name}.csv")
    return written


def write_figures(results: Results, folder: Path, label: int = 3) -> list[Path]:
    """Every figure that the results allow; those of one class show `label`. The numbers are those of the paper."""
    make_folder(folder)
    written: list[Path] = []

    def save(name: str, figure: Figure) -> None:
        written.extend(save_figure(figure, folder, name))

    rows, columns = results.about["data"]["image_shape"]
    shape, classes = (rows, columns), len(results.about["data"]["classes"])
    label = min(label, classes - 1)
    if results.dynamics:
        save("figure-2-fvu", plot_dynamics(results.dynamics, "fvu"))
        save("figure-3-kl", plot_dynamics(results.dynamics, "kl"))
        save("accuracy", plot_accuracy(results.training, results.dynamics))
        save("spectrum", plot_spectra(results.spectra))
    if results.features is not None:
        steps, explanations = results.features.steps, results.features.explanations
        save("figure-1-features", plot_training_features(steps, label, shape))
        save("eigenvalues", plot_spectrum_of_class(steps, label, shape))
        if explanations:
            chosen = next((e for e in explanations if e.label == label), explanations[0])
            save("explanation", plot_explanation(chosen, shape))
    for step in sorted({a.step for a in results.attack}):
        attacks, title = [a for a in results.attack if a.step == step], f"The network at step {step}"
        ablations = [a for attack in attacks for a in attack.ablations]
        steering = [s for attack in attacks for s in attack.steering]
        save(f"figure-4-ablated-{step}", plot_ablation_pictures(attacks[0].pictures, shape, title=title))
        save(f"figure-5-attack-{step}", plot_ablation(ablations, chance=1 / classes, title=title))
        save(f"steering-{step}", plot_steering(steering, title=title))
    return written
