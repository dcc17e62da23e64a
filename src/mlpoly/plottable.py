"""Results that draw themselves."""

from __future__ import annotations

from typing import Any


class Plottable:
    """A result with a picture. `mlpoly.charts` has a function for each kind of result, which describes its picture."""

    def chart(self, **options: Any) -> Any:
        """Describe the picture, for matplotlib or for a page; options are those of the function in `mlpoly.charts`."""
        from mlpoly.charts import chart_of  # above this module: imported on demand

        return chart_of(self, **options)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the picture with matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on: of a chart its first panel, while other pictures of several axes take their place in the
            figure. By default those of a new figure of pyplot.
        **options
            Those of `chart`, such as `title`.

        Returns
        -------
        matplotlib.figure.Figure
            ``plt.show()`` shows it, a notebook does so by itself, ``figure.savefig(path, dpi=120)`` writes it.
        """
        from mlpoly.charts.matplotlib import show  # needs matplotlib

        return show(self.chart(**options), ax)
