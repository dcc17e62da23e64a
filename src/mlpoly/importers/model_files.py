"""Networks from files, without running code from them: safetensors, state dicts of PyTorch, ONNX."""

import pickle
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import to_numpy
from mlpoly.errors import FileFormatError
from mlpoly.extras import library
from mlpoly.files import read_tensors
from mlpoly.importers.state_dicts import network_from_state
from mlpoly.networks import Network
from mlpoly.networks.assemble import Layout

_STATES = ("state_dict", "model_state_dict", "model", "params")  # where checkpoints keep the weights


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

        Weights and biases of linear layers have names such as "0.weight", "0.bias", "2.weight"; "fc1.weight";
        "Dense_0.kernel"; "W1", "b1". Their order is that of the numbers in the names or, in a state dict, of the
        layers in the file. A prefix of all names does not matter. Or they are the parts of one gated unit: gate_proj,
        up_proj, down_proj; w1, w3, w2; wi_0, wi_1, wo.
    activation : str or Activation, or a sequence of them, optional
        Activation of all hidden layers, or one for each, where None is no activation; needed if there are hidden
        layers, except for ONNX files, which hold it. Weights do not show whether there is one between two layers:
        compare the network with some outputs of the model.
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
    readers = {".safetensors": _safetensors, ".onnx": _onnx} | dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), _torch)
    if suffix not in readers:
        raise ValueError(
            f"{file} is not a kind of file that networks are read from: .safetensors, .pt, .pth, .bin and .ckpt with "
            f"weights, .onnx. In Python mlpoly.from_torch, from_sklearn and MLP.from_layers convert other models."
        )
    if not file.is_file():
        raise FileNotFoundError(f"no file {file}.")
    content: Any = readers[suffix](file)
    if isinstance(content, Network):
        if activation is not None or layout is not None:
            raise ValueError(f"{file} holds its activations and layout; leave out activation and layout.")
        return content
    try:
        return network_from_state(content, activation, layout, ordered=suffix != ".safetensors")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


def _onnx(place: Path) -> Network:
    library("onnx", "ONNX", f"reading {place}")
    from mlpoly.importers.onnx import from_onnx

    return from_onnx(place)


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
        raise ValueError(f"{place} holds {_kind(content)}, not a state dict; {remedy}.")
    quantised = next((k for k, v in tensors.items() if v.is_quantized), None)
    if quantised is not None:
        raise ValueError(f"{place} holds quantised weights ({quantised}); save the model before quantisation.")
    return {name: to_numpy(tensor) for name, tensor in tensors.items()}


def _kind(content: Any) -> str:
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    return f"a dictionary of {', '.join(repr(str(k)) for k in list(content)[:6]) or 'nothing'}"
