"""Training as in the paper: one hidden layer, schedule-free AdamW, checkpoints at powers of two, and resuming."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mlpoly.errors import FileFormatError
from mlpoly.extras import library
from mlpoly.files import make_folder, read_tensors, write_tensors
from mlpoly.progress_bars import progress_bar
from mlpoly.scores import accuracy_of_outputs
from mlpoly.studies.paper.checkpoints import (
    TrainingRun,
    build,
    checkpoint_steps,
    load_checkpoint,
    parameter_shapes,
    save_checkpoint,
)
from mlpoly.studies.paper.images import Images
from mlpoly.studies.paper.options import TrainConfig
from mlpoly.studies.paper.results import TrainingPoint

_SAVE_EVERY = 1024  # steps between states from which a killed run resumes, beside the checkpoints
_LOOK_EVERY = 128  # steps between looks at loss and accuracy for the progress bar
_MOST = 10_000  # training images that a checkpoint is judged on


def train(
    images: Images,
    folder: str | Path,
    config: TrainConfig | None = None,
    *,
    device: str = "cpu",
) -> TrainingRun:
    """Train a network, or resume a training that was stopped.

    A run that was killed and started again ends with the same weights, to the last bit on the same machine: batches
    depend on seed and step alone, and the whole state of the optimiser is saved.

    Parameters
    ----------
    images : Images
        For example `mlpoly.studies.paper.images.load_images("mnist")`.
    folder : path
        Folder of the checkpoints, made if it is missing. A run of other options or data in it is refused.
    config : TrainConfig, optional
    device : str
        A device of PyTorch, such as "cuda".
    """
    config = config or TrainConfig()
    folder = make_folder(folder)
    check_run(folder, config, images)
    run, wanted = TrainingRun(folder, asdict(config), images.training_fingerprint), checkpoint_steps(config.steps)
    if set(wanted) <= set(run.steps):
        return run
    trainer = _Trainer(images, config, device)
    trainer.restore(folder / "state.safetensors", min(set(wanted) - set(run.steps)))
    with progress_bar(f"training, seed {config.seed}", config.steps) as update:
        for step in trainer.advance():
            if step in wanted:
                save_checkpoint(run.path(step), step, trainer.averaged(), run.config, run.data)
            if step in wanted or step % _SAVE_EVERY == 0:
                trainer.save(folder / "state.safetensors", run.data)
            if step % _LOOK_EVERY == 0:
                update(step, trainer.note())
    return run


def check_run(folder: Path, config: TrainConfig, images: Images) -> None:
    """Raise unless the contents of the folder, if any, are whole, and come from the same options and data."""
    run = TrainingRun(folder, asdict(config))
    if run.steps:
        load_checkpoint(run.path(run.steps[-1]), images.train.shape[1], images.outputs)  # says so if it is damaged
        found = TrainingRun.open(folder)
        # A longer run continues a shorter one: the schedule does not depend on the length.
        changed = {k: v for k, v in run.config.items() if found.config.get(k) != v and k != "steps"}
        if changed:
            listed = ", ".join(f"{name} is {new}, there {found.config.get(name)}" for name, new in changed.items())
            raise FileFormatError(f"{folder} holds a run of other options ({listed}); choose another folder.")
        if found.data not in ("", images.training_fingerprint):  # runs of older versions do not say
            raise FileFormatError(
                f"{folder} holds a run on other training images, which have changed since; put the old ones back, or "
                f"choose another folder."
            )
    state = folder / "state.safetensors"
    if state.is_file() and not set(checkpoint_steps(config.steps)) <= set(run.steps):  # else it is not needed
        _read_state(state, config, images)


def _read_state(path: Path, config: TrainConfig, images: Images) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Header and arrays of a saved state; None if its options are others."""
    header, arrays = read_tensors(path)
    if header is None or header.get("format") != "mlpoly-training":
        raise FileFormatError(f"{path} is not a state of `mlpoly train`; delete it to begin again.")
    step, before, group = (header.get(name) for name in ("step", "config", "group"))
    if not (type(step) is int and step >= 0 and isinstance(before, dict) and isinstance(group, dict)):
        raise FileFormatError(f"{path} lacks a valid step, config or group; it is damaged, delete it to begin again.")
    if {**before, "steps": 0} != {**asdict(config), "steps": 0}:
        return None
    if header.get("data", "") not in ("", images.training_fingerprint):
        raise FileFormatError(f"{path} is of a run on other training images; put these back, or delete it.")
    shapes = parameter_shapes(config.gated, images.train.shape[1], config.hidden, images.outputs)
    expected = {f"weights.{name}": shape for name, shape in shapes.items()}
    if step:  # before the first one the optimiser has no moments
        for i, shape in enumerate(shapes.values()):
            expected |= {f"optimizer.{i}.z": shape, f"optimizer.{i}.exp_avg_sq": shape}
    odd = [name for name, shape in expected.items() if name not in arrays or arrays[name].shape != shape]
    odd += [name for name, a in arrays.items() if name not in expected or not np.isfinite(a).all() or a.dtype != "f4"]
    known = {"params", *group} == set(_optimizer([torch.zeros(1)], TrainConfig()).param_groups[0])
    numbers = [v for value in group.values() for v in (value if isinstance(value, list) else [value])]
    finite = all(v is None or (isinstance(v, (int, float)) and math.isfinite(v)) for v in numbers)
    if odd or not known or not finite or group["k"] != step:
        what = f"a missing or odd {odd[0]}" if odd else "odd settings of the optimiser"
        raise FileFormatError(f"{path} has {what}; it is damaged, or of another version: delete it to begin again.")
    return header, arrays


