"""The report of the site, docs/reports/mnist.html: ``make site-report`` (needs MNIST; minutes on two cores).

The paper's experiments on MNIST at half its resolution, 14 x 14 pixels, where the exact quadratics of all checkpoints
take minutes instead of an hour without a GPU. Plotly's script, most of a page, is left out of the file:
tools/site_hooks.py puts it back when the site is built.
"""

import os
from pathlib import Path

import numpy as np
from plotly.offline import get_plotlyjs
from site_hooks import PLOTLY

from mlpoly.datasets import load_images
from mlpoly.pages.paper.page import write_report
from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig
from mlpoly.studies.paper.reproduce import PaperStudy, reproduce

ROOT = Path(__file__).parent.parent
FOLDER, PAGE = ROOT / "out" / "site-report", ROOT / "docs" / "reports" / "mnist.html"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.chdir(FOLDER)  # the report names its data as they were given
    write_half_size(Path("mnist-14x14.npz"))
    train, fits = TrainConfig(hidden=128, steps=2**13), DynamicsConfig(samples=5000, paper_steps=100)
    results = reproduce("study", "mnist-14x14.npz", train=train, fits=fits, figures=False)
    page = write_report(results, PAGE, PaperStudy.open("study").network)
    PAGE.write_text(page.read_text("utf-8").replace(get_plotlyjs(), PLOTLY), encoding="utf-8")
    print(PAGE, f"{PAGE.stat().st_size / 1e6:.1f} MB")


def write_half_size(path: Path) -> None:
    """MNIST with the means of 2 x 2 pixels."""
    images = load_images("mnist")

    def half(rows: np.ndarray) -> np.ndarray:
        means = rows.reshape(-1, 14, 2, 14, 2).mean((2, 4))
        return np.round(255 * means).astype(np.uint8)

    labels = {"y_train": images.train_labels, "y_test": images.test_labels}
    np.savez_compressed(path, x_train=half(images.train), x_test=half(images.test), **labels)


if __name__ == "__main__":
    main()
