"""Do features do what is said of them? Predicted changes of a block and of the logits against those of the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.arrays import as_integer
from mlpoly.lm.model.running import Runner, check_reached, evaluating, hooked
from mlpoly.lm.model.tracing import FrozenNorm, Trace, trace, unembedding
from mlpoly.lm.reading.attribution import polynomials_of
from mlpoly.lm.reading.feature_set import FeatureSet, blocks_of, logit_directions
from mlpoly.lm.reading.steering import steer
from mlpoly.lm.text.batches import Batch, Reader
from mlpoly.progress import progress
from mlpoly.tables import TableList

__all__ = ["CausalScore", "CausalScores", "check_features"]

_FACTORS = {"removed": 0.0, "doubled": 2.0, "written": 0.0}
_STRONGEST = 8  # one over the fraction of tokens that count as those where a feature matters most
_ROWS = 16384  # rows of the unembedding that are worked on at once


@dataclass(frozen=True)
class CausalScore:
    """Predicted against measured changes when a feature is removed, and when it is doubled.

    Correlations and slopes (measured over predicted) are about zero, not about means: where no change is predicted,
    none should be measured. All tokens enter, with the weight of the squares of their changes. A score is None where
    it says nothing: forms and neurons are changed in the block's output, which then is as predicted by construction.
    """

    correlation: float  # of the changes of the logits, feature removed
    slope: float
    doubled_correlation: float
    doubled_slope: float
    tokens: int
    typical: float | None = None  # median over the eighth of the tokens with the largest predicted changes, removed
    direct_correlation: float | None = None  # logits, where what the feature writes is taken out of the block's output
    direct_slope: float | None = None
    block_correlation: float | None = None  # of the changes of the block's own output, feature removed
    block_slope: float | None = None
    doubled_block_correlation: float | None = None
    doubled_block_slope: float | None = None
    square_correlation: float | None = None  # of that part of the block's change which is even in the feature's value
    square_slope: float | None = None
    polynomial_correlation: float | None = None  # logits, removed, predicted by the whole polynomial at the new input
    polynomial_slope: float | None = None
    polynomial_block_correlation: float | None = None  # the same for the block's output
    polynomial_block_slope: float | None = None
    block: str = ""
    feature: str = ""

    def row(self) -> dict[str, Any]:
        """The scores in a line, for a table."""
        names = [
            "correlation",
            "slope",
            "doubled_correlation",
            "doubled_slope",
            "direct_correlation",
            "block_correlation",
        ]
        names += ["block_slope", "square_correlation", "polynomial_correlation", "polynomial_block_correlation"]
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
    show_progress: bool = True,
) -> CausalScores:
    """Compare what should happen when a feature is removed or doubled with what does happen in the model.

    The model runs with each feature changed by `steer`, at all tokens at once. Two things are predicted: the change of
    the block's output, which is the change of the feature's amount times what it writes, and that of the logits, by
    the direct path alone: residual stream, final norm with the divisor that it has at this token, unembedding; logits
    less their mean. The first says whether the polynomial is right about the block, the second whether the direct path
    is the whole story: what later blocks make of the change, also of changes at earlier tokens, is measured but not
    predicted, so that less than 1 is to be expected in early blocks.

    A feature that reads a direction is its square alone. Moving the input along the direction also changes what is
    linear in it, and its products with other directions. These are odd in the feature's value z, so that the square
    itself is compared with the even part of the block, (f(z) + f(-z)) / 2 - f(0); and with `polys` the change of the
    whole polynomial is compared as well, which has all of that. The direct path by itself is checked where what the
    feature writes is taken out of the block's output, whatever it reads: the one score that means the same for all
    kinds, since forms and neurons are always changed there.

    Parameters
    ----------
    model : torch.nn.Module
        The language model that the features belong to, best in float32: changes can be smaller than what 16 bits round.
    features : FeatureSet, or several
        Features of one block or of many, see `block_features`.
    batches : iterable
        Batches of tokens, as `collect` takes them.
    polys : Conversion or mapping, optional
        Polynomials of the blocks by name, for the scores of whole polynomials.
    tokens : int
        Number of tokens after which to stop. The model runs on them two or three times for every feature.
    wiring : Trace, optional
        ``trace(model, [0])``, to save a run of the model.
    show_progress : bool
        Whether long work on a terminal draws a progress bar.

    Returns
    -------
    CausalScores
        A list of `CausalScore` in the order of the features; ``print`` shows it as a table.
    """
    sets = [features] if isinstance(features, FeatureSet) else list(features)
    if not sets:
        raise ValueError("features is empty; pass one FeatureSet or several.")
    blocks = blocks_of(model, sets)
    known = {} if polys is None else polynomials_of(polys)
    missing = [name for name in blocks if polys is not None and name not in known]
    if missing:
        raise ValueError(f"polys has no polynomial of {missing[0]!r}, whose features are checked; add it.")
    read = list(Reader(batches, as_integer("tokens", tokens, 1)))
    check_reached(sum(len(batch.kept) for batch in read), ())
    wiring = trace(model, [0]) if wiring is None else wiring
    if wiring.final is None:
        raise ValueError(
            f"the head of {type(model).__name__} does not read the residual stream through one norm, so that there is "
            f"no direct path to its logits to predict their changes by."
        )
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    norms = {name: norm.module for name in blocks if (norm := wiring.after[name]) is not None}
    watched = [wiring.final.module, *norms.values(), head, *(m for b in blocks.values() for m in (b.entry, b.exit))]
    multiplier = float(getattr(model.config, "residual_multiplier", None) or 1.0)
    run, path = Runner(model), dict[str, _DirectPath]()
    sums: dict[tuple[int, int], dict[str, list[Tensor]]] = {
        (i, r): {} for i, some in enumerate(sets) for r in range(len(some))
    }
    done = 0
    with evaluating(model), progress("check", len(read) * len(sums), show_progress) as bar:
        for batch in read:
            base = _observed(run, batch, watched)
            rates = multiplier * FrozenNorm.of(wiring.final.module, *base[wiring.final.module]).rates
            for i, whole in enumerate(sets):
                block, name = blocks[whole.block], whole.block
                x, y = base[block.entry][0], base[block.exit][1]
                if name not in path:
                    path[name] = _DirectPath.of(model, name, wiring)
                after = norms.get(name)
                rate = rates if after is None else rates * FrozenNorm.of(after, *base[after]).rates.to(rates.device)
                some = whole.to(x.device)
                net = block.net()
                poly = None if not some.squares or name not in known else known[name].to(net.prototype)
                start = None if poly is None else poly(x.to(poly.prototype))
                values = some.values(x)
                for r in range(len(some)):
                    if some.directions is not None:
                        shift = (values[:, r, None] * some.directions[r]).to(net.prototype)
                        here = x.to(net.prototype)
                        even = (net(here) + net(here - 2 * shift)) / 2 - net(here - shift)
                        kept = sums[i, r].setdefault("square", [])
                        kept.append(_products(values[:, r, None] ** 2 * some.writes[r], even))
                    one = some[r]
                    # Features that are their own amounts are changed in the output, see `steer`.
                    written = replace(one, functionals=None, directions=None, reader=one.amounts)
                    for way, factor in _FACTORS.items():
                        if way == "written" and not some.squares:
                            continue
                        changed = written if way == "written" else one
                        with steer(model, changed, factor):
                            now = _observed(run, batch, [block.entry, block.exit, head])
                        was = changed.values(x)[:, 0]
                        step = changed.amounts_of(factor * was) - changed.amounts_of(was)
                        predicted = {"feature": step[:, None] * some.writes[r]}
                        if poly is not None and way == "removed":
                            predicted["polynomial"] = poly(now[block.entry][0].to(poly.prototype)) - start
                        measured = now[block.exit][1] - y
                        logits = path[name].compared(predicted, now[head][1] - base[head][1], rate)
                        for what, change in predicted.items():
                            kept = sums[i, r].setdefault(f"{what} {way} logits", [])
                            kept.append(logits[what])
                            if changed.squares:
                                kept = sums[i, r].setdefault(f"{what} {way} block", [])
                                kept.append(_products(change, measured))
                    done += 1
                    bar(done, f"{name} {some.names[r]}")
    return CausalScores(
        _score(sets[i], r, {key: torch.cat(parts) for key, parts in found.items()}) for (i, r), found in sums.items()
    )


def _observed(run: Runner, batch: Batch, modules: Sequence[nn.Module]) -> dict[nn.Module, tuple[Tensor, Tensor]]:
    """Run a model on a batch; inputs and outputs (n, ...) of modules at the n tokens that count."""
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def rows(value: Tensor) -> Tensor:
        flat = value.detach().reshape(-1, value.shape[-1])
        if len(flat) != batch.shape[0] * batch.shape[1]:
            raise ValueError(
                f"a module saw {len(flat)} rows in batch {batch.number}, which has {batch.shape[0]} x {batch.shape[1]} "
                f"tokens; features of blocks that see every token once can be checked."
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
    """Products (n, 3) of changes (n, m): predicted with measured, each with itself."""
    p, m = predicted.double(), measured.double()
    return torch.stack([(p * m).sum(1), (p * p).sum(1), (m * m).sum(1)], 1).cpu()


@dataclass(frozen=True, eq=False)
class _DirectPath:
    """The way from a block's output to the logits less their mean, up to the divisors of norms."""

    directions: Tensor  # (vocabulary, o)
    gram: Tensor  # (o, o) their products, so that no predicted logits are ever laid out

    @classmethod
    def of(cls, model: nn.Module, block: str, wiring: Trace) -> _DirectPath:
        weight = unembedding(model)
        dtype = torch.promote_types(weight.dtype, torch.float32)
        rows = torch.cat([logit_directions(model, block, part, wiring).to(dtype) for part in weight.split(_ROWS)])
        rows -= rows.mean(0)
        return cls(rows, sum(part.double().T @ part.double() for part in rows.split(_ROWS)))

    def compared(self, changes: dict[str, Tensor], measured: Tensor, rate: Tensor) -> dict[str, Tensor]:
        """Products (n, 3) as `_products` has them, for changes (n, o) of the block and measured logits (n, v)."""
        measured = measured.to(self.directions)
        measured = measured - measured.mean(1, keepdim=True)
        along, size = (measured @ self.directions).double(), (measured * measured).sum(1).double()
        found = {}
        for what, change in changes.items():
            moved = rate[:, None].to(along) * change.to(along)
            products = [(moved * along).sum(1), ((moved @ self.gram) * moved).sum(1), size]
            found[what] = torch.stack(products, 1).cpu()
        return found


def _score(features: FeatureSet, r: int, found: dict[str, Tensor]) -> CausalScore:
    """The scores of a feature from products (n, 3) at all tokens."""

    def pair(key: str) -> tuple[Any, Any]:
        """Correlation and slope; a feature that predicts nothing, or changes nothing, has none (NaN)."""
        if key not in found:
            return None, None
        both, predicted, measured = found[key].sum(0)
        return float(both / (predicted * measured).sqrt()), float(both / predicted)

    logits = found["feature removed logits"]
    top = logits[logits[:, 1].topk(max(1, len(logits) // _STRONGEST)).indices]
    typical = float((top[:, 0] / (top[:, 1] * top[:, 2]).sqrt()).nanmedian())
    return CausalScore(
        *pair("feature removed logits"), *pair("feature doubled logits"), len(logits), typical,
        *pair("feature written logits" if features.squares else "feature removed logits"),
        *pair("feature removed block"), *pair("feature doubled block"), *pair("square"),
        *pair("polynomial removed logits"), *pair("polynomial removed block"),
        features.block, features.names[r],
    )  # fmt: skip
