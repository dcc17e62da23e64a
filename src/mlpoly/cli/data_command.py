"""The command for data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import tyro

__all__ = ["DataCommand"]


@dataclass(frozen=True)
class DataCommand:
    """Download a data set into the user's cache, or list the folders in which data is looked for."""

    action: tyro.conf.Positional[Literal["download", "where"]]
    """download: from the first mirror that answers, with progress and checksum. where: list the searched folders."""
    name: tyro.conf.Positional[Literal["mnist", "fashion-mnist"]] = "mnist"
    """The data set."""
    force: bool = False
    """Download it again even if it is there."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Draw no progress bar."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.download.download`."""
        from mlpoly.studies.paper.download import download
        from mlpoly.studies.paper.images import searched_folders

        if self.action == "download":
            return {"folder": download(self.name, force=self.force, show_progress=not self.quiet)}
        return {"searched": searched_folders(self.name)}
