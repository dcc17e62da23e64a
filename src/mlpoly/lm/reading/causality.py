"""Do features do what is said of them? Predicted changes of a block and of the logits against those of the model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.arrays import as_integer
from mlpoly.importers.blocks import Block
from mlpoly.importers.experts import is_expert
from mlpoly.lm.model.running import Runner, check_reached, evaluating, hooked
from mlpoly.lm.model.tracing import NO_PATH, FrozenNorm, Trace, head_of, trace, unembedding
from mlpoly.lm.reading.attribution import polynomials_of
from mlpoly.lm.reading.block_features import logit_directions
from mlpoly.lm.reading.feature_set import FeatureSet, as_sets, blocks_of
from mlpoly.lm.reading.steering import steered
from mlpoly.lm.text.batches import Batch, Reader
from mlpoly.progress_bars import progress_bar
from mlpoly.tables import TableList

_ROWS = 16384  # rows of the unembedding that are worked on at once


@dataclass(frozen=True)
class CausalScore:
    """Predicted against measured changes when a feature is removed.

    Correlations and slopes (measured over predicted) are about zero, and weight tokens by the squares of their changes.
    A score is None for forms and neurons where they are changed in the block's output: it then is as predicted.
    """

    correlation: float  # of the changes of the logits, feature removed
    slope: float
    tokens: int
    direct_correlation: float | None = None  # logits, where what the feature writes is taken out of the block's output
    direct_slope: float | None = None
    block_correlation: float | None = None  # of the changes of the block's own output, feature removed
    block_slope: float | None = None
    square_correlation: float | None = None  # of that part of the block's change which is even in the feature's value
    square_slope: float | None = None
    polynomial_block_correlation: float | None = None  # the block's output, predicted by the whole polynomial
    polynomial_block_slope: float | None = None
    block: str = ""
    feature: str = ""

    def row(self) -> dict[str, Any]:
        """The scores in a line, for a table."""
        kinds = ("direct", "block", "square", "polynomial_block")
        names = ["correlation", "slope", *(f"{k}_correlation" for k in kinds)]
        return {"block": self.block, "feature": self.feature} | {name: getattr(self, name) for name in names}


class CausalScores(TableList):
    """A list of `CausalScore`, which prints as a table."""


def check_features(
    model: nn.Module,
    features: FeatureSet | Sequence[FeatureSet],
    batches: Iterable[Any],
    *,
    polys: Any = None,
    tokens: int = 2048,
    wiring: Trace | None = None,
) -> CausalScores:
    """Compare what should happen when a feature is removed with what does happen in the model.

    The model runs with each feature removed by `steer`, at all tokens at once. Two changes are predicted: of the
    block's output, the change of the feature's amount times what it writes; and of the logits less their mean, by the
    direct path alone. What later blocks make of the change is measured but not predicted, so that less than 1 is to be
    expected in early blocks. By itself the direct path is checked where what the feature writes is taken out of the
    block's output.

    Moving the input along a direction also changes what is odd in the feature's value z. So its square is compared with
    the even part of the block, (f(z) + f(-z)) / 2 - f(0), and with `polys` the change of the whole polynomial as well.

    Parameters
    ----------
    model, features, batches
        The language model, best in float32; a FeatureSet of it, or several; and batches, as `collect` takes them.
    polys : Conversion or mapping, optional
        Polynomials of the blocks by name, for the scores of whole polynomials.
    tokens : int
        Number of tokens after which to stop. The model runs on them once or twice for every feature.
    wiring : Trace, optional
        ``trace(model, [0])``, to save a run of the model.
    """
    sets = as_sets(features)
    blocks = blocks_of(model, sets)
    experts = [name for name in blocks if is_expert(name)]
    if experts:
        raise ValueError(f"features has some of {experts[0]!r}; experts, which see some tokens, cannot be checked yet.")
    known = {} if polys is None else polynomials_of(polys)
    missing = [name for name in blocks if polys is not None and name not in known]
    if missing:
        raise ValueError(f"polys has no polynomial of {missing[0]!r}, whose features are checked; add it.")
    read = []
    for batch in Reader(batches, as_integer("tokens", tokens, 1)):
        b = int(batch.kept[-1]) // batch.shape[1] + 1  # the sequences behind the last token that counts need not run
        inputs = {name: v[:b] if v.shape[:1] == batch.shape[:1] else v for name, v in batch.inputs.items()}
        read.append(replace(batch, inputs=inputs, shape=(b, batch.shape[1])))
    count = sum(len(batch.kept) for batch in read)
    check_reached(count, ())
    wiring = trace(model, [0]) if wiring is None else wiring
    if wiring.final is None:
        raise ValueError(f"{type(model).__name__}: {NO_PATH} to predict their changes by.")
    final = wiring.final.module
    norms = {name: norm.module for name in blocks if (norm := wiring.after[name]) is not None}
    watched = [final, *norms.values(), head_of(model), *(m for b in blocks.values() for m in (b.entry, b.exit))]
    multiplier = float(getattr(model.config, "residual_multiplier", None) or 1.0)
    paths = {name: _DirectPath.of(model, name, wiring) for name in blocks}
    sums: list[dict[str, Any]] = [{} for features in sets for _ in features.names]
    run, total, done = Runner(model), len(read) * len(sums), 0
    with evaluating(model), progress_bar("check", total) as bar:
        for batch in read:
            base, number = _observed(run, batch, watched), 0
            for features in sets:
                name = features.block
                poly = known[name].to(blocks[name].net().prototype) if known else None
                rates = multiplier * FrozenNorm.of(final, *base[final]).rates
                if name in norms:
                    rates = rates * FrozenNorm.of(norms[name], *base[norms[name]]).rates.to(rates.device)
                for r in range(len(features)):
                    one = features[r].to(base[blocks[name].entry][0].device)
                    for key, new in _compared(model, run, batch, base, one, blocks[name], poly, paths[name], rates):
                        sums[number][key] = sums[number].get(key, 0.0) + new
                    number, done = number + 1, done + 1
                    bar(done, f"{name} {features.names[r]}")
    scores, places = CausalScores(), [(features.block, name) for features in sets for name in features.names]
    for (name, feature), products in zip(places, sums, strict=True):
        fields: dict[str, Any] = {"tokens": count, "block": name, "feature": feature}
        for key, (both, predicted, measured) in ({"direct": products["removed"]} | products).items():
            start = "" if key == "removed" else f"{key}_"
            # A feature that predicts nothing, or changes nothing, has neither (NaN).
            fields[f"{start}correlation"] = float(both / (predicted * measured).sqrt())
            fields[f"{start}slope"] = float(both / predicted)
        scores.append(CausalScore(**fields))
    return scores


def _compared(
    model: nn.Module,
    run: Runner,
    batch: Batch,
    base: dict[nn.Module, tuple[Tensor, Tensor]],
    one: FeatureSet,
    block: Block,
    poly: Any,
    path: "_DirectPath",
    rates: Tensor,
) -> Iterator[tuple[str, Tensor]]:
    """Name and products (3,) of each comparison of predicted and measured changes for one feature on a batch.

    `base` has what the model does as it is, and `rates` (n,) are the factors of the norms on the direct path.
    """
    x, y, head = base[block.entry][0], base[block.exit][1], head_of(model)
    ways = {"removed": one}
    if one.directions is not None:
        net, z = block.net(), one.values(x)
        here, step = x.to(net.prototype), (z * one.directions).to(net.prototype)
        even = (net(here) + net(here - 2 * step)) / 2 - net(here - step)
        yield "square", _products(z**2 * one.writes, even)
        # Features that are their own amounts are changed in the output, see `steer`.
        ways["direct"] = replace(one, functionals=None, directions=None, reader=one.amounts)
    for way, feature in ways.items():
        with steered(model, block, feature, 0.0):
            now = _observed(run, batch, [block.entry, block.exit, head])
        z = feature.values(x)
        change = (feature.amounts_of(0.0 * z) - feature.amounts_of(z)) * feature.writes
        yield way, path.products(change, now[head][1] - base[head][1], rates)
        if way == "removed" and one.squares:
            yield "block", _products(change, now[block.exit][1] - y)
            if poly is not None:
                predicted = poly(now[block.entry][0].to(poly.prototype)) - poly(x.to(poly.prototype))
                yield "polynomial_block", _products(predicted, now[block.exit][1] - y)


def _observed(run: Runner, batch: Batch, modules: Sequence[nn.Module]) -> dict[nn.Module, tuple[Tensor, Tensor]]:
    """Run a model on a batch; inputs and outputs (n, ...) of modules at the n tokens that count."""
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def rows(value: Tensor) -> Tensor:
        flat = value.detach().reshape(-1, value.shape[-1])
        if len(flat) != batch.shape[0] * batch.shape[1]:
            raise ValueError(
                f"a module saw {len(flat)} rows of batch {batch.number}, not one for each of its tokens {batch.shape}; "
                f"choose features of other blocks."
            )
        return flat[batch.on(flat.device)[0]]

    def keep(module: nn.Module, x: Tensor | None, result: Any) -> None:
        y = result[0] if isinstance(result, tuple) else result
        if x is not None:
            seen[module] = rows(x), rows(y)

    with hooked(after=[(module, partial(keep, module)) for module in dict.fromkeys(modules)]):
        run(batch)
    return seen


def _products(predicted: Tensor, measured: Tensor) -> Tensor:
    """Products (3,) of changes (n, m): predicted with measured, each with itself."""
    p, m = predicted.double(), measured.double()
    return torch.stack([(p * m).sum(), (p * p).sum(), (m * m).sum()]).cpu()


@dataclass(frozen=True, eq=False)
class _DirectPath:
    """The way from a block's output to the logits less their mean, up to the divisors of norms."""

    directions: Tensor  # (vocabulary, o)
    gram: Tensor  # (o, o) their products, so that no predicted logits are ever laid out

    @classmethod
    def of(cls, model: nn.Module, block: str, wiring: Trace) -> "_DirectPath":
        weight = unembedding(model)
        dtype = torch.promote_types(weight.dtype, torch.float32)
        rows = torch.cat([logit_directions(model, block, part, wiring).to(dtype) for part in weight.split(_ROWS)])
        rows -= rows.mean(0)
        return cls(rows, sum(part.double().T @ part.double() for part in rows.split(_ROWS)))

    def products(self, change: Tensor, logits: Tensor, rates: Tensor) -> Tensor:
        """As `_products`, for a predicted change (n, o) of the block's output and measured ones (n, v) of logits."""
        measured = logits.to(self.directions)
        measured = measured - measured.mean(1, keepdim=True)
        along = (measured @ self.directions).double()
        predicted = rates[:, None].to(along) * change.to(along)
        power = (measured * measured).sum(1).double().sum()
        return torch.stack([(predicted * along).sum(), ((predicted @ self.gram) * predicted).sum(), power]).cpu()
