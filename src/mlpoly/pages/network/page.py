"""The page about any network: its sections in their order."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from markupsafe import Markup

from mlpoly.features.single_prediction import degree_name
from mlpoly.inputs import Gaussian, Gaussians, Samples
from mlpoly.machine import COMMAND, describe_machine
from mlpoly.measures.fvu import far_apart
from mlpoly.networks import Layer, check_network
from mlpoly.pages.network.degree_section import degree_section
from mlpoly.pages.network.example_section import example_section
from mlpoly.pages.network.feature_sections import feature_section, response_section, strongest_features
from mlpoly.pages.network.fits import ROUNDING, Fits, missed
from mlpoly.pages.network.input_sections import conclusion, importance_of, importance_section, shape_section
from mlpoly.pages.network.subject import Subject, describe_inputs
from mlpoly.pages.network.term_sections import formula_section, interaction_section, strongest_terms, terms_section
from mlpoly.pages.toolkit import Page, asset
from mlpoly.pages.toolkit.widgets import command, counted, element, facts, number, percent, tiles

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
    page.introduce(*_summary(subject, fits, None if importance is None else conclusion(subject, fits, importance)))
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


def _summary(subject: Subject, fits: Fits, conclusion: str | None) -> tuple[str | Markup, ...]:
    """What to conclude, numbers to remember, and what they are of."""
    best, name = fits.errors[-1], degree_name(fits.degree)
    polynomial = f"polynomial of {name}" if name.startswith("degree") else f"{name} polynomial"
    under = describe_inputs(subject.inputs) + " with the mean and covariance of the data" * subject.estimated
    n, d, o = len(subject.x), subject.net.dim_in, subject.net.dim_out
    pictures = ", pictures of {} × {} pixels".format(*subject.image_shape) if subject.image_shape else ""
    said = conclusion or (
        f"The network has {counted(d, 'input')}{pictures}, and {counted(o, 'output')}. What an output depends on is "
        "below: first in the linear part of its polynomial, then in eigenfeatures, whose squares it adds up."
    )
    parts, remark, notes = [], "of all outputs, under the Gaussian, exact", []
    if fits.spectrum is not None:
        parts = [*map(float, fits.spectrum.overall[:3])]
    elif fits.errors[0].under_inputs.standard_error is not None:
        errors = [1.0, *(float(e.under_inputs) for e in fits.errors)]
        parts, remark = [one - two for one, two in pairwise(errors)], "of all outputs, on samples of the inputs"
    parts = parts[: 1 if subject.task == "classes" else 2]
    items = [(percent(part, None), f"of the variance is {degree_name(k)}", remark) for k, part in enumerate(parts, 1)]
    left = missed(float(best.on_data))
    if isinstance(subject.inputs, Gaussians) and far_apart(best.under_inputs, best.on_data):
        notes.append(
            f"The {polynomial} leaves {left} of the variance on the data unexplained, and would leave "
            f"{missed(float(best.under_inputs))} under {describe_inputs(subject.inputs)}: the data are "
            f"not like that where the network bends. Trust the numbers on the data, and use a fit on them, "
            f"mp.fit(net, x, {fits.degree})."
        )
    if fits.written.degree < fits.degree and float(fits.errors[fits.written.degree - 1].under_inputs) < ROUNDING:
        notes.append(f"The network is a polynomial: of degree {fits.written.degree}, up to rounding.")
    items.append((left, f"unexplained by the {polynomial}", "on the data"))
    if fits.score is not None and best.score is not None:
        show, what = (percent, "correct") if subject.task == "classes" else (number, "R² with the labels")
        items.append((show(fits.score), what, "the network, on the data"))
        items.append((show(best.score), what, f"the {polynomial}, on the data"))
        useless = fits.score < 0  # the mean of the labels, or their most frequent class, does as well
        if subject.task == "classes":
            useless = fits.score < 1 and fits.score <= np.bincount(np.asarray(subject.targets)).max() / len(subject.x)
        if useless:
            notes.append(
                "The network itself is no better than a constant on these data: was it trained on scaled inputs or "
                "targets? Pass the data as they were in training, or put the scaler into the network (an nn.Linear in "
                "PyTorch, a Pipeline in scikit-learn)."
            )
    if subject.task == "classes" and best.agreement is not None:
        items.append((percent(best.agreement), "the network’s answer", f"given by the {polynomial}, on the data"))
    close = "least squares" if isinstance(check_network(subject.net), Layer) else "close to least squares"
    labels = {"classes": f"{max(o, 2)} classes", "values": "numbers to predict"}.get(subject.task or "", "")
    kinds = {
        "Network": repr(subject.net),
        "Data": f"{counted(n, 'row')} of {counted(d, 'input')}{pictures}",
        "Polynomials": f"up to degree {fits.degree}, {close} under {under}",
        "Labels": labels,
        "Pictures": f"of the {len(fits.shown)} outputs of largest variance" if len(fits.shown) < o else "",
    }
    return said, tiles(items), *notes, facts(kinds)


def _method_section(page: Page, subject: Subject, fits: Fits) -> None:
    """What is exact on the page and what is not, and how to compute it in Python."""
    layer, gaussian = isinstance(check_network(subject.net), Layer), isinstance(subject.inputs, Gaussian)
    under = describe_inputs(subject.inputs)
    if layer and gaussian:
        exact = (
            "Exact: the polynomials, their errors under the Gaussian and the degree spectrum. They are sums over the "
            "weights, with no samples and no training."
        )
    elif isinstance(subject.inputs, Samples):
        exact = "The polynomials are least squares on the samples, over all polynomials of the degree where it fits."
    elif layer:
        exact = f"Up to degree 2 the polynomials are least squares under {under}, from the weights alone."
    else:
        exact = (
            "Not exact: this network has several hidden layers. Its polynomials come from a second-order expansion, "
            "which is close to the best ones of degree 1 and 2 but not the same, and their errors under the inputs "
            "from samples drawn from these."
        )
    assumption = (
        "An assumption: the data have the mean and covariance of the Gaussian, but are not Gaussian. The column of "
        "errors on the data says what that costs. Where it is much larger than the one under the Gaussian, give "
        "inputs=mlpoly.GaussianMixture.from_labels(x, labels) or inputs=mlpoly.Samples(x)."
    )
    limits = (
        "A polynomial follows the network where the inputs vary. Far from the data it grows without bound, and says "
        "nothing about the network there."
    )
    causes = (
        "Coefficients say how the network’s outputs depend on its inputs, not what causes what in the data. Where "
        "inputs are correlated, an effect may be spread over several of them."
    )
    said = [exact, *[assumption] * subject.estimated, limits, causes]
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
