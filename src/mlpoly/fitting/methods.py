"""Ways to fit: each is a frozen object with its own options, and `mlpoly.fit` takes one or the name of one.

`Exact`, `Neuronwise` and `Joint` are for one hidden layer and for samples; `Expansion` and `Sampled` for a deep network
as a whole, up to degree 2; `Composed` for a deep network layer by layer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, get_args

from mlpoly.arrays import scalar
from mlpoly.fitting.bounded import fit_bounded
from mlpoly.fitting.deep.expansion import fit_expansion
from mlpoly.fitting.deep.layerwise import check_guard, fit_composed
from mlpoly.fitting.deep.sampled import Sampling, fit_sampled
from mlpoly.fitting.distribution import fit_distribution
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.joint_features import Coefficients
from mlpoly.fitting.mixture.direct import fit_mixture_direct
from mlpoly.fitting.mixture.joint import fit_mixture_joint
from mlpoly.fitting.mixture.linear import fit_mixture_linear
from mlpoly.fitting.mixture.neuronwise import fit_neuronwise
from mlpoly.fitting.mixture.quadratic import ConjugateGradients, fit_mixture_quadratic
from mlpoly.fitting.report import UNDER_A_MIXTURE
from mlpoly.fitting.samples.exact import fit_samples
from mlpoly.fitting.samples.joint import fit_joint
from mlpoly.fitting.samples.neuronwise import fit_samples_neuronwise
from mlpoly.inputs import Gaussian, GaussianMixture, Gaussians, Inputs, Samples
from mlpoly.networks import Layer, Network
from mlpoly.polynomials import (
    BoundedPolynomial,
    ChaosPolynomial,
    ComposedPolynomial,
    DensePolynomial,
    Polynomial,
    RidgePolynomial,
    Source,
)
from mlpoly.polynomials.bounded import check_bound
from mlpoly.records import replace

P_co = TypeVar("P_co", bound=Polynomial, covariant=True)

Name = Literal["auto", "exact", "neuronwise", "joint", "expansion", "sampled", "composed"]
Fitted = RidgePolynomial | DensePolynomial | ChaosPolynomial


class Method(Protocol[P_co]):
    """A way to fit, as `mlpoly.fit` uses it: with a network and inputs that have been checked."""

    def fit(self, net: Any, inputs: Any, degree: Any, /) -> P_co:
        """Return the polynomial of a network with the least squared error under the inputs, of its kind."""


@dataclass(frozen=True)
class Exact(ConjugateGradients):
    """Least squares over all polynomials of the degree: for one hidden layer, and for any network on samples.

    Under one Gaussian it is closed form for any degree, and differentiable. Under a mixture, degrees 0 and 1 are closed
    form, degree 2 is solved directly for up to 23 inputs and by conjugate gradients for more, and higher degrees
    directly for up to about 10^4 monomials. On samples it is least squares for up to 10^4 monomials, and `Joint` for
    more. Under few independent inputs the coefficients are integrals over a grid of Gauss nodes, fine enough that their
    error does not count, and differentiable; under other distributions, least squares on points of them for up to 2000
    monomials, and `Neuronwise` for more. The report says which, and how good it is. The parameters are those of the
    conjugate gradients.

    Parameters
    ----------
    tolerance : float
        They stop when further iterations would reduce the misfit by less than this fraction of it.
    max_iterations : int
    start : polynomial, optional
        First iterate; the answer for similar weights saves iterations.
    """

    def fit(self, net: Network, inputs: Inputs, degree: int) -> Fitted:
        """Return the optimum."""
        _check_used(self, inputs, degree)
        if isinstance(inputs, Samples):
            return fit_samples(net, inputs, degree)
        if not isinstance(inputs, Gaussians):
            return fit_distribution(net, inputs, degree)
        layer = _one_layer(net, "exact")
        if isinstance(inputs, Gaussian):
            return fit_gaussian(layer, inputs, degree)
        return _under_mixture(layer, inputs, degree, self)


@dataclass(frozen=True)
class Neuronwise:
    """The best polynomial of every neuron's own preactivation: for one hidden layer, any degree, size and inputs.

    Under one Gaussian this is the exact optimum; under a mixture and on samples it is slightly worse.
    """

    def fit(self, net: Network, inputs: Gaussian | GaussianMixture | Samples, degree: int) -> RidgePolynomial:
        """Return the sum of the neurons' polynomials."""
        layer = _one_layer(net, "neuronwise")
        if isinstance(inputs, Samples):
            return fit_samples_neuronwise(layer, inputs, degree)
        return fit_neuronwise(layer, inputs, degree)


