"""Attacks on a network that were found in its polynomials: curves of what they cost, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from markupsafe import Markup

from mlpoly.page.embedded import picture
from mlpoly.page.html import element
from mlpoly.page.numbers import percent
from mlpoly.page.plot import Plot, Trace, View
from mlpoly.page.widgets import class_name, picture_row
from mlpoly.studies.paper.report.curves import Curve, over_seeds

__all__ = ["Pictures", "ablation_plot", "attack_pictures", "steering_plot"]

_MODELS = {"network": "black", "linear": "orange", "quadratic": "blue"}
_DIRECTIONS = {"singular": "singular vectors", "random": "random directions", "pca": "principal components"}
_MOVES = {"eigenvector": "along an eigenvector", "noise": "by noise", "random": "along a random vector"}
_DASHES = ("solid", "dash", "dot")  # of the attack and its two controls
_SHARES = {"tickformat": ".0%", "range": [0, 1.03]}


class Pictures(Protocol):
    """Images under attack, such as `mlpoly.studies.paper.results.AttackPictures`."""

    @property
    def ladder(self) -> np.ndarray:
        """One image with 0, 1, ..., k directions removed, (k + 1, d)."""

    @property
    def ladder_label(self) -> int:
        """Its class."""

    @property
    def ladder_choices(self) -> tuple[int, ...]:
        """What the network calls each."""

    @property
    def digits(self) -> np.ndarray:
        """One image of each class (c, d)."""

    @property
    def ablated(self) -> np.ndarray:
        """The same without all directions (c, d)."""

    @property
    def labels(self) -> tuple[int, ...]:
        """Their classes."""

    @property
    def choices(self) -> tuple[int, ...]:
        """What the network calls the ablated ones."""


def ablation_plot(name: str, ablations: Sequence[Any], classes: int) -> Plot:
    """Accuracy of network and polynomials without k directions, with the controls.

    Parameters
    ----------
    name : str
    ablations : sequence of records
        With ``step``, ``directions`` ("singular", "random", "pca"), ``k``, ``network``, ``linear`` and ``quadratic``,
        one for each seed.
    classes : int
        For the line of chance.
    """
    levels = [_level(0.5, "50 %"), _level(1 / classes, f"chance, {percent(1 / classes, 0)}")]
    layout = {
        "xaxis": {"title": {"text": "directions removed"}, "nticks": 12},
        "yaxis": {"title": {"text": "accuracy on test images"}, **_SHARES},
        "shapes": [shape for shape, _ in levels],
        "annotations": [note for _, note in levels],
    }
    views = _by_step(ablations, lambda rows: _views(_sorted(rows, "directions", _DIRECTIONS), "k", "removed", {}))
    label = "Accuracy against the number of directions removed"
    return Plot(name, label, views, ("Network at", "Removed"), layout)


def _by_step(records: Sequence[Any], views: Callable[[list[Any]], list[View]]) -> list[View]:
    """The views of every checkpoint, the last one first."""
    steps = sorted({r.step for r in records}, reverse=True)
    return [
        replace(view, choice=(f"step {step}", *view.choice))
        for step in steps
        for view in views([r for r in records if r.step == step])
    ]


def _sorted(records: Sequence[Any], kind: str, words: dict[str, str]) -> dict[str, list[Any]]:
    """The records of each kind, by what the kind is called."""
    return {said: [r for r in records if getattr(r, kind) == name] for name, said in words.items()}


def steering_plot(name: str, steering: Sequence[Any]) -> Plot:
    """What moving every image along an eigenvector does, with the controls.

    Parameters
    ----------
    name : str
    steering : sequence of records
        With ``step``, ``direction`` ("eigenvector", "noise", "random"), ``strength``, ``network``, ``linear``,
        ``quadratic``, ``fvu`` and ``kl``, one for each seed.
    """
    layout = {"xaxis": {"title": {"text": "length of the move"}, "rangemode": "tozero"}}
    views = _by_step(steering, _steering_views)
    return Plot(name, "Accuracy against the length of the move", views, ("Network at", "Shown"), layout)


def _steering_views(steering: list[Any]) -> list[View]:
    """Accuracy for every kind of move, then FVU and KL of the quadratic."""
    parts = _sorted(steering, "direction", _MOVES)
    shares = {"yaxis": {"title": {"text": "accuracy on moved test images"}, **_SHARES}}
    views = _views(parts, "strength", "length", shares)
    for y, title in (("fvu", "FVU of the quadratic"), ("kl", "KL of the quadratic, nats")):
        traces: list[Trace] = []
        for (words, records), dash in zip(parts.items(), _DASHES, strict=True):
            curve = Curve(words, over_seeds(records, "strength", y), "blue", dash, 2.2, "length", y.upper(), True)
            traces += curve.line() if records else []
        views.append(
            View((title.partition(",")[0],), traces, {"yaxis": {"title": {"text": title}, "rangemode": "tozero"}})
        )
    return views


def _views(parts: dict[str, list[Any]], x: str, x_name: str, layout: dict[str, Any]) -> list[View]:
    """A view for every kind of attack; the first one has the network under the controls too, in grey."""
    views = []
    for words, records in parts.items():
        if records:
            curves = [
                Curve(model, over_seeds(records, x, model), colour, "solid", 2.2, x_name, "accuracy", True)
                for model, colour in _MODELS.items()
            ]
            views.append(View((words,), [trace for curve in curves for trace in curve.line()], layout))
    for words, dash in list(zip(parts, _DASHES, strict=True))[1:]:
        if parts[words] and views[0].choice != (words,):
            summary = over_seeds(parts[words], x, "network")
            control = Curve(f"network, {words}", summary, "grey", dash, 1.8, x_name, "accuracy", True)
            views[0] = replace(views[0], traces=[*views[0].traces, *control.line()])
    return views


def _level(height: float, words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A dotted line across the plot, and its name."""
    line = {"color": "var(--faint)", "dash": "dot", "width": 1.2}
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": height, "y1": height, "line": line}
    place = {
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "xshift": 8,
        "y": height,
        "yanchor": "bottom",
        "showarrow": False,
    }
    return shape, {"text": words, **place, "font": {"size": 12, "color": "var(--muted)"}}


