"""Several processes, as torchrun starts them: call `initialise` in each, and torch's destroy_process_group at the end.

Processes send one another tensors and JSON as bytes. torch's own exchange of objects unpickles what it is sent.
"""

import json
import os
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class World(NamedTuple):
    """The number of a process, and how many there are."""

    rank: int
    size: int


def initialise(backend: str | None = None) -> World:
    """Join the processes that torchrun started; alone, do nothing. By default with nccl if there is a GPU, or gloo."""
    missing = [name for name in _VARIABLES if name not in os.environ]
    if dist.is_initialized() or len(missing) == len(_VARIABLES) or {"RANK", "WORLD_SIZE"} <= set(missing):
        return world()
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not set in the environment; start the processes with torchrun.")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    dist.init_process_group(backend or ("nccl" if torch.cuda.is_available() else "gloo"))
    return world()


def world() -> World:
    """Return rank and number of processes: 0 and 1 if there is only one."""
    if not (dist.is_available() and dist.is_initialized()):
        return World(0, 1)
    return World(dist.get_rank(), dist.get_world_size())


def gather(tensor: Tensor) -> list[Tensor]:
    """Return the tensors of all processes, by rank, on the CPU; they must have one shape and dtype."""
    if world().size == 1:
        return [tensor.cpu()]
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    sent = tensor.to(device).contiguous()
    received = [torch.empty_like(sent) for _ in range(world().size)]
    dist.all_gather(received, sent)
    return [part.cpu() for part in received]


def exchange(value: Any) -> list[Any]:
    """Return the values of all processes, by rank; they must be JSON."""
    sent = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    lengths = [int(n) for n in gather(torch.tensor([len(sent)]))]
    padded = torch.nn.functional.pad(sent, (0, max(lengths) - len(sent)))
    return [json.loads(part[:n].numpy().tobytes()) for part, n in zip(gather(padded), lengths, strict=True)]
