"""Every figure of the paper described once, for the report and for files; here the files."""

from dataclasses import replace
from pathlib import Path

from mlpoly.charts.chart import Chart, Gallery
from mlpoly.charts.matplotlib import draw
from mlpoly.charts.style import save_figure
from mlpoly.files import make_folder
from mlpoly.studies.paper.figures.curves import ablation_chart, accuracy_chart, distance_chart, spectrum_chart
from mlpoly.studies.paper.figures.pictures import attack_gallery, training_gallery
from mlpoly.studies.paper.results import Results


def write_figures(results: Results, folder: Path, label: int = 3) -> list[Path]:
    """Every figure that the results allow; those of one class show `label`. The numbers are those of the paper."""
    make_folder(folder)
    written: list[Path] = []

    def save(name: str, *pictures: Chart | Gallery, title: str = "") -> None:
        written.extend(save_figure(draw(*pictures, title=title), folder, name))

    def first(chart: Chart, count: int) -> Chart:
        return replace(chart, panels=chart.panels[:count])

    rows, columns = results.about["data"]["image_shape"]
    shape, classes = (rows, columns), [str(c) for c in results.about["data"]["classes"]]
    label = min(label, len(classes) - 1)
    if results.dynamics:
        save("figure-2-fvu", first(distance_chart(results.dynamics, "fvu"), 2))
        save("figure-3-kl", first(distance_chart(results.dynamics, "kl"), 2))
        save("accuracy", first(accuracy_chart(results.training, results.dynamics), 2))
        save("spectrum", first(spectrum_chart(results.spectra), 2))
    if results.features is not None:
        save("figure-1-features", training_gallery(results.features.steps, label, shape))
    for step in sorted({a.step for a in results.attack}):
        attacks, title = [a for a in results.attack if a.step == step], f"The network at step {step}"
        ablations = ablation_chart([a for attack in attacks for a in attack.ablations], len(classes))
        save(f"figure-4-ablated-{step}", attack_gallery(attacks[0].pictures, classes, shape, 11), title=title)
        save(f"figure-5-attack-{step}", first(ablations, 1), title=title)
    return written
