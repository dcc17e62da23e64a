"""The entry point: the closest polynomial to a network under its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args, overload

import numpy as np

from mlpoly.arrays import Array, as_integer, astype, is_low_precision, namespace, promote, readable, scalar
from mlpoly.fitting.bounded import fit_bounded
from mlpoly.fitting.deep.expansion import fit_expansion
from mlpoly.fitting.deep.layerwise import fit_composed
from mlpoly.fitting.deep.sampled import Jacobians, fit_sampled
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.mixture.direct import fit_mixture_direct
from mlpoly.fitting.mixture.linear import fit_mixture_linear
from mlpoly.fitting.mixture.neuronwise import fit_neuronwise
from mlpoly.fitting.mixture.quadratic import BlockCG, fit_mixture_quadratic
from mlpoly.fitting.report import UNDER_A_MIXTURE, DeepMixtureReport
from mlpoly.fitting.samples.exact import fit_samples, fit_samples_neuronwise
from mlpoly.inputs import Gaussian, GaussianMixture, Inputs, Samples, checked_inputs
from mlpoly.networks import Layer, Network, check_network
from mlpoly.polynomials import (
    BoundedPolynomial,
    ChaosPolynomial,
    ComposedPolynomial,
    DensePolynomial,
    Polynomial,
    RidgePolynomial,
    Source,
)
from mlpoly.polynomials.base import map_polynomial
from mlpoly.polynomials.bounded import check_bound
from mlpoly.records import replace

Whole = Literal["auto", "exact", "neuronwise", "expansion", "sampled"]  # one polynomial of the inputs
Method = Literal["auto", "exact", "neuronwise", "expansion", "sampled", "composed"]
Fitted = RidgePolynomial | DensePolynomial | ChaosPolynomial


@overload
def fit(
    net: Layer,
    inputs: Gaussian,
    degree: int = 2,
    *,
    bound: None = None,
    method: Literal["auto", "exact", "neuronwise"] = "auto",
    start: Polynomial | None = None,
    tolerance: float | None = None,
    max_iterations: int = 500,
    max_samples: int = 2**20,
    guard: float | Literal["auto"] | None = "auto",
    show_progress: bool = True,
) -> RidgePolynomial: ...
@overload
def fit(
    net: Network,
    inputs: Inputs,
    degree: int = 2,
    *,
    bound: None = None,
    method: Whole = "auto",
    start: Polynomial | None = None,
    tolerance: float | None = None,
    max_iterations: int = 500,
    max_samples: int = 2**20,
    guard: float | Literal["auto"] | None = "auto",
    show_progress: bool = True,
) -> Fitted: ...
@overload
def fit(
    net: Network,
    inputs: Inputs,
    degree: int | Sequence[int] = 2,
    *,
    bound: None = None,
    method: Literal["composed"],
    start: Polynomial | None = None,
    tolerance: float | None = None,
    max_iterations: int = 500,
    max_samples: int = 2**20,
    guard: float | Literal["auto"] | None = "auto",
    show_progress: bool = True,
) -> ComposedPolynomial: ...
@overload
def fit(
    net: Layer,
    inputs: Inputs,
    degree: int = 2,
    *,
    bound: float,
    method: Literal["auto", "neuronwise"] = "auto",
) -> BoundedPolynomial: ...


def fit(
    net: Network,
    inputs: Inputs,
    degree: int | Sequence[int] = 2,
    *,
    bound: float | None = None,
    method: Method = "auto",
    start: Polynomial | None = None,
    tolerance: float | None = None,
    max_iterations: int = 500,
    max_samples: int = 2**20,
    guard: float | Literal["auto"] | None = "auto",
    show_progress: bool = True,
) -> Fitted | BoundedPolynomial | ComposedPolynomial:
    """Return the polynomial of a given degree that is closest to a network in mean square under `inputs`.

    With one hidden layer the fit is exact least squares; for a distribution it needs only the weights and no samples.
    Under one Gaussian it has a closed form for any degree, differentiable in the weights, the mean and the covariance.
    Under a mixture, degrees 0 and 1 have a closed form, degree 2 is solved directly for up to 23 inputs and iteratively
    for more, and higher degrees directly for up to about 10^4 monomials. On samples it is least squares over all
    polynomials of the degree for up to 10^4 monomials, and neuron by neuron for more.

    For a deep network, degrees 0, 1 and 2 have a closed form by a second-order expansion (MATH 9), which is close to
    the optimum but not exact, and an unbiased estimate from samples of the inputs. Layer by layer, any degree has a
    closed form: a composition of polynomials.

    The answer does not depend on the units in which the inputs are measured. Where a mixture does not determine the
    polynomial, because it does not vary in some direction or because its components are singular, the answer is the
    polynomial of least norm in inputs standardised by the mixture. Where samples do not determine it, it is the one
    whose terms, products of Hermite polynomials of whitened inputs, have the least sum of mean squares on them.

    Parameters
    ----------
    net : network
        `MLP`, `GLU`, `Affine`, `Residual` or `Chain`. A chain of affine maps and one hidden layer counts as one layer.
    inputs : Gaussian, GaussianMixture or Samples
        Inputs in the library and on the device of the network; `Gaussian.standard(d)` suits any.
    degree : int or sequence of int
        Any degree >= 0; for "composed" also a list with one for each hidden layer.
    bound : float, optional
        For one hidden layer: straight lines where a preactivation is more than so many standard deviations from its
        mean, such as 3.0, because a polynomial explodes away from its inputs. Polynomials and lines are fitted
        together, for every neuron by itself, under any inputs. ``.bounded(3.0)`` on a result without it draws lines
        along the activation instead.
    method : {"auto", "exact", "neuronwise", "expansion", "sampled", "composed"}
        "auto" is "exact" for one hidden layer and on samples, and "expansion" for deep networks under a distribution.

        "neuronwise", for one hidden layer, gives every neuron the best polynomial of its own preactivation under a
        mixture, in closed form for any degree and size, and likewise on samples. Under one Gaussian this is the same
        optimum; under a mixture and on samples it is slightly worse.

        "sampled", for degrees up to 2, draws samples of the inputs and averages the network's Jacobian over them, with
        the closed form as control variate, until the expected excess of the squared error over that of the optimum is
        below `tolerance` times that error. The report has its estimate.

        "composed" replaces every hidden layer by its own polynomial of the degree, under the moments that propagate to
        it, or on the values that the network computes from samples. The whole has the degree to the power of the number
        of layers, and explodes far from the data: use ``.bounded(3.0)``, or a `guard`.
    start : polynomial, optional
        First iterate of the iterative solver (degree 2, mixtures): the answer for similar weights saves iterations.
        For "sampled" under one Gaussian, an earlier result, which is resumed.
    tolerance : float, optional
        Fraction of the misfit; the iterative solver stops when further iterations would reduce the misfit by less, by
        default 0.001, and "sampled" when its expected excess is less, by default 0.01.
    max_iterations : int
        Largest number of iterations of the iterative solver.
    max_samples : int
        Largest number of samples for "sampled", for each component of a mixture; at least one chunk of some thousands
        is drawn.
    guard : float, "auto" or None
        For "composed": weight of a component with four times the covariance under which every neuron is fitted as well,
        so that the pure polynomial does not explode; ``.bounded`` ignores it. None and 0 mean none. "auto" means none
        for one hidden layer, for degree 1 and on samples; otherwise one of 0, 0.001, 0.003, 0.01, 0.03, 0.1 and 0.3,
        chosen by the error on samples of the inputs and of wider ones (`fit_composed` has the rule).
    show_progress : bool
        Whether a long solve on a terminal draws a progress bar.

    Returns
    -------
    RidgePolynomial, DensePolynomial, ChaosPolynomial, BoundedPolynomial or ComposedPolynomial
        Ridge form for one hidden layer under one Gaussian and for "neuronwise", bounded form with a `bound`; dense form
        for a mixture up to degree 2 and for deep networks, under one Gaussian in the linear forms that enter the first
        layer; chaos form above, and for samples; composed form for "composed".
        In the network's array library, dtype and device; that of a 16-bit network is fitted in float32, then rounded.
        ``.source.method`` says which optimum it is, ``.report`` how the fit went.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, activation="square")
    >>> mp.fit(net, mp.Gaussian.standard(2), degree=2).coefficients().quadratic.round(12).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    net = check_network(net)
    inputs = checked_inputs(inputs, net.dim_in, net.prototype, net.names)
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(map(repr, get_args(Method)))}, got {method!r}.")
    by_layer = method == "composed" and bound is None  # then there may be a degree for each hidden layer
    whole = 0 if by_layer else as_integer("degree", degree, 0)
    if bound is not None:
        return _bounded(net, inputs, whole, check_bound(bound), method)
    if method == "auto":
        method = "exact" if isinstance(net, Layer) or isinstance(inputs, Samples) else "expansion"
    flat = method in ("expansion", "sampled")
    one = method == "sampled" and not isinstance(inputs, GaussianMixture)  # its start is a result of its own kind
    loose, tight = (1e-2, 1e-3) if tolerance is None else (tolerance, tolerance)
    solver = BlockCG(tight, max_iterations, None if one else start, show_progress)
    solver.check_for(net)
    sampling = Jacobians(loose, max_samples, start if one else None, 0, show_progress)
    dtype = net.prototype.dtype
    if is_low_precision(dtype):
        # The components of a mixture are fitted one by one in float32: only the answer is rounded to 16 bits.
        net = net.to(promote(net.prototype)[0])
    found: Fitted | ComposedPolynomial
    if method == "composed":
        found = fit_composed(net, inputs, degree, guard)
    elif flat:
        found = _flat(net, inputs, whole, solver, sampling if method == "sampled" else None)
    elif isinstance(inputs, Samples) and method == "exact":
        found = fit_samples(net, inputs, whole)
    elif not isinstance(net, Layer):
        raise TypeError(
            f"method {method!r} needs a network with one hidden layer, got {net!r}; use 'expansion', 'sampled' or "
            f"'composed'."
        )
    else:
        found = _layer(net, inputs, whole, method, solver)
    return map_polynomial(found, lambda a: _rounded(a, dtype)) if is_low_precision(dtype) else found


