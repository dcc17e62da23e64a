"""Bounds of `mp.certify` beside those of auto_LiRPA 0.3: the same networks, boxes and seconds, on one core.

    pip install --no-deps auto_LiRPA && pip install appdirs ninja
    OMP_NUM_THREADS=1 python -m benchmarks.auto_lirpa

That version, of 2022, is the newest on the package index; names that NumPy and PyTorch have moved since are put back.
"""

import importlib
import itertools
import sys
import time
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

import mlpoly as mp

SIZES = ((16, 32, 2), (16, 32, 32, 2), (16, 32, 32, 32, 32, 2), (64, 128, 10), (64, 128, 128, 10))
RADII = (0.05, 0.5)
ITERATIONS = 100  # of auto_LiRPA's descent in the slopes, which ends it where ten of them gain nothing


def library() -> Any:
    """auto_LiRPA, with the names that it expects."""
    symbolic_helper = importlib.import_module("torch.onnx.symbolic_helper")
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    moved = ModuleType("numpy.lib.arraysetops")
    moved.isin = np.isin  # type: ignore[attr-defined]
    sys.modules[moved.__name__] = moved
    symbolic_helper._set_opset_version = lambda v: setattr(GLOBALS, "_export_onnx_opset_version", v)
    torch._C.Node.__getitem__ = lambda node, name: getattr(node, node.kindOf(name))(name)
    import auto_LiRPA

    return auto_LiRPA


def network(sizes: tuple[int, ...], activation: type[nn.Module]) -> nn.Sequential:
    """A random network with weights of variance 2 / inputs."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for d, h in itertools.pairwise(sizes):
        linear = nn.Linear(d, h)
        nn.init.normal_(linear.weight, std=(2 / d) ** 0.5)
        nn.init.normal_(linear.bias, std=0.1)
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1]).requires_grad_(False)


def theirs(lirpa: Any, module: nn.Module, d: int, radius: float, method: str) -> tuple[float, float]:
    """Mean width of the certified ranges over the box of this radius around zero, and seconds."""
    x, start = torch.zeros(1, d), time.perf_counter()
    descent = {"iteration": ITERATIONS, "lr_alpha": 0.1, "enable_beta_crown": False}
    options = {"sparse_features_alpha": False, "sparse_spec_alpha": False, "optimize_bound_args": descent}
    bounded = lirpa.BoundedModule(module, x, bound_opts=options)
    box = lirpa.PerturbationLpNorm(norm=float("inf"), x_L=x - radius, x_U=x + radius)
    low, high = bounded.compute_bounds(x=(lirpa.BoundedTensor(x, box),), method=method)
    return float((high - low).mean().detach()), time.perf_counter() - start


def main() -> None:
    """Print a row of the table for every network and box."""
    lirpa = library()
    theirs(lirpa, network((2, 2), nn.ReLU), 2, 0.1, "CROWN")  # what it compiles first is not in the times
    for activation, sizes, radius in itertools.product((nn.ReLU, nn.Tanh), SIZES, RADII):
        module = network(sizes, activation)
        net, d = mp.from_torch(module), sizes[0]
        crown, alpha = (theirs(lirpa, module, d, radius, method) for method in ("CROWN", "CROWN-Optimized"))
        first, found = (mp.certify(net, -radius, radius, seconds=seconds) for seconds in (0.0, alpha[1]))
        ours = [(float(np.mean(c.high - c.low)), c.seconds) for c in (first, found)]
        cells = [f"{width:.4g} in {seconds:.2g} s" for width, seconds in (crown, ours[0], alpha, ours[1])]
        name = "-".join(map(str, sizes))
        attained = float(np.mean(found.highest - found.lowest))
        print("|", activation.__name__, name, "|", radius, "|", " | ".join(cells), f"| {attained:.4g} |", flush=True)


if __name__ == "__main__":
    main()
