"""Timing and reporting shared by all benchmarks."""

import datetime
import importlib.metadata
import json
import math
import os
import platform
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(os.environ.get("MLPOLY_BENCH", "out/bench"))
LIBRARIES = ("mlpoly", "numpy", "scipy", "torch", "jax")


class Skip(Exception):
    """Raised by a benchmark that cannot run here; its text says what is missing."""


# -- timing ------------------------------------------------------------------------------------------------------------


def synchronise(device: str) -> None:
    """Wait until the device has finished."""
    if device == "cuda":
        sys.modules["torch"].cuda.synchronize()


def seconds(work: Callable[[], Any], repeats: int = 7, finish: Callable[[], None] = lambda: None) -> float:
    """Median wall time of one call, after one call to warm up."""
    return paired_seconds({"work": work}, repeats, finish)["work"]


def paired_seconds(
    works: dict[str, Callable[[], Any]],
    repeats: int = 7,
    finish: Callable[[], None] = lambda: None,
    of: Callable[[list[float]], float] = statistics.median,
    warm: bool = True,
) -> dict[str, float]:
    """Median wall times of several calls measured in turn, so that a noisy machine disturbs all alike.

    Every call is made once before, unless that was done already (`warm=False`). `finish` waits until a device is done.
    """
    for work in works.values() if warm else ():
        work()
    finish()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            finish()
            times[name].append(time.perf_counter() - began)
    return {name: of(values) for name, values in times.items()}


def peak_gib() -> float:
    """Largest resident memory of this process so far, in GiB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent process held when it started this one
        return int(next(s for s in status.read_text().splitlines() if s.startswith("VmHWM")).split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# -- reporting ---------------------------------------------------------------------------------------------------------


def save(name: str, results: dict[str, Any], threads: int | None = None) -> None:
    """Write results with the machine and versions they were measured on, and print those that are one number or text.

    Tables are nested dictionaries; what pictures are drawn from, under ``"curves"``, is not kept with the repository.
    Name `threads` if the benchmark chose them.
    """
    print(f"\n{name}  ->  {write(name, results, threads)}")
    for key, value in _plain(results).items():
        if not isinstance(value, (dict, list)):
            print(f"  {key:70s} {value:.4g}" if isinstance(value, float) else f"  {key:70s} {value}")


def write(name: str, results: dict[str, Any], threads: int | None = None) -> Path:
    """The same without a word, also for what has been measured so far."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(as_text({"about": about(name, threads), "results": _plain(results)}))
    return path


def as_text(content: dict[str, Any]) -> str:
    """JSON with the innermost lists and dictionaries on one line each."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda inner: re.sub(r"\s*\n\s*", " ", inner[0]), text) + "\n"


def about(name: str, threads: int | None = None) -> dict[str, Any]:
    """What a reader needs to compare or repeat a run; nothing that tells which host it was."""
    device = _device()
    return {
        "command": f"python -m benchmarks{' --gpu' if device else ''} {name}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory, GiB": _memory(),
        "gpu": device,
        "os": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "threads": threads or _threads(),
        "versions": versions(*LIBRARIES),
    }


def versions(*packages: str) -> dict[str, str]:
    """Versions of those packages that are installed."""
    installed = {}
    for package in packages:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            if package in sys.modules:  # run from a source tree
                installed[package] = str(sys.modules[package].__version__)
    return installed


def _plain(value: Any) -> Any:
    """The same in the types that JSON has, with five digits; what is not a finite number becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in value]
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    number = float(f"{float(value):.5g}")
    return number if math.isfinite(number) else None


def _cpu() -> str:
    """Model of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> float:
    """Of the whole machine, in GiB."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _device() -> str | None:
    """Name of the GPU that was used, if one was."""
    torch = sys.modules.get("torch")
    used = torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()
    return torch.cuda.get_device_name() if used else None


def _threads() -> int:
    """Threads that matrix products run on."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
