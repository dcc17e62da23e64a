"""The strongest terms of a polynomial as bars, and its interactions as a heat map."""

from collections.abc import Sequence

import numpy as np

from mlpoly.arrays import as_integer, check_names, check_output
from mlpoly.charts.chart import HeatMap, Part, Ranking, chart_of, minus, shortened
from mlpoly.features import Terms
from mlpoly.features.monomials import interaction_effects
from mlpoly.inputs import Inputs, inputs_of
from mlpoly.polynomials import Polynomial
from mlpoly.tables import output_label


@chart_of.register
def term_ranking(terms: Terms, title: str = "") -> Ranking:
    """Effects of the strongest monomials as bars, with their coefficients."""
    which, kind = terms.output_name and f" of {terms.output_name}", "interactions" if terms.interactions else "terms"
    count = f"The {len(terms)} strongest of {terms.total:,} {kind}" if len(terms) < terms.total else f"All {kind}"
    return Ranking(
        [Part(shortened(term.name), float(term.effect), minus(f"{term.coefficient:.3g}")) for term in terms],
        f"The strongest {kind}{which}",
        title or f"{count}{which}",
        "effect: coefficient times the standard deviation of the monomial",
        "coefficient",
        "" if terms.center is None else "monomials of the deviations from the mean of the inputs",
    )


def interaction_map(
    poly: Polynomial,
    output: int | str = 0,
    inputs: Inputs | None = None,
    names: Sequence[str] | None = None,
    k: int = 30,
    title: str = "",
) -> HeatMap:
    """How strongly each pair of the k inputs with the strongest interactions acts together on an output.

    Of a polynomial of degree 2 or more; of a higher degree its quadratic truncation is drawn. Effects refer to
    `inputs`, by default those that it was fitted under.
    """
    inputs = inputs_of(poly, inputs)
    names = inputs.names if names is None else names
    label = output_label(check_output(output, poly.dim_out, poly.output_names), poly.dim_out, poly.output_names)
    title = title or f"Interactions{label and f', {label}'}"
    return effect_map(interaction_effects(poly, output, inputs), names, k, title)


def effect_map(
    effects: np.ndarray, names: Sequence[str] | None = None, k: int = 30, title: str = "Interactions"
) -> HeatMap:
    """Describe a symmetric matrix (d, d) of effects of pairs as a heat map of the k inputs with the largest ones."""
    d, k = len(effects), as_integer("k", k, 1)
    shown = check_names(names, d) or [f"x{i}" for i in range(d)]
    # The inputs of the strongest pairs, in their own order; squares count last.
    size = np.abs(effects) * np.where(np.eye(d, dtype=bool), 1e-9, 1.0)
    order = np.sort(np.argsort(-size.max(axis=1), kind="stable")[:k])
    kept = [shown[i] for i in order]
    note = f"the {k} of {d} inputs with the strongest interactions" if k < d else ""
    label = "How strongly each pair of inputs acts together"
    return HeatMap(effects[np.ix_(order, order)], kept, kept, label, title, "effect of the product", note=note)
