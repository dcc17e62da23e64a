"""Devices of PyTorch: whether one can be used here, and what to say of the machine."""

from __future__ import annotations

import os
import platform

import torch

__all__ = ["check_device", "describe_machine"]


def check_device(device: str) -> str:
    """The name of a device that PyTorch can use here.

    Raises
    ------
    ValueError
        If it cannot.
    """
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # what PyTorch raises for absent devices
        first = str(error).splitlines()[0]
        raise ValueError(
            f"device {device!r} is not usable here ({first}); use cpu, or install PyTorch for it."
        ) from None
    return device


def describe_machine(device: str) -> dict[str, str]:
    """Device, system, and the versions of Python, PyTorch and NumPy; no names of machines."""
    import numpy

    kind = torch.cuda.get_device_name() if device.startswith("cuda") else f"{os.cpu_count()} CPU cores"
    return {
        "device": kind,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
    }
