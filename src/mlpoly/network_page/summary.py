"""The top of the page: what was read, and the numbers to remember."""

from __future__ import annotations

from markupsafe import Markup

from mlpoly.inputs import Gaussian, GaussianMixture, Inputs
from mlpoly.network_page.fits import Fits
from mlpoly.network_page.subject import Subject
from mlpoly.page.numbers import counted, listing, number, percent
from mlpoly.page.widgets import facts, tiles

__all__ = ["degree_name", "describe_inputs", "missed", "summary"]

_DEGREES = ("constant", "linear", "quadratic", "cubic", "quartic", "quintic")
_ROUNDING = 1e-10  # fractions below it are shown as none


def degree_name(degree: int) -> str:
    """Return "linear", "quadratic", ... or "degree 6"."""
    return _DEGREES[degree] if degree < len(_DEGREES) else f"degree {degree}"


def missed(fraction: float) -> str:
    """Return a fraction that is left unexplained; what only rounding left is zero."""
    return percent(0.0 if abs(fraction) < _ROUNDING else fraction, None)


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
        f"{'1' if fits.degree == 1 else f'1 to {fits.degree}'} were computed that are closest to it in mean square "
        f"under {under}."
    )
    items = []
    if fits.spectrum is not None:
        parts = [float(part) for part in fits.spectrum.overall[:3]]
        rest = 1 - sum(parts)
        shown = [f"{percent(part, None)} is {degree_name(k + 1)}" for k, part in enumerate(parts) if part > _ROUNDING]
        shown += [f"{percent(rest, None)} lies above degree {len(parts)}"] if rest > _ROUNDING else []
        said += f" Of the variance of its outputs there, {listing(shown)}."
        remark = "of all outputs, under the Gaussian, exact"
        items += [(percent(parts[k], None), f"of the variance is {degree_name(k + 1)}", remark) for k in (0, 1)]
    said += f" On the rows of data themselves, the {_polynomial(fits.degree)} leaves {missed(float(best.on_data))}"
    said += " of the variance unexplained."
    items.append((missed(float(best.on_data)), f"unexplained by the {_polynomial(fits.degree)}", "on the data"))
    if fits.score is not None and best.score is not None:
        name = "correct" if about.task == "classes" else "R² with the labels"
        show = percent if about.task == "classes" else number
        items += [(show(fits.score), name, "the network, on the data")]
        items += [(show(best.score), name, f"the {_polynomial(fits.degree)}, on the data")]
    if about.task == "classes" and best.agreement is not None:
        said += f" It gives the network’s answer on {percent(best.agreement)} of them."
    kinds = {
        "Network": f"{about.net!r}",
        "Data": f"{counted(n, 'row')} of {counted(d, 'input')}"
        + (f", pictures of {about.image_shape[0]} × {about.image_shape[1]} pixels" if about.image_shape else ""),
        "Polynomials": f"least squares under {under}",
        "Labels": {"classes": f"{len(about.outputs) if o > 1 else 2} classes", "values": "values", None: ""}[
            about.task
        ],
    }
    return said, tiles(items), facts(kinds)


def _polynomial(degree: int) -> str:
    return f"{degree_name(degree)} polynomial" if degree < len(_DEGREES) else f"polynomial of degree {degree}"
