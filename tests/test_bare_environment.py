"""The package as it is distributed, and in an environment that holds nothing but its core dependencies."""

import ast
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from mlpoly import __version__, cli
from mlpoly.extras import EXTRAS

ROOT = Path(__file__).parent.parent
PACKAGE = {
    path.relative_to(ROOT / "src").as_posix()
    for path in (ROOT / "src" / "mlpoly").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}

SCRIPT = """
import sys, warnings
warnings.simplefilter("error")
import numpy
errors = numpy.geterr()
import mlpoly as mp
import importlib.metadata, importlib.util
assert mp.__version__ == sys.argv[1] and numpy.geterr() == errors
assert not any(map(importlib.util.find_spec, ("torch", "jax", "sklearn", "matplotlib", "rich")))
installed = {d.metadata["Name"] for d in importlib.metadata.distributions()}
assert installed <= {"array-api-compat", "mlpoly", "numpy", "pip", "safetensors", "scipy", "setuptools"}, installed
rng = numpy.random.default_rng(0)
net = mp.GLU(rng.normal(size=(8, 3)), None, rng.normal(size=(8, 3)), None, rng.normal(size=(2, 8)), None, "silu")
x = rng.normal(size=(50, 3))
poly = mp.fit(net, mp.Gaussian.from_samples(x), degree=3)
poly.save("poly.safetensors")
assert (mp.load("poly.safetensors")(x) == poly(x)).all()
assert 0.5 < mp.fvu(net, poly, x).explained <= 1
assert abs(mp.fit(net, mp.GaussianMixture.from_labels(x, (x[:, 0] > 0).astype(int)), 2)(x)).max() > 0
assert len(mp.eigenfeatures(poly, output=0, k=2).values) == 2
"""


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """A folder with the source distribution, and the wheel that was built from it."""
    for module in ("build", "hatchling", "hatch_fancy_pypi_readme"):
        pytest.importorskip(module, reason="the extra dev is not installed")
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


@pytest.mark.process
def test_the_distributions_hold_the_package_and_nothing_else(distributions):
    with zipfile.ZipFile(distributions / f"mlpoly-{__version__}-py3-none-any.whl") as wheel:
        names, about = set(wheel.namelist()), f"mlpoly-{__version__}.dist-info"
        assert names & PACKAGE == PACKAGE >= {"mlpoly/py.typed", "mlpoly/pages/toolkit/assets/page.css"}
        rest = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
        assert names - PACKAGE == {f"{about}/{name}" for name in rest}
        assert "mlpoly = mlpoly.cli:main" in wheel.read(f"{about}/entry_points.txt").decode()
    with tarfile.open(distributions / f"mlpoly-{__version__}.tar.gz") as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    files = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert names == {f"src/{name}" for name in PACKAGE} | files


