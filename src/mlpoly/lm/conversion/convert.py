"""All feedforward blocks of a language model into polynomials."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.fitting import fit
from mlpoly.fitting.bounded import BOUNDS, fit_bounded
from mlpoly.fitting.joint_features import Coefficients, features_of
from mlpoly.fitting.mixture.joint import fit_mixture_joint
from mlpoly.fitting.samples.joint import JointFit
from mlpoly.fitting.samples.neuronwise import SampleFit, best_of
from mlpoly.importers import find_blocks
from mlpoly.importers.blocks import Block, listed
from mlpoly.inputs import Gaussian
from mlpoly.lm.conversion.conversion import BlockErrors, Conversion, HeldOutErrors, closed_form_error
from mlpoly.lm.distributed import exchange, world
from mlpoly.lm.model.loading import describe_model
from mlpoly.lm.model.running import visit
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.machine import versions
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial, Polynomial
from mlpoly.polynomials.bounded import check_bound
from mlpoly.progress_bars import progress_bar
from mlpoly.records import replace

Method = Literal["gaussian", "neuronwise", "joint", "samples"]

# Weight of lines along the activation relative to that of the inputs, the same as in `SampleFit`: tokens are beyond the
# bound where a Gaussian has hardly any mass. Without it cubics in all blocks cost SmolLM2 0.090 nats instead of 0.041;
# in other models it matters little (docs/language_models.md).
_TAILS = 1e-3

_HELD = 5  # one token in so many is held out
_LEAST = 100  # tokens held out; fewer do not tell whether fitting together is better
_NUMBERS = 2**23  # values of features held at once
_SUMS = 2**28  # numbers in the sums of one pass, 2 GiB


def convert(
    model: nn.Module,
    moments: Moments,
    degree: int = 3,
    blocks: str | Sequence[str] | None = None,
    *,
    method: Method = "gaussian",
    bound: float | Literal["auto"] | None = None,
    coefficients: Coefficients = "auto",
    batches: Iterable[Any] | None = None,
    held_out: Iterable[Any] | None = None,
    shrinkage: float | str = 0.0,
    closed_form: bool = True,
) -> Conversion:
    """Fit polynomials of a given degree to the feedforward blocks of a language model, which is left as it is.

    Under torchrun (see `mlpoly.lm.distributed.initialise`) every process must be given the same arguments. Every
    process makes all fits; the errors in closed form, which take longer, are divided among them.

    Parameters
    ----------
    model : nn.Module
    moments : Moments
    degree : int
    blocks : str or sequence of str, optional
        Names or patterns of blocks, such as "layers.*.mlp". By default all that have moments.
    method : {"gaussian", "neuronwise", "joint", "samples"}
        Inputs under which the squared error is least. "gaussian": the Gaussian of all inputs of a block; exact.
        "neuronwise": the mixture of the groups of tokens, for each neuron by itself. "joint": then all neurons together
        under this mixture, in closed form. "samples": the inputs in `batches`, which are read twice, for every neuron
        by itself and then for all together, if that helps on one token in five, held out at random;
        `polynomials[name].source.method` says which it is.
    bound : float, "auto" or None
        Extrapolate linearly where a preactivation is more than so many standard deviations from its mean: outside of
        the data a polynomial grows without end, and its output is another block's input. "auto" takes for each block
        the one of 1.5, 2, 2.5, 3 and 4 with which the neurons' own errors are least.
    coefficients : {"auto", "readout", "free"}
        Of fits of all neurons together, see `mlpoly.methods.Joint`. "auto" is what does better on the tokens held out
        while there are up to 4096 free coefficients, otherwise, and under a mixture, "readout".
    batches, held_out : iterable, optional
        Batches of tokens, as `collect` takes them, for "samples"; others to measure the error on, in the intact model.
    shrinkage : float or "oas"
        Shrinkage of the covariances, see `mlpoly.Gaussian.from_samples`.
    closed_form : bool
        Whether to compute the error without samples too. Its cost grows with the square of the hidden units.

    Examples
    --------
    >>> import torch
    >>> from mlpoly.lm import collect, convert
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp)
    >>> ids = torch.arange(10).reshape(2, 5)
    >>> convert(model, collect(model, [ids]), degree=3, held_out=[ids])
    Conversion(1 block, degree=3, gaussian)
    """
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(map(repr, get_args(Method)))}, got {method!r}.")
    if batches is None and method == "samples":
        raise ValueError("method='samples' needs data: pass batches=, such as those of the moments.")
    bound = bound if bound in (None, "auto") else check_bound(bound)
    if not isinstance(moments, Moments):
        raise TypeError(f"moments must be Moments, got {type(moments).__name__}; make them with mlpoly.lm.collect.")
    chosen = [block for block in find_blocks(model, blocks) if blocks is not None or block.name in moments.names]
    missing = [block.name for block in chosen if block.name not in moments.names]
    if missing or not chosen:
        wanted = repr(missing[0]) if missing else f"any block of {type(model).__name__}"
        raise ValueError(f"no moments of {wanted}, only of {listed(moments.names)}; collect them with blocks=.")
    options = {"method": method, "degree": degree, "bound": bound, "shrinkage": shrinkage}
    if any(other != [options, moments.names] for other in exchange([options, moments.names])):
        raise ValueError("the processes were given different arguments for convert; give all of them the same.")

    def closed(block: Block, bound: Any = bound) -> Any:
        net = block.net()
        inputs = moments.mixture if method in ("neuronwise", "joint") else moments.gaussian
        under = inputs(block.name, shrinkage, net.prototype)
        start: Any = fit(net, under, degree, method="neuronwise" if method in ("neuronwise", "joint") else "exact")
        if bound is not None:
            start = fit_bounded(net, under, degree, bound, _TAILS)
        if method != "joint" or isinstance(under, Gaussian):
            return start
        return fit_mixture_joint(net, under, degree, "readout" if coefficients == "auto" else coefficients, start=start)

    def starts(block: Block) -> list[Any]:
        """Closed forms, of which the samples choose one; they decide on its lines too, or else the activation does."""
        best = closed(block, None)
        return [best] if bound is None else [best.bounded(b) for b in (BOUNDS if bound == "auto" else (bound,))]

    def plain(block: Block) -> Any:
        """The polynomial without lines: the best one of its degree, or what the samples say within the bound."""
        if block.name not in unbounded:
            poly = found[block.name]
            if isinstance(poly, BoundedPolynomial):
                poly = poly.polynomial if method == "samples" else closed(block, None)
            unbounded[block.name] = poly
        return unbounded[block.name]

    about = describe_model(model) | {"moments": moments.provenance, "versions": versions()} | options
    about |= {"batches": None, "held_out": None}
    found: dict[str, Polynomial] = {}
    unbounded: dict[str, Polynomial] = {}
    errors: dict[str, dict[str, Any]] = {block.name: {} for block in chosen}
    passes, samples = [[block.name for block in chosen]], dict[str, TokenFit]()
    if method == "samples":
        assert batches is not None
        samples |= {block.name: TokenFit(block.net(), starts(block), coefficients) for block in chosen}
        batches = list(batches) if isinstance(batches, Iterator) else batches  # they are read twice
        read = visit(model, chosen, batches, lambda block, x, _: samples[block.name].add(x))
        about["batches"] = {"data": read.fingerprint, "tokens": read.tokens}
        passes = []  # several where the sums of all blocks do not fit into memory
        for name, fit_of in samples.items():
            if not passes or fit_of.numbers + sum(samples[other].numbers for other in passes[-1]) > _SUMS:
                passes.append([])
            passes[-1].append(name)
    with progress_bar("convert", len(chosen)) as bar:
        for names in passes:
            some = [block for block in chosen if block.name in names]
            if samples:
                for block in some:
                    samples[block.name].settle()
                visit(model, some, batches or (), lambda block, x, _: samples[block.name].add_together(x))
            for block in some:
                began = time.perf_counter()
                found[block.name] = samples.pop(block.name).polynomial() if samples else closed(block)
                errors[block.name]["seconds"] = time.perf_counter() - began
                bar(len(found), block.name)
    if held_out is not None:
        measured = {block.name: HeldOutErrors(block.net(), found[block.name], plain(block)) for block in chosen}
        read = visit(model, chosen, held_out, lambda block, x, _: measured[block.name].add(x))
        about["held_out"] = {"data": read.fingerprint, "tokens": read.tokens}
        for name, sums in measured.items():
            errors[name] |= sums.result()
    if closed_form:
        rank, size = world()
        for part in exchange({b.name: closed_form_error(b.net(), plain(b)) for b in chosen[rank::size]}):
            for name, error in part.items():
                errors[name]["closed_form"] = error
    records = {name: BlockErrors(name, found[name].degree, **measures) for name, measures in errors.items()}
    return Conversion(found, records, about, unbounded)


class TokenFit:
    """The polynomial of a block, fitted to the tokens that enter it, in two passes over them (MATH 13).

    First every neuron by itself, with the best of several bounds; then all neurons together.
    """

    def __init__(self, net: Layer, starts: Sequence[Any], coefficients: Coefficients) -> None:
        self._net, self._each = net, [SampleFit[Any](net, start) for start in starts]
        self._coefficients, self._random = coefficients, np.random.default_rng(0)
        widths = [1 + features.each.dim_out + net.dim_out for features in features_of(starts[0], coefficients)]
        self.numbers = 2 * sum(width**2 for width in widths)  # that the second pass holds
        self._rows = max(1, _NUMBERS // max(widths))

    def add(self, x: Tensor) -> None:
        """First pass: take inputs (n, d)."""
        for each in self._each:
            each.update(x)

    def settle(self) -> None:
        """Fit every neuron by itself, and prepare the second pass."""
        self._own, self._held, self._each = best_of(self._each).polynomial(), 0, []
        start = replace(self._own, inputs=None)
        self._together = [JointFit(self._net, features) for features in features_of(start, self._coefficients)]

    def add_together(self, x: Tensor) -> None:
        """Second pass: take inputs (n, d)."""
        held = torch.from_numpy(self._random.random(len(x)) < 1 / _HELD).to(x.device)
        self._held += int(held.sum())
        for which in (False, True):
            for rows in x[held == which].to(self._net.prototype.dtype).split(self._rows):
                for each in self._together:
                    each.add(rows, torch.ones_like(rows[:, :1], dtype=torch.float64), which)

    def polynomial(self) -> Polynomial:
        """Return what does best on the tokens held out, fitted to all of them."""
        own: Polynomial = self._own
        if not own.degree or self._held < _LEAST:
            return own
        best = min((each.choose() for each in self._together), key=lambda choice: choice.error)
        if not best.error < best.before:
            return own
        found: Polynomial = replace(best.polynomial(best.everything(), best.shrinkage), inputs=own.inputs)
        return found
