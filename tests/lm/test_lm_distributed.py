"""Two processes that torchrun starts, against one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this build of PyTorch has no torch.distributed", allow_module_level=True)
from support.backends import assert_close  # noqa: E402 - after importorskip

from mlpoly.lm import (  # noqa: E402
    Moments,
    collect,
    convert,
    exchange,
    finish,
    gather_tensors,
    initialise,
    load_conversion,
    share,
    world,
)

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
    made.embedding.weight.data[:3] *= 9  # long ones, for components="norm"
    return made


def batches(n):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(50, (2, 5), generator=generator) for _ in range(n)]


CASES = {
    "plain": (7, {}),
    "first": (6, {"components": "first"}),
    "norm": (7, {"components": "norm"}),
    "budget": (7, {"tokens": 34}),
    "one batch": (1, {}),
    "user": (5, {"components": lambda x, positions, tokens: tokens // 25}),
}
CONVERSIONS = {
    "gaussian": {},
    "neuronwise": {"method": "neuronwise", "bound": 3.0},
    "samples": {"method": "samples", "bound": 2.0},
    "one": {"layers": "first"},
}
"""

SCRIPT = """
import json, sys
from pathlib import Path
from setting import CASES, CONVERSIONS, batches, model
from mlpoly.fitting.sample_fit import SampleFit
from mlpoly.lm.distributed import together
from mlpoly.lm import collect, convert, exchange, finish, gather_tensors, initialise, share, world
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

options = {"save_to": out / "resumed", "save_every": 0, "components": "norm"}
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
facts["share"] = share(list("abcde"))
facts["exchange"] = exchange({"rank": here.rank, "text": "ä" * (1 + 5 * here.rank)})
mine = {name: torch.full((2, 3), i, dtype=torch.bfloat16) for i, name in enumerate("abcde") if name in facts["share"]}
gathered = gather_tensors(mine)
facts["gathered"] = None if gathered is None else {name: t.tolist() for name, t in gathered.items()}

fits = []
real = SampleFit.update
def counted(self, x):
    fits.append(1)
    return real(self, x)
SampleFit.update = counted
moments = collect(net, batches(7), components="first")
for name, options in CONVERSIONS.items():
    made = convert(net, moments, 3, batches=batches(7), held_out=batches(2), **options)
    made.save(out / f"conversion-{name}-{here.rank}")
facts["fitted"] = len(fits)
try:
    with together():
        if here.rank:
            raise KeyError("only here")
except Exception as error:
    facts["together"] = f"{type(error).__name__}: {error}"
try:
    convert(net, moments, 2 + here.rank)
except ValueError as error:
    facts["disagree"] = str(error)
facts["inputs"] = [type(p.inputs).__name__ for p in made.polynomials.values()]
(out / f"facts-{here.rank}.json").write_text(json.dumps(facts))
finish()
assert world().size == 1
"""


