"""Networks from files, without running code from them: safetensors, state dicts of PyTorch, ONNX."""

import pickle
import re
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly.activations import Activation, get
from mlpoly.arrays import to_numpy
from mlpoly.errors import FileFormatError
from mlpoly.extras import library
from mlpoly.files import read_tensors
from mlpoly.networks import GLU, Network
from mlpoly.networks.assemble import Layout, from_layers

_STATES = ("state_dict", "model_state_dict", "model", "params")  # where checkpoints keep the weights
_ROLES = {"weight": "weight", "kernel": "weight", "W": "weight", "w": "weight", "bias": "bias", "b": "bias"}
# Names of gate, other factor and readout of gated units.
_GATED = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"), ("wi_0", "wi_1", "wo"))


def read_network(
    path: str | PathLike[str],
    activation: str | Activation | Sequence[str | Activation | None] | None = None,
    layout: Layout | None = None,
) -> Network:
    """Read a network from a file, in NumPy. No code from the file is run.

    Parameters
    ----------
    path : path
        A .safetensors file, or a .pt, .pth, .bin or .ckpt file with a state dict of PyTorch; or an .onnx file, see
        `mlpoly.from_onnx`. Weights in 16 bits become float32, unless they come from ONNX.

        Weights and biases of linear layers have names such as "0.weight", "0.bias"; "fc1.weight"; "Dense_0.kernel";
        "W1", "b1". Their order is that of the numbers in the names or, in a state dict, of the layers in the file. Or
        they are the parts of one gated unit: gate_proj, up_proj, down_proj; w1, w3, w2; wi_0, wi_1, wo.
    activation : str or Activation, or a sequence of them, optional
        Activation of all hidden layers, or one for each, where None is no activation; needed for weights, which do not
        show it: compare the network with some outputs of the model.
    layout : "out_in" or "in_out", optional
        Layout of the weights, see `mlpoly.MLP.from_layers`. By default that of Keras and Flax for "kernel", and
        PyTorch's for all other names.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np, safetensors.numpy
    >>> from mlpoly.importers.model_files import read_network
    >>> weights = {"0.weight": np.ones((8, 3)), "0.bias": np.ones(8), "2.weight": np.ones((2, 8)), "2.bias": np.ones(2)}
    >>> with TemporaryDirectory() as folder:
    ...     safetensors.numpy.save_file(weights, f"{folder}/net.safetensors")
    ...     print(read_network(f"{folder}/net.safetensors", activation="gelu"))
    MLP(3 -> 8 -> 2, gelu)
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix in (".joblib", ".pkl", ".pickle", ".sav"):
        raise ValueError(
            f"{file} is a pickle, and opening it would run whatever code it holds. If you trust it, load it in Python "
            f"yourself: net = mlpoly.from_sklearn(joblib.load({str(file)!r})), then for example mlpoly.report(net, x)."
        )
    readers = {".safetensors": _safetensors} | dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), _torch)
    if suffix != ".onnx" and suffix not in readers:
        raise ValueError(
            f"{file} is not a kind of file that networks are read from: .safetensors, .pt, .pth, .bin and .ckpt with "
            f"weights, .onnx. In Python mlpoly.from_torch, from_sklearn and MLP.from_layers convert other models."
        )
    if not file.is_file():
        raise FileNotFoundError(f"no file {file}.")
    if suffix == ".onnx":
        library("onnx", "ONNX", f"reading {file}")
        from mlpoly.importers.onnx import from_onnx

        if activation is not None or layout is not None:
            raise ValueError(f"{file} holds its activations and layout; leave out activation and layout.")
        return from_onnx(file)
    content = readers[suffix](file)
    try:
        return network_from_state(content, activation, layout, ordered=suffix != ".safetensors")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


def _safetensors(place: Path) -> dict[str, np.ndarray]:
    header, arrays = read_tensors(place)
    if header is not None:
        content = header.get("polynomial", header)
        kind = content.get("kind") or header.get("format") if isinstance(content, dict) else header.get("format")
        raise ValueError(
            f"{place} was written by mlpoly ({kind}) and holds no network; mlpoly.load reads a polynomial."
        )
    return {name: a.astype(np.float32) if a.dtype == np.float16 else a for name, a in arrays.items()}


def _torch(place: Path) -> dict[str, np.ndarray]:
    torch = library("torch", "PyTorch", f"reading {place}")
    remedy = (
        "save the weights alone, torch.save(model.state_dict(), path), or convert the model in Python: "
        "mlpoly.from_torch(model)"
    )
    with place.open("rb") as file:
        if not file.read(2).startswith((b"PK", b"\x80")):
            raise FileFormatError(f"{place} is not a file of PyTorch, or damaged; {remedy}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats, which the errors below name
            content = torch.load(place, map_location="cpu", weights_only=True)
    # Torch's own messages advise to load the file with weights_only=False, which runs its code.
    except Exception as error:
        if isinstance(error, pickle.UnpicklingError) or "TorchScript" in str(error):
            raise ValueError(
                f"{place} holds more than weights, such as a whole module, and opening it would run code; {remedy}."
            ) from None
        raise FileFormatError(f"{place} is damaged ({type(error).__name__}); {remedy}.") from None
    for name in _STATES:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    tensors = {str(k): v for k, v in content.items()} if isinstance(content, Mapping) else {}
    if not tensors or not all(isinstance(v, torch.Tensor) for v in tensors.values()):
        kind = f"a {type(content).__name__}"
        if isinstance(content, Mapping):
            kind = f"a dictionary of {', '.join(repr(str(k)) for k in list(content)[:6]) or 'nothing'}"
        raise ValueError(f"{place} holds {kind}, not a state dict; {remedy}.")
    quantised = next((k for k, v in tensors.items() if v.is_quantized), None)
    if quantised is not None:
        raise ValueError(f"{place} holds quantised weights ({quantised}); save the model before quantisation.")
    return {name: to_numpy(tensor) for name, tensor in tensors.items()}


def network_from_state(
    state: Mapping[str, np.ndarray],
    activation: str | Activation | Sequence[str | Activation | None] | None = None,
    layout: Layout | None = None,
    *,
    ordered: bool = True,
) -> Network:
    """Return the network of weights by name; `read_network` describes the names and arguments.

    With `ordered`, the order of the mapping is that in which a module defines its layers, as in a state dict.
    """
    outer = zip(*(name.split(".")[:-1] for name in state), strict=False)
    common = "".join(f"{parts[0]}." for parts in takewhile(lambda parts: len(set(parts)) == 1, outer))
    state = {name.removeprefix(common): np.asarray(a) for name, a in state.items()}
    groups, words = _groups(state)
    layout = layout or ("in_out" if words == {"kernel"} else "out_in")
    for parts in _GATED:
        if set(parts) == set(groups):
            _needed(activation)
            weights = [groups[part]["weight"] if layout == "out_in" else groups[part]["weight"].T for part in parts]
            gate, up, down = zip(weights, [groups[part].get("bias") for part in parts], strict=True)
            if isinstance(activation, Sequence) and not isinstance(activation, str):
                if len({get(each or "identity") for each in activation}) != 1:
                    raise ValueError("activation must be one name for a gated unit.")
                activation = activation[0]
            return GLU(*gate, *up, *down, activation=get(activation or "identity"))
    linear = {name: (group["weight"], group.get("bias")) for name, group in groups.items()}
    if len(linear) > 1:
        _needed(activation)
    # In the order in which the network computes them: that of the numbers in the names, or of the mapping.
    order = sorted(linear, key=lambda name: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", name)])
    if len({re.sub(r"\d+", "#", name) for name in linear}) > 1:  # they differ in more than their numbers
        if not ordered:
            raise ValueError(
                f"the names {', '.join(sorted(linear))} do not show the order of the layers; pass them in order in "
                f"Python: mlpoly.MLP.from_layers([(W, b), ...], activation=...)."
            )
        order = list(linear)
    if isinstance(activation, (str, Activation)) and len(order) > 2:
        sizes = [linear[name][0].shape for name in order]
        sizes = sizes if layout == "out_in" else [shape[::-1] for shape in sizes]
        activation = _activations(order, sizes, activation)
    elif isinstance(activation, Sequence) and not isinstance(activation, str):
        activation = [None if each == "identity" else each for each in activation]
    return from_layers([linear[name] for name in order], activation or "identity", layout)


def _activations(names: Sequence[str], sizes: Sequence[tuple[int, ...]], activation: Any) -> list[Any]:
    """The activations between layers, None where there is none; a ValueError where there may be one or none."""
    numbers = [int(name) for name in names] if all(name.isdigit() for name in names) else []
    steps = [two - one for one, two in pairwise(numbers)]
    if max(steps, default=1) > 1:  # of a Sequential, where activations have numbers too
        return [activation if step > 1 else None for step in steps]
    for i, ((_, before), (behind, inner)) in enumerate(pairwise(sizes)):
        if inner < min(before, behind):
            given = [repr(getattr(activation, "name", activation))] * (len(names) - 1)
            none = [*given[:i], "None", *given[i + 1 :]]
            raise ValueError(
                f"{names[i]} and {names[i + 1]} map {before} -> {inner} -> {behind} values, as two parts of one linear "
                f"map of low rank do, and as hidden layers of an autoencoder do; weights do not show whether there is "
                f"an activation between them. Name one for each place: activation=[{', '.join(given)}], or "
                f"[{', '.join(none)}] if there is none there (identity on the command line)."
            )
    return [activation] * (len(names) - 1)


def _needed(activation: Any) -> None:
    if activation is None:
        raise ValueError(
            "weights do not show the activation of the hidden layers; name it, activation='relu' or, on the command "
            "line, --activation relu."
        )


def _groups(state: Mapping[str, np.ndarray]) -> tuple[dict[str, dict[str, np.ndarray]], set[str]]:
    """Arrays by layer and role, and the words that name the weights; a ValueError for what no layer has."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    words = set()
    for name, a in state.items():
        layer, _, last = name.rpartition(".")
        if last in ("running_mean", "num_batches_tracked"):
            raise ValueError(
                f"the file has a batch norm ({layer}), and not where the activations are. {_remedy(state)}"
            )
        if last not in _ROLES:
            match = re.fullmatch(r"(.*?)(weight|kernel|W|w|bias|b)_?(\d+)", name)
            if match is None:
                raise ValueError(f"{name!r} is not a weight or bias of a linear layer. {_remedy(state)}")
            layer, last = f"{match[1]}{match[3]}", match[2]
        role = _ROLES.get(last, last)
        if role == "weight" and a.ndim == 2:
            words.add(last)
        groups.setdefault(layer, {})[role] = a
    for layer, arrays in groups.items():
        weight = arrays.get("weight")
        if weight is None or weight.ndim != 2:
            shape = "no weight" if weight is None else f"a weight of shape {weight.shape}"
            kind = {1: ": a normalisation, or slopes of PReLU", 3: ": a convolution", 4: ": a convolution"}
            why = kind.get(0 if weight is None else weight.ndim, "")
            raise ValueError(f"{layer or 'a layer'!r} has {shape}, not a matrix{why}. {_remedy(state)}")
    return groups, words


def _remedy(state: Mapping[str, Any]) -> str:
    shown = ", ".join(list(state)[:4])
    more = ", ..." if len(state) > 4 else ""
    return (
        f"The file holds {shown}{more}, which are not the layers of one feedforward network: convert the model in "
        f"Python with mlpoly.from_torch(model), a language model with `mlpoly lm`."
    )
