"""The subject of a page: a network with the data it is read on, checked and in double precision."""

import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from mlpoly import importers
from mlpoly.arrays import as_float_array, check_columns, column_names, to_numpy
from mlpoly.charts.chart import check_image_shape
from mlpoly.errors import DataWarning
from mlpoly.inputs import Gaussian, GaussianMixture, Inputs, as_inputs
from mlpoly.networks import Network
from mlpoly.networks.chain import import_call
from mlpoly.pages.toolkit.widgets import counted

_TINY = 1e-12  # of the mean: with a standard deviation below that an input counts as constant


@dataclass(frozen=True)
class Subject:
    """A network and data, checked, as NumPy arrays in float64."""

    net: Network
    x: np.ndarray  # (n, d)
    names: tuple[str, ...]  # of the d inputs
    outputs: tuple[str, ...]  # names of the o outputs
    inputs: Inputs  # distribution that the polynomials are fitted under
    estimated: bool  # whether that is the Gaussian with the mean and covariance of x
    task: Literal["classes", "values"] | None = None  # what the labels are
    targets: np.ndarray | None = None  # (n,) numbers of the classes, or (n, o) values of the outputs
    image_shape: tuple[int, int] | None = None
    code: tuple[str, ...] = ()  # lines of Python that make net, rows and inputs, as NumPy arrays, from what was passed

    @property
    def titles(self) -> tuple[str, ...]:
        """Names of the outputs in a sentence: "class 3" where the name of a class is a number."""
        numbered = self.task == "classes" and all(name.isdigit() for name in self.outputs)
        return tuple(f"class {name}" for name in self.outputs) if numbered else self.outputs

    @property
    def mean(self) -> np.ndarray:
        """Mean of the inputs, (d,)."""
        return np.asarray(self.inputs.mean, float)

    @property
    def spread(self) -> np.ndarray:
        """Standard deviations of the inputs, (d,); zero where an input is constant up to rounding."""
        found = np.sqrt(np.clip(np.diagonal(np.asarray(self.inputs.covariance, float)), 0, None))
        return np.where(found > _TINY * np.abs(self.mean), found, 0.0)


