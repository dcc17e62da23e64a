"""Pictures: one figure family per file, drawn from the records of the library (needs matplotlib)."""

from mlpoly.extras import explain_missing

with explain_missing("mlpoly.plots"):
    from mlpoly.plots.attack import plot_ablation, plot_ablation_pictures, plot_steering
    from mlpoly.plots.dynamics import plot_accuracy, plot_dynamics, plot_spectra
    from mlpoly.plots.eigenfeatures import plot_eigenfeatures
    from mlpoly.plots.style import save_figure
    from mlpoly.plots.training_features import plot_explanation, plot_spectrum_of_class, plot_training_features

__all__ = [
    "plot_ablation",
    "plot_ablation_pictures",
    "plot_accuracy",
    "plot_dynamics",
    "plot_eigenfeatures",
    "plot_explanation",
    "plot_spectra",
    "plot_spectrum_of_class",
    "plot_steering",
    "plot_training_features",
    "save_figure",
]
