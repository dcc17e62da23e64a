"""Training as in the paper: one hidden layer, schedule-free AdamW, checkpoints at powers of two, and resuming."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mlpoly.datasets import Images
from mlpoly.errors import FileFormatError
from mlpoly.extras import library
from mlpoly.files import make_folder, read_tensors, write_tensors
from mlpoly.networks import GLU, MLP, Layer
from mlpoly.progress_bars import progress_bar
from mlpoly.scores import accuracy_of_outputs
from mlpoly.studies.paper.options import TrainConfig
from mlpoly.studies.paper.results import TrainingPoint

_SAVE_EVERY = 1024  # steps between states from which a killed run resumes, beside the checkpoints
_LOOK_EVERY = 128  # steps between looks at loss and accuracy for the progress bar
_SMALL = 2**24  # multiplications of a step's largest product, up to which a second thread gains less than it may cost
_MOST = 10_000  # training images that a checkpoint is judged on


def checkpoint_steps(steps: int) -> list[int]:
    """0, the powers of two below `steps`, and `steps` itself."""
    return [0, *(2**i for i in range(max(steps - 1, 0).bit_length())), steps][: None if steps else 1]


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
        weights: dict[str, Any] = read_tensors(self.path(step))[1]
        net = (GLU if self.config["gated"] else MLP)(**weights, activation=self.config["activation"])
        return net.to(torch.zeros((), dtype=torch.float64, device=device))


def train(images: Images, folder: str | Path, config: TrainConfig | None = None, *, device: str = "cpu") -> TrainingRun:
    """Train a network, or resume a training that was stopped, in a folder of checkpoints; one of other data is refused.

    A run that was killed and started again ends with the same weights, to the last bit on the same machine: batches
    depend on seed and step alone, and the whole state of the optimiser is saved.
    """
    config = config or TrainConfig()
    folder = make_folder(folder)
    run, wanted = TrainingRun(folder, asdict(config), images.training_fingerprint), checkpoint_steps(config.steps)
    if run.steps:
        old = TrainingRun.open(run.folder)
        # A longer run continues a shorter one: the schedule does not depend on the length.
        changed = [k for k, v in run.config.items() if k != "steps" and old.config.get(k) != v]
        words = [f"{k} is {run.config[k]}, there {old.config.get(k)}" for k in changed]
        words += ["the training images have changed"] if old.data != run.data else []
        if words:
            raise FileFormatError(f"{run.folder} holds another run ({', '.join(words)}); choose another folder.")
    if set(wanted) <= set(run.steps):
        return run
    trainer = _Trainer(images, config, device)
    trainer.restore(folder / "state.safetensors", min(set(wanted) - set(run.steps)), run.data)
    threads = torch.get_num_threads()
    if config.batch_size * config.hidden * images.train.shape[1] < _SMALL:
        torch.set_num_threads(1)  # several wait for one another, for long on a busy machine
    try:
        with progress_bar(f"training, seed {config.seed}", config.steps) as update:
            for step in trainer.advance():
                if step in wanted:
                    header = {"format": "mlpoly-checkpoint", "step": step, "config": run.config, "data": run.data}
                    weights = {name: w.detach().cpu().numpy() for name, w in trainer.averaged().items()}
                    write_tensors(run.path(step), weights, header)
                if step in wanted or step % _SAVE_EVERY == 0:
                    trainer.save(folder / "state.safetensors", run.data)
                if step % _LOOK_EVERY == 0:
                    update(step, trainer.note())
    finally:
        torch.set_num_threads(threads)
    return run


class _Trainer:
    """Weights, optimiser and data of a run, at some step."""

    def __init__(self, images: Images, config: TrainConfig, device: str) -> None:
        self.images, self.config, self.step = images, config, 0
        self.x = torch.tensor(images.train, dtype=torch.float32, device=device)
        self.y = torch.tensor(images.train_labels, device=device)
        # As `torch.nn.Linear` draws them: uniform within 1 / sqrt(number of inputs of the layer).
        generator, d = torch.Generator().manual_seed(config.seed), images.train.shape[1]
        first = ("W_gate", "b_gate", "W_up", "b_up") if config.gated else ("W1", "b1")
        shapes: dict[str, tuple[int, ...]] = {n: (config.hidden, d)[: 1 + (n[0] == "W")] for n in first}
        last = ("W_down", "b_down") if config.gated else ("W2", "b2")
        shapes |= {last[0]: (images.outputs, config.hidden), last[1]: (images.outputs,)}
        self.weights: dict[str, Any] = {}
        for name, shape in shapes.items():
            inputs = config.hidden if name in last else d
            drawn = (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(inputs)
            self.weights[name] = drawn.to(device).requires_grad_()
        self.net = (GLU if config.gated else MLP)(**self.weights, activation=config.activation)
        options = {"lr": config.learning_rate, "warmup_steps": config.warmup, "weight_decay": config.weight_decay}
        schedulefree = library("schedulefree", "schedulefree", "training")
        self.optimizer: Any = schedulefree.AdamWScheduleFree([*self.weights.values()], **options)
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
        """The averaged weights x = y + (1 - 1/b) (z - y) of schedule-free training; those being trained, y, stay.

        The optimiser's own `eval` and `train` do the same in place and back, with rounding by how often one looks.
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

    def restore(self, path: Path, first: int, data: str) -> None:
        """Resume from a saved state, if there is one of the same run that is not past the first step wanted."""
        if not path.is_file():
            return
        header, arrays = read_tensors(path)
        same = {"config": asdict(self.config) | {"steps": 0}, "data": data}
        if not header or {"config": header["config"] | {"steps": 0}, "data": header["data"]} != same:
            return
        if header["step"] > first:
            return
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
        net = run.net(step, device)
        judged = [(net(x), y) for x, y in sets]
        train_loss, test_loss = (float(cross_entropy(logits, y)) for logits, y in judged)
        train_accuracy, test_accuracy = (float(accuracy_of_outputs(logits, y)) for logits, y in judged)
        points.append(TrainingPoint(run.seed, step, train_loss, test_loss, train_accuracy, test_accuracy))
    return points