@pytest.fixture(scope="module")
def bare_python(distributions, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python, wheel = folder / "venv" / "bin" / "python", next(distributions.glob("*.whl"))
    install = [str(python), "-I", "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and any(s in done.stderr for s in ("No matching distribution", "Connection", "resolve")):
        pytest.skip("the package registry cannot be reached, so no fresh environment can be made")
    assert done.returncode == 0, done.stderr
    return python


@pytest.mark.process
def test_core_alone_is_enough(bare_python, tmp_path):
    command = [str(bare_python), "-Ic", SCRIPT, __version__]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0 and run.stderr == "", run.stderr


@pytest.mark.process
def test_import_is_fast_and_silent(bare_python, tmp_path):
    code = "import time; b = time.process_time(); import mlpoly; print(time.process_time() - b)"
    runs = [
        subprocess.run([str(bare_python), "-IWerror", "-c", code], capture_output=True, text=True, cwd=tmp_path)
        for _ in range(4)
    ]
    assert all(r.returncode == 0 and r.stderr == "" for r in runs), runs[0].stderr
    # Processor time, and the best of a few runs, so that other work on the machine does not count.
    assert min(float(r.stdout) for r in runs) < 0.5
    assert list(tmp_path.iterdir()) == []


# What a user of a bare installation may ask for, and the extra that the answer must name; "" if none is needed.
REQUESTS = {
    "poly.to_torch()": "torch",
    "mp.load('poly.safetensors', library='torch')": "torch",
    "mp.load('poly.safetensors', library='jax')": "jax",
    "mp.degree_spectrum(net, inputs).plot()": "plots",
    "mp.report(net, np.ones((3, 2)))": "plots",
    "mp.finetune(net, poly, np.ones((9, 2)))": "torch",
    "exec('from mlpoly import *')": "",
    "mp.from_torch(None)": "torch",
    "mp.from_onnx('model.onnx')": "onnx",
    "read('model.pt')": "torch",
    "read('model.onnx')": "onnx",
    "mp.he.session(poly.to_he())": "he",
    "mp.from_sklearn(None)": "sklearn",
    "importlib.import_module('mlpoly.importers').find_blocks(None)": "torch",
    "importlib.import_module('mlpoly.importers.torch')": "torch",
    "importlib.import_module('mlpoly.charts.matplotlib')": "plots",
    "importlib.import_module('mlpoly.charts.style')": "plots",
    "importlib.import_module('mlpoly.lm').graft": "torch",
    "importlib.import_module('mlpoly.studies.paper.reproduce')": "plots",
    "mp.GaussianMixture.from_samples(np.random.default_rng(0).normal(size=(50, 2)), 2)": "sklearn",
    **{f"command('{name}', '--help')": "cli" for name in cli._COMMANDS},
    "command('data', 'where')": "cli",
    "command('--version')": "",
    "command('--help')": "",
    "command('nosuch')": "",
    "command()": "",
}

# The same where the extra `cli` is installed, which includes `plots` and pandas.
COMMANDS = {
    "command('lm', '--out', 'lm')": "torch",
    "command('paper', '--out', 'paper')": "torch",
    "command('report', 'poly.safetensors', '--data', 'rows.csv', '--out', 'page.html')": "",
    "command('data', 'where')": "",
}

BLOCKED = """
import contextlib, importlib, importlib.abc, io, json, sys
requests, extras = json.loads(sys.argv[1]), set(json.loads(sys.argv[2]))

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in extras:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np, mlpoly as mp
net, inputs = mp.MLP(np.eye(2), None, np.eye(2), None, "relu"), mp.Gaussian.standard(2)
poly = mp.fit(net, inputs, 2)
poly.save("poly.safetensors")

def read(name):
    open(name, "w").close()
    return importlib.import_module("mlpoly.importers.model_files").read_network(name)

def command(*words):
    from mlpoly.cli import main
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main(list(words))
    return said.getvalue()

answers = {}
for request in requests:
    try:
        answers[request] = f"{eval(request)}"
    except ImportError as error:
        answers[request] = f"{type(error).__name__}: {error}"
print(json.dumps(answers))
"""


@pytest.mark.process
@pytest.mark.parametrize(("requests", "installed"), [(REQUESTS, ()), (COMMANDS, ("cli", "plots"))], ids=["bare", "cli"])
def test_a_missing_library_is_named_with_its_extra(requests, installed, tmp_path):
    """In a process in which no optional library can be imported, or only those of two extras."""
    missing = [
        name for name, extra in EXTRAS.items() if extra not in installed and not (installed and name == "pandas")
    ]
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,5\n4,4\n")
    command = [sys.executable, "-c", BLOCKED, json.dumps(list(requests)), json.dumps(missing)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    for request, answer in json.loads(run.stdout.splitlines()[-1]).items():
        remedy = f"which is not installed: pip install 'mlpoly[{requests[request]}]'"
        expected = remedy in answer if requests[request] else "not installed" not in answer
        assert expected and "ModuleNotFoundError" not in answer, (request, answer)


def test_every_import_is_declared():
    """What the package imports, anywhere in a file, is among its requirements, and not only pulled in by another."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    parts = {k: v for k, v in project["optional-dependencies"].items() if k not in ("dev", "docs", "bench")}
    lines = [*project["dependencies"], *(line for part in parts.values() for line in part)]
    declared = {re.split(r"[\[>;]", line)[0].lower().replace("_", "-") for line in lines}
    declared.add("triton")  # PyTorch for GPUs brings it, and nothing else needs it; without it there is another way
    packages = packages_distributions()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for top in {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"mlpoly"}:
                offered = {name.lower().replace("_", "-") for name in packages.get(top, [top])}
                assert offered & declared, f"{path} imports {top}, which pyproject.toml does not declare"


def test_every_optional_library_has_its_extra():
    """The table of the code is that of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {"sklearn": "scikit-learn", "PIL": "pillow"}
    for module, extra in EXTRAS.items():
        assert any(line.startswith(f"{packages.get(module, module)}>=") for line in extras[extra]), module
