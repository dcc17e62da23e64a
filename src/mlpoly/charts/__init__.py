"""Pictures of results, described once: drawn by `mlpoly.charts.matplotlib`, and on pages by `mlpoly.pages.toolkit`.

``result.chart(**options)`` is the description, ``result.plot(ax=None, **options)`` draws it. The functions below are
what they call, one for each kind of result, and have these options; `title` is that of the picture in all of them.
"""

from mlpoly.charts.chart import Chart, Gallery, HeatMap, Ranking, Waterfall, chart_of
from mlpoly.charts.directions import (
    decomposition_chart,
    eigenfeature_gallery,
    eigenfeature_ranking,
    principal_chart,
    singular_ranking,
)
from mlpoly.charts.explanations import (
    explanation_waterfall,
    interaction_map,
    shape_chart,
    shapley_waterfall,
    term_ranking,
)
from mlpoly.charts.measures import (
    certificate_chart,
    comparison_ranking,
    estimate_ranking,
    fit_chart,
    fvu_chart,
    moment_chart,
    propagation_chart,
    sensitivity_chart,
    similarity_chart,
    spectrum_chart,
)
from mlpoly.charts.responses import dependence_chart, response_chart

__all__ = [
    "Chart", "Gallery", "HeatMap", "Ranking", "Waterfall", "certificate_chart", "chart_of", "comparison_ranking",
    "decomposition_chart", "dependence_chart", "eigenfeature_gallery", "eigenfeature_ranking", "estimate_ranking",
    "explanation_waterfall", "fit_chart", "fvu_chart", "interaction_map", "moment_chart", "principal_chart",
    "propagation_chart", "response_chart", "sensitivity_chart", "shape_chart", "shapley_waterfall",
    "similarity_chart", "singular_ranking", "spectrum_chart", "term_ranking",
]  # fmt: skip