@dataclass(frozen=True)
class Joint:
    """All neurons fitted together, on samples or under a mixture: one hidden layer, any degree and size (MATH 13).

    One neuron can make up for the errors of another. One sample in five, at random, is held out: it decides what is
    fitted, and the report states the error on it. Under a mixture the answer is closed form.

    Parameters
    ----------
    coefficients : {"auto", "readout", "free"}
        "readout" fits the weights from the neurons' polynomials to the outputs; "free" all coefficients of all neurons
        for each output. "auto" is what does best on the held-out samples, and neuron by neuron where neither does
        clearly better; under a mixture "free" for up to 4096 coefficients.
    shrinkage : float or "auto"
        Weight of the penalty on the distance from the fit neuron by neuron, for functions of variance one; "auto" is
        what does best on the held-out samples, and 0 under a mixture. On samples "auto" also leaves alone what rests
        on fewer than about 100 of them, and neurons that hardly matter; 0 is plain least squares.
    """

    coefficients: Coefficients = "auto"
    shrinkage: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.coefficients not in get_args(Coefficients):
            names = ", ".join(map(repr, get_args(Coefficients)))
            raise ValueError(f"coefficients must be one of {names}, got {self.coefficients!r}.")
        number = isinstance(self.shrinkage, int | float) and not isinstance(self.shrinkage, bool)
        if self.shrinkage != "auto" and not (number and 0 <= float(self.shrinkage) < math.inf):
            raise ValueError(f"shrinkage must be a number of at least 0, or 'auto', got {self.shrinkage!r}.")

    def fit(
        self, net: Network, inputs: Inputs, degree: int, bound: float | Literal["auto"] | None = None
    ) -> RidgePolynomial | BoundedPolynomial:
        """Return the best polynomial of the ridge class, with lines beyond a bound if there is one."""
        layer = _one_layer(net, "joint")
        shrinkage = None if self.shrinkage == "auto" else float(self.shrinkage)
        if not isinstance(inputs, GaussianMixture | Samples):
            raise TypeError(
                f"method 'joint' needs a mixture or samples, got {type(inputs).__name__}; pass the data themselves, or "
                f"mlpoly.Samples(inputs.sample(n)). Under one Gaussian the exact fit is all neurons together."
            )
        if isinstance(inputs, GaussianMixture):
            start = None if bound is None else fit_bounded(layer, inputs, degree, bound)
            return fit_mixture_joint(layer, inputs, degree, self.coefficients, shrinkage or 0.0, start)
        if bound == "auto":
            bounds = fit_bounded(layer, inputs, degree, bound).bounds
            bound = scalar(bounds[0]) if bounds.shape[0] else None
        elif bound is not None:
            bound = check_bound(bound)
        return fit_joint(layer, inputs, degree, bound, self.coefficients, shrinkage)


@dataclass(frozen=True)
class Expansion(ConjugateGradients):
    """The first terms of a network's expansion in Hermite polynomials, by a closure (MATH 9): degrees 0, 1 and 2.

    Exact for one hidden layer, close to the optimum for more; the report estimates how close. The parameters are those
    of `Exact`, for combining the optima of a mixture's components.
    """

    def fit(self, net: Network, inputs: Inputs, degree: int) -> DensePolynomial:
        """Return the closed form."""
        _check_used(self, inputs, degree)
        _check_whole(inputs, degree, "expansion")
        if isinstance(inputs, Gaussian):
            return fit_expansion(net, inputs, degree)

        def under(net: Network, component: Gaussian, degree: int) -> DensePolynomial:
            return fit_expansion(net, component, degree, pairs=0)

        return _deep_mixture(net, inputs, degree, self, under, "by second-order expansion")


@dataclass(frozen=True)
class Sampled(Sampling):
    """The optimum of degree 0, 1 or 2 of any network with continuous activations, from its Jacobian at samples.

    Samples of the inputs are drawn until the expected excess of the squared error over that of the optimum, which the
    report has, is below the tolerance times that error. Under a mixture this holds for each component.

    Parameters
    ----------
    tolerance : float
    max_samples : int
        Largest number of samples, for each component of a mixture; at least one chunk of some thousands is drawn.
    seed : int
    """

    def fit(self, net: Network, inputs: Inputs, degree: int) -> DensePolynomial:
        """Return the estimate of the optimum."""
        _check_whole(inputs, degree, "sampled")
        if isinstance(inputs, Gaussian):
            return fit_sampled(net, inputs, degree, self)

        def under(net: Network, component: Gaussian, degree: int) -> DensePolynomial:
            return fit_sampled(net, component, degree, self)

        solver = ConjugateGradients(self.tolerance / 10)
        return _deep_mixture(net, inputs, degree, solver, under, "from Jacobians at samples")


