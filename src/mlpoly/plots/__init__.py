"""Pictures of the library's records: described by `mlpoly.plots.chart`, drawn by `mlpoly.plots.draw` (matplotlib)."""

from mlpoly.plots.eigenfeatures import plot_eigenfeatures

__all__ = ["plot_eigenfeatures"]
