"""The cost of replacing blocks of a language model: cross-entropy, and divergence from the model itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.integrations.torch import PolynomialModule
from mlpoly.lm.evaluate.baselines import BASELINES, Baseline, baseline_modules
from mlpoly.lm.model.graft import as_modules, graft
from mlpoly.lm.model.running import Runner, evaluating
from mlpoly.lm.text.batches import Batch, Reader
from mlpoly.measures.outputs import cross_entropies, divergences
from mlpoly.progress import progress
from mlpoly.tables import Table, Tabular

__all__ = ["Evaluation", "Loss", "evaluate"]


@dataclass(frozen=True)
class Loss:
    """Loss of the model with some of its blocks replaced."""

    replaced: str  # "none", "all" (all that were given), or the name of the only block
    by: str  # "" for the model as it is, "polynomial", or a baseline; in a study, "unbounded" for one without its bound
    degree: int  # highest of the polynomials; 0 where there are none
    cross_entropy: float  # mean per predicted token, in nats
    kl: float  # mean KL(model || model with the replacement) of the predictions, in nats


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """Losses of one model on the same tokens.

    Attributes
    ----------
    rows : tuple of Loss
        Losses, that of the model as it is first.
    tokens : int
        Number of predictions that the means are over.
    """

    rows: tuple[Loss, ...]
    tokens: int

    def loss(self, replaced: str = "all", by: str = "polynomial") -> Loss:
        """Return one of the rows."""
        for row in self.rows:
            if (row.replaced, row.by) == (replaced, by):
                return row
        known = ", ".join(str((row.replaced, row.by)) for row in self.rows[:12])
        raise KeyError(f"no row {(replaced, by)}; there are {known}")

    @property
    def original(self) -> float:
        """Cross-entropy of the model as it is."""
        return self.rows[0].cross_entropy

    @property
    def increase(self) -> float:
        """Increase of the cross-entropy with all polynomials in place."""
        return self.loss().cross_entropy - self.original

    def table(self) -> list[dict[str, Any]]:
        """Return one row per replacement, with the change of the cross-entropy."""
        return [asdict(row) | {"change": row.cross_entropy - self.original} for row in self.rows]

    def _table(self) -> Table:
        return Table.of(self.table())

    def plot(self, ax: Any = None) -> Any:
        """Bars of the increase of the cross-entropy by each replacement."""
        from mlpoly.plots.chart import Part, Ranking
        from mlpoly.plots.draw import show  # needs matplotlib

        title = f"Increase of the cross-entropy over {self.original:.3f} nats"
        parts = []
        for row in self.rows[1:]:
            change = row.cross_entropy - self.original
            parts.append(Part(f"{row.replaced}: {row.by}", change, f"{change:+.3g}".replace("-", "\N{MINUS SIGN}")))
        return show(Ranking(parts, title, title, "nats per token"), ax)

    def __repr__(self) -> str:
        return f"Evaluation({len(self.rows)} rows, {self.tokens} tokens, cross-entropy {self.original:.4f})"


def evaluate(
    model: nn.Module,
    polys: Any,
    batches: Iterable[Any],
    *,
    baselines: Sequence[Baseline] = BASELINES,
    calibration: Iterable[Any] | None = None,
    each: bool = False,
    next_token: bool = True,
    show_progress: bool = True,
) -> Evaluation:
    """Measure cross-entropy and divergence of a model with its blocks replaced, beside three simpler replacements.

    Parameters
    ----------
    model : nn.Module
        Model whose output is logits (b, t, v), as they are or as ``.logits``.
    polys : Conversion, or mapping of str to Polynomial or nn.Module
        Replacements of the blocks, see `graft`.
    batches : iterable
        Batches of tokens, as `collect` takes them. Padding is neither a prediction nor a target.
    baselines : sequence of {"removed", "mean", "linear"}
        Simpler replacements of the same blocks: zero, their mean output, and the affine map of their input that is
        closest to them on `calibration`.
    calibration : iterable, optional
        Batches to estimate means and affine maps from. By default `batches`, which flatters those two.
    each : bool
        Whether to replace each block alone as well, by its polynomial.
    next_token : bool
        Whether predictions are of the next token, as in a causal model. Otherwise they are of the token at their own
        position, as in a masked one; the targets are then the batch's "labels", where these are not -100.
    show_progress : bool
        Whether long work on a terminal draws a progress bar.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import torch
    >>> from mlpoly.lm import collect, convert, evaluate
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 10))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp)
    >>> ids = torch.arange(10).reshape(2, 5)
    >>> found = evaluate(model, convert(model, collect(model, [ids]), degree=5), [ids])
    >>> [row.by for row in found.rows]
    ['', 'polynomial', 'removed', 'mean', 'linear']
    >>> found.loss().kl < found.loss(by="linear").kl
    True
    """
    unknown = [name for name in baselines if name not in BASELINES]
    if unknown:
        raise ValueError(f"baselines must be among {', '.join(map(repr, BASELINES))}, got {unknown[0]!r}.")
    Reader(batches)  # raises TypeError for a single batch, which is an iterable too
    given = list(batches)  # they are read more than once
    modules = as_modules(polys)
    variants: dict[tuple[str, str], Mapping[str, nn.Module]] = {("none", ""): {}, ("all", "polynomial"): modules}
    others = baseline_modules(model, modules, given if calibration is None else calibration, baselines)
    variants |= {("all", name): made for name, made in others.items()}
    if each:
        variants |= {(name, "polynomial"): {name: module} for name, module in modules.items()}
    sums = {key: [0.0, 0.0] for key in variants}  # cross-entropies and divergences
    tokens = done = 0
    run = Runner(model)
    with evaluating(model), progress("evaluate", len(given) * len(variants), show_progress) as bar:
        for batch in Reader(given):  # all variants on it before the next, so that only two sets of logits are held
            places, targets = _targets(batch, given[batch.number], next_token)
            base: Tensor | None = None
            for key, replaced in variants.items():
                with graft(model, replaced):
                    out = run(batch)
                logits = getattr(out, "logits", out)
                if not isinstance(logits, Tensor) or logits.shape[:2] != batch.shape or logits.ndim != 3:
                    raise TypeError(
                        f"{type(model).__name__} gave {type(out).__name__}, not logits (b, t, v) for {batch.shape} "
                        f"tokens of batch {batch.number}; pass a model with its language-model head, such as "
                        f"AutoModelForCausalLM loads."
                    )
                found = logits.flatten(0, 1)[places.to(logits.device)]
                base = found if base is None else base
                sums[key][0] += float(cross_entropies(found, targets.to(found.device)).sum())
                sums[key][1] += 0.0 if found is base else float(divergences(base, found).sum())
                done += 1
                bar(done, " ".join(key))
            tokens += targets.shape[0]
    if not tokens:
        raise ValueError("batches hold nothing to predict: sequences of two tokens are needed at least, or labels.")
    rows = []
    for key, (entropy, kl) in sums.items():
        degrees = [made.polynomial.degree for made in variants[key].values() if isinstance(made, PolynomialModule)]
        rows.append(Loss(*key, max(degrees, default=0), entropy / tokens, kl / tokens))
    return Evaluation(tuple(rows), tokens)


def _targets(batch: Batch, given: Any, next_token: bool) -> tuple[Tensor, Tensor]:
    """Return the rows of the logits (b t, v) that predict something, and the tokens that they should predict."""
    attended = torch.zeros(batch.shape, dtype=torch.bool)
    attended.view(-1)[batch.kept] = True
    labels = given.get("labels") if isinstance(given, Mapping) else None
    ids = batch.inputs["input_ids"].cpu() if labels is None else torch.as_tensor(labels).cpu().long()
    counted = attended & (ids != -100)
    if next_token:
        counted = torch.cat([counted[:, 1:] & attended[:, :-1], torch.zeros_like(counted[:, :1])], 1)
        ids = ids.roll(-1, 1)
    places = counted.flatten().nonzero().squeeze(1)
    return places, ids.flatten()[places]