def _layer(net: Layer, inputs: Inputs, degree: int, method: str, solver: BlockCG) -> Fitted:
    """Polynomial of a network with one hidden layer."""
    match inputs, method, degree:
        case Gaussian(), _, _:
            return fit_gaussian(net, inputs, degree)
        case Samples(), _, _:
            return fit_samples_neuronwise(net, inputs, fit_gaussian(net, inputs.gaussian(), degree))
        case GaussianMixture(), "neuronwise", _:
            return fit_neuronwise(net, inputs, degree)
        case GaussianMixture(), _, 0 | 1:
            return fit_mixture_linear(net, inputs, degree)
        case GaussianMixture(), _, 2:
            return fit_mixture_quadratic(net, inputs, solver)
        case GaussianMixture(), _, _:
            return fit_mixture_direct(net, inputs, degree)
    raise TypeError(f"fit cannot use {type(inputs).__name__}; pass mlpoly.Samples(inputs.sample(n)) instead.")


def _bounded(net: Network, inputs: Inputs, degree: int, bound: float, method: str) -> BoundedPolynomial:
    """Polynomials of the neurons of one hidden layer with lines beyond a bound."""
    if method not in ("auto", "neuronwise"):
        raise ValueError(
            f"with a bound every neuron is fitted by itself, but method is {method!r}; leave it out, or call "
            f".bounded({bound:g}) on the result of a fit without a bound."
        )
    if not isinstance(net, Layer):
        raise TypeError(
            f"bound needs a network with one hidden layer, got {net!r}; use "
            f"mlpoly.fit(net, inputs, {degree}, method='composed').bounded({bound:g})."
        )
    dtype = net.prototype.dtype
    net = net.to(promote(net.prototype)[0])
    if isinstance(inputs, Samples):
        start = fit_gaussian(net, inputs.gaussian(), degree).bounded(bound)
        found = fit_samples_neuronwise(net, inputs, start)
    elif isinstance(inputs, (Gaussian, GaussianMixture)):
        found = fit_bounded(net, inputs, degree, bound)
    else:
        raise TypeError(f"fit cannot use {type(inputs).__name__}; pass mlpoly.Samples(inputs.sample(n)) instead.")
    return map_polynomial(found, lambda a: _rounded(a, dtype)) if is_low_precision(dtype) else found


