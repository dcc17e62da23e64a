"""Tables (CSV) and printed figures (PNG and PDF) of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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
    """Every figure that the results allow; those of one class show `label`."""
    make_folder(folder)
    return [path for name, draw in _figures(results, label) for path in plots.save_figure(draw(), folder, name)]


def _figures(results: Results, label: int) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Name and drawing of each figure; the numbers are those of the paper."""
    rows, columns = results.about["data"]["image_shape"]
    shape = (rows, columns)
    label = min(label, len(results.about["data"]["classes"]) - 1)
    if results.dynamics:
        yield "figure-2-fvu", lambda: plots.plot_dynamics(results.dynamics, "fvu")
        yield "figure-3-kl", lambda: plots.plot_dynamics(results.dynamics, "kl")
        yield "accuracy", lambda: plots.plot_accuracy(results.training, results.dynamics)
        yield "spectrum", lambda: plots.plot_spectra(results.spectra)
    if results.features is not None:
        steps, explanations = results.features.steps, results.features.explanations
        yield "figure-1-features", lambda: plots.plot_training_features(steps, label, shape)
        yield "eigenvalues", lambda: plots.plot_spectrum_of_class(steps, label, shape)
        if explanations:
            chosen = next((e for e in explanations if e.label == label), explanations[0])
            yield "explanation", lambda: plots.plot_explanation(chosen, shape)
    if results.attack:
        yield from _attack_figures(results, shape)


def _attack_figures(results: Results, shape: tuple[int, int]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Figures 4 and 5 and steering, for every checkpoint that was attacked."""
    chance = 1 / len(results.about["data"]["classes"])
    for step in sorted({a.step for a in results.attack}):
        attacks = [a for a in results.attack if a.step == step]
        ablations = [a for attack in attacks for a in attack.ablations]
        steering = [s for attack in attacks for s in attack.steering]
        pictures, title = attacks[0].pictures, f"The network at step {step}"
        draw, steer, show = plots.plot_ablation, plots.plot_steering, plots.plot_ablation_pictures
        yield f"figure-4-ablated-{step}", partial(show, pictures, shape, title=title)
        yield f"figure-5-attack-{step}", partial(draw, ablations, chance=chance, title=title)
        yield f"steering-{step}", partial(steer, steering, title=title)