def distinct(names: Iterable[str]) -> list[str]:
    """Names with a number behind those that have occurred before."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return made


def describe_inputs(inputs: Inputs) -> str:
    """Return what the polynomials were fitted under, in words."""
    if isinstance(inputs, Gaussian):
        return "a Gaussian"
    if isinstance(inputs, GaussianMixture):
        return f"a mixture of {counted(len(inputs.components), 'Gaussian')}"
    return "samples"


def check_subject(
    net: Any,
    x: Any,
    labels: Any = None,
    names: Sequence[str] | None = None,
    image_shape: tuple[int, int] | None = None,
    inputs: Inputs | None = None,
    outputs: Sequence[str] | None = None,
) -> Subject:
    """Check the arguments of `mlpoly.report` and give names to what has none."""
    network = net
    if not isinstance(net, Network) and (call := import_call(net)):
        network = getattr(importers, call.partition("(")[0])(net)
    if not isinstance(network, Network):
        raise TypeError(
            f"net must be a network of this library, a model of PyTorch, scikit-learn, Keras, Equinox or Flax, or the "
            f"path of a model file, got {type(network).__name__}."
        )
    network, known_classes = network.to(np.zeros(())), getattr(net, "classes_", None)  # of scikit-learn
    classes = None if known_classes is None else [str(name) for name in known_classes]
    outputs = network.output_names if outputs is None and classes is None else outputs
    coded = None
    if hasattr(net, "get_params") and hasattr(net, "predict"):  # an estimator of scikit-learn, with encoders or without
        from mlpoly.importers.sklearn_columns import encoding_of, first_step

        coded = encoding_of(first_step(net))
    if coded is not None:  # categories become numbers, for which no single Gaussian stands
        x = coded(x)
        if isinstance(inputs, Gaussian):
            warnings.warn(
                "one Gaussian puts most of its mass between the categories; leave inputs out for the rows themselves, "
                "or pass inputs=mlpoly.importers.encoding(pipeline).inputs(x).",
                DataWarning,
                stacklevel=3,
            )
        inputs = x if inputs is None else inputs
    columns, known = column_names(x), getattr(net, "feature_names_in_", None)  # of an estimator of scikit-learn
    known = known if coded is None else None
    truths = getattr(getattr(x, "dtype", None), "kind", "") == "b"
    rows = to_numpy(as_float_array("x", np.asarray(x, float) if truths else x, integers=True)).astype(np.float64)
    if rows.ndim > 2:  # images, with or without channels
        if image_shape is None and prod(rows.shape[-2:]) == prod(rows.shape[1:]):
            image_shape = (rows.shape[-2], rows.shape[-1])
        rows = rows.reshape(len(rows), -1)
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(f"x has shape {rows.shape}, expected (n, d): at least 2 rows of data, inputs in columns.")
    d, o = network.dim_in, network.dim_out
    if rows.shape[1] != d:
        hint = "; is one of them the label? Give it as labels" if rows.shape[1] == d + 1 else ""
        raise ValueError(f"x has {rows.shape[1]} columns, but the network takes {d} inputs{hint}.")
    if columns is not None and known is not None and any(isinstance(column, str) for column in x.columns):
        for i, (have, want) in enumerate(zip(columns, known, strict=True)):
            if have != want:
                raise ValueError(
                    f"x has the column {have!r} at place {i}, where the estimator was fitted with {want!r}; pass "
                    f"x[list(model.feature_names_in_)], or x.to_numpy() and names= if the columns only have new names."
                )
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        whole = "numpy.isfinite(x).all(axis=1)" if columns is None else "x.notna().all(axis=1)"
        raise ValueError(
            f"x has {len(bad)} of {len(rows)} rows with NaN or infinite entries, the first is row {bad[0]}; take the "
            f"others and their labels, x[whole] and labels[whole] with whole = {whole}, or fill them in."
        )
    inputs = None if inputs is None else as_inputs(inputs)
    check_columns("x", x, getattr(inputs, "names", None))
    if image_shape is not None:
        image_shape = check_image_shape(image_shape, d)
    if names is None:  # x1,1, x1,2, ... by row and column of a picture
        pixels = (f"x{row + 1},{column + 1}" for row, column in np.ndindex(*(image_shape or (0, 0))))
        names = getattr(inputs, "names", None) or columns or list(pixels) or [f"x{i}" for i in range(d)]
    names = _names("names", names, d, "inputs")
    task, targets, classes = _targets(labels, outputs, classes, len(rows), o)
    if outputs is None:
        outputs = classes or (["output"] if o == 1 else [f"output {i}" for i in range(o)])
        outputs = outputs[1:] if len(outputs) == 2 and o == 1 else outputs
    outputs = _names("outputs", outputs, o, "outputs")
    under = Gaussian.from_samples(rows) if inputs is None else inputs.to(np.zeros(()))
    if under.dim != d:
        raise ValueError(f"inputs have dimension {under.dim}, but the network takes {d} inputs.")
    code = _code(net, x, image_shape is not None, inputs)
    if coded is not None:
        code = ("x = mlpoly.importers.encoding(pipeline)(x)  # categories as numbers", *code)
    return Subject(network, rows, names, outputs, under, inputs is None, task, targets, image_shape, code)


def _code(net: Any, x: Any, pictures: bool, inputs: Inputs | None) -> tuple[str, ...]:
    """Lines of Python for what was passed: a torch module and a data frame, say, do not go together as they are."""
    call = None if isinstance(net, Network) else import_call(net)
    found = f"mp.{call}" if call else "net"
    rows = "x.detach().cpu().double().numpy()" if hasattr(x, "detach") else "np.asarray(x, float)"
    columns = ", names=x.columns" if column_names(x) else ""
    file = "; for a file, net = mlpoly.importers.model_files.read_network(path)" if found == "net" else ""
    return (
        f"net = {found}.to(np.zeros(1))  # with weights in NumPy, as on this page{file}",
        f"rows = {rows}{'.reshape(len(x), -1)' if pictures else ''}",
        f"inputs = mp.Gaussian.from_samples(rows{columns})"
        if inputs is None
        else f"inputs = inputs.to(np.zeros(1))  # {inputs!r}, as given",
    )


def _names(argument: str, names: Sequence[str], count: int, noun: str) -> tuple[str, ...]:
    if isinstance(names, str) or len(names) != count:
        given = "a single string" if isinstance(names, str) else f"{len(names)} names"
        raise ValueError(f"{argument} has {given}, but the network has {count} {noun}; give one name for each.")
    found = tuple(str(name) for name in names)
    if len(set(found)) < count:
        twice = next(name for name in found if found.count(name) > 1)
        raise ValueError(f"{argument} has {twice!r} more than once; each needs a name of its own.")
    return found


def _targets(
    labels: Any, outputs: Sequence[str] | None, classes: list[str] | None, n: int, o: int
) -> tuple[Literal["classes", "values"] | None, np.ndarray | None, list[str] | None]:
    """What the labels are, the labels as class numbers or values, and the names of the classes."""
    if labels is None:
        return None, None, classes
    given = np.asarray(to_numpy(labels) if hasattr(labels, "detach") else labels)
    if given.shape[:1] != (n,):
        raise ValueError(f"labels has {given.shape[0] if given.ndim else 0} entries, but x has {n} rows.")
    given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    whole = given.dtype.kind in "biu"
    if given.ndim == 2 or (given.dtype.kind == "f" and classes is None) or (o == 1 and whole and len(set(given)) > 2):
        values = given.reshape(n, -1).astype(float)
        if values.shape[1] != o:
            raise ValueError(f"labels has {values.shape[1]} columns of values, but the network has {o} outputs.")
        if not np.isfinite(values).all():
            raise ValueError("labels has NaN or infinite entries; drop these rows from x and labels.")
        return "values", values, classes
    words = [str(label) for label in given.tolist()]
    named = None if outputs is None else [str(name) for name in outputs]
    if named is not None and o == 1:  # the class of large outputs, behind the other one
        named = [*(set(words) - set(named)), *named] if set(named) <= set(words) else None
    known = next((names for names in (classes, named) if names is not None and set(words) <= set(names)), None)
    if known is None:
        if whole and given.dtype.kind != "b" and o > 1:  # numbers of outputs
            if given.min() < 0 or given.max() >= o:
                raise ValueError(
                    f"labels go from {given.min()} to {given.max()}, but the network has {o} outputs, 0 to {o - 1}."
                )
            return "classes", given.astype(int), classes or named or [str(i) for i in range(o)]
        known = [str(label) for label in sorted(set(given.tolist() if whole else words))]
        if not whole and len(known) == max(o, 2):
            if o == 1:  # a guess would swap the outputs
                raise ValueError(
                    f"labels are {known[0]!r} and {known[1]!r}, and the network does not say for which of them its "
                    f"output is large; name it, outputs=[{known[1]!r}] or, on the command line, "
                    f"--outputs {shlex.quote(known[1])}."
                )
            shown = ", ".join(map(repr, known[:3])) + ", ..." * (len(known) > 3)
            raise ValueError(
                f"labels are words ({shown}); pass outputs=[name of output 0, name of output 1, ...] in the order in "
                "which the network was trained (on the command line, --outputs NAME0 NAME1 ...), or labels as "
                f"numbers, 0 to {o - 1}."
            )
    if len(known) != max(o, 2):
        raise ValueError(
            f"labels has {len(known)} classes ({', '.join(known[:4])}, ...), but the network has {o} outputs; one for "
            f"each class is needed, or one for two classes."
        )
    place = {word: i for i, word in enumerate(known)}
    return "classes", np.array([place[word] for word in words]), known
