"""The top of the page: what was read, and the numbers to remember."""

from itertools import pairwise

import numpy as np
from markupsafe import Markup

from mlpoly.features.single_prediction import degree_name
from mlpoly.inputs import Gaussian, GaussianMixture, Gaussians, Inputs
from mlpoly.measures.fvu import far_apart
from mlpoly.networks import Layer, check_network
from mlpoly.pages.network.fits import ROUNDING, Fits
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.toolkit.numbers import counted, number, percent
from mlpoly.pages.toolkit.widgets import facts, tiles


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


def summary(subject: Subject, fits: Fits, conclusion: str | None) -> tuple[str | Markup, ...]:
    """What to conclude, numbers to remember, and what they are of."""
    best, name = fits.errors[-1], degree_name(fits.degree)
    polynomial = f"polynomial of {name}" if name.startswith("degree") else f"{name} polynomial"
    under = (
        "a Gaussian with the mean and covariance of the data" if subject.estimated else describe_inputs(subject.inputs)
    )
    n, d, o = len(subject.x), subject.net.dim_in, subject.net.dim_out
    pictures = ", pictures of {} × {} pixels".format(*subject.image_shape) if subject.image_shape else ""
    said = conclusion or (
        f"The network has {counted(d, 'input')}{pictures}, and {counted(o, 'output')}. What an output depends on is "
        "below: first in the linear part of its polynomial, then in eigenfeatures, whose squares it adds up."
    )
    items, notes = [], []
    if fits.spectrum is not None or fits.errors[0].under_inputs.standard_error is not None:
        if fits.spectrum is not None:
            parts, remark = list(map(float, fits.spectrum.overall[:3])), "of all outputs, under the Gaussian, exact"
        else:
            errors = [1.0, *(float(e.under_inputs) for e in fits.errors)]
            parts, remark = [one - two for one, two in pairwise(errors)], "of all outputs, on samples of the inputs"
        for k, part in enumerate(parts[: 1 if subject.task == "classes" else 2], 1):
            items.append((percent(part, None), f"of the variance is {degree_name(k)}", remark))
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
        items += [(show(fits.score), what, "the network, on the data")]
        items += [(show(best.score), what, f"the {polynomial}, on the data")]
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
