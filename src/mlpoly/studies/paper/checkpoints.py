"""Trained networks on disk, one safetensors file per checkpoint."""

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


@dataclass(frozen=True)
class TrainingRun:
    """A trained network and its checkpoints."""

    folder: Path
    config: dict[str, Any]  # the fields of `TrainConfig`
    data: str  # fingerprint of the training images

    @classmethod
    def open(cls, folder: Path) -> "TrainingRun":
        """A run that is on disk already."""
        files = sorted(folder.glob("step-*.safetensors"))
        if not files:
            raise FileNotFoundError(f"no checkpoints in {folder}; make them with `mlpoly paper` first.")
        header = read_tensors(files[-1])[0] or {}
        if header.get("format") != "mlpoly-checkpoint":
            raise FileFormatError(f"{files[-1]} is not a checkpoint; train again into an empty folder.")
        return cls(folder, header["config"], header["data"])

    @property
    def seed(self) -> int:
        """Seed of the weights and batches."""
        return int(self.config["seed"])

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, ascending."""
        return sorted(int(path.stem.removeprefix("step-")) for path in self.folder.glob("step-*.safetensors"))

    def path(self, step: int) -> Path:
        """File of a checkpoint."""
        return self.folder / f"step-{step:07d}.safetensors"

    def net(self, step: int, device: str = "cpu") -> Layer:
        """The network at a step, in torch float64 on a device."""
        net = build(read_tensors(self.path(step))[1], self.config["gated"], self.config["activation"])
        return net.to(torch.zeros((), dtype=torch.float64, device=device))
