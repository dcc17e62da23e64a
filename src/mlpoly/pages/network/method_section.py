"""What is exact on the page and what is not, and how to compute it in Python."""

from __future__ import annotations

from mlpoly.inputs import Gaussian, Samples
from mlpoly.networks import Layer, check_network
from mlpoly.pages.network.fits import Fits
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.network.summary import describe_inputs
from mlpoly.pages.toolkit import Page
from mlpoly.pages.toolkit.html import element
from mlpoly.pages.toolkit.widgets import command


def method_section(page: Page, about: Subject, fits: Fits) -> None:
    """Exactness in a list, and a few lines of Python."""
    layer, gaussian = isinstance(check_network(about.net), Layer), isinstance(about.inputs, Gaussian)
    under = describe_inputs(about.inputs)
    said = []
    if layer and gaussian:
        said.append(
            "Exact: the polynomials, their errors under the Gaussian and the degree spectrum. They are sums over the "
            "weights, with no samples and no training."
        )
    elif isinstance(about.inputs, Samples):
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
    if about.estimated:
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
        *about.code,
        f"poly = mp.fit(net, inputs, degree={fits.written.degree})",
        'print(poly.terms(output=0, center="mean"))',
        "print(mp.fvu(net, poly), mp.fvu(net, poly, rows))",
        "print(mp.explain(poly, rows[0]))",
    ]
    section = page.section("method", "What is exact and what is not", "What is exact")
    section.add(element("ul", *(element("li", each) for each in said), class_="points"))
    section.add(element("h3", "The same in Python"), command("\n".join(code)))
