"""The machine that a result was made on, the versions of the libraries, and the command that asked for it."""

import os
import platform
import sys
from contextvars import ContextVar
from importlib.metadata import version

from mlpoly._version import __version__

COMMAND: ContextVar[str] = ContextVar("COMMAND", default="")
"""The command line that is running; empty where Python calls the library."""


def check_device(device: str) -> str:
    """Return the name of a device, or raise unless PyTorch can use it here."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # PyTorch's errors for absent devices
        first = str(error).splitlines()[0]
        raise ValueError(
            f"device {device!r} is not usable here ({first}); use cpu, or install PyTorch for it."
        ) from None
    return device


def versions() -> dict[str, str]:
    """Return the versions of Python, this library, and the libraries that computed with it."""
    names = ["numpy", "scipy", *(name for name in ("torch", "transformers") if name in sys.modules)]
    return {"mlpoly": __version__, "python": platform.python_version()} | {name: version(name) for name in names}


def describe_machine(device: str = "cpu") -> dict[str, str]:
    """Return device, system and versions, without the name of the machine."""
    kind = f"{os.cpu_count()} CPU cores"
    if device.startswith("cuda"):
        import torch

        kind = torch.cuda.get_device_name(device)
    return {"device": kind, "system": f"{platform.system()} {platform.machine()}", **versions()}
