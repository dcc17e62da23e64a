"""The one entry point: network and inputs in, polynomial out."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import as_integer, namespace
from mlpoly.fitting.gaussian import fit_glu, fit_mlp
from mlpoly.inputs import Gaussian
from mlpoly.layers import GLU, MLP
from mlpoly.polynomials import RidgePolynomial

__all__ = ["fit"]


def fit(net: MLP | GLU, inputs: Gaussian, degree: int = 2) -> RidgePolynomial:
    """The polynomial of given degree that is closest to a network in mean square under `inputs`.

    Exact least squares from the weights alone: no samples, no iteration. Differentiable in the weights, the mean and
    the covariance.

    Parameters
    ----------
    net : MLP or GLU
    inputs : Gaussian
        Its library and device must be the network's; `Gaussian.standard(d)` fits any.
    degree : int
        Any degree >= 0.

    Returns
    -------
    RidgePolynomial
        In the network's array library, dtype and device.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, activation="square")
    >>> mp.fit(net, mp.Gaussian.standard(2), degree=2).coefficients().quadratic.round(12).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    _check_net(net)
    degree = as_integer("degree", degree, 0)
    if not isinstance(inputs, Gaussian):
        raise TypeError(
            f"inputs must be a Gaussian, got {type(inputs).__name__}; "
            f"for data use mlpoly.Gaussian.from_samples(x), for N(0, I) mlpoly.Gaussian.standard(d)."
        )
    if inputs.dim != net.dim_in:
        raise ValueError(f"inputs have dimension {inputs.dim}, but the network takes {net.dim_in} inputs.")
    weight = net.W1 if isinstance(net, MLP) else net.W_gate
    inputs = inputs.like(weight)
    namespace(net=weight, inputs=inputs.mean)
    return fit_mlp(net, inputs, degree) if isinstance(net, MLP) else fit_glu(net, inputs, degree)


def _check_net(net: Any) -> None:
    if isinstance(net, (MLP, GLU)):
        return
    if hasattr(net, "state_dict"):
        raise TypeError(
            f"net is a torch module ({type(net).__name__}); convert it first with mlpoly.from_torch(module)."
        )
    raise TypeError(f"net must be an mlpoly.MLP or mlpoly.GLU, got {type(net).__name__}.")
