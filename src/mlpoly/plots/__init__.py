"""Pictures: one figure family per file, drawn from the records of the library (needs matplotlib)."""

from mlpoly.plots.eigenfeatures import plot_eigenfeatures

__all__ = ["plot_eigenfeatures"]
