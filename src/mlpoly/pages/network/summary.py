"""The top of the page: what was read, and the numbers to remember."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from markupsafe import Markup

from mlpoly.inputs import Gaussian, GaussianMixture, Inputs
from mlpoly.networks import Layer, check_network
from mlpoly.pages.network.fits import ROUNDING, Fits
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.toolkit.numbers import counted, listing, number, percent
from mlpoly.pages.toolkit.widgets import facts, tiles

_DEGREES = ("constant", "linear", "quadratic", "cubic", "quartic", "quintic")


def degree_name(degree: int) -> str:
    """Return "linear", "quadratic", ... or "degree 6"."""
    return _DEGREES[degree] if degree < len(_DEGREES) else f"degree {degree}"


def missed(fraction: float) -> str:
    """Return a fraction that is left unexplained; what only rounding left is zero."""
    return percent(0.0 if abs(fraction) < ROUNDING else fraction, None)


def describe_inputs(inputs: Inputs) -> str:
    """Return what the polynomials were fitted under, in words."""
    if isinstance(inputs, Gaussian):
        return "a Gaussian"
    if isinstance(inputs, GaussianMixture):
        return f"a mixture of {counted(len(inputs.components), 'Gaussian')}"
    return "samples"


def summary(about: Subject, fits: Fits) -> tuple[str | Markup, ...]:
    """A paragraph, numbers to remember, and what they are of."""
    best = fits.errors[-1]
    under = "a Gaussian with the mean and covariance of the data" if about.estimated else describe_inputs(about.inputs)
    n, d, o = len(about.x), about.net.dim_in, about.net.dim_out
    said = (
        f"This page reads a neural network as polynomials. It has {counted(d, 'input')} and {counted(o, 'output')}, "
        f"and was shown {counted(n, 'row')} of data. From its weights, the polynomials of degree "
        f"{_degrees(fits.degree)} were computed that are closest to it in mean square "
        f"under {under}."
    )
    items = []
    if fits.spectrum is not None or fits.errors[0].under_inputs.standard_error is not None:
        if fits.spectrum is not None:
            parts, remark = (
                [float(part) for part in fits.spectrum.overall[:3]],
                "of all outputs, under the Gaussian, exact",
            )
        else:
            left = [1.0, *(float(e.under_inputs) for e in fits.errors)]
            parts, remark = [one - two for one, two in pairwise(left)], "of all outputs, on samples of the inputs"
        rest = 1 - sum(parts)
        shown = [f"{percent(part, None)} is {degree_name(k + 1)}" for k, part in enumerate(parts) if part > ROUNDING]
        shown += [f"{percent(rest, None)} lies above degree {len(parts)}"] if rest > ROUNDING else []
        said += f" Of the variance of its outputs there, {listing(shown)}."
        items += [
            (percent(part, None), f"of the variance is {degree_name(k + 1)}", remark)
            for k, part in enumerate(parts[:2])
        ]
    said += f" On the rows of data themselves, the {_polynomial(fits.degree)} leaves {missed(float(best.on_data))}"
    said += " of the variance unexplained."
    if fits.written.degree < fits.degree and float(fits.errors[fits.written.degree - 1].under_inputs) < ROUNDING:
        said += f" The network is a polynomial: of degree {fits.written.degree}, up to rounding."
    items.append((missed(float(best.on_data)), f"unexplained by the {_polynomial(fits.degree)}", "on the data"))
    if fits.score is not None and best.score is not None:
        name = "correct" if about.task == "classes" else "R² with the labels"
        show = percent if about.task == "classes" else number
        items += [(show(fits.score), name, "the network, on the data")]
        items += [(show(best.score), name, f"the {_polynomial(fits.degree)}, on the data")]
        if _is_useless(about, fits.score):
            said += (
                " The network itself is no better than a constant on these data: was it trained on scaled inputs or "
                "targets? Pass the data as they were in training, or put the scaler into the network (an nn.Linear in "
                "PyTorch, a Pipeline in scikit-learn)."
            )
    if about.task == "classes" and best.agreement is not None:
        said += f" It gives the network’s answer on {percent(best.agreement)} of them."
    close = "least squares" if isinstance(check_network(about.net), Layer) else "close to least squares"
    kinds = {
        "Network": f"{about.net!r}",
        "Data": f"{counted(n, 'row')} of {counted(d, 'input')}"
        + (f", pictures of {about.image_shape[0]} × {about.image_shape[1]} pixels" if about.image_shape else ""),
        "Polynomials": f"{close} under {under}",
        "Labels": {"classes": f"{len(about.outputs) if o > 1 else 2} classes", "values": "values", None: ""}[
            about.task
        ],
        "Pictures": f"of the {len(fits.shown)} outputs of largest variance" if len(fits.shown) < o else "",
    }
    return said, tiles(items), facts(kinds)


def _is_useless(about: Subject, score: float) -> bool:
    """Whether the mean of the labels, or their most frequent class, does as well as the network."""
    if about.task != "classes":
        return score < 0
    return score < 1 and score <= np.bincount(np.asarray(about.targets)).max() / len(about.x)


def _degrees(highest: int) -> str:
    return "1" if highest == 1 else "1 and 2" if highest == 2 else f"1 to {highest}"


def _polynomial(degree: int) -> str:
    return f"{degree_name(degree)} polynomial" if degree < len(_DEGREES) else f"polynomial of degree {degree}"
