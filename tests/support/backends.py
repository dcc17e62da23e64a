"""Array libraries with their precisions, and comparisons of what they return."""

import contextlib
import json
import os
from dataclasses import dataclass

import array_api_compat as compat
import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from mlpoly.records import map_arrays


@dataclass(frozen=True)
class Backend:
    """An array library with a precision."""

    library: str
    dtype: str

    @property
    def name(self):
        return f"{self.library}-{self.dtype}"

    @property
    def tolerance(self):
        """Relative to the size of the result: a few hundred roundings of that precision."""
        return 1e-12 if self.dtype == "float64" else 1e-5

    def active(self):
        """JAX computes in double precision inside this context only; the other libraries need none."""
        if self.library != "jax":
            return contextlib.nullcontext()
        # JAX before 0.8 has the latter alone; the former has no truth value.
        enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
        return enable_x64(self.dtype == "float64")


NUMPY64, NUMPY32 = Backend("numpy", "float64"), Backend("numpy", "float32")
TORCH64, TORCH32 = Backend("torch", "float64"), Backend("torch", "float32")
JAX64, JAX32 = Backend("jax", "float64"), Backend("jax", "float32")
BACKENDS = (NUMPY64, NUMPY32, TORCH64, TORCH32, JAX64, JAX32)


def backends(*chosen, slow=()):
    """Run a test, which takes `backend`, on the chosen ones; on those that are `slow` with the slow tests."""
    marked = [*chosen, *(pytest.param(b, marks=pytest.mark.slow) for b in slow)]
    return pytest.mark.parametrize("backend", marked, indirect=True, ids=lambda b: b.name)


def make(values, backend):
    """Values as an array of the backend; None stays None. NumPy arrays are read-only, so that mutation raises."""
    if values is None:
        return None
    if backend.library == "torch":
        return torch.tensor(np.array(values, order="C"), dtype=getattr(torch, backend.dtype))
    if backend.library == "jax":
        return jnp.asarray(np.asarray(values), dtype=backend.dtype)
    made = np.array(values, dtype=backend.dtype)
    made.flags.writeable = False
    return made


def in_library(record, backend):
    """A network or distribution with arrays of the backend."""
    return map_arrays(record, lambda a: make(to_numpy(a), backend))


def to_numpy(array):
    """Any array as NumPy float64."""
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu()
    return np.asarray(array).astype(np.float64)


def assert_same_kind(result, like):
    """The result has the library, dtype and device of `like`."""
    assert compat.array_namespace(result) is compat.array_namespace(like)
    assert result.dtype == like.dtype
    assert compat.device(result) == compat.device(like)


def record_margin(error, tolerance, place=""):
    """Note how near an error comes to its tolerance, for ``make test-kernels``."""
    folder, test = os.environ.get("MLPOLY_MARGINS"), os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
    if folder and tolerance > 0:
        with open(f"{folder}/{os.getpid()}.jsonl", "a") as file:
            file.write(json.dumps([test + place, float(error), float(tolerance)]) + "\n")


def assert_close(result, expected, tolerance=1e-12):
    """Largest difference at most `tolerance` times the largest expected magnitude (times one where all are zero)."""
    result, expected = to_numpy(result), to_numpy(expected)
    assert result.shape == expected.shape
    size = np.max(np.abs(expected), initial=0.0) or 1.0
    error = np.max(np.abs(result - expected), initial=0.0) / size
    record_margin(float(error), tolerance)
    assert error <= tolerance, f"relative error {error:.2e} > {tolerance:.0e}"


def compiled(module, **options):
    """Compile a module; the rest of the test is skipped under versions that cannot trace array-api-compat."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11):
        pytest.skip(f"torch.compile of PyTorch {torch.__version__} cannot trace array-api-compat; 2.11 can")
    torch._dynamo.reset()
    return torch.compile(module, **options)
