"""Timing and reporting shared by all benchmarks."""

from __future__ import annotations

import json
import platform
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path("out/bench")


def seconds(work: Callable[[], Any], repeats: int = 7, synchronise: Callable[[], None] = lambda: None) -> float:
    """Median wall time of one call, after one call to warm up."""
    work()
    synchronise()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        synchronise()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def paired_seconds(works: dict[str, Callable[[], Any]], repeats: int = 7) -> dict[str, float]:
    """Median wall times of several calls measured in turn, so that a noisy machine disturbs all alike."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_gib() -> float:
    """Largest resident memory of this process so far, in GiB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent process held when it started this one
        return int(next(s for s in status.read_text().splitlines() if s.startswith("VmHWM")).split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def save(name: str, results: dict[str, Any]) -> None:
    """Write results with the machine and versions they were measured on, and print them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    about = {"python": platform.python_version(), "numpy": np.__version__, "processor": platform.machine()}
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({"about": about, "results": results}, indent=2) + "\n")
    print(f"\n{name}  ->  {path}")
    for key, value in results.items():
        print(f"  {key:58s} {value:.4g}" if isinstance(value, float) else f"  {key:58s} {value}")
