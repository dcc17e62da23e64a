"""What does a polynomial cost in the place of the network? 10^5 inputs, beside the network.

NumPy and PyTorch, float32 and float64, ``torch.compile`` off and on. Every ratio comes from batches that the network
and its polynomials were given in turn.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import mlpoly as mp
from benchmarks.common import paired_seconds, save

INPUTS, BATCH = 100_000, 2000
DEGREES = (2, 3, 5)
Batched = Callable[[Any], Any]


class Gated(nn.Module):
    """A gated unit in PyTorch's own words."""

    def __init__(self, d: int, h: int, o: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(d, h, bias=False), nn.Linear(d, h, bias=False)
        self.down_proj, self.act_fn = nn.Linear(h, o, bias=False), nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def networks(tiny: bool) -> dict[str, nn.Module]:
    """An MLP of MNIST's size with the cheapest of activations, and a gated unit."""
    d, h, o = (12, 16, 3) if tiny else (784, 256, 10)
    e, g = (12, 16) if tiny else (256, 688)
    torch.manual_seed(0)
    return {
        f"ReLU {d}-{h}-{o}": nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, o)),
        f"SwiGLU {e}-{g}-{e}": Gated(e, g, e),
    }


def contenders(module: nn.Module, dtype: str) -> dict[str, dict[str, Batched]]:
    """The network and its polynomials in every library, by library and name."""
    module = module.to(getattr(torch, dtype)).requires_grad_(False)
    net = mp.from_torch(module)
    inputs = mp.Gaussian.standard(net.dim_in)
    polys = {k: mp.fit(net, inputs, k) for k in DEGREES}
    plain = as_numpy(net)
    eager = {"network": module, **{f"degree {k}": p.to_torch() for k, p in polys.items()}}
    torch.compiler.reset()  # it counts how often a function was compiled, over all modules
    made = {"NumPy": {"network": plain, **{f"degree {k}": mp.fit(plain, inputs, k) for k in DEGREES}}, "torch": eager}
    if compiles():
        made["torch.compile"] = {name: torch.compile(m, dynamic=False) for name, m in eager.items()}
    return made


@functools.cache
def compiles(device: str = "cpu") -> bool:
    """Whether torch.compile works here: it needs a compiler of C or C++."""
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=device))
    except Exception as error:  # whatever the compiler's absence raises
        print(f"torch.compile does not work here ({type(error).__name__}) and is left out", flush=True)
        return False
    return True


def as_numpy(net: mp.MLP | mp.GLU) -> mp.MLP | mp.GLU:
    """The same network over NumPy arrays."""
    kind = type(net)
    names = ("W1", "b1", "W2", "b2") if kind is mp.MLP else ("W_gate", "b_gate", "W_up", "b_up", "W_down", "b_down")
    parts = [getattr(net, name) for name in names]
    return kind(*[None if p is None else p.numpy() for p in parts], net.activation)


def beside_network(name: str, module: nn.Module, inputs: int) -> dict[str, float]:
    """Time of every polynomial relative to its network."""
    results: dict[str, float] = {}
    dim = next(module.parameters()).shape[1]
    for dtype in ("float32", "float64"):
        x = np.random.default_rng(0).standard_normal((inputs, dim), dtype=dtype)
        for library, works in contenders(module, dtype).items():
            batches = np.split(x, inputs // BATCH)
            if library != "NumPy":
                batches = [torch.from_numpy(b) for b in batches]
            # Each contender goes through the batches by itself, one after the other with the rest.
            turns = {what: through(work, batches) for what, work in works.items()}
            with torch.no_grad():
                times = paired_seconds(turns, len(batches))
            base = times.pop("network")
            results[f"{name}, {library}, {dtype}: network on 10^5 inputs, s"] = base * INPUTS / BATCH
            results |= {f"{name}, {library}, {dtype}: {what} / network": t / base for what, t in times.items()}
    return results


def through(work: Batched, batches: list[Any]) -> Callable[[], Any]:
    """A call that takes the next batch every time."""
    stream = itertools.cycle(batches)
    return lambda: work(next(stream))


def main(tiny: bool = False) -> None:
    """Both networks."""
    results: dict[str, Any] = {}
    for name, module in networks(tiny).items():
        print(f"evaluation: {name}", flush=True)
        results |= beside_network(name, module, 2 * BATCH if tiny else INPUTS)
    worst = max(v for k, v in results.items() if k.endswith("degree 3 / network"))
    save("evaluation", {**results, "slowest degree 3 / network (goal 2)": worst})


if __name__ == "__main__":
    main()
