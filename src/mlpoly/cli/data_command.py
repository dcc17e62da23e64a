"""The command for data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import tyro


@dataclass(frozen=True)
class DataCommand:
    """Download a data set or a small model into the user's cache, or list the folders in which data is looked for."""

    action: tyro.conf.Positional[Literal["download", "where"]]
    """download: from the first mirror that answers, with progress and checksum. where: list the searched folders."""
    name: tyro.conf.Positional[Literal["mnist", "fashion-mnist", "stories260K"]] = "mnist"
    """The data set; or stories260K, a language model of 1 MB, with text of its own for mlpoly lm."""
    force: bool = False
    """Download it again even if it is there."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Draw no progress bar."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.datasets.download`."""
        from mlpoly.datasets import download, searched_folders

        if self.action == "download":
            folder = download(self.name, force=self.force)
            if self.name != "stories260K":
                return {"folder": folder}
            return {"folder": folder, "next": f"mlpoly lm {folder} --text {folder / 'tokens.npy'} --out out/stories"}
        return {"searched": searched_folders(self.name)}
