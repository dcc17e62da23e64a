"""Reports of a fit: what the solver did, and how well."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from mlpoly.plottable import Plottable
from mlpoly.tables import Table, Tabular

_FAR = 0.05  # excess over the optimum, as a fraction of its error, above which the report says what to do
_KNOWN = 4  # standard errors from which on an excess is stated; below, the report says only how large it can be
UNDER_A_MIXTURE = "least squares under a Gaussian mixture"  # which optimum it is, of every degree


class Report(Tabular):
    """A report as a table of its fields, below the sentence that it prints."""

    def _table(self) -> Table:
        rows = []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.name == "history":
                value = f"{len(value)} entries"
            elif isinstance(value, tuple):
                value = "; ".join(map(str, value))
            rows.append((f.name, value if isinstance(value, str | float | None) else str(value)))
        return Table(("field", "value"), tuple(rows), str(self))


@dataclass(frozen=True)
class SolveReport(Report, Plottable):
    """Report of a fit under a mixture.

    The expected squared error is the sum of the error of the components' own optima g_c, which no polynomial of this
    degree can reduce, and the misfit ``sum_c pi_c E_c |g_c - g|^2`` of the answer g (MATH 5). The solver minimises the
    misfit.

    Attributes
    ----------
    method : str
    iterations : int
        Number of iterations at full size, each with one product with the Gram operator; 0 for a direct solve.
    converged : bool
        False if stopped by the iteration limit or by an interrupt: the polynomial is the best found so far.
    gradient : float
        Certificate of optimality: norm of the gradient of the expected loss at the answer, recomputed from scratch,
        relative to that at zero.
    misfit : float
        Misfit of the answer, summed over outputs.
    gain_left : float
        Estimate of the fraction of the misfit that more iterations could still remove; NaN if rounding
        hides it.
    kept, dropped : int
        Number of input directions with and without variance under the mixture.
    history : tuple of float
        Misfit after each iteration.
    """

    method: str
    iterations: int
    converged: bool
    gradient: float
    misfit: float
    gain_left: float
    kept: int
    dropped: int
    history: tuple[float, ...] = ()

    def __str__(self) -> str:
        state = "converged" if self.converged else "stopped early"
        return (
            f"{self.method}: {state} after {self.iterations} iterations, gradient {self.gradient:.1e}, "
            f"gain left {self.gain_left:.1e} of the misfit, {self.kept} directions kept, {self.dropped} dropped"
        )


@dataclass(frozen=True)
class RegressionReport(Report):
    """Report of least squares on samples.

    Attributes
    ----------
    samples : int
        Number of samples, without those of weight zero.
    terms : int
        Number of monomials.
    rank : int
        Number of combinations of monomials that the samples determine; below `terms`, the answer has least norm.
    gradient : float
        Certificate of optimality: norm of the gradient of the mean squared error at the answer, relative to that at
        zero.
    error : float
        Mean squared error on the samples, summed over outputs.
    kept, dropped : int
        Number of input directions with and without variance on the samples.
    """

    samples: int
    terms: int
    rank: int
    gradient: float
    error: float
    kept: int
    dropped: int

    def __str__(self) -> str:
        found = "all determined" if self.rank == self.terms else f"of which {self.rank} determined"
        return (
            f"least squares on {self.samples} samples: {self.terms} monomials, {found}, gradient {self.gradient:.1e}, "
            f"{self.kept} directions kept, {self.dropped} dropped"
        )


@dataclass(frozen=True)
class ComposedReport(Report):
    """Report of a fit layer by layer.

    Attributes
    ----------
    degrees : tuple of int
        Degree of each layer's polynomial, in the order of the data; 1 for affine layers.
    degree : int
        Degree of the whole.
    guard : float
        Weight of the wide component under which the evaluated series were fitted; 0 without a guard.
    excess : tuple of float
        For each layer, the estimated error of its units' means that comes from taking the values that enter it as
        Gaussian, in standard deviations of the units, root mean square; as in `mlpoly.propagate`. Empty for a fit on
        samples, which takes nothing as Gaussian.
    """

    degrees: tuple[int, ...]
    degree: int
    guard: float
    excess: tuple[float, ...] = ()

    @property
    def layers(self) -> int:
        """Number of layers, affine ones included that no other layer could take up."""
        return len(self.degrees)

    def __str__(self) -> str:
        guard = f"guard {self.guard:g}" if self.guard else "no guard"
        excess = f", excess up to {max(self.excess):.2g}" if self.excess else ""
        return f"{self.layers} layers of degrees {self.degrees}, {self.degree} in all, {guard}{excess}"


@dataclass(frozen=True)
class ExpansionReport(Report):
    """Report of the closest polynomial of a deep network in closed form.

    Attributes
    ----------
    method : str
    explained : float
        Variance of the polynomial, summed over outputs.
    variance : float
        Variance of the network, summed over outputs, at up to 1024 samples of the inputs; NaN if that was not done.
    misfit : float
        Squared error of the optimum, estimated from the network and its Jacobian at the same samples.
    excess : float
        Excess of the squared error over that of the optimum, from the same samples.
    standard_error : float
        Standard error of `excess`. An excess of less than four of them is hardly known: it is between zero and about
        ``excess + 2 * standard_error``.
    """

    method: str
    explained: float
    variance: float
    misfit: float
    excess: float
    standard_error: float

    @property
    def fvu(self) -> float:
        """Fraction of variance unexplained at the same samples; `mlpoly.fvu` measures it on more."""
        return (self.misfit + self.excess) / self.variance if self.variance > 0 else math.nan

    def __str__(self) -> str:
        if math.isnan(self.variance):
            return self.method
        if not self.variance > 0:
            return f"{self.method}: the network does not vary under these inputs"
        known = self.excess >= _KNOWN * self.standard_error
        above = self.excess if known else self.excess + 2 * self.standard_error
        stated = f"fraction of variance unexplained about {self.fvu:.3g}"
        if self.misfit > 0:
            stated += f", {'' if known else 'at most about '}{above / self.misfit:.1%} above that of the optimum"
        remedy = "; method='sampled' comes closer" if above > _FAR * self.misfit > 0 else ""
        return f"{self.method}: {stated}, estimated from samples{remedy}"


@dataclass(frozen=True)
class DeepMixtureReport(Report, Plottable):
    """Report of the closest polynomial of a deep network under a mixture.

    Attributes
    ----------
    solve : SolveReport
        How the mixture's optimum was found from those of its components.
    components : tuple of ExpansionReport or SampledReport
        How those of the components were found, in their order.
    """

    solve: SolveReport
    components: tuple[ExpansionReport | SampledReport, ...]

    def __str__(self) -> str:
        return f"{self.components[0].method}, for {len(self.components)} components; {self.solve}"


@dataclass(frozen=True)
class SampledReport(Report):
    """Report of the closest polynomial of a network under a Gaussian, estimated from its Jacobian at samples.

    Attributes
    ----------
    method : str
    samples : int
        Number of samples, the mirrored ones included.
    excess : float
        Expected excess of the squared error of the answer over that of the optimum, summed over outputs: the variance
        of the coefficients, summed over all of them in the orthonormal basis.
    misfit : float
        Estimated squared error of the optimum, summed over outputs; that of the answer is misfit + excess.
    fvu : float
        Estimated fraction of the outputs' variance that the answer does not explain.
    converged : bool
        Whether the excess is below the tolerance times the misfit; False if stopped by the limit on samples or by an
        interrupt.
    seed, chunk, chunks : int
        Seed of the samples, number of samples in each chunk, and number of chunks, for resuming.
    network : str
        Fingerprint of the network's weights, for resuming.
    """

    method: str
    samples: int
    excess: float
    misfit: float
    fvu: float
    converged: bool
    seed: int
    chunk: int
    chunks: int
    network: str = ""

    def __str__(self) -> str:
        state = "converged" if self.converged else "stopped early"
        part = f" ({self.excess / self.misfit:.2%} of it)" if self.misfit > 0 else ""
        return (
            f"{self.method}: {state} after {self.samples} samples, misfit {self.misfit:.3g}, expected excess over it "
            f"{self.excess:.2g}{part}, fraction of variance unexplained {self.fvu:.3g}"
        )
