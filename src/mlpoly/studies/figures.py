"""Tables (CSV) and printed figures (PNG and PDF) of a study."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from mlpoly import plots
from mlpoly.files import make_folder
from mlpoly.studies.results import Results
from mlpoly.studies.tables import write_table

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
        written.extend(plots.save_figure(figure, folder, name))

    rows, columns = results.about["data"]["image_shape"]
    shape, classes = (rows, columns), len(results.about["data"]["classes"])
    label = min(label, classes - 1)
    if results.dynamics:
        save("figure-2-fvu", plots.plot_dynamics(results.dynamics, "fvu"))
        save("figure-3-kl", plots.plot_dynamics(results.dynamics, "kl"))
        save("accuracy", plots.plot_accuracy(results.training, results.dynamics))
        save("spectrum", plots.plot_spectra(results.spectra))
    if results.features is not None:
        steps, explanations = results.features.steps, results.features.explanations
        save("figure-1-features", plots.plot_training_features(steps, label, shape))
        save("eigenvalues", plots.plot_spectrum_of_class(steps, label, shape))
        if explanations:
            chosen = next((e for e in explanations if e.label == label), explanations[0])
            save("explanation", plots.plot_explanation(chosen, shape))
    for step in sorted({a.step for a in results.attack}):
        attacks, title = [a for a in results.attack if a.step == step], f"The network at step {step}"
        ablations = [a for attack in attacks for a in attack.ablations]
        steering = [s for attack in attacks for s in attack.steering]
        save(f"figure-4-ablated-{step}", plots.plot_ablation_pictures(attacks[0].pictures, shape, title=title))
        save(f"figure-5-attack-{step}", plots.plot_ablation(ablations, chance=1 / classes, title=title))
        save(f"steering-{step}", plots.plot_steering(steering, title=title))
    return written
