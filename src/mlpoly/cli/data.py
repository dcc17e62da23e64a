"""The command for data sets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

__all__ = ["Data"]


@dataclass(frozen=True)
class Data:
    """Fetch a data set into the user's cache, or say where data is looked for."""

    action: tyro.conf.Positional[Literal["download", "where"]]
    """download: fetch with progress, resume and checksum. where: the places that are searched."""
    name: tyro.conf.Positional[Literal["mnist", "fashion-mnist"]] = "mnist"
    """The data set."""
    force: bool = False
    """Fetch it again even if it is there."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """No progress bar."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.download`."""
        from mlpoly.studies.paper.data import cache_dir
        from mlpoly.studies.paper.download import download

        if self.action == "download":
            return {"folder": download(self.name, force=self.force, show_progress=not self.quiet)}
        places = [os.environ["MLPOLY_DATA"]] if os.environ.get("MLPOLY_DATA") else []
        return {"searched": [str(Path(p) / self.name) for p in [*places, str(cache_dir())]]}
