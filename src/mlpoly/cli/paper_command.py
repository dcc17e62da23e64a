"""The command of the paper's experiments."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mlpoly.studies.paper.options import DynamicsConfig, Stage, TrainConfig


@dataclass(frozen=True)
class PaperCommand:
    """Repeat the paper's experiments: train, fit every checkpoint, attack, and write report.html."""

    action: tyro.conf.Positional[Literal["run", "report"]] = "run"
    """run: do what is missing in the folder. report: write tables, figures and page anew from the results that it
    has."""
    data: Annotated[str, tyro.conf.arg(metavar="DATA")] = "digits"
    """digits, mnist, fashion-mnist, a folder of IDX files, or an .npz file."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("out/paper")
    """Folder of the study."""
    until: Stage = "report"
    """Last stage to run."""
    seeds: int = 1
    """Number of networks to train, with seeds counted up from --seed."""
    train: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=TrainConfig)
    fits: Annotated[DynamicsConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=DynamicsConfig)
    label: Annotated[int | None, tyro.conf.arg(metavar="CLASS")] = None
    """Class shown in the printed figures, by default 3 as in the paper; the page has all of them."""
    figures: bool = True
    """Draw the figures for print as well (PNG and PDF); the page has its own."""
    data_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder in which the data is looked for before MLPOLY_DATA and the user's cache."""
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE")] = "cpu"
    """Device of PyTorch, such as cuda."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Draw no progress bars. They are drawn on a terminal only."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.paper.reproduce.reproduce`, or `write_up` alone."""
        from mlpoly.studies.paper.reproduce import reproduce, write_up

        if self.action == "report":
            results = write_up(self.out, label=self.label, figures=self.figures)
        else:
            results = reproduce(
                self.out,
                self.data,
                data_dir=self.data_dir,
                train=self.train,
                fits=self.fits,
                seeds=self.seeds,
                label=self.label,
                device=self.device,
                until=self.until,
                figures=self.figures,
            )
        networks = {point.seed: point for point in results.training}  # the last checkpoint of each
        page = self.out / "report.html"
        return {
            "networks": list(networks.values()),
            "claims": results.claims,
            "seconds": results.about["seconds"],
            "report": page if page.is_file() else None,
        }
