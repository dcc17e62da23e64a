"""Moments of the inputs of a model's blocks: the record that `collect` makes, on disk and in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_tensors, write_tensors
from mlpoly.inputs import Gaussian, GaussianMixture, MomentAccumulator
from mlpoly.lm.model.identity import check_same_model, merged_provenance
from mlpoly.lm.moments.row_sums import Component, Norms, merge_components

__all__ = ["Moments", "read_moments", "write_moments"]

_FORMAT, _VERSION = "mlpoly-moments", 1
_FILE = "moments.safetensors"  # in a folder


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Mean and covariance of what goes into the feedforward blocks of a model, and where they come from.

    Attributes
    ----------
    hookpoints : mapping of str to mapping of int to Component
        By the block's name, then by the component's number: 0 unless inputs were told apart.
    provenance : dict
        Model, data, options and versions, as JSON can hold them.
    dtype : torch.dtype
        Of the Gaussians that `gaussian` and `mixture` give; the moments themselves are float64.
    """

    hookpoints: Mapping[str, Mapping[int, Component]]
    provenance: dict[str, Any]
    dtype: torch.dtype = torch.float64

    @property
    def names(self) -> list[str]:
        """Names of the blocks, in the model's order."""
        return list(self.hookpoints)

    @property
    def tokens(self) -> int:
        """Tokens that were seen."""
        return int(self.provenance.get("tokens", 0))

    def components(self, name: str) -> Mapping[int, Component]:
        """Components of one block by number; each has count, mean, covariance and norms."""
        if name not in self.hookpoints:
            shown = ", ".join(self.names if len(self.names) <= 8 else [*self.names[:7], "..."])
            raise KeyError(f"no moments of {name!r}; there are those of {shown}")
        return self.hookpoints[name]

    def gaussian(self, name: str, shrinkage: float | str = 0.0, like: Tensor | None = None) -> Gaussian:
        """The Gaussian with the moments of one block's inputs, all components together.

        Parameters
        ----------
        name : str
            Of the block.
        shrinkage : float in [0, 1] or "oas"
            See `mlpoly.Gaussian.from_samples`; needed where there were not many more tokens than inputs.
        like : Tensor, optional
            Device and dtype for the result, such as a weight of the block. By default the CPU and `dtype`.
        """
        pooled: Component | None = None
        for part in self.components(name).values():
            pooled = part if pooled is None else pooled.merge(part)
        assert pooled is not None
        return self._placed(pooled, like).gaussian(shrinkage)

    def mixture(self, name: str, shrinkage: float | str = 0.0, like: Tensor | None = None) -> GaussianMixture:
        """The mixture with one Gaussian per component of one block's inputs, weighted by counts; see `gaussian`."""
        parts = {number: self._placed(part, like) for number, part in self.components(name).items()}
        return GaussianMixture.from_accumulators(parts, shrinkage)

    def _placed(self, part: Component, like: Tensor | None) -> MomentAccumulator:
        mean, scatter = part.moments.mean, part.moments.scatter
        if like is None:
            return MomentAccumulator.from_moments(part.count, mean, scatter, self.dtype)
        dtype = torch.promote_types(like.dtype, torch.float32)  # 16 bits are too few for a covariance
        return MomentAccumulator.from_moments(part.count, mean.to(like.device), scatter.to(like.device), dtype)

    def merge(self, other: Moments) -> Moments:
        """Moments of the data of both, exactly; neither is changed.

        Raises
        ------
        ValueError
            If they are of different models or blocks, or were told apart into components in different ways.
        """
        if not isinstance(other, Moments):
            raise TypeError(f"other must be Moments, got {type(other).__name__}.")
        check_same_model(self.provenance, other.provenance)
        if self._dims() != other._dims():
            odd = sorted(set(self._dims().items()) ^ set(other._dims().items()))
            raise ValueError(
                f"the moments are of different blocks, {odd[0][0]!r} among them; collect both with the same hookpoints."
            )
        hookpoints = {name: merge_components(parts, other.hookpoints[name]) for name, parts in self.hookpoints.items()}
        return Moments(hookpoints, merged_provenance(self.provenance, other.provenance), self.dtype)

    def _dims(self) -> dict[str, int]:
        return {name: part.moments.dim for name, parts in self.hookpoints.items() for part in parts.values()}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write one safetensors file, never pickle.

        Parameters
        ----------
        path : path
            A file name that ends in .safetensors, or a folder for "moments.safetensors", made if it is missing.

        Returns
        -------
        Path
            The file.
        """
        target = Path(path)
        if target.suffix != ".safetensors":
            target = make_folder(target) / _FILE
        write_moments(target, self, {})
        return target

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Moments:
        """Read what `save` wrote, from the file or its folder."""
        target = Path(path)
        return read_moments(target / _FILE if target.is_dir() else target)[0]

    def __repr__(self) -> str:
        counts = {number for parts in self.hookpoints.values() for number in parts}
        kinds = f"{len(counts)} components" if len(counts) > 1 else "1 component"
        model = self.provenance.get("model", "a model")
        return f"Moments({model}, {len(self.names)} hookpoints, {self.tokens} tokens, {kinds})"


# ---------------------------------------------------------------------------------------------------------------------
# On disk
# ---------------------------------------------------------------------------------------------------------------------


def write_moments(path: Path, moments: Moments, state: Mapping[str, Any]) -> None:
    """Write moments, with what a resumed pass needs besides."""
    arrays: dict[str, np.ndarray] = {}
    table: dict[str, dict[str, Any]] = {}
    for name, parts in moments.hookpoints.items():
        table[name] = {str(number): {"count": part.count, "norms": part.norms} for number, part in parts.items()}
        for number, part in parts.items():
            arrays[f"{name}/{number}/mean"] = part.moments.mean.numpy()
            arrays[f"{name}/{number}/scatter"] = part.moments.scatter.numpy()
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "dtype": str(moments.dtype).removeprefix("torch."),
        "hookpoints": table,
        "provenance": moments.provenance,
        "state": dict(state),
    }
    write_tensors(path, arrays, header)


def read_moments(path: Path) -> tuple[Moments, dict[str, Any]]:
    """Moments and the state beside them.

    Raises
    ------
    FileNotFoundError, FileFormatError
    """
    if not path.is_file():
        raise FileNotFoundError(f"no moments in {path}; make them with mlpoly.lm.collect.")
    header, arrays = read_tensors(path)
    if header is None or header.get("format") != _FORMAT:
        raise FileFormatError(f"{path} holds no moments of mlpoly.lm.collect.")
    if header.get("version") != _VERSION:
        raise FileFormatError(
            f"{path} has version {header.get('version')} of the format, this library reads {_VERSION}; collect again."
        )
    try:
        hookpoints = {
            name: {int(number): _component(arrays, f"{name}/{number}", entry) for number, entry in parts.items()}
            for name, parts in header["hookpoints"].items()
        }
        dtype = getattr(torch, str(header["dtype"]), None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"dtype {header['dtype']!r:.40}")
        moments = Moments(hookpoints, dict(header["provenance"]), dtype)
        if not isinstance(moments.provenance.get("tokens", 0), int):
            raise ValueError(f"tokens {moments.provenance['tokens']!r:.40}")
        return moments, dict(header["state"])
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FileFormatError(f"{path} is damaged ({error}); collect again.") from None


def _component(arrays: Mapping[str, np.ndarray], key: str, entry: Mapping[str, Any]) -> Component:
    count, norms = entry["count"], Norms(*entry["norms"])
    if type(count) is not int or not 0 < count < 2**63:  # a truth is no count
        raise ValueError(f"count {count!r:.40} of {key!r}")
    if not all(isinstance(length, (int, float)) and math.isfinite(length) for length in norms):
        raise ValueError(f"norms {norms!r:.80} of {key!r}")
    mean, scatter = arrays[f"{key}/mean"], arrays[f"{key}/scatter"]
    if odd := [a.dtype for a in (mean, scatter) if a.dtype != np.float64]:
        raise ValueError(f"numbers of type {odd[0]} in {key!r}")
    made = MomentAccumulator.from_moments(count, torch.from_numpy(mean.copy()), torch.from_numpy(scatter.copy()))
    spread = np.abs(scatter).max(initial=0)
    # Sums of products are symmetric, and squares positive, but for the rounding of single precision.
    gap = np.abs(scatter - scatter.T).max(initial=0)
    if gap > 1e-3 * spread or np.diagonal(scatter).min(initial=0) < -1e-3 * spread:
        raise ValueError(f"a scatter of {key!r} that is not symmetric, or negative")
    return Component(made, norms)