def _flat(net: Network, inputs: Inputs, degree: int, solver: BlockCG, sampling: Jacobians | None) -> DensePolynomial:
    """Polynomial of a whole deep network, of degree at most 2; in closed form unless `sampling`."""
    if degree > 2:
        raise ValueError(
            f"degree is {degree}, but the closest polynomial of a deep network as a whole is found only up to "
            f"degree 2; method='composed' has polynomials of any degree layer by layer, and on samples, "
            f"mlpoly.Samples(x), few inputs allow a higher degree."
        )
    if isinstance(inputs, Gaussian):
        return fit_expansion(net, inputs, degree) if sampling is None else fit_sampled(net, inputs, degree, sampling)
    if not isinstance(inputs, GaussianMixture):
        way = "expansion" if sampling is None else "sampled"
        raise TypeError(f"method {way!r} needs a Gaussian or a GaussianMixture, got {type(inputs).__name__}.")
    reports = []

    def best_under(net: Network, component: Gaussian, degree: int) -> DensePolynomial:
        if sampling is None:
            found = fit_expansion(net, component, degree, pairs=0)
        else:
            found = fit_sampled(net, component, degree, sampling)
        reports.append(found.report)
        return found

    if degree < 2:
        found = fit_mixture_linear(net, inputs, degree, best_under)
    else:
        found = fit_mixture_quadratic(net, inputs, solver, best_under)
    way = "by second-order expansion" if sampling is None else "from Jacobians at samples"
    source = Source(net.activation_names, f"{UNDER_A_MIXTURE}, {way}")
    return replace(found, source=source, report=DeepMixtureReport(found.report, tuple(reports)))


def _rounded(a: Array, dtype: Any) -> Array:
    """Round numbers of a polynomial to the 16-bit dtype of its network, or raise if they overflow."""
    with np.errstate(over="ignore"):
        made = astype(a, dtype)
    xp = namespace(a=a)
    if readable(made) and bool(xp.any(xp.isfinite(a) & ~xp.isfinite(made))):
        raise ValueError(
            f"the polynomial has numbers up to {scalar(xp.max(xp.abs(a))):.2g}, which the network's {dtype} cannot "
            f"hold; convert the network's weights to float32 first."
        )
    return made
