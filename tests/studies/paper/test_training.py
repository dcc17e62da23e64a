"""Training: the same as a plain loop, and the same to the last bit however often it was killed."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import schedulefree
import torch
from support.small_studies import CONFIG, IMAGES, LONG, changed
from torch import nn

import mlpoly as mp
from mlpoly.errors import FileFormatError
from mlpoly.files import read_tensors
from mlpoly.studies.paper import training
from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig
from mlpoly.studies.paper.training import TrainingRun, checkpoint_steps, train, training_points


def weights(run, step):
    return read_tensors(run.path(step))[1]


def assert_same_weights(a, b, steps=None):
    """Every checkpoint of two runs is equal to the last bit."""
    assert steps is not None or a.steps == b.steps
    for step in a.steps if steps is None else steps:
        first, second = weights(a, step), weights(b, step)
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], strict=True)


def differ(a, b, step):
    first, second = weights(a, step), weights(b, step)
    return any(not np.array_equal(first[n], second[n]) for n in first)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    return train(IMAGES, tmp_path_factory.mktemp("whole"), CONFIG)


def test_points_against_plain_numpy(whole):
    for p in training_points(whole, IMAGES)[::3]:
        w = {name: a.astype(float) for name, a in weights(whole, p.step).items()}
        for x, y, loss, accuracy in (
            (IMAGES.train, IMAGES.train_labels, p.train_loss, p.train_accuracy),
            (IMAGES.test, IMAGES.test_labels, p.test_loss, p.test_accuracy),
        ):
            logits = np.maximum(x @ w["W1"].T + w["b1"], 0) @ w["W2"].T + w["b2"]
            each = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
            assert loss == pytest.approx(each.mean(), rel=1e-12)
            assert accuracy == np.mean(logits.argmax(1) == y)


@pytest.mark.parametrize(
    ("steps", "expected"), [(0, [0]), (1, [0, 1]), (3, [0, 1, 2, 3]), (32, [0, 1, 2, 4, 8, 16, 32])]
)
def test_checkpoints(tmp_path, steps, expected):
    assert checkpoint_steps(steps) == expected
    run = train(IMAGES, tmp_path / "new" / "folder", replace(CONFIG, steps=steps))
    assert run.steps == expected == TrainingRun.open(run.folder).steps
    assert TrainingRun.open(run.folder).config == asdict(replace(CONFIG, steps=steps))
    assert read_tensors(run.path(expected[-1]))[0]["step"] == expected[-1]
    assert sorted(p.name for p in run.folder.iterdir()) == sorted(
        ["state.safetensors", *(f"step-{s:07d}.safetensors" for s in expected)]  # and nothing half-written
    )


def test_seed_and_options_decide_the_weights(whole, tmp_path):
    assert_same_weights(train(IMAGES, tmp_path / "same", CONFIG), whole)
    other = train(IMAGES, tmp_path / "seed", replace(CONFIG, seed=4))
    assert other.seed == 4
    assert differ(other, whole, 0) and differ(other, whole, 32)
    faster = train(IMAGES, tmp_path / "rate", replace(CONFIG, learning_rate=0.01))
    assert_same_weights(faster, whole, [0])
    assert differ(faster, whole, 32)


NAMES = {False: ("1", "2"), True: ("_gate", "_up", "_down")}


def plain_loop(start, config, images):
    """What `train` does, with torch's own modules and the optimiser's own `eval`."""
    layers = [*(nn.Linear(16, config.hidden) for _ in range(1 + config.gated)), nn.Linear(config.hidden, 3)]
    names = NAMES[config.gated]
    with torch.no_grad():
        for layer, kind in zip(layers, names, strict=True):
            layer.weight.copy_(torch.tensor(start[f"W{kind}"]))
            layer.bias.copy_(torch.tensor(start[f"b{kind}"]))
    act = {"relu": torch.relu, "silu": nn.functional.silu, "gelu": nn.functional.gelu}[config.activation]
    parameters = [p for layer in layers for p in layer.parameters()]
    optimizer = schedulefree.AdamWScheduleFree(
        parameters, lr=config.learning_rate, warmup_steps=config.warmup, weight_decay=config.weight_decay, foreach=False
    )
    optimizer.train()
    x, y = torch.tensor(images.train, dtype=torch.float32), torch.tensor(images.train_labels)
    step = 0
    for epoch in count():
        order = np.random.default_rng([config.seed, epoch]).permutation(len(y))
        for i in range(len(y) // config.batch_size):
            if step == config.steps:
                optimizer.eval()
                made = {f"W{k}": layer.weight for k, layer in zip(names, layers, strict=True)}
                made |= {f"b{k}": layer.bias for k, layer in zip(names, layers, strict=True)}
                return {name: p.detach().numpy() for name, p in made.items()}
            batch = order[i * config.batch_size : (i + 1) * config.batch_size]
            h = act(layers[0](x[batch])) * (layers[1](x[batch]) if config.gated else 1)
            optimizer.zero_grad()
            nn.functional.cross_entropy(layers[-1](h), y[batch]).backward()
            optimizer.step()
            step += 1


@pytest.mark.parametrize(("gated", "activation"), [(False, "relu"), (False, "gelu"), (True, "silu")])
def test_against_a_plain_loop(tmp_path, gated, activation):
    config = replace(CONFIG, gated=gated, activation=activation)
    run = train(IMAGES, tmp_path, config)
    expected = plain_loop(weights(run, 0), config, IMAGES)
    assert isinstance(run.net(32), mp.GLU if gated else mp.MLP) and run.net(32).activation.name == activation
    assert weights(run, 32).keys() == expected.keys()
    for name, w in weights(run, 32).items():
        np.testing.assert_allclose(w, expected[name], rtol=0, atol=1e-6)


def test_longer_run_continues_a_shorter_one(whole, tmp_path):
    direct = train(IMAGES, tmp_path / "direct", replace(CONFIG, steps=64))
    run = train(IMAGES, tmp_path / "parts", CONFIG)
    assert_same_weights(run, whole)
    seen = []
    original = training._Trainer._batch

    def batch(self):
        seen.append(self.step)
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training._Trainer, "_batch", batch)
        run = train(IMAGES, tmp_path / "parts", replace(CONFIG, steps=64))
    assert seen == list(range(32, 64))  # nothing twice
    assert_same_weights(run, direct)


SCRIPT = """
import sys
from support.small_studies import IMAGES, LONG
from mlpoly.studies.paper.training import train
train(IMAGES, sys.argv[1], LONG)
"""


@pytest.mark.process
def test_killed_process(tmp_path):
    folder = tmp_path / "killed"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], env=environment)
    try:
        ends = time.monotonic() + 60
        while not (folder / "step-0000128.safetensors").exists():
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
    reached = TrainingRun.open(folder).steps
    assert 128 in reached
    assert 1500 not in reached  # it was killed on its way
    header, _ = read_tensors(folder / "state.safetensors")
    assert header["step"] in (64, *reached)  # killed between checkpoint and state, it resumes one checkpoint before
    begun = []
    original = training._Trainer.advance

    def advance(self):
        begun.append(self.step)
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training._Trainer, "advance", advance)
        run = train(IMAGES, folder, LONG)
    assert begun == [header["step"]]
    assert_same_weights(run, train(IMAGES, tmp_path / "whole", LONG))


@pytest.mark.parametrize(
    "changes",
    [{"hidden": 9}, {"learning_rate": 0.03}, {"batch_size": 16}, {"gated": True}, {"seed": 4}, {"activation": "gelu"}],
)
def test_folder_of_other_options(whole, changes):
    (name, value) = next(iter(changes.items()))
    message = rf"holds another run \({name} is {value}, there {getattr(CONFIG, name)}\); choose another"
    before = {p.name: p.read_bytes() for p in whole.folder.iterdir()}
    with pytest.raises(FileFormatError, match=message):
        train(IMAGES, whole.folder, replace(CONFIG, **changes))
    assert {p.name: p.read_bytes() for p in whole.folder.iterdir()} == before


@pytest.mark.parametrize("name", ["train", "train_labels"])
@pytest.mark.parametrize("steps", [CONFIG.steps, 64])
def test_other_images_of_the_same_shape_are_refused(whole, name, steps):
    with pytest.raises(FileFormatError, match="the training images have changed"):
        train(changed(IMAGES, name), whole.folder, replace(CONFIG, steps=steps))


def test_other_test_images_do_not_matter_to_a_training(whole):
    assert_same_weights(train(changed(IMAGES, "test"), whole.folder, CONFIG), whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"learning_rate": 0}, "learning_rate must be a positive number, got 0"),
        ({"weight_decay": -0.1}, "weight_decay must be a number >= 0"),
        ({"activation": "rleu"}, "unknown activation 'rleu'"),
        ({"samples": 1}, "samples must be at least 2"),
        ({"shrinkage": -0.1}, "shrinkage must lie between 0 and 1, got -0.1"),
    ],
)
def test_bad_options(changes, message):
    with pytest.raises(ValueError, match=message):
        (TrainConfig if next(iter(changes)) in asdict(CONFIG) else DynamicsConfig)(**changes)
