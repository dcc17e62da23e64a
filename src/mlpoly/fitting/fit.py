"""The entry point: the closest polynomial to a network under its inputs."""

from collections.abc import Sequence
from typing import Any, Literal, overload

from mlpoly.arrays import as_integer
from mlpoly.arrays.host import by_value
from mlpoly.fitting.bounded import fit_bounded
from mlpoly.fitting.distribution import on_points
from mlpoly.fitting.methods import (
    Composed,
    Exact,
    Expansion,
    Fitted,
    Joint,
    Method,
    Name,
    Neuronwise,
    P_co,
    Sampled,
    as_method,
)
from mlpoly.inputs import Gaussian, Gaussians, InputsLike, Samples, checked_inputs
from mlpoly.networks import Layer, Network, check_network
from mlpoly.polynomials import BoundedPolynomial, ComposedPolynomial, DensePolynomial, Polynomial, RidgePolynomial
from mlpoly.records import replace


@overload
def fit(
    net: Layer, inputs: Gaussian, degree: int = 2, *, method: Literal["auto", "exact"] = "auto", bound: None = None
) -> RidgePolynomial: ...
@overload
def fit(
    net: Network, inputs: InputsLike, degree: int = 2, *, method: Literal["auto", "exact"] = "auto", bound: None = None
) -> Fitted: ...
@overload
def fit(
    net: Network, inputs: InputsLike, degree: int = 2, *, method: Literal["neuronwise", "joint"], bound: None = None
) -> RidgePolynomial: ...
@overload
def fit(
    net: Network, inputs: InputsLike, degree: int = 2, *, method: Literal["expansion", "sampled"]
) -> DensePolynomial: ...
@overload
def fit(
    net: Network, inputs: InputsLike, degree: int | Sequence[int] = 2, *, method: Literal["composed"]
) -> ComposedPolynomial: ...
@overload
def fit(
    net: Network, inputs: InputsLike, degree: int | Sequence[int] = 2, *, method: Method[P_co], bound: None = None
) -> P_co: ...
@overload
def fit(
    net: Network,
    inputs: InputsLike,
    degree: int = 2,
    *,
    method: Literal["auto", "neuronwise", "joint"] | Neuronwise | Joint = "auto",
    bound: float | Literal["auto"],
) -> BoundedPolynomial: ...


@by_value
def fit(
    net: Network,
    inputs: InputsLike,
    degree: int | Sequence[int] = 2,
    *,
    method: Name | Method[Any] = "auto",
    bound: float | Literal["auto"] | None = None,
) -> Polynomial:
    """Return the polynomial of a given degree that is closest to a network in mean square under `inputs`.

    With one hidden layer the fit is exact least squares; for a distribution it needs only the weights and no samples.
    For a deep network, degrees 0, 1 and 2 have a closed form that is close to the optimum, and an unbiased estimate
    from samples of the inputs; layer by layer, any degree has a closed form: a composition of polynomials.

    The answer does not depend on the units of the inputs. Where a mixture does not determine it, it is the polynomial
    of least norm in inputs standardised by the mixture; where samples do not, the one whose terms, products of Hermite
    polynomials of whitened inputs, have the least sum of mean squares.

    Parameters
    ----------
    net : network
        A chain of affine maps and one hidden layer counts as one layer.
    inputs : Gaussian, GaussianMixture, Independent, Samples, array (n, d) or data frame
        In the library and on the device of the network; `Gaussian.standard(d)` and `Independent` suit any. Other
        distributions work through points that they draw.
    degree : int or sequence of int
        Any degree >= 0; for "composed" also a list with one for each hidden layer.
    method : str or an object of `mlpoly.methods`
        "auto" is "exact", but "expansion" for deep networks under a Gaussian or a mixture.
        A name stands for the default options; others belong to the object: ``mlpoly.methods.Sampled(tolerance=0.001)``.
    bound : float or "auto", optional
        For one hidden layer: straight lines where a preactivation is more than so many standard deviations from its
        mean, such as 3.0, because a polynomial explodes away from its inputs. Polynomials and lines are fitted
        together, for every neuron by itself; with "joint" for all neurons together. "auto" is the one of 1.5, 2, 2.5,
        3 and 4 with which the neurons' own errors are least under the inputs.
        ``.bounded(3.0)`` on a result without it draws lines along the activation instead.

    Returns
    -------
    RidgePolynomial, DensePolynomial, ChaosPolynomial, BoundedPolynomial or ComposedPolynomial
        Ridge form for one hidden layer under one Gaussian and for "neuronwise", bounded form with a `bound`; dense form
        for a mixture up to degree 2 and for deep networks; chaos form above, and for samples and other inputs. In the
        network's array library, dtype and device, that of a 16-bit network in float32. Its ``.source.method`` says
        which optimum it is, its ``.report`` how the fit went.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, activation="square")
    >>> mp.fit(net, mp.Gaussian.standard(2), degree=2).coefficients().quadratic.round(12).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    net = check_network(net).at_least_single()
    inputs = checked_inputs(net, inputs)
    chosen = as_method(method, net, inputs)
    whole = isinstance(chosen, Exact | Expansion | Sampled) and bound is None
    poly: Polynomial
    if not isinstance(inputs, Gaussians | Samples) and not whole:
        # What other ways to fit know of another distribution is its points.
        again: Any = fit
        return on_points(lambda points: again(net, points, degree, method=method, bound=bound), net, inputs)
    if bound is not None and isinstance(chosen, Joint):
        poly = chosen.fit(net, inputs, as_integer("degree", degree, 0), bound)
    elif bound is not None:
        if method not in ("auto", "neuronwise", Neuronwise()):
            raise ValueError(
                f"with a bound every neuron is fitted by itself, but method is {method!r}; leave it out, or call "
                f".bounded({bound if bound != 'auto' else 3.0:g}) on the result of a fit without a bound."
            )
        poly = fit_bounded(net, inputs, as_integer("degree", degree, 0), bound)
    else:
        poly = chosen.fit(net, inputs, degree if isinstance(chosen, Composed) else as_integer("degree", degree, 0))
    return replace(poly, output_names=net.output_names)