def setting() -> dict[str, Any]:
    made: dict[str, Any] = {}
    exec(SETTING, made)
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "setting.py").write_text(SETTING)
    (folder / "script.py").write_text(SCRIPT)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    run += ["--master-port", str(free_port()), str(folder / "script.py"), str(folder)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(run, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def facts(results: Path, rank: int) -> dict[str, Any]:
    return json.loads((results / f"facts-{rank}.json").read_text())


def assert_same(one: Moments, other: Moments, tolerance: float) -> None:
    assert one.names == other.names
    # Other tests in this process may have imported more libraries.
    assert one.provenance | {"versions": {}} == other.provenance | {"versions": {}}
    for name in one.names:
        assert list(one.components(name)) == list(other.components(name))
        for number, part in one.components(name).items():
            expected = other.components(name)[number]
            assert part.count == expected.count
            assert_close(part.mean, expected.mean, tolerance)
            assert_close(part.covariance, expected.covariance, tolerance)
            assert part.norms == pytest.approx(tuple(expected.norms), rel=1e-10)


@pytest.mark.parametrize("case", ["plain", "first", "norm", "budget", "one batch", "user"])
def test_two_processes_find_what_one_finds(case: str, results: Path) -> None:
    made = setting()
    n, options = made["CASES"][case]
    alone = collect(made["model"](), made["batches"](n), **options)
    for rank in (0, 1):
        # Sums are taken in another order, no more.
        assert_same(Moments.load(results / f"{case}-{rank}.safetensors"), alone, 1e-10)
    if case in ("norm", "user"):
        assert len(alone.components("first")) > 1


def test_each_process_runs_its_share(results: Path) -> None:
    first, second = facts(results, 0), facts(results, 1)
    assert (first["plain"], second["plain"]) == (4, 3)
    assert (first["one batch"], second["one batch"]) == (1, 0)
    assert (first["budget"], second["budget"]) == (2, 2)  # 34 tokens in batches of 10
    assert (first["norm"], second["norm"]) == (5, 4)  # and the first batch once more on each, for the median


def test_killed_processes_go_on(results: Path) -> None:
    made = setting()
    alone = collect(made["model"](), made["batches"](7), components="norm")
    assert_same(Moments.load(results / "resumed"), alone, 1e-10)
    for rank, again in ((0, 1), (1, 1)):  # batches 6 and 5
        found = facts(results, rank)
        assert found["kept"] == ["partial-0-of-2.safetensors", "partial-1-of-2.safetensors"]
        assert found["resumed"] == again
        assert found["left"] == ["moments.safetensors"]
        assert found["finished"] == 0


def test_exchange_and_shares(results: Path) -> None:
    first, second = facts(results, 0), facts(results, 1)
    assert first["share"] == ["a", "c", "e"] and second["share"] == ["b", "d"]
    assert first["exchange"] == second["exchange"] == [{"rank": 0, "text": "ä"}, {"rank": 1, "text": "ääääää"}]
    assert second["gathered"] is None
    assert first["gathered"] == {name: [[float(i)] * 3] * 2 for i, name in enumerate("abcde")}


@pytest.mark.parametrize("case", ["gaussian", "neuronwise", "samples", "one"])
def test_two_processes_fit_what_one_fits(case: str, results: Path) -> None:
    made = setting()
    net, options = made["model"](), made["CONVERSIONS"][case]
    moments = collect(net, made["batches"](7), components="first")
    alone = convert(net, moments, 3, batches=made["batches"](7), held_out=made["batches"](2), **options)
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(2))
    for rank in (0, 1):
        found = load_conversion(results / f"conversion-{case}-{rank}")
        assert list(found.polynomials) == list(alone.polynomials)
        for name, poly in alone.polynomials.items():
            assert type(found.polynomials[name]) is type(poly)
            # In float32, and the moments were summed in another order.
            assert_close(found.polynomials[name](x), poly(x), 1e-5)
            assert found.quality[name].closed_form == pytest.approx(alone.quality[name].closed_form, rel=1e-3)
            assert found.quality[name].held_out == pytest.approx(alone.quality[name].held_out, rel=1e-3)


def test_blocks_are_shared_out_for_fitting(results: Path) -> None:
    first, second = facts(results, 0), facts(results, 1)
    assert first["fitted"] == second["fitted"] == 7  # batches, for one block of the two
    assert first["inputs"] == second["inputs"] == ["Gaussian"]


def test_what_fails_on_one_process_fails_on_all(results: Path) -> None:
    first, second = facts(results, 0), facts(results, 1)
    assert second["together"] == "KeyError: 'only here'"
    assert first["together"].startswith("RuntimeError: process 1 failed, and this one stops with it (KeyError")
    for found in (first, second):
        assert "different arguments for convert" in found["disagree"]


def test_different_data_is_refused(results: Path) -> None:
    for rank in (0, 1):
        assert "the processes were given different batches" in facts(results, rank)["different"]


def test_one_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert initialise() == world() == (0, 1)
    assert share(range(3)) == [0, 1, 2]
    assert exchange({"a": [1, None]}) == [{"a": [1, None]}]
    tensor = torch.arange(3)
    gathered = gather_tensors({"x": tensor})
    assert gathered is not None and torch.equal(gathered["x"], tensor)
    finish()
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RuntimeError, match=r"WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set.*torchrun"):
        initialise()
