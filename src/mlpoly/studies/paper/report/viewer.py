"""A viewer of eigenfeatures over training: a slider for the step, a button for each class, pictures on canvases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from mlpoly.page.embedded import eigenpicture, island, pack_images
from mlpoly.page.html import element, paragraph
from mlpoly.page.numbers import number
from mlpoly.page.widgets import choices, class_name, picture_row
from mlpoly.studies.paper.results import FeatureStep

__all__ = ["banner", "feature_viewer", "viewer_data"]

_ENDS = 20  # eigenvalues at either end of the spectrum that get a bar


def feature_viewer(
    name: str,
    steps: Sequence[FeatureStep],
    classes: Sequence[str],
    image_shape: tuple[int, int],
    columns: int = 4,
    chosen: int = 0,
) -> Markup:
    """Return the viewer, with its data.

    Parameters
    ----------
    name : str
        Different for every viewer of a page.
    steps : sequence of FeatureStep
        Every class at every step, with aligned signs, see `mlpoly.studies.paper.class_features.align`.
    classes : sequence of str
        Names, found by the label of a step.
    image_shape : (int, int)
    columns : int
        Eigenvectors of either sign.
    chosen : int
        Label of the class that is shown first.
    """
    data = viewer_data(steps, classes, image_shape, columns)
    end = len(data["steps"]) - 1

    def canvas(label: str) -> Markup:
        return element("canvas", width=image_shape[1], height=image_shape[0], role="img", aria_label=label)

    def board(kind: str, title: str, count: int) -> Markup:
        tile = element("div", canvas(title), element("span", class_="under"), class_="tile")
        row = element("div", *[tile] * count, class_="tile-row")
        return element("div", element("h4", title), row, class_=f"board {kind}")

    bars = element("div", class_="bars", role="img", aria_label="Bars of the eigenvalues")
    boards = (
        board("positive", "Eigenvectors that raise the logit", data["columns"]),
        board("negative", "Eigenvectors that lower it", data["columns"]),
        board("linear", "Linear coefficients", 1),
        element("div", element("h4", "Eigenvalues"), bars, element("span", class_="under"), class_="board bar-chart"),
    )
    player = (
        element("button", "Play", type="button", class_="play", aria_pressed="false"),
        element("label", "Training step", for_=f"{name}-step", class_="hidden"),
        element("input", type="range", id=f"{name}-step", min=0, max=end, step=1, value=end),
        element("output", for_=f"{name}-step"),
    )
    ends = (element("span", "−"), element("span", class_="gradient"), element("span", "+"))
    scale = element("span", "blue is negative, red positive; every picture has its own range")
    # The film of the whole training; the slider does the same for the keyboard, so these are not tab stops.
    pair = canvas("top eigenvector") + canvas("linear coefficients")
    film = [
        element("button", pair, element("span", step), type="button", tabindex=-1, aria_label=f"go to step {step}")
        for step in data["steps"]
    ]
    words = paragraph("The whole training: top eigenvector above, linear coefficients below", class_="row-label")
    place = data["classes"].index(class_name(classes, chosen)) if class_name(classes, chosen) in data["classes"] else 0
    return element(
        "div",
        element("div", choices(f"{name}-class", "Class", data["classes"], place), class_="controls"),
        element("div", *player, class_="player"),
        element("div", *boards, class_="boards"),
        paragraph(*ends, scale, class_="scale"),
        element("div", words, element("div", *film, class_="frames"), class_="strip"),
        island(f"{name}-data", data),
        class_="viewer",
        id=name,
        data_viewer=f"{name}-data",
    )


def banner(steps: Sequence[FeatureStep], classes: Sequence[str], image_shape: tuple[int, int]) -> Markup:
    """Return the strongest pattern of every class at the last step, as a row of pictures."""
    end, pictures = max(s.step for s in steps), []
    for s in steps:
        if s.step == end and len(s.positive_vectors):
            name = class_name(classes, s.label)
            image = eigenpicture(s.positive_vectors[0], image_shape, f"the strongest pattern of class {name}")
            pictures.append((image, name))
    words = f"What each class looks for: the strongest pattern of its quadratic at step {number(end, 6)}."
    return element("div", picture_row(pictures, words), class_="banner")


def viewer_data(
    frames: Sequence[FeatureStep], classes: Sequence[str], image_shape: tuple[int, int], columns: int
) -> dict[str, Any]:
    """Return the data of a viewer: images by step, class and place (positive, negative, linear), and eigenvalues."""
    steps, labels = sorted({f.step for f in frames}), sorted({f.label for f in frames})
    columns = min(columns, max(max(len(f.positive), len(f.negative)) for f in frames))
    # Black where there are fewer eigenvectors.
    images = np.zeros((len(steps), len(labels), 2 * columns + 1, frames[0].linear.size))
    values: list[list[dict[str, Any] | None]] = [[None] * len(labels) for _ in steps]
    for frame in frames:
        i, j = steps.index(frame.step), labels.index(frame.label)
        for start, vectors in ((0, frame.positive_vectors), (columns, frame.negative_vectors)):
            drawn = np.asarray(vectors)[:columns]
            images[i, j, start : start + len(drawn)] = drawn
        images[i, j, -1] = frame.linear
        spectrum = np.asarray(frame.spectrum, float)
        bars = spectrum if spectrum.size <= 2 * _ENDS else np.concatenate([spectrum[:_ENDS], spectrum[-_ENDS:]])
        lists = {"positive": frame.positive[:columns], "negative": frame.negative[:columns], "spectrum": bars}
        rounded = {name: [float(f"{v:.4g}") for v in numbers] for name, numbers in lists.items()}
        values[i][j] = {**rounded, "count": int(spectrum.size)}
    return {
        "shape": list(image_shape),
        "steps": steps,
        "classes": [class_name(classes, label) for label in labels],
        "columns": columns,
        "values": values,
        **pack_images(images.reshape(-1, images.shape[-1])),
    }
