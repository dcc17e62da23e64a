"""A viewer of eigenfeatures over training: a slider for the step, a button for each class, pictures on canvases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from mlpoly.page.embedded import eigenpicture, island, pack_images
from mlpoly.page.html import Html, element, paragraph
from mlpoly.page.numbers import number
from mlpoly.page.widgets import choices, class_name, picture_row

__all__ = ["Frame", "banner", "feature_viewer", "viewer_data"]

_ENDS = 20  # eigenvalues at either end of the spectrum that get a bar


class Frame(Protocol):
    """What one class reads at one step, such as `mlpoly.studies.paper.results.FeatureStep`."""

    @property
    def step(self) -> int:
        """Of training."""

    @property
    def label(self) -> int:
        """Place of the class."""

    @property
    def positive(self) -> np.ndarray:
        """Largest eigenvalues (k,), strongest first."""

    @property
    def negative(self) -> np.ndarray:
        """Most negative eigenvalues (k,), strongest first."""

    @property
    def positive_vectors(self) -> np.ndarray:
        """Their eigenvectors (k, d)."""

    @property
    def negative_vectors(self) -> np.ndarray:
        """Their eigenvectors (k, d)."""

    @property
    def linear(self) -> np.ndarray:
        """Linear coefficients (d,)."""

    @property
    def spectrum(self) -> np.ndarray:
        """All eigenvalues, descending."""


def feature_viewer(
    name: str,
    frames: Sequence[Frame],
    classes: Sequence[str],
    image_shape: tuple[int, int],
    columns: int = 4,
    chosen: int = 0,
) -> Html:
    """The viewer, with its data.

    Parameters
    ----------
    name : str
        Different for every viewer of a page.
    frames : sequence of Frame
        Every class at every step.
    classes : sequence of str
        Names, found by the label of a frame.
    image_shape : (int, int)
    columns : int
        Eigenvectors of either sign.
    chosen : int
        Label of the class that is shown first.
    """
    data = viewer_data(frames, classes, image_shape, columns)
    buttons = choices(f"{name}-class", "Class", data["classes"], chosen if chosen in range(len(data["classes"])) else 0)
    boards = [
        _board("positive", "Eigenvectors that raise the logit", data["columns"], image_shape),
        _board("negative", "Eigenvectors that lower it", data["columns"], image_shape),
        _board("linear", "Linear coefficients", 1, image_shape),
        element(
            "div",
            element("h4", "Eigenvalues"),
            element("div", class_="bars", role="img", aria_label="Bars of the eigenvalues"),
            element("span", class_="under"),
            class_="board bar-chart",
        ),
    ]
    slider, end = f"{name}-step", max(len(data["steps"]) - 1, 0)
    player = (
        element("button", "Play", type="button", class_="play", aria_pressed="false"),
        element("label", "Training step", for_=slider, class_="hidden"),
        element("input", type="range", id=slider, min=0, max=end, step=1, value=end),
        element("output", for_=slider),
    )
    ends = (element("span", "−"), element("span", class_="gradient"), element("span", "+"))
    scale = element("span", "blue is negative, red positive; every picture has its own range")
    # The film of the whole training; the slider does the same for the keyboard, so these are no tab stops.
    pair = [_canvas(image_shape, aria_label="top eigenvector"), _canvas(image_shape, aria_label="linear coefficients")]
    film = [
        element("button", *pair, element("span", step), type="button", tabindex=-1, aria_label=f"go to step {step}")
        for step in data["steps"]
    ]
    words = "The whole training: top eigenvector above, linear coefficients below"
    parts = (
        element("div", buttons, class_="controls"),
        element("div", *player, class_="player"),
        element("div", *boards, class_="boards"),
        paragraph(*ends, scale, class_="scale"),
        element("div", paragraph(words, class_="row-label"), element("div", *film, class_="frames"), class_="strip"),
        island(f"{name}-data", data),
    )
    return element("div", *parts, class_="viewer", id=name, data_viewer=f"{name}-data")


def banner(frames: Sequence[Frame], classes: Sequence[str], image_shape: tuple[int, int]) -> Html:
    """The strongest pattern of every class at the last step, as a row of pictures."""
    end, pictures = max(frame.step for frame in frames), []
    for frame in frames:
        if frame.step == end and len(frame.positive_vectors):
            name = class_name(classes, frame.label)
            image = eigenpicture(frame.positive_vectors[0], image_shape, f"the strongest pattern of class {name}")
            pictures.append((image, name))
    words = f"What each class looks for: the strongest pattern of its quadratic at step {number(end, 6)}."
    return element("div", picture_row(pictures, words), class_="banner")


# -- data --------------------------------------------------------------------------------------------------------------


def viewer_data(
    frames: Sequence[Frame], classes: Sequence[str], image_shape: tuple[int, int], columns: int
) -> dict[str, Any]:
    """What the page holds: images by step, class and place (positive, negative, linear), and the eigenvalues."""
    steps, labels = sorted({f.step for f in frames}), sorted({f.label for f in frames})
    columns = min(columns, max(max(len(f.positive), len(f.negative)) for f in frames))
    found = {(f.step, f.label): f for f in frames}
    # Black where there are fewer eigenvectors.
    images = np.zeros((len(steps), len(labels), 2 * columns + 1, frames[0].linear.size))
    values: list[list[dict[str, Any] | None]] = [[None] * len(labels) for _ in steps]
    for (step, label), frame in found.items():
        i, j = steps.index(step), labels.index(label)
        for start, vectors in ((0, frame.positive_vectors), (columns, frame.negative_vectors)):
            drawn = np.asarray(vectors)[:columns]
            images[i, j, start : start + len(drawn)] = drawn
        images[i, j, -1] = frame.linear
        spectrum = np.asarray(frame.spectrum, float)
        bars = spectrum if spectrum.size <= 2 * _ENDS else np.concatenate([spectrum[:_ENDS], spectrum[-_ENDS:]])
        lists = {"positive": frame.positive[:columns], "negative": frame.negative[:columns], "spectrum": bars}
        rounded = {name: [float(f"{v:.4g}") for v in numbers] for name, numbers in lists.items()}
        values[i][j] = {**rounded, "count": int(spectrum.size)}
    _align(images[:, :, :-1])
    return {
        "shape": list(image_shape),
        "steps": steps,
        "classes": [class_name(classes, label) for label in labels],
        "columns": columns,
        "values": values,
        **pack_images(images.reshape(-1, images.shape[-1])),
    }


def _align(vectors: np.ndarray) -> None:
    """Choose the signs of eigenvectors (steps, ...), which mean nothing, so that a film does not flicker.

    The last one has its largest pixel positive; every earlier one points the way of its successor.
    """
    last = vectors[-1]
    peaks = np.take_along_axis(last, np.abs(last).argmax(-1)[..., None], -1)
    last *= np.where(peaks < 0, -1.0, 1.0)
    for i in range(len(vectors) - 2, -1, -1):
        overlap = (vectors[i] * vectors[i + 1]).sum(-1, keepdims=True)
        vectors[i] *= np.where(overlap < 0, -1.0, 1.0)


# -- elements ----------------------------------------------------------------------------------------------------------


def _canvas(image_shape: tuple[int, int], **attributes: object) -> Html:
    rows, columns = image_shape
    return element("canvas", width=columns, height=rows, role="img", **attributes)


def _board(kind: str, title: str, count: int, image_shape: tuple[int, int]) -> Html:
    canvases = [
        element("div", _canvas(image_shape, aria_label=title), element("span", class_="under"), class_="tile")
        for _ in range(count)
    ]
    return element("div", element("h4", title), element("div", *canvases, class_="tile-row"), class_=f"board {kind}")
