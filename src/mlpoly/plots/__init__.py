"""Pictures of the library's records: described by `mlpoly.plots.chart`, drawn by `mlpoly.plots.draw` (matplotlib)."""

from mlpoly.plots.degree_bars import plot_spectrum
from mlpoly.plots.eigenfeatures import plot_eigenfeatures
from mlpoly.plots.explanation import plot_explanation
from mlpoly.plots.feature_bars import plot_features, plot_singular
from mlpoly.plots.histories import plot_finetuning, plot_solve
from mlpoly.plots.interactions import plot_interactions
from mlpoly.plots.layer_spread import plot_propagation
from mlpoly.plots.measure_bars import plot_comparison, plot_estimate, plot_fvu, plot_outputs
from mlpoly.plots.response import plot_response
from mlpoly.plots.terms import plot_terms

__all__ = [
    "plot_comparison",
    "plot_eigenfeatures",
    "plot_estimate",
    "plot_explanation",
    "plot_features",
    "plot_finetuning",
    "plot_fvu",
    "plot_interactions",
    "plot_outputs",
    "plot_propagation",
    "plot_response",
    "plot_singular",
    "plot_solve",
    "plot_spectrum",
    "plot_terms",
]