def _optimizer(weights: list[Tensor], config: TrainConfig) -> Any:
    schedulefree = library("schedulefree", "schedulefree", "training")
    return schedulefree.AdamWScheduleFree(
        weights, lr=config.learning_rate, warmup_steps=config.warmup, weight_decay=config.weight_decay
    )


class _Trainer:
    """Weights, optimiser and data of a run, at some step."""

    def __init__(self, images: Images, config: TrainConfig, device: str) -> None:
        self.images, self.config, self.step = images, config, 0
        self.x = torch.tensor(images.train, dtype=torch.float32, device=device)
        self.y = torch.tensor(images.train_labels, device=device)
        # As `torch.nn.Linear` draws them: uniform within 1 / sqrt(number of inputs of the layer).
        generator, d = torch.Generator().manual_seed(config.seed), images.train.shape[1]
        self.weights: dict[str, Tensor] = {}
        for name, shape in parameter_shapes(config.gated, d, config.hidden, images.outputs).items():
            inputs = config.hidden if name in ("W2", "b2", "W_down", "b_down") else d
            drawn = (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(inputs)
            self.weights[name] = drawn.to(device).requires_grad_()
        self.net = build(self.weights, config.gated, config.activation)
        self.optimizer = _optimizer(list(self.weights.values()), config)
        self.optimizer.train()
        self.loss: Tensor | None = None
        self.order: tuple[int, Tensor] = (-1, torch.empty(0))

    def advance(self) -> Iterator[int]:
        """Yield the step reached, first the present one, then after each further one."""
        yield self.step
        while self.step < self.config.steps:
            batch = self._batch()
            self.optimizer.zero_grad()
            self.logits, self.target = self.net(self.x[batch]), self.y[batch]
            self.loss = cross_entropy(self.logits, self.target)
            self.loss.backward()
            self.optimizer.step()
            self.step += 1
            yield self.step

    def _batch(self) -> Tensor:
        """Images of this step: each epoch is a permutation that seed and epoch alone decide."""
        size = min(self.config.batch_size, len(self.y))
        epoch, place = divmod(self.step, len(self.y) // size)
        if self.order[0] != epoch:
            drawn = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.y))
            self.order = (epoch, torch.tensor(drawn, device=self.y.device))
        return self.order[1][place * size : (place + 1) * size]

    def averaged(self) -> dict[str, Tensor]:
        """The averaged weights x of schedule-free training; those being trained, y, are left as they are.

        With y = (1 - b) z + b x, x = y + (1 - 1/b) (z - y). The optimiser's own `eval` does the same in place, and
        its `train` takes it back but for rounding, which would make the weights depend on how often one looks.
        """
        beta = self.optimizer.param_groups[0]["betas"][0]
        state = self.optimizer.state
        return {
            name: w.detach().lerp(state[w]["z"], 1 - 1 / beta) if "z" in state[w] else w.detach().clone()
            for name, w in self.weights.items()
        }

    def note(self) -> str:
        """Loss and accuracy on the last batch, if there was one."""
        if self.loss is None:
            return ""
        hits = (self.logits.argmax(1) == self.target).double().mean()
        return f"loss {float(self.loss.detach()):.3f}, accuracy {float(hits):.1%}"

    def save(self, path: Path, data: str) -> None:
        """Write everything that the next step depends on, and the fingerprint of the data."""
        kept = self.optimizer.state_dict()
        arrays = {f"weights.{name}": w.detach().cpu().numpy() for name, w in self.weights.items()}
        for i, tensors in kept["state"].items():
            arrays |= {f"optimizer.{i}.{name}": t.cpu().numpy() for name, t in tensors.items()}
        group = {k: v for k, v in kept["param_groups"][0].items() if k != "params"}
        header = {"format": "mlpoly-training", "step": self.step, "config": asdict(self.config), "group": group}
        write_tensors(path, arrays, header | {"data": data})

    def restore(self, path: Path, first: int) -> None:
        """Resume from a saved state, if there is one of the same options that is not past the first step wanted."""
        found = _read_state(path, self.config, self.images) if path.is_file() else None
        if found is None or found[0]["step"] > first:
            return
        header, arrays = found
        device = self.x.device
        with torch.no_grad():
            for name, w in self.weights.items():
                w.copy_(torch.tensor(arrays[f"weights.{name}"], device=device))
        kept = self.optimizer.state_dict()
        kept["param_groups"][0] |= header["group"]
        for name, a in arrays.items():
            if name.startswith("optimizer."):
                _, i, what = name.split(".", 2)
                kept["state"].setdefault(int(i), {})[what] = torch.tensor(a, device=device)
        self.optimizer.load_state_dict(kept)
        self.step = int(header["step"])


def training_points(run: TrainingRun, images: Images, device: str = "cpu") -> list[TrainingPoint]:
    """Loss and accuracy of every checkpoint, on the first 10 000 training images and on all test images."""
    sets = [
        (torch.tensor(x[:n], dtype=torch.float64, device=device), torch.tensor(y[:n], device=device))
        for x, y, n in ((images.train, images.train_labels, _MOST), (images.test, images.test_labels, None))
    ]
    points = []
    for step in run.steps:
        net = run.net(step, device, images.train.shape[1], images.outputs)
        judged = [(net(x), y) for x, y in sets]
        train_loss, test_loss = (float(cross_entropy(logits, y)) for logits, y in judged)
        train_accuracy, test_accuracy = (float(accuracy_of_outputs(logits, y)) for logits, y in judged)
        points.append(TrainingPoint(run.seed, step, train_loss, test_loss, train_accuracy, test_accuracy))
    return points
