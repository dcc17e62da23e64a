"""One page about any network: `mlpoly.report`."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.arrays import as_integer
from mlpoly.inputs import Inputs
from mlpoly.networks.from_layers import Layout
from mlpoly.pages.network.degree_section import degree_section
from mlpoly.pages.network.example_section import example_section
from mlpoly.pages.network.feature_sections import feature_section, response_section, strongest_features
from mlpoly.pages.network.fits import fit_degrees
from mlpoly.pages.network.method_section import method_section
from mlpoly.pages.network.subject import check_subject
from mlpoly.pages.network.summary import summary
from mlpoly.pages.network.term_sections import formula_section, interaction_section, strongest_terms, terms_section
from mlpoly.pages.toolkit import Page, asset
from mlpoly.pages.toolkit.rerun import rerun_section
from mlpoly.progress_bars import progress_bar


def write_report(
    net: Any,
    x: Any,
    labels: Any = None,
    names: Sequence[str] | None = None,
    image_shape: tuple[int, int] | None = None,
    out: str | PathLike[str] = "report.html",
    degree: int | None = None,
    inputs: Inputs | None = None,
    outputs: Sequence[str] | None = None,
    examples: int = 12,
    title: str | None = None,
    activation: str | Sequence[str | None] | None = None,
    layout: Layout | None = None,
    command: str = "",
) -> Path:
    """Write the page of `mlpoly.report`; `command` is the line on a terminal that asked for it."""
    began = time.perf_counter()
    examples = as_integer("examples", examples, 0)
    degree = None if degree is None else as_integer("degree", degree, 1)
    target = Path(out)
    if target.is_dir():
        raise ValueError(f"out is the folder {target}; give the path of a file, such as {target / 'report.html'}.")
    if isinstance(net, str | PathLike):
        from mlpoly.importers.model_files import read_network

        net = read_network(net, activation, layout)
    elif activation is not None or layout is not None:
        raise ValueError("activation and layout are for files of weights; this network knows its own.")
    about = check_subject(net, x, labels, names, image_shape, inputs, outputs)
    footer = f"Made by mlpoly {__version__}. This page loads nothing from a network."
    page = Page(title or "A network as a polynomial", f"A report by mlpoly {__version__}", footer)
    page.style = asset("mlpoly.pages.network", "network.css")
    with progress_bar("report", None) as update:
        steps = iter(range(1000))

        def tick(note: str) -> None:
            update(next(steps), note)

        fits = fit_degrees(about, degree, tick)
        page.introduce(*summary(about, fits))
        tick("terms")
        terms = strongest_terms(about, fits)
        formula_section(page, about, fits, terms)
        degree_section(page, about, fits)
        terms_section(page, about, terms)
        tick("interactions")
        interaction_section(page, about, fits)
        tick("eigenfeatures")
        features = strongest_features(about, fits)
        feature_section(page, about, fits, features)
        tick("responses")
        response_section(page, about, fits, features)
        tick("predictions")
        example_section(page, about, fits, examples)
        method_section(page, about, fits)
        tick("page")
        machine = {
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "numpy": np.__version__,
            "mlpoly": __version__,
        }
        config = {"degree": fits.degree, "rows": len(about.x), "examples": examples}
        seconds = {"reading the network": time.perf_counter() - began}
        rerun = {"command": command, "config": config, "machine": machine, "seconds": seconds}
        rerun_section(page, rerun, target.parent, ())
        return page.write(target)
