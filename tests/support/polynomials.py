"""Arrays and files of polynomials."""

import json

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from mlpoly.records import arrays_of, replace


def own_arrays(poly):
    """Arrays of a polynomial by name, without those of its inputs."""
    return {name: a for name, a in arrays_of(replace(poly, inputs=None)).items() if hasattr(a, "dtype")}


def header_of(path):
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["mlpoly"])


def rewritten(path, header=None, without=(), **tensors):
    """The file at `path` with other entries in its header and other tensors."""
    arrays = {k: v for k, v in load_file(path).items() if k not in without} | tensors
    save_file(arrays, path, metadata={"mlpoly": json.dumps(header_of(path) | (header or {}))})
    return path
