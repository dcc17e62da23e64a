"""What each block of a model writes: fractions of its variance by polynomial degree."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from mlpoly.charts.chart import Axis, Chart, Panel, degree_bars
from mlpoly.importers import find_blocks
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.measures import degree_spectrum
from mlpoly.progress_bars import progress_bar
from mlpoly.tables import Plottable, TableList


@dataclass(frozen=True)
class BlockSpectrum:
    """Fractions of one block's variance by polynomial degree, which add up to 1."""

    block: str
    fractions: tuple[float, ...]  # at degree 1, 2, ...
    rest: float  # at all higher degrees

    def row(self) -> dict[str, Any]:
        """Fractions by degree, for a table."""
        return {"block": self.block} | {f"degree_{k}": v for k, v in enumerate(self.fractions, 1)} | {"rest": self.rest}

    def unexplained(self, degree: int) -> float:
        """Fraction that the best polynomial of a degree leaves unexplained; `degree` is at most the highest here."""
        return sum(self.fractions[degree:]) + self.rest


class BlockSpectra(Plottable, TableList):
    """A list of `BlockSpectrum`, which prints as a table."""

    def chart(self) -> Chart:  # type: ignore[override]
        """Bars of the blocks, stacked by degree."""
        numbers = list(range(len(self)))
        bars = degree_bars([(*spectrum.fractions, spectrum.rest) for spectrum in self]) if self else []
        blocks = Axis("block", ticks=[(i, str(i)) for i in numbers[:: -(-len(numbers) // 20) or 1]])
        panel = Panel(bars, blocks, Axis("fraction of the variance", limits=(0.0, 1.0)))
        return Chart("Fractions of the blocks' variance by degree", [panel])


def block_spectra(model: nn.Module, moments: Moments, degree: int = 6, *, shrinkage: float | str = 0.0) -> BlockSpectra:
    """Degree spectra of all blocks in `moments`, each under the Gaussian of its inputs, see `mlpoly.degree_spectrum`.

    Parameters
    ----------
    model : nn.Module
    moments : Moments
        Moments of the inputs of its blocks, see `collect`.
    degree : int
        Highest degree that is listed by itself.
    shrinkage : float or "oas"
        Shrinkage of the covariances, see `mlpoly.Gaussian.from_samples`.
    """
    blocks = [block for block in find_blocks(model) if block.name in moments.names]
    spectra = BlockSpectra()
    with progress_bar("spectra", len(blocks)) as bar:
        for i, block in enumerate(blocks):
            net = block.net()
            found = degree_spectrum(net, moments.gaussian(block.name, shrinkage, like=net.prototype), degree)
            fractions = tuple(float(fraction) for fraction in found.overall)
            spectra.append(BlockSpectrum(block.name, fractions, float(found.unexplained[-1])))
            bar(i + 1, block.name)
    return spectra
