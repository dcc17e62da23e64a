"""Groups of tokens with moments of their own: the components of the mixture that a block's inputs are taken for."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from copy import copy
from hashlib import sha256
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mlpoly.arrays import as_integer, as_number
from mlpoly.extras import library

GroupFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


class Grouping:
    """Groups of tokens by a function; without one a single group. Rules that look at the data are subclasses."""

    calibrates: bool = False  # whether `calibrate` must see the first batch before the pass

    def __init__(self, kind: str, *labels: str, function: GroupFunction | None = None, resumes: bool = True) -> None:
        self.kind = kind  # a pass is resumed, and moments are merged, only with the same
        self.labels, self._function = labels, function
        self.resumes = resumes  # whether `kind` says all that a resumed pass must have in common with the one before
        self.state: dict[str, Any] = {}  # from `calibrate`, by block; JSON

    def numbers(self, name: str, x: Tensor, positions: Tensor, tokens: Tensor) -> Tensor | None:
        """Return the group (n,) of each input (n, d), given positions and ids (n,) of the tokens; None for one."""
        if self._function is None:
            return None
        found = torch.as_tensor(self._function(x, positions, tokens), device=x.device)
        if found.shape != x.shape[:1] or found.is_floating_point() or found.is_complex():
            raise ValueError(
                f"groups gave {found.dtype} of shape {tuple(found.shape)} at {name!r}, expected one integer for each "
                f"of the {x.shape[0]} inputs."
            )
        return found.long()

    def calibrate(self, name: str, x: Tensor) -> None:
        """Look at a block's inputs (n, d) in the first batch."""

    def describe(self) -> dict[str, Any]:
        """Return the entry of provenance."""
        return {"kind": self.kind, "labels": {str(number): label for number, label in enumerate(self.labels)}}


class NormOutliers(Grouping):
    """Inputs of unusual length in groups of their own: above `factor` medians of the first batch, or below one over it.

    Both sides are needed: behind a normalisation the tokens with massive activations are the *short* ones (in
    SmolLM2-135M 0.16 medians in the middle blocks, 3.2 in the last; the others stay between about 0.5 and 1.7).
    """

    calibrates = True

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = as_number("factor", factor, "a number above 1", 1)
        super().__init__(f"norm {self.factor:g}", "usual", "long", "short")

    def calibrate(self, name: str, x: Tensor) -> None:
        """Take the median length."""
        self.state[name] = float(_lengths(x).median())

    def numbers(self, name: str, x: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """Return 0 for usual, 1 for long, 2 for short inputs."""
        lengths, median = _lengths(x), self.state[name]
        return (lengths > self.factor * median).long() + 2 * (lengths < median / self.factor).long()

    def describe(self) -> dict[str, Any]:
        """Return the entry of provenance, with the medians."""
        return super().describe() | {"medians": dict(self.state)}


class TokenClusters(Grouping):
    """Inputs in groups by the nearest of `count` centres, by k-means in the first batch of every block's inputs.

    The first batch should look like the others: shuffle the sequences if their order has a meaning. Fewer groups are
    found where it has fewer different inputs.
    """

    calibrates = True

    def __init__(self, count: int = 4, seed: int = 0) -> None:
        self.count, self.seed = as_integer("count", count, 2), as_integer("seed", seed, 0)
        super().__init__(f"clusters {count} seed {seed}", *(f"cluster {number}" for number in range(count)))

    def calibrate(self, name: str, x: Tensor) -> None:
        """Find the centres by Lloyd's iterations until no input changes its group."""
        cluster = library("sklearn.cluster", "scikit-learn", "TokenClusters")
        rows = x.float().cpu().numpy()
        count = min(self.count, len(np.unique(rows, axis=0)))
        labels = cluster.KMeans(count, tol=0.0, random_state=self.seed).fit(rows).labels_
        # The means again, as threads add up in any order, and the same inputs must give the same bits.
        centres = np.stack([rows[labels == number].mean(0, dtype=np.float64) for number in range(count)])
        self.state[name] = [count, b64encode(centres.astype("<f4").tobytes()).decode()]

    def numbers(self, name: str, x: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """Return the number of the nearest centre."""
        count, text = self.state[name]
        centres = torch.from_numpy(np.frombuffer(b64decode(text), "<f4").reshape(count, -1).copy()).to(x.device)
        return (centres.square().sum(1) - 2 * x.float() @ centres.T).argmin(1)

    def describe(self) -> dict[str, Any]:
        """Return the entry of provenance; clusters around other centres are groups of another kind."""
        found = sha256(json.dumps(self.state, sort_keys=True).encode()).hexdigest()[:12]
        return super().describe() | {"kind": f"{self.kind} centres {found}"}


Groups = Literal["none", "first", "norm", "clusters"] | Grouping | GroupFunction


def as_grouping(groups: Groups) -> Grouping:
    """Return the rule that an argument stands for."""
    # Attention sinks make the activations of first tokens unlike others.
    first = Grouping("first", "other tokens", "first token of a sequence", function=lambda x, at, tokens: at == 0)
    named: dict[str, Callable[[], Grouping]] = {
        "none": lambda: Grouping("none", "all tokens"),
        "first": lambda: first,
        "norm": NormOutliers,
        "clusters": TokenClusters,
    }
    if isinstance(groups, str) and groups in named:
        return named[groups]()
    if isinstance(groups, Grouping):
        fresh = copy(groups)
        fresh.state = {}  # what one model taught it must not be used for the next
        return fresh
    if callable(groups) and not isinstance(groups, type):
        name = getattr(groups, "__qualname__", type(groups).__qualname__)  # which does not say what it does
        return Grouping(f"function {name}", function=groups, resumes=False)
    raise ValueError(
        f"groups must be 'none', 'first', 'norm', 'clusters', mlpoly.lm.NormOutliers(factor), "
        f"mlpoly.lm.TokenClusters(count) or a function (x, positions, tokens) -> integers, got {groups!r}."
    )


def _lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1, dtype=torch.promote_types(x.dtype, torch.float32))
