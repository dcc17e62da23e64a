"""Pictures of the library's records, one kind per file (needs matplotlib)."""

from mlpoly.extras import explain_missing

with explain_missing("mlpoly.plots"):
    from mlpoly.plots.eigenfeatures import plot_eigenfeatures
    from mlpoly.plots.style import save_figure

__all__ = ["plot_eigenfeatures", "save_figure"]
