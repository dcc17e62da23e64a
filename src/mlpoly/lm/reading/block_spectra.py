"""What each block of a model writes: fractions of its variance by polynomial degree, and by output direction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from mlpoly.arrays import as_integer, to_numpy
from mlpoly.charts.chart import Axis, Chart, Curve, Panel, degree_bars, shortened
from mlpoly.features import principal_forms
from mlpoly.importers import find_blocks
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.reading.attribution import Polynomials, polynomials_of
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


@dataclass(frozen=True)
class FormSpectrum:
    """Variance of one block's polynomial at one degree, by output direction."""

    block: str
    degree: int
    fraction: float  # of the polynomial's variance that is at this degree
    fractions: tuple[float, ...]  # of that, in each of the leading output directions

    def count(self, part: float) -> int | None:
        """Number of directions that carry a part of the variance together; None if those listed do not."""
        reached = 0.0
        for number, fraction in enumerate(self.fractions, 1):
            reached += fraction
            if reached >= part:
                return number
        return None

    def row(self) -> dict[str, Any]:
        """Where the variance is, for a table."""
        first = self.fractions[0] if self.fractions else None
        counts = {f"directions for {round(100 * part)} %": self.count(part) for part in (0.5, 0.9)}
        return {"block": self.block, "degree": self.degree, "fraction": self.fraction, "in the first": first} | counts


class BlockForms(Plottable, TableList):
    """A list of `FormSpectrum`, which prints as a table."""

    def chart(self) -> Chart:  # type: ignore[override]
        """Curves of the fraction of the variance at degree 2 that the leading directions carry, one for each block."""
        spectra = [spectrum for spectrum in self if spectrum.degree == 2]
        colours, few = ("blue", "orange", "black", "grey"), len(spectra) <= 6
        curves = []
        for i, found in enumerate(spectra):
            together = [sum(found.fractions[: j + 1]) for j in range(len(found.fractions))]
            places, ends = list(range(1, len(together) + 1)), i in (0, len(spectra) - 1)
            label = shortened(found.block) if few or ends else "the blocks between"
            colour = colours[i % 4] if few else ("blue" if i == 0 else "orange") if ends else "grey"
            curves.append(Curve(label, places, together, colour=colour, width=1.2))
        y = Axis("fraction of the variance at degree 2", "fraction", percent=True, limits=(0.0, 1.02))
        return Chart("Principal forms by block", [Panel(curves, Axis("leading forms", "forms", "log"), y)])


def block_forms(polys: Polynomials, moments: Moments, degrees: Sequence[int] = (1, 2, 3), k: int = 128) -> BlockForms:
    """Output directions by the variance that every block writes along them at each degree; exact, without samples.

    Parameters
    ----------
    polys : Conversion or mapping
        Polynomials, or modules of them, by the name of their block.
    moments : Moments
        Moments of the inputs of the blocks.
    degrees : sequence of int
        Degrees; those above a polynomial's own are left out.
    k : int
        Number of leading directions that are listed.
    """
    chosen, wanted = polynomials_of(polys), [as_integer("degrees", degree, 1) for degree in degrees]
    rows = BlockForms()
    with progress_bar("principal forms", len(chosen)) as bar:
        for i, (name, poly) in enumerate(chosen.items()):
            inputs = moments.gaussian(name, like=poly.prototype)
            found = {n: principal_forms(poly, n, k, inputs) for n in range(1, poly.degree + 1)}
            whole = sum(float(forms.total) for forms in found.values()) or 1.0
            for n in wanted:
                if n in found:
                    fraction = float(found[n].total) / whole
                    rows.append(FormSpectrum(name, n, fraction, tuple(to_numpy(found[n].fractions).tolist())))
            bar(i + 1, name)
    return rows
