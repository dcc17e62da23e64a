"""The README tells the truth: its table is that of the registry, and its examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def test_activation_table_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "activation_table.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run: python tools/activation_table.py"


@pytest.mark.parametrize("code", [b for b in BLOCKS if "import" in b], ids=lambda c: c.splitlines()[0][:30])
def test_examples_run(code: str, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


def test_examples_are_about_ten_lines() -> None:
    assert len(BLOCKS) >= 3
    for code in BLOCKS:
        assert len([line for line in code.splitlines() if line.strip()]) <= 12
