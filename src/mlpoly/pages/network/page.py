"""The page about any network: its sections in their order."""

import time
from collections.abc import Callable
from pathlib import Path

from mlpoly.inputs import Gaussian, Samples
from mlpoly.machine import COMMAND, describe_machine
from mlpoly.networks import Layer, check_network
from mlpoly.pages.network.degree_section import degree_section
from mlpoly.pages.network.example_section import example_section
from mlpoly.pages.network.feature_sections import feature_section, response_section, strongest_features
from mlpoly.pages.network.fits import Fits
from mlpoly.pages.network.importance_section import conclusion, importance_of, importance_section
from mlpoly.pages.network.shape_section import shape_section
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.network.summary import describe_inputs, summary
from mlpoly.pages.network.term_sections import formula_section, interaction_section, strongest_terms, terms_section
from mlpoly.pages.toolkit import Page, asset
from mlpoly.pages.toolkit.html import element
from mlpoly.pages.toolkit.widgets import command

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
    tick("curves")
    importance = importance_of(subject, fits)
    page.introduce(*summary(subject, fits, None if importance is None else conclusion(subject, fits, importance)))
    if importance is not None:
        importance_section(page, importance)
        shape_section(page, subject, fits, importance.curves, importance.on_rows)
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
    _method_section(page, subject, fits)
    tick("page")
    about = {
        "command": COMMAND.get(),
        "config": {"degree": fits.degree, "rows": len(subject.x), "examples": examples},
        "machine": describe_machine(),
        "seconds": {"reading the network": time.perf_counter() - began},
    }
    page.rerun_section(about, path.parent)
    return page.write(path)


def _method_section(page: Page, subject: Subject, fits: Fits) -> None:
    """What is exact on the page and what is not, and how to compute it in Python."""
    layer, gaussian = isinstance(check_network(subject.net), Layer), isinstance(subject.inputs, Gaussian)
    under = describe_inputs(subject.inputs)
    said = []
    if layer and gaussian:
        said.append(
            "Exact: the polynomials, their errors under the Gaussian and the degree spectrum. They are sums over the "
            "weights, with no samples and no training."
        )
    elif isinstance(subject.inputs, Samples):
        said.append(
            "The polynomials are least squares on the samples, over all polynomials of the degree where it fits."
        )
    elif layer:
        said.append(f"Up to degree 2 the polynomials are least squares under {under}, from the weights alone.")
    else:
        said.append(
            "Not exact: this network has several hidden layers. Its polynomials come from a second-order expansion, "
            "which is close to the best ones of degree 1 and 2 but not the same, and their errors under the inputs "
            "from samples drawn from these."
        )
    if subject.estimated:
        said.append(
            "An assumption: the data have the mean and covariance of the Gaussian, but are not Gaussian. The column "
            "of errors on the data says what that costs. Where it is much larger than the one under the Gaussian, give "
            "inputs=mlpoly.GaussianMixture.from_labels(x, labels) or inputs=mlpoly.Samples(x)."
        )
    said.append(
        "A polynomial follows the network where the inputs vary. Far from the data it grows without bound, and says "
        "nothing about the network there."
    )
    said.append(
        "Coefficients say how the network’s outputs depend on its inputs, not what causes what in the data. Where "
        "inputs are correlated, an effect may be spread over several of them."
    )
    code = [
        "import numpy as np",
        "import mlpoly as mp",
        *subject.code,
        f"poly = mp.fit(net, inputs, degree={fits.written.degree})",
        'print(poly.terms(output=0, center="mean"))',
        "print(mp.fvu(net, poly), mp.fvu(net, poly, rows))",
        "print(mp.explain(poly, rows[0]))",
    ]
    section = page.section("method", "What is exact and what is not", "What is exact")
    section.add(element("ul", *(element("li", each) for each in said), class_="points"))
    section.add(element("h3", "The same in Python"), command("\n".join(code)))