@dataclass(frozen=True)
class Composed:
    """A polynomial for every hidden layer, under the moments that propagate to it or on samples.

    On samples every layer is fitted on the network's own values, or on what the polynomials before it produce, with a
    readout that makes up for their errors: whichever is better on one sample in five, held out at random. The report
    says which, with the error there. From 100 samples on, and where no gradients are wanted.

    The whole has the degree to the power of the number of layers, and explodes far from the data: use
    ``.bounded(3.0)``, or a `guard`.

    Parameters
    ----------
    guard : float, "auto" or None
        Weight of a component with four times the covariance under which every neuron is fitted as well, so that the
        pure polynomial does not explode; ``.bounded`` ignores it. None and 0 mean none. "auto" means none for one
        hidden layer, for degree 1 and on samples; otherwise one of 0, 0.001, 0.003, 0.01, 0.03, 0.1 and 0.3: the one
        with the least a (1 + log(1 + b)), where a is the fraction of variance unexplained on 2048 samples of the inputs
        and b that on 2048 samples with all covariances doubled. A larger guard must reduce it by more than one per
        cent. From four hidden layers on no guard may be enough at degrees above 5; ``.bounded`` always is.
    """

    guard: float | Literal["auto"] | None = "auto"

    def __post_init__(self) -> None:
        check_guard(self.guard)

    def fit(self, net: Network, inputs: Inputs, degree: int | Sequence[int]) -> ComposedPolynomial:
        """Return the composition; `degree` may be a list with one for each hidden layer."""
        return fit_composed(net, inputs, degree, self.guard)


_METHODS: dict[str, Method[Any]] = {
    kind.__name__.lower(): kind() for kind in (Exact, Neuronwise, Joint, Expansion, Sampled, Composed)
}


def as_method(method: Name | Method[Any], net: Network, inputs: Inputs) -> Method[Any]:
    """Return the method of a name with its default options; "auto" is "exact" where that is possible."""
    if method == "auto":
        method = "exact" if isinstance(net, Layer) or not isinstance(inputs, Gaussians) else "expansion"
    if isinstance(method, str) and method in _METHODS:
        return _METHODS[method]
    if isinstance(method, str | type) or not hasattr(method, "fit"):
        names = ", ".join(map(repr, get_args(Name)))
        raise ValueError(f"method must be one of {names}, or an object such as mlpoly.methods.Exact(), got {method!r}.")
    return method


def _one_layer(net: Network, method: str) -> Layer:
    if isinstance(net, Layer):
        return net
    raise TypeError(
        f"method {method!r} needs a network with one hidden layer, got {net!r}; use 'expansion', 'sampled' or "
        f"'composed'."
    )


def _check_used(solver: ConjugateGradients, inputs: Inputs, degree: int) -> None:
    """Raise if options of the iterative solver were given that nothing would use."""
    if solver.start is not None and degree != 2:
        raise ValueError(f"start is for degree 2 under a mixture, got degree {degree}; leave it out.")
    changed = solver.start is not None or (solver.tolerance, solver.max_iterations) != (1e-3, 500)
    if changed and not isinstance(inputs, GaussianMixture):
        raise ValueError(
            f"tolerance, max_iterations and start are for a mixture, but inputs are {type(inputs).__name__}, under "
            f"which nothing is iterated; leave them out."
        )


def _check_whole(inputs: Inputs, degree: int, method: str) -> None:
    """Raise if a deep network has no polynomial of this degree as a whole under these inputs."""
    if not isinstance(inputs, Gaussians):
        raise TypeError(
            f"method {method!r} needs a Gaussian or a GaussianMixture, got {type(inputs).__name__}; use 'exact' or "
            f"'composed', or mlpoly.Gaussian.from_samples(inputs.sample(n))."
        )
    if degree > 2:
        raise ValueError(
            f"degree is {degree}, but the closest polynomial of a deep network as a whole is found only up to "
            f"degree 2; method='composed' has polynomials of any degree layer by layer, and on samples, "
            f"mlpoly.Samples(x), few inputs allow a higher degree."
        )


def _under_mixture(
    net: Network, inputs: Any, degree: int, solver: ConjugateGradients, best_under: Any = fit_gaussian
) -> DensePolynomial | ChaosPolynomial:
    """Optimum under a mixture, from those under its components."""
    if degree < 2:
        return fit_mixture_linear(net, inputs, degree, best_under)
    if degree == 2:
        return fit_mixture_quadratic(net, inputs, solver, best_under)
    return fit_mixture_direct(net, inputs, degree)


def _deep_mixture(
    net: Network, inputs: Any, degree: int, solver: ConjugateGradients, fit_component: Any, way: str
) -> Any:
    """Optimum of a deep network under a mixture, with the reports of its components."""
    reports = []

    def best_under(net: Network, component: Gaussian, degree: int) -> DensePolynomial:
        best: DensePolynomial = fit_component(net, component, degree)
        reports.append(best.report)
        return best

    poly = _under_mixture(net, inputs, degree, solver, best_under)
    method = f"{UNDER_A_MIXTURE}, {way}"
    details = {**poly.report.details, "components": tuple(reports)}
    report = replace(poly.report, method=method, details=details)
    return replace(poly, source=Source(net.activation_names, method), report=report)
