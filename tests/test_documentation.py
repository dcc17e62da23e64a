"""README, docs and docstrings are right: tables are current, every Python block and every example runs as it stands.

The blocks of a page run one after the other, in one process and an empty folder. Marks in the Markdown, in the line
before a block, say what is special about it:

    <!-- run with: llama, wiki.txt -->    files that the page asks its reader for, and that are made here
    <!-- not run: the reason -->          for blocks that need a network, a device or a package that is not installed

Shell blocks without such a mark run too.

A comment behind a print in a block that begins with a number, or with a bracket, is what it prints. A text block right
behind a Python block is all that it prints.
"""

import doctest
import importlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import safetensors.numpy
from matplotlib import pyplot

from mlpoly.importers.families import FAMILIES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (run with|not run): ([^\n]*) -->\n)?```python\n(.*?)```", flags=re.DOTALL)
PRINTED = re.compile(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", flags=re.DOTALL)
SLOW = {"studies.md", "plots.md"}  # half a minute; the lines of plots.md are those of examples/plots.py
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"

# Runs the blocks, given as JSON, and prints what each of them printed. Figures are closed behind a block.
RUNNER = """
import contextlib, io, json, sys
names, printed = {"__name__": "__main__"}, []
for code in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, code.splitlines()[0], "exec"), names)
    printed.append(out.getvalue())
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
print(json.dumps(printed))
"""


def blocks(page):
    """Kind of mark, what it says, and code."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def printed_by(codes, folder):
    environment = os.environ | {"MPLBACKEND": "agg", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "error", "-c", RUNNER, json.dumps(codes)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def expected(code):
    """The comments behind prints that say what is printed."""
    found = re.findall(rf"^print\(.*\)  # ((?:{NUMBER}|[\[(]|\w+\().*)$", code, flags=re.MULTILINE)
    return [comment.split(": ")[0] for comment in found]


def assert_prints(comment, output):
    """Every number of the comment is one of the output, rounded to the digits of the comment."""
    wanted, got = (re.findall(NUMBER, text) for text in (comment, output))
    assert any(
        all(
            abs(float(a) - float(b)) <= 0.501 * 10.0 ** -len(a.partition(".")[2])
            for a, b in zip(wanted, got[start:], strict=False)
        )
        for start in range(len(got) - len(wanted) + 1)
    ), f"{comment!r} is not what was printed: {output}"


def assert_printed(shown, output):
    """The same words, and the same numbers to 1 %: networks that are trained on a page differ a little by processor."""
    (words, wanted), (printed, got) = (
        (re.sub(NUMBER, "#", text).replace("-", "").split(), [float(n) for n in re.findall(NUMBER, text)])
        for text in (shown, output)
    )
    assert words == printed and got == pytest.approx(wanted, rel=1e-2), f"the page shows\n{shown}\nnot\n{output}"


def make_onnx(path):
    """A ReLU network with two hidden layers."""
    U, V, W = (", ".join(str(math.sin(i * n)) for i in range(n)) for n in (12, 16, 8))
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[N, 3] x) => (float[N, 2] y)
        <float[3, 4] U = {{{U}}}, float[4, 4] V = {{{V}}}, float[4, 2] W = {{{W}}}> {{
            a = MatMul (x, U)
            b = Relu (a)
            c = MatMul (b, V)
            d = Relu (c)
            y = MatMul (d, W)
        }}"""
    onnx.save(onnx.parser.parse_model(text), path)


MAKERS = {"model.onnx": make_onnx}


def with_blocks():
    """Pages that have Python blocks."""
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in SLOW else [])
        for page in PAGES
        if blocks(page)
    ]


@pytest.mark.process
@pytest.mark.parametrize("page", with_blocks())
def test_blocks_run_in_order(page, tmp_path):
    codes = []
    for kind, said, code in blocks(page):
        if kind == "not run":
            assert len(said) > 10  # a reason
            continue
        for name in said.split(", ") if kind else []:
            MAKERS[name](tmp_path / name)
        codes.append(code)
    shown = dict(PRINTED.findall(page.read_text(encoding="utf-8")))
    for code, output in zip(codes, printed_by(codes, tmp_path), strict=True):
        comments = expected(code)
        for comment in comments:
            assert_prints(comment, output)
        if code in shown:
            assert_printed(shown[code], output)


