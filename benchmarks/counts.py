"""What the work consists of, counted: kernel launches, products, passes over the weights, compilations.

Counts do not depend on the machine, so that a factor that is lost shows on any: ``make bench-check``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import mlpoly as mp
from benchmarks.common import Skip, save
from benchmarks.evaluation import Gated
from mlpoly.lm import collect

D, H, ROWS = 1024, 1024, 256  # wide enough for what is done with large matrices only
_VIEWS = {"view", "_unsafe_view", "t", "transpose", "expand", "slice", "select", "unsqueeze", "squeeze", "permute"}
_VIEWS |= {"detach", "alias", "as_strided", "reshape", "_reshape_alias", "unbind", "split", "split_with_sizes", "chunk"}
_VIEWS |= {"diagonal", "lift_fresh", "result_type", "empty", "empty_like"}


class Count(TorchDispatchMode):
    """Counts what PyTorch is asked to do: each operation but views is one kernel on a GPU."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size, self.launches, self.multiplications, self.passes = size, 0, 0.0, 0.0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = operation(*args, **(kwargs or {}))
        name = operation._schema.name.split("::")[1]
        if name not in _VIEWS:
            self.launches += 1
            tensors = [a for a in (*args, found) if isinstance(a, torch.Tensor)]
            if name in ("mm", "addmm", "bmm", "mv"):
                # (..., m, k) and (..., k, n): the root of the product of the sizes of both factors and the result.
                left, right = [a for a in args if isinstance(a, torch.Tensor)][-2:]
                self.multiplications += left.numel() * (right.shape[-1] if right.ndim > 1 else 1)
            elif self.size:
                self.passes += sum(a.numel() for a in tensors if a.numel() >= self.size // 4) / self.size
        return found


def counted(work: Callable[[], Any], size: int = 0) -> Count:
    """Count one call, after one to fill caches."""
    work()
    with Count(size) as count:
        work()
    return count


def layers() -> tuple[dict[str, Any], mp.Gaussian]:
    """A gated and an ungated layer with a full covariance, in float32."""
    torch.manual_seed(0)
    W, V, U = (torch.randn(*s) / s[1] ** 0.5 for s in ((H, D), (H, D), (16, H)))
    root = torch.randn(D, D) / D**0.5
    nets = {"SwiGLU": mp.GLU(W, None, V, None, U, None, "silu"), "ReLU": mp.MLP(W, None, U, None, "relu")}
    return nets, mp.Gaussian(torch.randn(D) / 10, root @ root.T)


def fits_and_errors() -> dict[str, float]:
    """Cubics and their errors in closed form: how much more than the products that they cannot do without."""
    nets, inputs = layers()
    results: dict[str, float] = {}
    for name, net in nets.items():
        fit = counted(lambda n=net: mp.fit(n, inputs, 3), H * D)
        poly = mp.fit(net, inputs, 3)
        error = counted(lambda n=net, p=poly: mp.fvu(n, p))
        results |= {
            f"fit, {name}, degree 3: launches": fit.launches,
            f"fit, {name}, degree 3: products / W S": fit.multiplications / (H * D * D),
            f"fit, {name}, degree 3: passes over the weights": fit.passes,
            f"exact FVU, {name}: launches": error.launches,
            f"exact FVU, {name}: products / W S": error.multiplications / (H * D * D),
        }
    return results


def modules() -> dict[str, float]:
    """Polynomials in a 16-bit model beside the block that they replace."""
    torch.manual_seed(0)
    block = Gated(D, H, D).requires_grad_(False)
    poly = mp.fit(mp.from_torch(block), mp.Gaussian.standard(D), 3).to_torch()
    x = torch.randn(ROWS, D).bfloat16()
    block = block.bfloat16()
    with torch.no_grad():
        ours, theirs = counted(lambda: poly(x), ROWS * H), counted(lambda: block(x), ROWS * H)
    return {
        "cubic in bf16: launches": ours.launches,
        "cubic in bf16: products / those of the block": ours.multiplications / theirs.multiplications,
        "cubic in bf16: passes over the hidden units / those of the block": ours.passes / theirs.passes,
    }


def moments() -> dict[str, float]:
    """Moments of a block's inputs beside the model's own pass."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 128), *[Gated(128, 384, 128) for _ in range(2)]).eval()
    batches = [torch.randint(0, 50, (16, 256))]
    with torch.no_grad():
        ours, theirs = counted(lambda: collect(model, batches)), counted(lambda: model(batches[0]))
    return {"collect: products / those of the model": ours.multiplications / theirs.multiplications}


def compilations() -> dict[str, float]:
    """Programs that JAX compiles for fits and measures of arrays with values on a processor."""
    try:
        import jax
        import jax.monitoring
    except ModuleNotFoundError:
        raise Skip("it needs jax") from None
    if jax.default_backend() != "cpu":
        return {}
    seen: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, _, **about: seen.append(event))
    rng = np.random.default_rng(0)
    arrays = [jax.numpy.asarray(rng.standard_normal(s) / 3) for s in ((12, 7), (12,), (3, 12))]
    net, inputs = mp.MLP(*arrays, None, "relu"), mp.Gaussian.standard(7)
    seen.clear()
    poly = mp.fit(net, inputs, 2)
    mp.fvu(net, poly)
    mp.similarity(net, poly, mp.Gaussian.standard(7, like=arrays[0]))
    mp.principal_forms(poly)
    return {"fit, fvu, similarity, principal forms in JAX: compilations": sum("backend_compile" in e for e in seen)}


def main() -> None:
    """Count everything, on one processor."""
    save("counts", {**fits_and_errors(), **modules(), **moments(), **compilations()}, threads=1)


if __name__ == "__main__":
    main()
