"""All feedforward blocks of a language model into polynomials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from mlpoly.fitting import fit
from mlpoly.fitting.preactivations import first_weight
from mlpoly.fitting.samples import SampleFit
from mlpoly.integrations.blocks import Block
from mlpoly.layers import GLU, MLP
from mlpoly.lm.accumulate import RowSums
from mlpoly.lm.conversion import Conversion, Quality, module_of
from mlpoly.lm.graft import graft
from mlpoly.lm.moments import Moments
from mlpoly.lm.provenance import describe_model, versions
from mlpoly.lm.quality import closed_form_error, held_out_errors
from mlpoly.lm.visit import chosen_blocks, visit
from mlpoly.polynomials import Polynomial
from mlpoly.polynomials.ridge import check_bound
from mlpoly.progress import progress

__all__ = ["convert"]

METHODS = ("gaussian", "neuronwise", "samples")


def convert(
    model: nn.Module,
    moments: Moments,
    degree: int = 3,
    layers: str | Sequence[str] | None = None,
    *,
    method: str = "gaussian",
    bound: float | None = None,
    sequential: bool = False,
    batches: Iterable[Any] | None = None,
    held_out: Iterable[Any] | None = None,
    shrinkage: float | str = 0.0,
    closed_form: bool = True,
    show_progress: bool = True,
) -> Conversion:
    """Polynomials of a given degree for the feedforward blocks of a language model.

    With moments alone everything is closed form. Real activations have heavier tails than a Gaussian, though;
    ``method="samples"`` with ``bound=6.0`` fits each neuron to those that it has in `batches`.

    Parameters
    ----------
    model : nn.Module
        Is left as it is; see `graft` and `evaluate` for the model with the polynomials in place.
    moments : Moments
        Of the inputs of its blocks, see `collect`.
    degree : int
    layers : str or sequence of str, optional
        Which blocks: a pattern such as "layers.*.mlp", or several patterns or names. By default all that have moments.
    method : {"gaussian", "neuronwise", "samples"}
        Under what the squared error is least. "gaussian": the Gaussian of all inputs of a block; exact. "neuronwise":
        the mixture of the components that the moments were told apart into, for each neuron by itself. "samples": the
        inputs in `batches`, for each neuron by itself; one pass over them, see `mlpoly.fitting.samples.SampleFit`.
    bound : float, optional
        Hold preactivations within so many standard deviations of their means. Outside of the data a polynomial grows
        without end, and what it gives is another block's input. With a bound the function is a *piecewise* polynomial.
        "samples" takes it into account, the other methods fit as if it were not there.
    sequential : bool
        Fit every block to the inputs that it has when all blocks before it are replaced. This takes a pass over
        `batches` for each block, up to that block.
    batches : iterable, optional
        Batches of tokens, as `collect` takes them; for "samples" and `sequential`. With `sequential` the moments of
        "gaussian" are made anew from them.
    held_out : iterable, optional
        Other batches, to judge by: the error on the inputs of the blocks in the intact model.
    shrinkage : float or "oas"
        Of the covariances, see `mlpoly.Gaussian.from_samples`.
    closed_form : bool
        Whether to compute the error without samples too. Its cost grows with the square of the hidden units: half a
        minute for a block of 1536 on two busy cores.
    show_progress : bool
        Whether long work on a terminal draws a progress bar.

    Returns
    -------
    Conversion

    Raises
    ------
    ValueError
        Among others if a pattern matches no block, or a block has no moments; the message lists those there are.

    Examples
    --------
    >>> import torch
    >>> from mlpoly.lm.collect import collect
    >>> from mlpoly.lm.convert import convert
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp)
    >>> ids = torch.arange(10).reshape(2, 5)
    >>> convert(model, collect(model, [ids]), degree=3, held_out=[ids])
    Conversion(1 block, degree=3, gaussian)
    """
    _check(method, sequential, batches)
    bound = None if bound is None else check_bound(bound)
    blocks = _blocks(model, moments, layers)
    work = _Work(model, moments, degree, method, bound, sequential, shrinkage)
    with progress("convert", len(blocks), show_progress) as bar:
        polynomials, seconds = work.fit(blocks, batches, bar)
    about = describe_model(model) | {"moments": moments.provenance, "versions": versions()} | work.describe()
    closed: dict[str, float | None] = {}
    if closed_form:
        closed = {block.name: closed_form_error(block, polynomials[block.name]) for block in blocks}
    held: dict[str, tuple[float | None, float | None]] = {}
    if held_out is not None:
        held, about["held_out"] = held_out_errors(model, blocks, polynomials, bound, held_out)
    nothing = (None, None)
    quality = {n: Quality(closed.get(n), *held.get(n, nothing), seconds=seconds[n]) for n in polynomials}
    return Conversion(polynomials, quality, bound, about)


def _check(method: str, sequential: bool, batches: Any) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}.")
    if batches is None and (sequential or method == "samples"):
        reason = "sequential=True" if sequential else "method='samples'"
        raise ValueError(f"{reason} needs data: pass batches=, such as those that the moments were collected from.")
    if sequential and method == "neuronwise":
        raise ValueError("sequential=True does not tell components apart; use method='gaussian' or method='samples'.")


def _blocks(model: nn.Module, moments: Moments, layers: str | Sequence[str] | None) -> list[Block]:
    if not isinstance(moments, Moments):
        raise TypeError(f"moments must be Moments, got {type(moments).__name__}; make them with mlpoly.lm.collect.")
    known = set(moments.names)
    blocks = chosen_blocks(model, layers)
    if layers is None:
        blocks = [block for block in blocks if block.name in known]
    missing = [block.name for block in blocks if block.name not in known]
    if missing or not blocks:
        shown = ", ".join(moments.names if len(known) <= 8 else [*moments.names[:7], "..."])
        wanted = repr(missing[0]) if missing else f"any block of {type(model).__name__}"
        raise ValueError(f"there are no moments of {wanted}, only of {shown}; collect them with hookpoints=.")
    return blocks


# ---------------------------------------------------------------------------------------------------------------------
# Fitting
# ---------------------------------------------------------------------------------------------------------------------


class _Task(Protocol):
    """The fit of one block."""

    @property
    def add(self) -> Callable[[Tensor], Any]:
        """Looks at inputs (n, d)."""

    @property
    def polynomial(self) -> Callable[[], Polynomial]:
        """Gives what came of it."""


class _Work:
    """What is the same for all blocks."""

    def __init__(
        self,
        model: nn.Module,
        moments: Moments,
        degree: int,
        method: str,
        bound: float | None,
        sequential: bool,
        shrinkage: float | str,
    ) -> None:
        self.model, self.moments, self.degree, self.method = model, moments, degree, method
        self.bound, self.sequential, self.shrinkage = bound, sequential, shrinkage
        self._data: dict[str, Any] | None = None

    def describe(self) -> dict[str, Any]:
        """For provenance."""
        names = ("method", "degree", "bound", "sequential", "shrinkage")
        return {name: getattr(self, name) for name in names} | {"batches": self._data}

    def fit(
        self, blocks: Sequence[Block], batches: Iterable[Any] | None, bar: Callable[[int, str], None]
    ) -> tuple[dict[str, Polynomial], dict[str, float]]:
        """Polynomials, and the seconds that they took."""
        tasks: dict[str, _Task] = {}
        done: dict[str, Polynomial] = {}
        grafts: dict[str, nn.Module] = {}
        seconds: dict[str, float] = {}
        given: Any = list(batches) if batches is not None and self.sequential else batches
        if self.method == "samples" and not self.sequential:
            tasks = {block.name: self._task(block) for block in blocks}
            self._visit(blocks, given, tasks)
        for number, block in enumerate(blocks):
            task = tasks.pop(block.name, None) or self._task(block)
            if self.sequential:
                with graft(self.model, grafts):
                    self._visit([block], given, {block.name: task})
            began = time.perf_counter()
            done[block.name] = task.polynomial()
            seconds[block.name] = time.perf_counter() - began
            if self.sequential:
                grafts[block.name] = module_of(done[block.name], self.bound)
            bar(number + 1, block.name)
        return done, seconds

    def _visit(self, blocks: Sequence[Block], batches: Iterable[Any], tasks: dict[str, _Task]) -> None:
        read = visit(self.model, blocks, batches, lambda block, x: tasks[block.name].add(x), stop=True)
        self._data = {"data": read.fingerprint, "tokens": read.tokens}

    def _task(self, block: Block) -> _Task:
        net = block.net()
        like = first_weight(net)
        if self.method == "neuronwise":
            mixture = self.moments.mixture(block.name, self.shrinkage, like)
            return _Closed(lambda: fit(net, mixture, self.degree, method="neuronwise"))
        if self.method == "gaussian" and self.sequential:
            return _Summed(net, self.degree, self.shrinkage)
        gaussian = self.moments.gaussian(block.name, self.shrinkage, like)
        if self.method == "samples":
            return _Sampled(SampleFit(net, gaussian, self.degree, self.bound))
        return _Closed(lambda: fit(net, gaussian, self.degree))


class _Closed:
    """From moments that are there."""

    def __init__(self, make: Callable[[], Polynomial]) -> None:
        self.polynomial = make

    def add(self, x: Tensor) -> None:
        """Nothing more is needed."""


class _Summed:
    """From the moments of what is seen."""

    def __init__(self, net: MLP | GLU, degree: int, shrinkage: float | str) -> None:
        self._net, self._degree, self._shrinkage = net, degree, shrinkage
        self._sums = RowSums()
        self.add = self._sums.add

    def polynomial(self) -> Polynomial:
        """Fit under the Gaussian of these moments."""
        found = self._sums.result()
        assert found is not None  # visit has seen to it
        inputs = Moments({"": {0: found}}, {}).gaussian("", self._shrinkage, first_weight(self._net))
        made: Polynomial = fit(self._net, inputs, self._degree)
        return made


class _Sampled:
    """From the samples themselves."""

    def __init__(self, sums: SampleFit) -> None:
        self.add = sums.update
        self.polynomial = sums.polynomial
