"""Interactions of inputs as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import as_integer, check_names, to_numpy, widen
from mlpoly.inputs import Inputs, inputs_of
from mlpoly.plots.chart import HeatMap
from mlpoly.polynomials import BoundedPolynomial, Polynomial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_interactions(
    poly: Polynomial,
    output: int = 0,
    inputs: Inputs | None = None,
    names: Sequence[str] | None = None,
    k: int = 30,
    ax: Axes | None = None,
    title: str = "",
) -> Figure:
    """Draw how strongly each pair of inputs acts together on an output.

    Parameters
    ----------
    poly : Polynomial
        Degree 2 or more; of a higher degree its quadratic truncation is drawn.
    output : int
    inputs : Gaussian, GaussianMixture or Samples, optional
        Inputs that effects refer to; by default those that the polynomial was fitted under.
    names : sequence of str, optional
        Names of the inputs; by default those that the inputs know.
    k : int
        Number of inputs to show, those with the strongest interactions.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_interactions
    >>> net = mp.MLP(np.array([[1.0, 1.0]]), None, np.ones((1, 1)), None, "gelu")
    >>> figure = plot_interactions(mp.fit(net, mp.Gaussian.standard(2), degree=2), names=["age", "dose"])
    >>> figure.axes[0].get_title(), [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ('Interactions, output 0', ['age', 'dose'])
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    inputs = inputs_of(poly, inputs)
    names = inputs.names if names is None else names
    heat = interaction_map(
        interaction_effects(poly, output, inputs), names, k, title or f"Interactions, output {output}"
    )
    return show(heat, ax)


def interaction_effects(poly: Polynomial, output: int = 0, inputs: Inputs | None = None) -> np.ndarray:
    """Effects (d, d) of the products (x_i - m_i)(x_j - m_j): coefficient times standard deviation under a Gaussian.

    Symmetric, each product once: entries (i, j) and (j, i) both hold the effect of their common product. The diagonal
    has the squares.
    """
    inputs = inputs_of(poly, inputs)
    if poly.degree < 2:
        raise ValueError(f"poly has degree {poly.degree} and no quadratic part; fit it with degree=2 or more.")
    if not -poly.dim_out <= output < poly.dim_out:
        raise ValueError(f"output is {output}, but the polynomial has {poly.dim_out} outputs.")
    one = poly.output(output)
    one = one.polynomial if isinstance(one, BoundedPolynomial) else one
    form: Any = to_numpy(widen(one.truncate(2).coefficients().quadratic))[0]
    cov = to_numpy(widen(inputs.covariance))
    # Var[u_i u_j] = S_ii S_jj + S_ij^2 for jointly Gaussian deviations u (Isserlis), i = j included.
    spread = np.sqrt(np.outer(np.diagonal(cov), np.diagonal(cov)) + cov**2)
    return (form + form.T) / 2 * spread * (2 - np.eye(len(cov)))  # symmetric to the last digit


def interaction_map(
    effects: np.ndarray, names: Sequence[str] | None = None, k: int = 30, title: str = "Interactions"
) -> HeatMap:
    """Describe a symmetric matrix (d, d) of effects of pairs as a heat map of the k inputs with the largest ones."""
    effects = np.asarray(effects, dtype=float)
    d, k = effects.shape[0], as_integer("k", k, 1)
    if effects.shape != (d, d):
        raise ValueError(f"effects have shape {effects.shape}, expected (d, d): one row and column for each input.")
    shown = check_names(names, d) or [f"x{i}" for i in range(d)]
    # The inputs of the strongest pairs, in their own order; squares count last.
    size = np.abs(effects) * np.where(np.eye(d, dtype=bool), 1e-9, 1.0)
    chosen = np.sort(np.argsort(-size.max(axis=1), kind="stable")[:k])
    kept = [shown[i] for i in chosen]
    note = f"the {k} of {d} inputs with the strongest interactions" if k < d else ""
    label = "How strongly each pair of inputs acts together"
    return HeatMap(effects[np.ix_(chosen, chosen)], kept, kept, label, title, "effect of the product", note=note)
