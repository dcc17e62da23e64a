"""How strongly pairs of inputs act together."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlpoly.arrays import to_numpy, widen
from mlpoly.inputs import Inputs, inputs_of
from mlpoly.polynomials import BoundedPolynomial, Polynomial


def interaction_effects(poly: Polynomial, output: int = 0, inputs: Inputs | None = None) -> np.ndarray:
    """Effects (d, d) of the products (x_i - m_i)(x_j - m_j): coefficient times standard deviation under a Gaussian.

    Symmetric, each product once: entries (i, j) and (j, i) both hold the effect of their common product. The diagonal
    has the squares.
    """
    inputs = inputs_of(poly, inputs)
    if poly.degree < 2:
        raise ValueError(f"poly has degree {poly.degree} and no quadratic part; fit it with degree=2 or more.")
    one = poly.output(output)
    one = one.polynomial if isinstance(one, BoundedPolynomial) else one
    form: Any = to_numpy(widen(one.truncate(2).coefficients().quadratic))[0]
    cov = to_numpy(widen(inputs.covariance))
    # Var[u_i u_j] = S_ii S_jj + S_ij^2 for jointly Gaussian deviations u (Isserlis), i = j included.
    spread = np.sqrt(np.outer(np.diagonal(cov), np.diagonal(cov)) + cov**2)
    return (form + form.T) / 2 * spread * (2 - np.eye(len(cov)))  # symmetric to the last digit
