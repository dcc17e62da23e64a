"""A type checker accepts what the first page of the documentation shows, and knows what comes back."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# The signatures of the array libraries are not the matter here, and take half a minute to read.
CONFIG = """
[mypy]
ignore_missing_imports = true
[mypy-mlpoly.*]
follow_imports = silent
[mypy-array_api_compat.*,jax.*,matplotlib.*,numpy.*,plotly.*,safetensors.*,scipy.*,torch.*,transformers.*]
follow_imports = skip
"""

SAMPLE = """
import numpy as np, mlpoly as mp

by_name = mp.MLP(np.eye(2), activation="relu")
by_function = mp.MLP(np.eye(2), activation=np.tanh)
gated = mp.GLU(np.eye(2), None, np.eye(2), activation=mp.activations.get("relu"))
poly = mp.fit(by_name, mp.Gaussian.standard(2))
mixed = mp.fit(gated, mp.GaussianMixture(np.ones(1), np.zeros((1, 2))))
reveal_type(by_name.activation)  # Activation
reveal_type(poly)  # RidgePolynomial
reveal_type(mixed)  # RidgePolynomial | DensePolynomial | ChaosPolynomial
reveal_type(mixed.truncate(1).gradient(np.zeros(2)))  # Any
reveal_type(mp.finetune(by_name, poly, np.eye(2)))  # DensePolynomial | ChaosPolynomial
reveal_type(mp.fvu(lambda x: x, poly, np.eye(2)))  # FVU
reveal_type(poly / 2 + 1)  # RidgePolynomial
mp.MLP(np.eye(2), activation=3)
"""


@pytest.mark.process
def test_examples_of_the_first_page_pass_a_type_checker(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    shown = [code for code in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "import" in code]
    assert any(re.search(r"mp\.(MLP|GLU)\(", code) for code in shown)
    for number, code in enumerate(shown):
        (tmp_path / f"readme_{number}.py").write_text(code, encoding="utf-8")
    (tmp_path / "sample.py").write_text(SAMPLE, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(CONFIG, encoding="utf-8")
    files = sorted(p.name for p in tmp_path.glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", *files]
    paths = {"MYPYPATH": str(ROOT / "src"), "PATH": ""}
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=paths)
    lines = [re.sub(r"mlpoly\.[a-z_.]*\.", "", line) for line in run.stdout.splitlines()]
    errors = [line for line in lines if ": error:" in line]
    # The one mistake is seen, so that the checker was at work.
    assert len(errors) == 1, run.stdout + run.stderr
    assert re.search(r'^sample\.py:16: .*"activation".*"int"; expected "str \| Activation \| Callable', errors[0])
    revealed = [line[line.index('is "') + 4 : -1] for line in lines if "Revealed type" in line]
    assert revealed == re.findall(r"^reveal_type.*  # (.*)$", SAMPLE, flags=re.MULTILINE), run.stdout
