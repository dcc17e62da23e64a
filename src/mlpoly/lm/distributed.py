"""Several processes, as torchrun starts them: shares of the work, and moments summed over all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from mlpoly.inputs import MomentAccumulator
from mlpoly.lm.moments.row_sums import Component, Norms

__all__ = [
    "World",
    "check_agreement",
    "exchange",
    "exchange_tensors",
    "finish",
    "gather_tensors",
    "initialise",
    "reduce_components",
    "share",
    "together",
    "world",
]

T = TypeVar("T")

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class World(NamedTuple):
    """A process among all of them.

    Attributes
    ----------
    rank : int
        Its number.
    size : int
        How many there are.
    """

    rank: int
    size: int

    @property
    def device(self) -> torch.device:
        """Its own: one GPU for each process of a machine, or the CPU."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", torch.cuda.current_device())


def initialise(backend: str | None = None) -> World:
    """Join the processes that torchrun started; alone, do nothing.

    Parameters
    ----------
    backend : str, optional
        "nccl" or "gloo"; by default nccl where there is a GPU.

    Raises
    ------
    RuntimeError
        If only some of the variables of torchrun are set.
    """
    missing = [name for name in _VARIABLES if name not in os.environ]
    if dist.is_initialized() or len(missing) == len(_VARIABLES) or {"RANK", "WORLD_SIZE"} <= set(missing):
        return world()
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not set in the environment; start the processes with torchrun.")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    dist.init_process_group(backend or ("nccl" if torch.cuda.is_available() else "gloo"))
    return world()


def finish() -> None:
    """Leave the other processes; alone, do nothing."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def world() -> World:
    """The running process among all of them: rank 0 of 1 if there are no others."""
    if not (dist.is_available() and dist.is_initialized()):
        return World(0, 1)
    return World(dist.get_rank(), dist.get_world_size())


def share(items: Sequence[T]) -> list[T]:
    """The running process's part of the work: every item goes to exactly one process."""
    here = world()
    return list(items)[here.rank :: here.size]


# ---------------------------------------------------------------------------------------------------------------------
# Exchange, as bytes of JSON and of safetensors: torch's own exchange of objects unpickles what it is sent
# ---------------------------------------------------------------------------------------------------------------------


def exchange(value: Any) -> list[Any]:
    """What every process passes, by rank, on every process; it must be JSON."""
    return [json.loads(received) for received in _exchange_bytes(json.dumps(value).encode())]


def exchange_tensors(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The named tensors that every process passes, by rank, on the CPU of every process."""
    from safetensors.torch import load, save

    sent = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    return [load(received) for received in _exchange_bytes(sent)]


def _exchange_bytes(sent: bytes) -> list[bytes]:
    if world().size == 1:
        return [sent]
    lengths = _lengths(sent)
    padded = torch.zeros(max(lengths), dtype=torch.uint8)
    padded[: len(sent)] = _bytes(sent)
    rows = [torch.empty_like(padded, device=_place()) for _ in lengths]
    dist.all_gather(rows, padded.to(_place()))
    return [row[:n].cpu().numpy().tobytes() for row, n in zip(rows, lengths, strict=True)]


@contextmanager
def together() -> Iterator[None]:
    """What fails here on one process fails on all, so that none waits for it, or goes on alone with other work."""
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    told = exchange(None if failure is None else f"{type(failure).__name__}: {failure}")
    if failure is not None:
        raise failure
    failed = [(rank, text) for rank, text in enumerate(told) if text is not None]
    if failed:
        raise RuntimeError(f"process {failed[0][0]} failed, and this one stops with it ({failed[0][1]})")


def check_agreement(what: str, arguments: Any) -> None:
    """Raise unless all processes were given the same arguments, as JSON can hold them."""
    told = exchange(arguments)
    if any(other != told[0] for other in told):
        raise ValueError(f"the processes were given different arguments for {what}; give all of them the same.")


def gather_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The named tensors of all processes, on the CPU of rank 0; None on the others.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Names must differ between processes: those of the blocks of `share`, say.
    """
    from safetensors.torch import load, save

    here = world()
    sent = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    lengths = _lengths(sent) if here.size > 1 else [len(sent)]
    if here.rank:
        dist.send(_bytes(sent).to(_place()), dst=0)
        return None
    merged = load(sent)
    for rank in range(1, here.size):
        buffer = torch.empty(lengths[rank], dtype=torch.uint8, device=_place())
        dist.recv(buffer, src=rank)
        part = load(buffer.cpu().numpy().tobytes())
        if merged.keys() & part.keys():
            raise ValueError(f"two processes sent {sorted(merged.keys() & part.keys())[0]!r}; names must differ.")
        merged |= part
    return merged


def _lengths(sent: bytes) -> list[int]:
    sizes = [torch.zeros(1, dtype=torch.int64, device=_place()) for _ in range(world().size)]
    dist.all_gather(sizes, torch.tensor([len(sent)], device=_place()))
    return [int(size) for size in sizes]


def _bytes(sent: bytes) -> Tensor:
    return torch.frombuffer(bytearray(sent), dtype=torch.uint8)


def _place() -> torch.device:
    """Where tensors must be to be sent."""
    return world().device if dist.get_backend() == "nccl" else torch.device("cpu")


# ---------------------------------------------------------------------------------------------------------------------
# Moments
# ---------------------------------------------------------------------------------------------------------------------

Hookpoints = dict[str, dict[int, Component]]


def reduce_components(hookpoints: Hookpoints) -> Hookpoints:
    """Components of the inputs that all processes saw, on every process."""
    if world().size == 1:
        return hookpoints
    # Processes may have seen different components, or nothing at all; they must sum the same ones in the same order.
    seen = exchange({name: {n: part.moments.dim for n, part in parts.items()} for name, parts in hookpoints.items()})
    dims: dict[str, dict[int, int]] = {name: {} for name in hookpoints}
    for table in seen:
        for name, parts in table.items():
            dims[name].update({int(number): d for number, d in parts.items()})
    return {
        name: {number: _reduce(hookpoints[name].get(number), parts[number]) for number in sorted(parts)}
        for name, parts in dims.items()
    }


def _reduce(part: Component | None, dim: int) -> Component:
    """Sum of one component over all processes: means first, then deviations from the common mean."""
    count, mean, scatter = 0, torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dim, dtype=torch.float64)
    norms = Norms(0.0, float("inf"), float("-inf"))
    if part is not None:
        count, mean, scatter, norms = part.count, part.moments.mean, part.moments.scatter, part.norms
    total = int(_sum(torch.tensor([count])))
    common = _sum(mean * (count / total))
    gap = mean - common
    scatter = _sum(scatter + torch.outer(gap, gap * count))
    mean_norm = float(_sum(torch.tensor([norms.mean * (count / total)], dtype=torch.float64)))
    ends = torch.tensor([-norms.smallest, norms.largest], dtype=torch.float64)
    low, high = _sum(ends, dist.ReduceOp.MAX).tolist()
    return Component(MomentAccumulator.from_moments(total, common, scatter), Norms(mean_norm, -low, high))


def _sum(tensor: Tensor, operation: Any = None) -> Tensor:
    sent = tensor.to(_place(), copy=True)
    dist.all_reduce(sent, op=dist.ReduceOp.SUM if operation is None else operation)
    return sent.cpu()
