"""A viewer of eigenfeatures over training: a slider for the step, a button for each class, pictures on canvases."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from mlpoly.pages.toolkit.pictures import island, pack_images, picture
from mlpoly.pages.toolkit.widgets import choices, element, number, picture_row, rounded
from mlpoly.studies.paper.results import FeatureStep

_COLUMNS = 4  # eigenvectors of either sign
_ENDS = 20  # eigenvalues at either end of the spectrum that get a bar
_FIRST = 3  # the class that the paper shows is shown first


def feature_viewer(steps: Sequence[FeatureStep], classes: Sequence[str], image_shape: tuple[int, int]) -> Markup:
    """Return the viewer with its data; `steps` hold every class at every step, with aligned signs."""
    data = _viewer_data(steps, classes, image_shape)
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
        element("label", "Training step", for_="viewer-step", class_="hidden"),
        element("input", type="range", id="viewer-step", min=0, max=end, step=1, value=end),
        element("output", for_="viewer-step"),
    )
    ends = (element("span", "−"), element("span", class_="gradient"), element("span", "+"))
    scale = element("span", "blue is negative, red positive; every picture has its own range")
    # The film of the whole training; the slider does the same for the keyboard, so these are not tab stops.
    pair = canvas("top eigenvector") + canvas("linear coefficients")
    film = [
        element("button", pair, element("span", step), type="button", tabindex=-1, aria_label=f"go to step {step}")
        for step in data["steps"]
    ]
    words = element("p", "The whole training: top eigenvector above, linear coefficients below", class_="row-label")
    labels = sorted({s.label for s in steps})
    first = labels.index(_FIRST) if _FIRST in labels else 0
    return element(
        "div",
        element("div", choices("viewer-class", "Class", data["classes"], first), class_="controls"),
        element("div", *player, class_="player"),
        element("div", *boards, class_="boards"),
        element("p", *ends, scale, class_="scale"),
        element("div", words, element("div", *film, class_="frames"), class_="strip"),
        island("viewer-data", data),
        class_="viewer",
        id="viewer",
        data_viewer="viewer-data",
    )


def banner(steps: Sequence[FeatureStep], classes: Sequence[str], image_shape: tuple[int, int]) -> Markup:
    """Return the strongest pattern of every class at the last step, as a row of pictures."""
    end, pictures = max(s.step for s in steps), []
    for s in steps:
        if s.step == end and len(s.positive_vectors):
            name = classes[s.label]
            image = np.reshape(s.positive_vectors[0], image_shape)
            pictures.append((picture(image, f"the strongest pattern of class {name}"), name))
    words = f"What each class looks for: the strongest pattern of its quadratic at step {number(end, 6)}."
    return element("div", picture_row(pictures, words), class_="banner")


def _viewer_data(frames: Sequence[FeatureStep], classes: Sequence[str], image_shape: tuple[int, int]) -> dict[str, Any]:
    """Images by step, class and place (positive, negative, linear), and eigenvalues."""
    steps, labels = sorted({f.step for f in frames}), sorted({f.label for f in frames})
    columns = min(_COLUMNS, max(max(len(f.positive), len(f.negative)) for f in frames))
    # Zero where there are fewer eigenvectors.
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
        values[i][j] = {name: rounded(numbers) for name, numbers in lists.items()} | {"count": int(spectrum.size)}
    return {
        "shape": list(image_shape),
        "steps": steps,
        "classes": [classes[label] for label in labels],
        "columns": columns,
        "values": values,
        **pack_images(images.reshape(-1, images.shape[-1])),
    }
