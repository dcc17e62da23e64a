"""The command for anybody's network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


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
    """Order of the axes of the weights, where both would fit: out_in as in PyTorch, in_out as in Keras and Flax."""
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
