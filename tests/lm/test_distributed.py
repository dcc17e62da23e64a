"""Two processes that torchrun starts, against one."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this build of PyTorch has no torch.distributed", allow_module_level=True)
from support.backends import assert_close
from support.tiny_models import assert_same_moments

from mlpoly.lm import Conversion, Moments, collect, convert
from mlpoly.lm.distributed import exchange, gather, initialise, world

# What both the script and this file run; the script is told where to write.
SETTING = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 6)
        self.first = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6))
        self.second = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6))

    def forward(self, ids):
        x = self.embedding(ids)
        return self.second(x + self.first(x))


def model():
    torch.manual_seed(0)
    made = Model()
    made.embedding.weight.data[:3] *= 9  # long ones, for groups="norm"
    return made


def batches(n):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(50, (2, 5), generator=generator) for _ in range(n)]


CASES = {
    "plain": (7, {}),
    "first": (6, {"groups": "first"}),
    "norm": (7, {"groups": "norm"}),
    "clusters": (7, {"groups": "clusters"}),
    "budget": (7, {"tokens": 34}),
    "one batch": (1, {}),
    "user": (5, {"groups": lambda x, positions, tokens: tokens // 25}),
}
CONVERSIONS = {
    "gaussian": {},
    "neuronwise": {"method": "neuronwise", "bound": 3.0},
    "samples": {"method": "samples", "bound": 2.0},
    "one": {"blocks": "first"},
}
"""

SCRIPT = """
import json, sys
from pathlib import Path
from setting import CASES, CONVERSIONS, batches, model
from mlpoly.lm import collect, convert
from mlpoly.lm.distributed import exchange, initialise, world
import torch

out = Path(sys.argv[1])
here = initialise()
assert here == world() == initialise() and here.size == 2
net = model()
calls = []
net.register_forward_pre_hook(lambda module, args: calls.append(1))
facts = {}
for name, (n, options) in CASES.items():
    calls.clear()
    moments = collect(net, batches(n), **options)
    facts[name] = len(calls)
    moments.save(out / f"{name}-{here.rank}.safetensors")

def stopped():
    yield from batches(7)[:5]
    raise KeyboardInterrupt

options = {"save_to": out / "resumed", "save_every": 0, "groups": "norm"}
try:
    collect(net, stopped(), **options)
except KeyboardInterrupt:
    exchange(None)
facts["kept"] = sorted(p.name for p in (out / "resumed").iterdir())
exchange(None)
calls.clear()
collect(net, batches(7), **options)
facts["resumed"] = len(calls)
exchange(None)
facts["left"] = sorted(p.name for p in (out / "resumed").iterdir())
calls.clear()
collect(net, batches(7), **options)
facts["finished"] = len(calls)

try:
    collect(net, batches(4)[here.rank:])
except ValueError as error:
    facts["different"] = str(error)
moments = collect(net, batches(7), groups="first")
for name, options in CONVERSIONS.items():
    made = convert(net, moments, 3, batches=batches(7), held_out=batches(2), **options)
    made.save(out / f"conversion-{name}-{here.rank}")
try:
    convert(net, moments, 2 + here.rank)
except ValueError as error:
    facts["disagree"] = str(error)
(out / f"facts-{here.rank}.json").write_text(json.dumps(facts))
torch.distributed.destroy_process_group()
assert world().size == 1
"""


def setting():
    made = {}
    exec(SETTING, made)
    return made


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "setting.py").write_text(SETTING)
    (folder / "script.py").write_text(SCRIPT)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run += [str(folder / "script.py"), str(folder)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(run, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def facts(results, rank):
    return json.loads((results / f"facts-{rank}.json").read_text())


def assert_same(one, other):
    """The same but for the order of sums, and for libraries that other tests in this process have imported."""
    assert one.provenance | {"versions": {}} == other.provenance | {"versions": {}}
    assert_same_moments(one, other, 1e-10)


@pytest.mark.process
@pytest.mark.parametrize("case", ["plain", "first", "norm", "clusters", "budget", "one batch", "user"])
def test_two_processes_find_what_one_finds(case, results):
    made = setting()
    n, options = made["CASES"][case]
    alone = collect(made["model"](), made["batches"](n), **options)
    for rank in (0, 1):
        assert_same(Moments.load(results / f"{case}-{rank}.safetensors"), alone)
    if case in ("norm", "clusters", "user"):
        assert len(alone.groups("first")) > 1


@pytest.mark.process
def test_each_process_runs_its_part(results):
    first, second = facts(results, 0), facts(results, 1)
    assert (first["plain"], second["plain"]) == (4, 3)
    assert (first["one batch"], second["one batch"]) == (1, 0)
    assert (first["budget"], second["budget"]) == (2, 2)  # 34 tokens in batches of 10
    assert (first["norm"], second["norm"]) == (5, 4)  # and the first batch once more on each, for the median


@pytest.mark.process
def test_killed_processes_are_resumed(results):
    made = setting()
    alone = collect(made["model"](), made["batches"](7), groups="norm")
    assert_same(Moments.load(results / "resumed"), alone)
    for rank, again in ((0, 1), (1, 1)):  # batches 6 and 5
        found = facts(results, rank)
        assert found["kept"] == ["partial-0-of-2.safetensors", "partial-1-of-2.safetensors"]
        assert found["resumed"] == again
        assert found["left"] == ["moments.safetensors"]
        assert found["finished"] == 0


@pytest.mark.process
@pytest.mark.parametrize("case", ["gaussian", "neuronwise", "samples", "one"])
def test_two_processes_fit_what_one_fits(case, results):
    made = setting()
    net, options = made["model"](), made["CONVERSIONS"][case]
    moments = collect(net, made["batches"](7), groups="first")
    alone = convert(net, moments, 3, batches=made["batches"](7), held_out=made["batches"](2), **options)
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(2))
    both = [Conversion.load(results / f"conversion-{case}-{rank}") for rank in (0, 1)]
    for name in alone.polynomials:
        assert torch.equal(*(found.polynomials[name](x) for found in both))
        assert len({replace(found.errors[name], seconds=0.0) for found in both}) == 1
    for found in both:
        assert list(found.polynomials) == list(alone.polynomials)
        for name, poly in alone.polynomials.items():
            assert type(found.polynomials[name]) is type(poly)
            # In float32, and the moments were summed in another order.
            assert_close(found.polynomials[name](x), poly(x), 1e-5)
            assert found.errors[name].closed_form == pytest.approx(alone.errors[name].closed_form, rel=1e-3)
            assert found.errors[name].held_out == pytest.approx(alone.errors[name].held_out, rel=1e-3)


@pytest.mark.process
def test_different_arguments_and_data_are_refused(results):
    for rank in (0, 1):
        assert "different arguments for convert" in facts(results, rank)["disagree"]
        assert "the processes were given different batches" in facts(results, rank)["different"]


def test_one_process_alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert initialise() == world() == (0, 1)
    assert exchange({"a": [1, None]}) == [{"a": [1, None]}]
    tensor = torch.arange(3)
    assert torch.equal(gather(tensor)[0], tensor)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RuntimeError, match=r"WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set.*torchrun"):
        initialise()
