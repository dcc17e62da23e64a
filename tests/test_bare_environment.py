"""The package in an environment that holds nothing but its core dependencies."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SCRIPT = """
import json, sys, time, warnings
warnings.simplefilter("error")
import numpy
before, errors = set(sys.modules), numpy.geterr()
began = time.process_time()
import mlpoly as mp
took = time.process_time() - began
import importlib.metadata, importlib.util
rng = numpy.random.default_rng(0)
net = mp.GLU(rng.normal(size=(8, 3)), None, rng.normal(size=(8, 3)), None, rng.normal(size=(2, 8)), None, "silu")
x = rng.normal(size=(50, 3))
poly = mp.fit(net, mp.Gaussian.from_samples(x), degree=3)
mixture = mp.GaussianMixture.from_labels(x, (x[:, 0] > 0).astype(int))
poly.save("poly.safetensors")
print(json.dumps({
    "seconds": took,
    "settings kept": numpy.geterr() == errors,
    "extras": [m for m in ("torch", "jax", "sklearn", "matplotlib", "rich") if importlib.util.find_spec(m)],
    "installed": sorted(d.metadata["Name"] for d in importlib.metadata.distributions()),
    "reload": float(abs(mp.load("poly.safetensors")(x) - poly(x)).max()),
    "explained": float(mp.fvu(net, poly, samples=x).explained),
    "mixture": float(abs(mp.fit(net, mixture, 2)(x)).max()),
    "features": mp.eigenfeatures(poly, output=0, k=2).values.shape[0],
}))
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(ROOT)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and any(s in done.stderr for s in ("No matching distribution", "Connection", "resolve")):
        pytest.skip("the package registry cannot be reached, so no fresh environment can be made")
    assert done.returncode == 0, done.stderr
    return python


def test_core_alone_is_enough(bare_python: Path, tmp_path: Path) -> None:
    run = subprocess.run([str(bare_python), "-c", SCRIPT], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    found = json.loads(run.stdout)
    assert found["extras"] == []
    assert set(found["installed"]) <= {
        "array-api-compat",
        "mlpoly",
        "numpy",
        "pip",
        "safetensors",
        "scipy",
        "setuptools",
    }
    assert found["settings kept"]
    assert found["reload"] == 0
    assert 0.5 < found["explained"] <= 1
    assert found["mixture"] > 0
    assert found["features"] == 2


def test_import_is_fast_and_silent(bare_python: Path, tmp_path: Path) -> None:
    code = "import time; b = time.process_time(); import mlpoly; print(time.process_time() - b)"
    runs = [
        subprocess.run([str(bare_python), "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path)
        for _ in range(4)
    ]
    assert all(r.returncode == 0 and r.stderr == "" for r in runs), runs[0].stderr
    # Processor time, and the best of a few runs, so that other work on the machine does not count.
    assert min(float(r.stdout) for r in runs) < 0.5
    assert list(tmp_path.iterdir()) == []
