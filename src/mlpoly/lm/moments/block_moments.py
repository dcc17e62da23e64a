"""Moments of the inputs of a model's blocks: the record that `collect` makes, in memory and on disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_tensors, write_tensors
from mlpoly.importers.blocks import listed
from mlpoly.inputs import Gaussian, GaussianMixture, MomentAccumulator
from mlpoly.lm.moments.row_sums import ByGroup, merge_groups

_FORMAT, _VERSION = "mlpoly-moments", 3
MOMENTS_FILE = "moments.safetensors"  # in a folder


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Mean and covariance of the inputs of the feedforward blocks of a model, and where they come from.

    `blocks` has them by the block's name, then by the number of the group of tokens, 0 alone unless there are several;
    `provenance` model, data, options and versions, as JSON can hold them.
    """

    blocks: Mapping[str, ByGroup]
    provenance: dict[str, Any]

    @property
    def names(self) -> list[str]:
        """Names of the blocks, in the model's order."""
        return list(self.blocks)

    @property
    def tokens(self) -> int:
        """Number of tokens that were seen."""
        return int(self.provenance.get("tokens", 0))

    def groups(self, name: str) -> ByGroup:
        """Return the groups of one block by number, each a `mlpoly.MomentAccumulator`."""
        if name not in self.blocks:
            raise KeyError(f"no moments of {name!r}; there are those of {listed(self.names)}")
        return self.blocks[name]

    def gaussian(self, name: str, shrinkage: float | str = 0.0, like: Tensor | None = None) -> Gaussian:
        """Return the Gaussian with the moments of one block's inputs, all groups together.

        `shrinkage` of the covariance, see `mlpoly.Gaussian.from_samples`, is needed where there were not many more
        tokens than inputs. The result has the device and dtype of `like`; by default it is on the CPU and in float64.
        """
        parts = list(self.groups(name).values())
        return self._placed(reduce(MomentAccumulator.merge, parts, MomentAccumulator(parts[0].dim)), like).gaussian(
            shrinkage
        )

    def mixture(self, name: str, shrinkage: float | str = 0.0, like: Tensor | None = None) -> GaussianMixture:
        """Return the mixture with one Gaussian per group of one block's inputs, weighted by counts; see `gaussian`."""
        parts = {number: self._placed(part, like) for number, part in self.groups(name).items()}
        return GaussianMixture.from_accumulators(parts, shrinkage)

    def _placed(self, part: MomentAccumulator, like: Tensor | None) -> MomentAccumulator:
        # 16 bits are too few for a covariance.
        dtype = torch.float64 if like is None else torch.promote_types(like.dtype, torch.float32)
        mean, scatter = (m.to("cpu" if like is None else like.device) for m in (part.mean, part.scatter))
        return MomentAccumulator.from_moments(part.count, mean, scatter, dtype)

    def merge(self, other: "Moments") -> "Moments":
        """Return the exact moments of the data of both, which must be of one model, with the same blocks and groups."""
        if not isinstance(other, Moments):
            raise TypeError(f"other must be Moments, got {type(other).__name__}.")
        one, two = self.provenance, other.provenance
        if one.get("weights") != two.get("weights"):
            models = [f"{p.get('model')}, {p.get('dtype')} (weights {p['weights'][:8]})" for p in (one, two)]
            raise ValueError(f"the moments are of different models: {' and '.join(models)}; merge those of one.")
        rules = [about.get("groups", {}).get("kind") for about in (one, two)]
        if rules[0] != rules[1]:
            raise ValueError(f"the groups were chosen by different rules, {rules[0]!r} and {rules[1]!r}.")
        ours, theirs = (
            {(name, part.dim) for name, parts in made.blocks.items() for part in parts.values()}
            for made in (self, other)
        )
        if ours != theirs:
            odd = min(ours ^ theirs)[0]
            raise ValueError(f"the moments are of different blocks, {odd!r} among them; collect both with one blocks=.")
        # Of the provenance, what both have in common, the tokens of both, and the list of all parts.
        common = {key: value for key, value in one.items() if key != "merged" and two.get(key) == value}
        groups = {k: v for k, v in one.get("groups", {}).items() if two.get("groups", {}).get(k) == v}
        parts = [part for whole in (one, two) for part in whole.get("merged", [whole])]
        about = common | {"groups": groups, "tokens": self.tokens + other.tokens, "merged": parts}
        return Moments({n: merge_groups(p, other.blocks[n]) for n, p in self.blocks.items()}, about)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write a .safetensors file, or "moments.safetensors" in a folder, made if it is missing; return its path."""
        target = Path(path)
        if target.suffix != ".safetensors":
            target = make_folder(target) / MOMENTS_FILE
        write_moments(target, self, {})
        return target

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Moments":
        """Read what `save` wrote, from the file or its folder."""
        target = Path(path)
        return read_moments(target / MOMENTS_FILE if target.is_dir() else target)[0]

    def __repr__(self) -> str:
        count, groups = len(self.blocks), len({number for parts in self.blocks.values() for number in parts})
        sizes = f"{count} block{'s' * (count != 1)}, {self.tokens} tokens, {groups} group{'s' * (groups != 1)}"
        return f"Moments({self.provenance.get('model', 'a model')}, {sizes})"


def write_moments(path: Path, moments: Moments, state: Mapping[str, Any]) -> None:
    """Write moments, with what a resumed pass needs besides."""
    arrays: dict[str, np.ndarray] = {}
    table: dict[str, dict[str, int]] = {}
    for name, parts in moments.blocks.items():
        table[name] = {str(number): part.count for number, part in parts.items()}
        for number, part in parts.items():
            arrays[f"{name}/{number}/mean"] = part.mean.numpy()
            arrays[f"{name}/{number}/scatter"] = part.scatter.numpy()
    header = {"format": _FORMAT, "version": _VERSION, "blocks": table}
    write_tensors(path, arrays, header | {"provenance": moments.provenance, "state": dict(state)})


def read_moments(path: Path) -> tuple[Moments, dict[str, Any]]:
    """Return moments and the state beside them."""
    if not path.is_file():
        raise FileNotFoundError(f"no moments in {path}; make them with mlpoly.lm.collect.")
    header, arrays = read_tensors(path)
    if header is None or header.get("format") != _FORMAT:
        raise FileFormatError(f"{path} holds no moments of mlpoly.lm.collect.")
    if (version := header.get("version")) != _VERSION:
        raise FileFormatError(f"{path} has version {version} of the format, not {_VERSION}; collect again.")
    try:
        blocks = {
            name: {int(number): _group(arrays, f"{name}/{number}", count) for number, count in parts.items()}
            for name, parts in header["blocks"].items()
        }
        return Moments(blocks, dict(header["provenance"])), dict(header["state"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path} is damaged ({error}); collect again.") from None


def _group(arrays: Mapping[str, np.ndarray], key: str, count: int) -> MomentAccumulator:
    mean, scatter = (torch.from_numpy(arrays[f"{key}/{part}"].copy()) for part in ("mean", "scatter"))
    return MomentAccumulator.from_moments(count, mean, scatter)
