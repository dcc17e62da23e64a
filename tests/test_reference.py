"""Every public name is in the reference, and nothing else."""

import importlib
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs" / "reference"
LISTED = re.findall(r"^::: (\S+)", "\n".join(page.read_text() for page in sorted(PAGES.glob("*.md"))), re.MULTILINE)


@pytest.mark.parametrize(
    "module", ["mlpoly", "mlpoly.scores", "mlpoly.lm", "mlpoly.charts", "mlpoly.he", "mlpoly.certificates"]
)
def test_every_public_name_is_in_the_reference(module):
    package = importlib.import_module(module)
    objects = {name: getattr(package, name) for name in package.__all__ if not name.startswith("__")}
    paths = {name: f"{o.__module__}.{o.__qualname__}" for name, o in objects.items() if hasattr(o, "__qualname__")}
    assert {name for name, path in paths.items() if path not in LISTED} == set()


def test_what_the_reference_names_exists_and_has_one_place():
    assert len(LISTED) == len(set(LISTED)) > 100
    for path in LISTED:
        module, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(module), name).__doc__
