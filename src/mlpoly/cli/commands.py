"""The commands: a dataclass of options each, whose method imports what it runs."""

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mlpoly.studies.language_model.options import LmConfig
from mlpoly.studies.paper.options import DynamicsConfig, Stage, TrainConfig


@dataclass(frozen=True)
class ReportCommand:
    """Write a page about a network: its polynomial, how good it is, and what it says."""

    model: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")]
    """A .safetensors, .pt or .onnx file; nothing in it is run."""
    data: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """Rows of inputs: .npz with x, .npy, or .csv with a header."""
    labels: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """Column of the .csv file or key of the .npz file with the labels; by default y, or the only column of words."""
    activation: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME [NAME ...]")] = None
    """Activation of the hidden layers, such as relu, or one for each, where the file of the model does not have it;
    identity for none."""
    layout: Annotated[Literal["out_in", "in_out"] | None, tyro.conf.arg(metavar="{out_in,in_out}")] = None
    """Order of the axes of the weights: out_in as in PyTorch, in_out as in Keras and Flax, the default for kernels."""
    image_shape: Annotated[tuple[int, int] | None, tyro.conf.arg(metavar="ROWS COLUMNS")] = None
    """Rows and columns of a picture, where inputs are pixels."""
    names: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME [NAME ...]")] = None
    """Names of the inputs; by default those of the header."""
    outputs: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME [NAME ...]")] = None
    """Names of the outputs, in their order; those of the classes, where labels are words. For one output: the class for
    which it is large."""
    degree: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Highest degree; by default 3 for one hidden layer and 2 for several."""
    examples: int = 12
    """Largest number of predictions to take apart."""
    title: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Title of the page."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("report.html")
    """The page."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Draw no progress bar. It is drawn on a terminal only."""

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.report`."""
        from mlpoly.cli.data_files import read_data
        from mlpoly.pages.network import report

        x, labels, names = read_data(self.data, self.labels)
        path = report(
            self.model,
            x,
            labels,
            self.names or names,
            self.image_shape,
            self.out,
            degree=self.degree,
            outputs=self.outputs,
            examples=self.examples,
            title=self.title or f"{self.model.name} as a polynomial",
            activation=self.activation[0] if self.activation and len(self.activation) == 1 else self.activation,
            layout=self.layout,
        )
        return {"report": path}


@dataclass(frozen=True)
class LmCommand:
    """Replace the blocks of a language model by polynomials: measure, read, and write report.html."""

    model: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[MODEL]")] = None
    """A causal language model: a folder, a .gguf file, or a name on the hub; by default a small one of this package."""
    text: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text in UTF-8, or an .npy file of token ids (n, t); needed with MODEL."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("out/lm")
    """Folder of the study."""
    held_out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text for the errors and losses; by default the last tenth of --text."""
    prompt: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Text that is taken apart token by token; by default the beginning of the held-out text."""
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE")] = "cpu"
    """Device of PyTorch, such as cuda."""
    restart: bool = False
    """Compute everything again, in place of what the folder has."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Draw no progress bars. They are drawn on a terminal only."""
    config: Annotated[LmConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=LmConfig)

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.language_model.run.study_lm`."""
        from mlpoly.studies.language_model.run import study_lm

        if self.quiet or not sys.stderr.isatty():
            with suppress(ImportError):  # load_model says what is missing
                from transformers.utils import logging

                logging.disable_progress_bar()  # which transformers would draw into files too
        results = study_lm(
            self.model,
            self.text,
            self.out,
            self.config,
            held_out=self.held_out,
            prompt=self.prompt,
            device=self.device,
            resume=not self.restart,
        )
        whole = [loss for loss in results.losses if loss.replaced in ("none", "all")]
        return {"report": self.out / "report.html", "seconds": results.about["seconds"], "losses": whole}


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
        """Call `mlpoly.datasets.download`."""
        from mlpoly.datasets import download, searched_folders

        if self.action == "download":
            return {"folder": download(self.name, force=self.force)}
        return {"searched": searched_folders(self.name)}