def test_no_block_is_overlooked():
    """The patterns find every fence that says python or text, whatever stands before it."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert (len(blocks(page)), len(PRINTED.findall(text))) == (text.count("```py"), text.count("```text")), page


def shell_blocks():
    """Why it is not run, if so, and the words of every command without comments, of every shell block."""
    pattern = re.compile(r"(?:<!-- not run: ([^\n]*) -->\n)?```sh\n(.*?)```", flags=re.DOTALL)
    found = [block for page in PAGES for block in pattern.findall(page.read_text(encoding="utf-8"))]
    split = [(why, [shlex.split(line, comments=True) for line in code.splitlines()]) for why, code in found]
    return [(why, [words for words in lines if words]) for why, lines in split]


@pytest.mark.process
@pytest.mark.slow
def test_shell_blocks_run(tmp_path):
    make_onnx(tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{c},{int(a > b)}" for a, b, c in rng.normal(size=(200, 3))]
    (tmp_path / "data.csv").write_text("\n".join(["one,two,three,class", *rows]), encoding="utf-8")
    shapes = {"0.weight": (16, 64), "0.bias": (16,), "2.weight": (10, 16), "2.bias": (10,)}
    weights = {name: rng.normal(size=shape) / 8 for name, shape in shapes.items()}
    safetensors.numpy.save_file(weights, tmp_path / "weights.safetensors")
    for name in ("data.npz", "images.npz"):
        np.savez(tmp_path / name, x=rng.random((200, 64)), y=rng.integers(10, size=200))
    for words in [words for why, lines in shell_blocks() if not why for words in lines]:
        command = [sys.executable, "-m", *words]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert run.returncode == 0, run.stderr


@pytest.mark.process
def test_shell_blocks_name_targets_and_options_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = [words for _, lines in shell_blocks() for words in lines]
    assert {words[0] for words in commands} == {"git", "make", "mlpoly", "pip"}
    for program, *words in commands:
        if program in ("git", "pip"):  # they install it, which other tests do
            continue
        if program == "make":
            assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in words)
            continue
        names = [word for word in words if re.fullmatch("[a-z]+", word)][: 2 if words[0] == "data" else 1]
        command = [sys.executable, "-m", "mlpoly", *names, "--help"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert all(word in shown for word in words if word.startswith("--")), words


def examples():
    """Modules with examples in their docstrings."""
    files = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in files]


@pytest.mark.usefixtures("scratch_registry")
@pytest.mark.parametrize("module", examples())
def test_examples_of_docstrings(module):
    pyplot.switch_backend("agg")
    failed, tried = doctest.testmod(importlib.import_module(module))
    pyplot.close("all")
    assert tried and not failed  # what failed is printed


@pytest.mark.process
def test_activation_table_is_current():
    command = [sys.executable, str(ROOT / "tools" / "activation_table.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run: python tools/activation_table.py"


def test_every_family_of_models_is_listed():
    page = (ROOT / "docs" / "language_models.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| ([^|]+) \| (plain|gated)", page, flags=re.MULTILINE))
    assert listed == {f.name: "gated" if len(f.first) == 2 or f.fused else "plain" for f in FAMILIES}


def run_example(script, *words, folder, **environment):
    command = [sys.executable, str(ROOT / "examples" / script), *words]
    environment = {k: v for k, v in os.environ.items() if k != "MLPOLY_DATA"} | {"MPLBACKEND": "agg"} | environment
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


@pytest.mark.process
@pytest.mark.parametrize("script", ["mnist_mixture.py", "deep_mnist.py"])
def test_an_example_without_its_data_says_so_in_one_line(script, tmp_path):
    run = run_example(script, folder=tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1 and "Traceback" not in run.stderr, run.stderr
    assert run.stdout == ""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "made"),
    [
        ("own_network.py", ["cancer.html", "cancer.onnx", "diabetes.html", "digits.html"]),
        ("plots.py", ["plot-terms.png"]),
        ("comparing.py", [f"compare-{name}.png" for name in ("checkpoints", "compressed", "distilled", "effects")]),
    ],
)
def test_an_example_that_brings_its_data_runs(script, made, tmp_path):
    run = run_example(script, str(tmp_path), folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert set(made) <= {path.name for path in tmp_path.iterdir() if path.stat().st_size > 1000}


@pytest.mark.process
@pytest.mark.slow
def test_the_example_of_encrypted_inference_runs(tmp_path):
    run = run_example("encrypted.py", "--images", "3", folder=tmp_path)
    digits, labels = re.search(r"encrypted: digits \[([\d ]+)\], labels \[([\d ]+)\]", run.stdout).groups()
    assert digits == labels
    assert float(re.search(r"plain polynomial (\S+);", run.stdout)[1]) < 1e-4
