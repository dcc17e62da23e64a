"""Trained networks on disk, one safetensors file per checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlpoly.errors import FileFormatError
from mlpoly.files import read_tensors, write_tensors
from mlpoly.networks import GLU, MLP, Layer


def checkpoint_steps(steps: int) -> list[int]:
    """0, the powers of two below `steps`, and `steps` itself."""
    return [0, *(2**i for i in range(max(steps - 1, 0).bit_length())), steps][: None if steps else 1]


def parameter_shapes(gated: bool, d: int, hidden: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights, in the order that `MLP` and `GLU` take them."""
    first = ("W_gate", "b_gate", "W_up", "b_up") if gated else ("W1", "b1")
    last = ("W_down", "b_down") if gated else ("W2", "b2")
    shapes: dict[str, tuple[int, ...]] = {name: (hidden, d) if name[0] == "W" else (hidden,) for name in first}
    return shapes | {last[0]: (outputs, hidden), last[1]: (outputs,)}


def build(weights: dict[str, Any], gated: bool, activation: Any) -> Layer:
    """The network that has these weights."""
    return (GLU if gated else MLP)(**weights, activation=activation)


def save_checkpoint(path: Path, step: int, weights: dict[str, Tensor], config: dict[str, Any], data: str) -> None:
    """Write the weights at one step; the header has the options of the training and the data's fingerprint."""
    header = {"format": "mlpoly-checkpoint", "step": step, "config": config, "data": data}
    write_tensors(path, {name: w.detach().cpu().numpy() for name, w in weights.items()}, header)


def load_checkpoint(path: Path, dim: int | None = None, outputs: int | None = None) -> Layer:
    """The network (NumPy) of a checkpoint, which must fit the pixels and classes of the data where given."""
    header, arrays = read_tensors(path)
    config, _ = _checked(path, header)
    expected = set(parameter_shapes(config["gated"], 1, 1, 1))
    if set(arrays) != expected:
        raise FileFormatError(f"{path} holds {sorted(arrays)}, expected {sorted(expected)}; the file is damaged.")
    try:
        net = build(arrays, config["gated"], config["activation"])
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"{path}: {error} The file is damaged; delete it and train again.") from None
    if (dim not in (None, net.dim_in)) or (outputs not in (None, net.dim_out)):
        raise FileFormatError(
            f"{path} holds a network {net.dim_in} -> {net.dim_out}, but the data has {dim} pixels and {outputs} "
            f"classes; name the data it was trained on with --data, or another folder."
        )
    return net


def _checked(path: Path, header: dict[str, Any] | None) -> tuple[dict[str, Any], str]:
    """Options and fingerprint of the data from the header of a checkpoint."""
    if header is None or header.get("format") != "mlpoly-checkpoint":
        raise FileFormatError(f"{path} is not a checkpoint of `mlpoly train`; train again into an empty folder.")
    step, config, data = header.get("step"), header.get("config"), header.get("data", "")  # older ones have no data
    found = {**config, "step": step, "data": data} if isinstance(config, dict) else {}
    kinds = {"seed": int, "activation": str, "gated": bool, "step": int, "data": str} if found else {"config": dict}
    odd = [name for name, kind in kinds.items() if type(found.get(name)) is not kind]
    odd += [name for name in ("seed", "step") if type(found.get(name)) is int and found[name] < 0]
    if odd:
        raise FileFormatError(f"{path} has no valid {odd[0]} in its header; it is damaged, delete it and train again.")
    return config, data  # type: ignore[return-value]


@dataclass(frozen=True)
class TrainingRun:
    """A trained network and its checkpoints."""

    folder: Path
    config: dict[str, Any]  # the fields of `TrainConfig`
    data: str = ""  # fingerprint of the training images; empty if it is not known

    @classmethod
    def open(cls, folder: Path) -> TrainingRun:
        """A run that is on disk already."""
        files = sorted(folder.glob("step-*.safetensors"))
        if not files:
            raise FileNotFoundError(f"no checkpoints in {folder}; make them with `mlpoly train` first.")
        return cls(folder, *_checked(files[-1], read_tensors(files[-1])[0]))

    @property
    def seed(self) -> int:
        """Seed of the weights and batches."""
        return int(self.config["seed"])

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, ascending."""
        found = (path.stem.removeprefix("step-") for path in self.folder.glob("step-*.safetensors"))
        return sorted(int(step) for step in found if step.isdecimal())

    def path(self, step: int) -> Path:
        """File of a checkpoint."""
        return self.folder / f"step-{step:07d}.safetensors"

    def net(self, step: int, device: str = "cpu", dim: int | None = None, outputs: int | None = None) -> Layer:
        """The network at a step, in torch float64 on a device."""
        net = load_checkpoint(self.path(step), dim, outputs)
        return net.to(torch.zeros((), dtype=torch.float64, device=device))
