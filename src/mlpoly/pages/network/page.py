"""The page about any network: its sections in their order."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mlpoly.machine import COMMAND, describe_machine
from mlpoly.pages.network.degree_section import degree_section
from mlpoly.pages.network.example_section import example_section
from mlpoly.pages.network.feature_sections import feature_section, response_section, strongest_features
from mlpoly.pages.network.fits import Fits
from mlpoly.pages.network.method_section import method_section
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.network.summary import summary
from mlpoly.pages.network.term_sections import formula_section, interaction_section, strongest_terms, terms_section
from mlpoly.pages.toolkit import Page, asset

STYLE = asset("mlpoly.pages.network", "network.css")


def write_page(
    subject: Subject,
    fits: Fits,
    path: Path,
    title: str,
    examples: int = 12,
    began: float | None = None,
    tick: Callable[[str], None] = lambda note: None,
) -> Path:
    """Write the page of `mlpoly.report`; `tick` is told what comes next, and `began` is when the work did."""
    began = time.perf_counter() if began is None else began
    page = Page(title, style=STYLE)
    page.introduce(*summary(subject, fits))
    tick("terms")
    terms = strongest_terms(subject, fits)
    formula_section(page, subject, fits, terms)
    degree_section(page, subject, fits)
    terms_section(page, subject, terms)
    tick("interactions")
    interaction_section(page, subject, fits)
    tick("eigenfeatures")
    features = strongest_features(subject, fits)
    feature_section(page, subject, fits, features)
    tick("responses")
    response_section(page, subject, fits, features)
    tick("predictions")
    example_section(page, subject, fits, examples)
    method_section(page, subject, fits)
    tick("page")
    about = {
        "command": COMMAND.get(),
        "config": {"degree": fits.degree, "rows": len(subject.x), "examples": examples},
        "machine": describe_machine(),
        "seconds": {"reading the network": time.perf_counter() - began},
    }
    page.rerun_section(about, path.parent)
    return page.write(path)
