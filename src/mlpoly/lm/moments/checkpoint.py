"""Files that a pass over data leaves on disk, so that a killed one can be resumed."""

import json
import time
from collections.abc import Mapping
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder
from mlpoly.inputs import MomentAccumulator
from mlpoly.lm.distributed import exchange, world
from mlpoly.lm.moments.block_moments import MOMENTS_FILE, Moments, read_moments, write_moments

_PATIENCE = 10  # times as long as the last save took: for large models it is not free


class Progress(NamedTuple):
    """Batches read by all processes, the hash of their tokens, and the calibration of the groups."""

    batches: int = 0
    fingerprint: str = ""
    calibration: dict[str, Any] = {}  # noqa: RUF012 - never changed


class Checkpoint:
    """The files of one pass: one per process while it runs, "moments.safetensors" at the end; without a folder, none.

    A pass is resumed only with the same `options`, which must be JSON. `every` is the time between saves, in seconds.
    """

    def __init__(self, folder: str | PathLike[str] | None, options: Mapping[str, Any], every: float) -> None:
        wait: Any = every
        if isinstance(wait, bool) or not isinstance(wait, Real) or not float(wait) >= 0:
            raise ValueError(f"save_every must be a number of seconds >= 0, got {every!r}.")
        self._folder = None if folder is None else make_folder(folder)
        self._name = "partial-{}-of-{}.safetensors".format(*world())
        self._options = json.loads(json.dumps(options))
        self._every, self._took, self._last = float(every), 0.0, time.monotonic()

    def start(self, resume: bool) -> tuple[dict[str, dict[int, MomentAccumulator]], Progress]:
        """Return moments and progress that an earlier pass left; without `resume` they are deleted."""
        if self._folder is None:
            return {}, Progress()
        if not resume:
            for old in (self._folder / MOMENTS_FILE, *self._folder.glob("partial-*.safetensors")):
                old.unlink(missing_ok=True)
            exchange(None)  # no process may delete what another has saved since
            return {}, Progress()
        rank, size = world()
        found, progress = self._read(self._folder / MOMENTS_FILE) if rank == 0 else ({}, Progress())
        # A finished pass counts once: rank 0 has its moments, and the others pass over its batches.
        first = Progress(*exchange(progress)[0])
        if first.batches:
            return found, first
        other = [p for p in self._folder.glob("partial-*.safetensors") if f"-of-{size}." not in p.name]
        if other:
            raise ValueError(
                f"{self._folder} holds a pass of {other[0].stem.rsplit('-', 1)[1]} processes, now there are {size}. "
                f"Use as many, or start again with resume=False or another save_to."
            )
        return self._read(self._folder / self._name)

    def _read(self, path: Path) -> tuple[dict[str, dict[int, MomentAccumulator]], Progress]:
        if not path.exists():
            return {}, Progress()
        moments, state = read_moments(path)
        if "progress" not in state:
            raise FileFormatError(f"{path} has no progress of a pass; start again with resume=False.")
        for key, value in self._options.items():
            before = state["options"].get(key)
            if before != value:
                raise ValueError(
                    f"{path.parent} holds a pass with other options: {key} was {before!r:.80}, now it is "
                    f"{value!r:.80}. Use the same, or start again with resume=False or another save_to (in a study "
                    f"--restart or another --out)."
                )
        return {name: dict(parts) for name, parts in moments.blocks.items()}, Progress(*state["progress"])

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        waited = time.monotonic() - self._last
        return self._folder is not None and waited >= max(self._every, _PATIENCE * self._took)

    def save(self, moments: Moments, progress: Progress) -> None:
        """Keep what this process has so far."""
        began = time.monotonic()
        self._write(self._name, moments, progress)
        self._last = time.monotonic()
        self._took = self._last - began if self._every else 0.0

    def finish(self, moments: Moments, progress: Progress) -> None:
        """Keep the moments of all processes, and delete the files of the way there."""
        if self._folder is None:
            return
        if world().rank == 0:
            self._write(MOMENTS_FILE, moments, progress)
        exchange(None)  # the others wait for rank 0
        (self._folder / self._name).unlink(missing_ok=True)

    def _write(self, name: str, moments: Moments, progress: Progress) -> None:
        assert self._folder is not None
        write_moments(self._folder / name, moments, {"options": self._options, "progress": progress})
