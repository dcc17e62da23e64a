"""The cost of replacing blocks of a model: cross-entropy, and distance of its outputs from the model's own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.charts.chart import Part, Ranking
from mlpoly.importers.torch import PolynomialModule
from mlpoly.lm.evaluation.baselines import BASELINES, Baseline, baseline_modules
from mlpoly.lm.model.graft import as_modules, replaced, replacements, standing
from mlpoly.lm.model.running import Runner, evaluating
from mlpoly.lm.text.batches import Batch, Reader, check_batches
from mlpoly.progress_bars import progress_bar
from mlpoly.scores.classifiers import cross_entropies, divergences
from mlpoly.tables import Plottable, Table, Tabular


@dataclass(frozen=True)
class Loss:
    """Loss of the model with some of its blocks replaced."""

    replaced: str  # "none", "all" (all that were given), or the name of the only block
    by: str  # "" for the model as it is, "polynomial", or a baseline; in a study, "unbounded" for one without its bound
    degree: int  # highest of the polynomials; 0 where there are none
    cross_entropy: float  # mean per prediction, in nats; NaN where it is not known what is to be predicted
    kl: float  # mean KL(model || model with the replacement) of the predictions, in nats; NaN where there are none
    cosine: float | None = None  # of a model without predictions: mean cosine of its hidden states with the model's own


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular, Plottable):
    """Losses of one model on the same data, that of the model as it is first."""

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
        """Return one row per replacement, with the change of the cross-entropy, as far as these are known."""
        rows = [asdict(row) | {"change": row.cross_entropy - self.original} for row in self.rows]
        return [{name: v for name, v in row.items() if v is not None and v == v} for row in rows]

    def _table(self) -> Table:
        return Table.of(self.table())

    def chart(self) -> Ranking:  # type: ignore[override]
        """Bars of the increase of the cross-entropy by each replacement."""
        title, unit = f"Increase of the cross-entropy over {self.original:.3f} nats", "nats per token"
        costs = [row.cross_entropy - self.original for row in self.rows[1:]]
        if self.original != self.original:  # NaN
            title, unit, costs = "Divergence from the model", "nats", [row.kl for row in self.rows[1:]]
        if self.rows[0].cosine is not None:
            title, unit = "Hidden states: 1 \N{MINUS SIGN} cosine with the model's own", ""
            costs = [1.0 - (row.cosine or 0.0) for row in self.rows[1:]]
        parts = []
        for row, cost in zip(self.rows[1:], costs, strict=True):
            parts.append(Part(f"{row.replaced}: {row.by}", cost, f"{cost:+.3g}".replace("-", "\N{MINUS SIGN}")))
        return Ranking(parts, title, title, unit)

    def __repr__(self) -> str:
        loss = f", cross-entropy {self.original:.4f}" if self.original == self.original else ""
        return f"Evaluation({len(self.rows)} rows, {self.tokens} tokens{loss})"


def evaluate(
    model: nn.Module,
    polys: Any,
    batches: Iterable[Any],
    *,
    baselines: Sequence[Baseline] = BASELINES,
    calibration: Iterable[Any] | None = None,
    each: bool = False,
    others: Mapping[str, Any] | None = None,
    next_token: bool = True,
) -> Evaluation:
    """Measure what it costs to replace the blocks of a model, beside three simpler replacements.

    Language models are measured by the cross-entropy and the divergence of their predictions, classifiers by the
    divergence, and by the cross-entropy where a batch has "labels" (b,); models without a head by the mean cosine of
    their last hidden states with those of the model as it is.

    Parameters
    ----------
    model : nn.Module
        Model whose output is logits, (b, t, v) or (b, v), as they are or as ``.logits``, or ``.last_hidden_state``.
    polys : Conversion, or mapping of str to Polynomial or nn.Module
        Replacements of the blocks, see `graft`.
    batches : iterable
        Batches, as `collect` takes them. Padding is neither a prediction nor a target. An encoder-decoder predicts the
        next of its "decoder_input_ids", or the "labels" at the same positions.
    baselines : sequence of {"removed", "mean", "linear"}
        Simpler replacements: zero, the mean output of each block, and the affine map closest to it.
    calibration : iterable, optional
        Batches to estimate means and affine maps from. By default `batches`, which flatters those two.
    each : bool
        Whether to replace each block alone as well, by its polynomial.
    others : mapping from str to Conversion or mapping, optional
        More replacements to compare with, by a name for each.
    next_token : bool
        Whether predictions are of the next token, as in a causal model. Otherwise they are of the batch's "labels" at
        the same positions, where these are not -100.

    Examples
    --------
    >>> import torch
    >>> from mlpoly.lm import collect, convert, evaluate
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 10))
    >>> model, ids = torch.nn.Sequential(torch.nn.Embedding(10, 4), mlp), torch.arange(10).reshape(2, 5)
    >>> found = evaluate(model, convert(model, collect(model, [ids]), degree=5), [ids])
    >>> found.loss().kl < found.loss(by="linear").kl
    True
    """
    unknown = [name for name in baselines if name not in BASELINES]
    if unknown:
        raise ValueError(f"baselines must be among {', '.join(map(repr, BASELINES))}, got {unknown[0]!r}.")
    check_batches(batches)
    given = list(batches)  # they are read more than once
    modules = as_modules(polys)
    variants: dict[tuple[str, str], Mapping[str, nn.Module]] = {("none", ""): {}, ("all", "polynomial"): modules}
    simple = baseline_modules(model, modules, given if calibration is None else calibration, baselines)
    variants |= {("all", name): replacing for name, replacing in simple.items()}
    variants |= {("all", name): as_modules(replacing) for name, replacing in (others or {}).items()}
    if each:
        variants |= {(name, "polynomial"): {name: module} for name, module in modules.items()}
    blocks = standing(model, {name for replacing in variants.values() for name in replacing})
    pairs = {key: replacements(blocks, replacing) for key, replacing in variants.items()}
    sums = {key: [0.0, 0.0, 0.0] for key in variants}  # cross-entropies, divergences and cosines
    tokens = done = targeted = 0
    run = Runner(model)
    with evaluating(model), progress_bar("evaluate", len(given) * len(variants)) as bar:
        for batch in Reader(given):  # all variants on it before the next, so that only two sets of logits are held
            labels = given[batch.number].get("labels") if isinstance(given[batch.number], Mapping) else None
            base: Tensor | None = None
            for key in variants:
                with replaced(model, pairs[key]):
                    out = run(batch)
                found, targets, hidden = _compared(model, out, batch, labels, next_token)
                base = found if base is None else base
                if hidden:
                    cosines = nn.functional.cosine_similarity(base.double(), found.double(), dim=1)
                    sums[key][2] += len(found) if found is base else float(cosines.sum())
                else:
                    sums[key][1] += 0.0 if found is base else float(divergences(base, found).sum())
                if targets is not None:
                    sums[key][0] += float(cross_entropies(found, targets.to(found.device)).sum())
                done += 1
                bar(done, " ".join(key))
            tokens += len(found)
            targeted += 0 if targets is None else len(targets)
    if not tokens:
        raise ValueError("batches hold nothing to predict: sequences of two tokens are needed at least, or labels.")
    rows = []
    for key, (loss, kl, cosine) in sums.items():
        degrees = [made.polynomial.degree for made in variants[key].values() if isinstance(made, PolynomialModule)]
        entropy = loss / targeted if targeted else nan
        measures = (nan, nan, cosine / tokens) if hidden else (entropy, kl / tokens, None)
        rows.append(Loss(*key, max(degrees, default=0), *measures))
    return Evaluation(tuple(rows), tokens)


def _compared(
    model: nn.Module, out: Any, batch: Batch, labels: Any, next_token: bool
) -> tuple[Tensor, Tensor | None, bool]:
    """The rows (n, v) of an output that count, their targets (n,) if known, and whether they are hidden states."""
    hidden = not isinstance(out, Tensor) and getattr(out, "logits", None) is None
    value = out if isinstance(out, Tensor) else getattr(out, "last_hidden_state" if hidden else "logits", None)
    if isinstance(value, Tensor) and value.ndim == 2 and len(value) == batch.shape[0] and value.shape[1] > 1:
        classes = None if labels is None else torch.as_tensor(labels)
        known = classes is not None and classes.ndim == 1 and not classes.is_floating_point()
        return value, classes if known else None, hidden
    part = batch if batch.decoder is None else batch.decoder
    if isinstance(value, Tensor) and value.ndim == 3:
        part = part.laid_out(len(value) * value.shape[1])
    if not isinstance(value, Tensor) or value.ndim != 3 or value.shape[:2] != part.shape:
        raise TypeError(
            f"{type(model).__name__} gave {type(out).__name__}, not logits (b, t, v), logits (b, v) of two classes at "
            f"least, or last_hidden_state (b, t, d) for the {batch.shape[0]} samples of batch {batch.number}; pass a "
            f"model with a head, such as AutoModelForCausalLM loads, or one without."
        )
    places, targets = part.kept, None
    if part.of_tokens and not hidden:
        ids = part.inputs["input_ids" if batch.decoder is None else "decoder_input_ids"]
        attended = torch.zeros(part.shape, dtype=torch.bool)
        attended.view(-1)[part.kept] = True
        ids = ids.cpu() if labels is None else torch.as_tensor(labels).cpu().long()
        counted = attended & (ids != -100)
        # Labels of an encoder-decoder stand at the positions of their predictions.
        if next_token and (batch.decoder is None or labels is None):
            counted = torch.cat([counted[:, 1:] & attended[:, :-1], torch.zeros_like(counted[:, :1])], 1)
            ids = ids.roll(-1, 1)
        places = counted.flatten().nonzero().squeeze(1)
        targets = ids.flatten()[places]
        if len(targets) and int(targets.max()) >= value.shape[2]:
            raise ValueError(
                f"the targets of batch {batch.number} go up to {int(targets.max())}, but {type(model).__name__} has "
                f"{value.shape[2]} classes; pass its classes as 'labels', with next_token=False."
            )
    return value.flatten(0, 1)[places.to(value.device)], targets, hidden
