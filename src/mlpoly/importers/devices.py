"""Devices of PyTorch: whether one can be used here, and a description of the machine."""

from __future__ import annotations

import os
import platform

import torch


def check_device(device: str) -> str:
    """Return the name of a device, if PyTorch can use it here.

    Raises
    ------
    ValueError
        If it cannot.
    """
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # PyTorch's errors for absent devices
        first = str(error).splitlines()[0]
        raise ValueError(
            f"device {device!r} is not usable here ({first}); use cpu, or install PyTorch for it."
        ) from None
    return device


def describe_machine(device: str) -> dict[str, str]:
    """Device, system, and the versions of Python, PyTorch and NumPy, without the name of the machine."""
    import numpy

    kind = torch.cuda.get_device_name() if device.startswith("cuda") else f"{os.cpu_count()} CPU cores"
    return {
        "device": kind,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
    }
