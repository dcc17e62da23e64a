"""The report of a fit: how it went, and how good the answer is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from mlpoly.tables import Plottable, Table, Tabular

UNDER_A_MIXTURE = "least squares under a Gaussian mixture"  # which optimum it is, of every degree


@dataclass(frozen=True)
class FitReport(Tabular, Plottable):
    """How a fit went, and how good the answer is; prints as a table, and plots its history.

    Under a mixture the solver minimises the misfit ``sum_c pi_c E_c |g_c - g|^2`` of the answer g, with g_c the optima
    of the components (MATH 5). The error of these g_c, which no polynomial of the degree can reduce, is not part of it.

    Attributes
    ----------
    method, summary : str
        Solver, or which optimum it is, and how it went in a few words.
    misfit : float or None
        What the solver minimised, at the answer, summed over outputs: the misfit under a mixture, the mean squared
        error on samples; of fits from samples of a distribution the squared error of the optimum, estimated.
    excess, fvu : float or None
        Estimates of the squared error beyond that of the optimum, and of the fraction of variance unexplained; on
        samples that are few for their monomials, where each is left out of its fit.
    gradient : float or None
        Certificate of optimality: norm of the gradient of the squared error at the answer, relative to that at zero.
    converged : bool
        False if stopped by a limit, an interrupt or an overflow: the polynomial is the best found so far.
    history : tuple of (int, float)
        Iteration, and misfit or score after it.
    details : mapping from str to any
        Numbers of this way to fit. Under a mixture ``gain_left``, the fraction of the misfit that more iterations
        could still remove (NaN if rounding hides it), ``kept`` and ``dropped``, the numbers of input directions with
        and without variance; of a deep network ``components``, their reports. On samples ``samples``, ``terms``,
        ``rank``, ``kept`` and ``dropped``. Of all neurons together ``kind``, ``coefficients`` for each output, their
        ``rank`` and ``effective`` number after ``shrinkage``, and ``start``, the fraction of variance unexplained
        before; `fvu` and ``start`` are of fits to four of five samples, on the fifth. Of an expansion ``explained``
        and ``variance``, of the polynomial and of the network, and ``standard_error`` of the excess. From Jacobians
        ``samples`` and ``chunks``. Layer by layer ``degrees``, ``guard`` and ``closure_errors``, of the
        units' means in standard deviations; on samples ``kind``, "joint" if layers make up for those before, and then
        ``start``.
    """

    method: str
    summary: str
    misfit: float | None = None
    excess: float | None = None
    fvu: float | None = None
    gradient: float | None = None
    converged: bool = True
    iterations: int = 0
    history: tuple[tuple[int, float], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)  # records are hashed by JAX

    def _table(self) -> Table:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("method", "summary", "details")}
        values |= {"history": f"{len(self.history)} entries" if self.history else None, **self.details}
        for name, value in values.items():
            if isinstance(value, tuple):
                values[name] = "; ".join(p.summary if isinstance(p, FitReport) else f"{p}" for p in value)
        rows = tuple((name, value) for name, value in values.items() if value is not None)
        return Table(("number", "value"), rows, f"{self.method}: {self.summary}")