def attack_pictures(pictures: Pictures, classes: Sequence[str], image_shape: tuple[int, int]) -> Markup:
    """Rows of images: one losing its directions, and one of each class before and after."""
    stack = np.concatenate([pictures.ladder, pictures.digits, pictures.ablated])
    limits = (float(stack.min()), float(stack.max()))

    def row(images: np.ndarray, title: str, below: Sequence[object], alts: Sequence[str]) -> Markup:
        shown = [picture(np.reshape(i, image_shape), limits, alt) for i, alt in zip(images, alts, strict=True)]
        return picture_row(list(zip(shown, below, strict=True)), title)

    def read(choice: int, label: int) -> Markup:
        said = f"read as {class_name(classes, choice)}"
        if choice == label:
            return element("span", f"{said} ✓", class_="right")
        return element("span", said, class_="wrong")

    one = class_name(classes, pictures.ladder_label)
    names = [f"a {class_name(classes, label)}" for label in pictures.labels]
    ladder = [read(choice, pictures.ladder_label) for choice in pictures.ladder_choices]
    steps = [Markup().join((f"{k} removed", element("br"), said)) for k, said in enumerate(ladder)]
    choices = [read(*pair) for pair in zip(pictures.choices, pictures.labels, strict=True)]
    rows = (
        row(
            pictures.ladder,
            f"A {one}, losing its directions",
            steps,
            [f"a {one}, {k} removed" for k in range(len(steps))],
        ),
        row(pictures.digits, "One of each class", names, names),
        row(pictures.ablated, "The same without all directions", choices, [f"{n}, all removed" for n in names]),
    )
    return element("div", *rows)
