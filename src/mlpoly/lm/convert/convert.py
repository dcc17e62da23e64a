"""All feedforward blocks of a language model into polynomials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from mlpoly.integrations.blocks import Block
from mlpoly.lm.convert.conversion import Conversion, Quality
from mlpoly.lm.convert.fitters import Fitter, Method, Task, check_method
from mlpoly.lm.convert.quality import judge
from mlpoly.lm.convert.sharing import share_polynomials, share_quality
from mlpoly.lm.distributed import check_agreement, exchange, share, together, world
from mlpoly.lm.model.identity import describe_model, versions
from mlpoly.lm.model.visit import chosen_blocks, visit
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.text.batches import Reader
from mlpoly.polynomials import Polynomial
from mlpoly.polynomials.bounded import check_bound
from mlpoly.progress import progress

__all__ = ["convert"]


def convert(
    model: nn.Module,
    moments: Moments,
    degree: int = 3,
    layers: str | Sequence[str] | None = None,
    *,
    method: Method = "gaussian",
    bound: float | None = None,
    batches: Iterable[Any] | None = None,
    held_out: Iterable[Any] | None = None,
    shrinkage: float | str = 0.0,
    closed_form: bool = True,
    show_progress: bool = True,
) -> Conversion:
    """Polynomials of a given degree for the feedforward blocks of a language model.

    With moments alone everything is closed form. Real activations have heavier tails than a Gaussian, though, and a
    polynomial explodes there: with ``bound=3.0`` the neurons go on as straight lines instead. ``method="samples"`` fits
    each neuron to the inputs that it has in `batches`.

    Under torchrun (see `initialise`) every process must be given the same arguments. Each fits and judges its share of
    the blocks, and all return the whole.

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
        inputs in `batches`, for each neuron by itself; one pass over them, see `mlpoly.fitting.sample_fit.SampleFit`.
    bound : float, optional
        Go on linearly where a preactivation is more than so many standard deviations from its mean: outside of the
        data a polynomial grows without end, and what it gives is another block's input. With a bound the function is a
        *piecewise* polynomial. "samples" fits polynomials and lines together; the other methods fit as if there were
        no bound, and then draw lines along the activation, see `RidgePolynomial.bounded`.
    batches : iterable, optional
        Batches of tokens, as `collect` takes them; for "samples".
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
    >>> from mlpoly.lm import collect
    >>> from mlpoly.lm import convert
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp)
    >>> ids = torch.arange(10).reshape(2, 5)
    >>> convert(model, collect(model, [ids]), degree=3, held_out=[ids])
    Conversion(1 block, degree=3, gaussian)
    """
    check_method(method)
    if batches is None and method == "samples":
        raise ValueError(
            "method='samples' needs data: pass batches=, such as those that the moments were collected from."
        )
    bound = None if bound is None else check_bound(bound)
    if not isinstance(moments, Moments):
        raise TypeError(f"moments must be Moments, got {type(moments).__name__}; make them with mlpoly.lm.collect.")
    blocks = [block for block in chosen_blocks(model, layers) if layers is not None or block.name in moments.names]
    missing = [block.name for block in blocks if block.name not in moments.names]
    if missing or not blocks:
        shown = ", ".join(moments.names if len(moments.names) <= 8 else [*moments.names[:7], "..."])
        wanted = repr(missing[0]) if missing else f"any block of {type(model).__name__}"
        raise ValueError(f"there are no moments of {wanted}, only of {shown}; collect them with hookpoints=.")
    fitter = Fitter(moments, degree, method, bound, shrinkage)
    own = share(blocks)
    check_agreement("convert", fitter.describe() | {"blocks": [block.name for block in blocks]})
    with together():
        with progress("convert", len(own), show_progress) as bar:
            found, seconds, read = _fit(model, fitter, own, batches, bar)
        errors, judged = judge(model, own, found, held_out, closed_form)
    quality = {name: Quality(*errors[name], seconds=seconds[name]) for name in found}
    about = describe_model(model) | {"moments": moments.provenance, "versions": versions()} | fitter.describe()
    about |= {"batches": read, "held_out": judged}
    if world().size > 1:
        found = share_polynomials(found, blocks, fitter)
        quality, about = share_quality(quality, blocks), exchange(about)[0]
    return Conversion(found, quality, about)


def _fit(
    model: nn.Module,
    fitter: Fitter,
    blocks: Sequence[Block],
    batches: Iterable[Any] | None,
    bar: Callable[[int, str], None],
) -> tuple[dict[str, Polynomial], dict[str, float], dict[str, Any] | None]:
    """Polynomials of the blocks, the seconds that they took, and which batches were read for them."""
    tasks: dict[str, Task] = {}
    done: dict[str, Polynomial] = {}
    seconds: dict[str, float] = {}
    read: Reader | None = None
    if fitter.method == "samples" and blocks:
        assert batches is not None
        tasks = {block.name: fitter.task(block) for block in blocks}
        read = visit(model, blocks, batches, lambda block, x, _: tasks[block.name].add(x), stop=True)
    for number, block in enumerate(blocks):
        task = tasks.pop(block.name, None) or fitter.task(block)
        began = time.perf_counter()
        done[block.name] = task.polynomial()
        seconds[block.name] = time.perf_counter() - began
        bar(number + 1, block.name)
    return done, seconds, None if read is None else {"data": read.fingerprint, "tokens": read.tokens}
