"""A page about any network: what its polynomials say, how far they are off, and single predictions explained."""

import time
from collections.abc import Sequence
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

from mlpoly.arrays import as_integer
from mlpoly.extras import explain_missing
from mlpoly.inputs import Inputs
from mlpoly.networks.assemble import Layout
from mlpoly.progress_bars import progress_bar

__all__ = ["report"]


def report(
    net: Any,
    x: Any,
    labels: Any = None,
    names: Sequence[str] | None = None,
    image_shape: tuple[int, int] | None = None,
    out: str | PathLike[str] = "report.html",
    *,
    degree: int | None = None,
    inputs: Inputs | None = None,
    outputs: Sequence[str] | None = None,
    examples: int = 12,
    title: str | None = None,
    activation: str | Sequence[str | None] | None = None,
    layout: Layout | None = None,
) -> Path:
    """Write one self-contained page about a network: its polynomial, how good it is, and what it says.

    Parameters
    ----------
    net : network, model or path
        Anything that `from_torch`, `from_sklearn`, `from_keras`, `from_equinox` or `from_flax` takes by itself, or a
        file: .safetensors and .pt with weights, or .onnx.
        Nothing in a file is run.
    x : array (n, d), (n, rows, columns) or DataFrame
        Data; columns of a DataFrame become the names.
    labels : array (n,) or (n, o), optional
        Classes, as numbers of outputs or as words (whose order `outputs` gives, where the network does not know it), or
        values to predict: the page then has accuracies or R².
    names : sequence of str, optional
        Names of the inputs.
    image_shape : (int, int), optional
        Rows and columns, where inputs are pixels.
    out : path
        File to write; its folder is made if it is missing.
    degree : int, optional
        Highest degree; by default 3 for one hidden layer under one Gaussian, 2 otherwise.
    inputs : Gaussian, GaussianMixture or Samples, optional
        Distribution to fit under; by default the Gaussian with the mean and covariance of x.
    outputs : sequence of str, optional
        Names of the outputs; by default those of the classes. A single output has that of the class for which it is
        large.
    examples : int
        Largest number of predictions to take apart.
    activation, layout : str, optional
        For the path of a file of weights: the activation of its hidden layers or one for each, and the order of the
        axes, "out_in" as in PyTorch or "in_out" as in Keras and Flax.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp, tempfile, pathlib
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, activation="relu")
    >>> x = np.random.default_rng(0).standard_normal((50, 2))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> mp.report(net, x, names=["age", "dose"], out=path).name
    'report.html'
    """
    began = time.perf_counter()
    with explain_missing("mlpoly.report"):  # an extra: jinja2 and plotly
        from mlpoly.importers.model_files import read_network
        from mlpoly.pages.network.fits import fit_degrees
        from mlpoly.pages.network.page import write_page
        from mlpoly.pages.network.subject import check_subject
    examples = as_integer("examples", examples, 0)
    degree = None if degree is None else as_integer("degree", degree, 1)
    target = Path(out)
    if target.is_dir():
        raise ValueError(f"out is the folder {target}; give the path of a file, such as {target / 'report.html'}.")
    if isinstance(net, str | PathLike):
        net = read_network(net, activation, layout)
    elif activation is not None or layout is not None:
        raise ValueError("activation and layout are for files of weights; this network knows its own.")
    subject = check_subject(net, x, labels, names, image_shape, inputs, outputs)
    with progress_bar("report", None) as update:
        steps = count()

        def tick(note: str) -> None:
            update(next(steps), note)

        fits = fit_degrees(subject, degree, tick)
        return write_page(subject, fits, target, title or "A network as a polynomial", examples, began, tick)
