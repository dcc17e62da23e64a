"""Class names occur once, tests mirror the folders of the package, and tests share helpers through support alone."""

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "mlpoly"
SOURCES = [path for path in PACKAGE.rglob("*.py") if not path.name.startswith("__")]


def twice(names: list[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_no_two_classes_have_one_name() -> None:
    """Ways to fit may be named after what they use: `methods.Expansion`."""
    sources = [path for path in SOURCES if path.name != "methods.py"]
    statements = [node for path in sources for node in ast.parse(path.read_text(encoding="utf-8")).body]
    assert twice([node.name for node in statements if isinstance(node, ast.ClassDef)]) == set()


def test_folders_of_tests_are_those_of_packages() -> None:
    """Beside the helpers, the reference values, and the tests of the benchmarks."""
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")} - {Path()}
    strays = {str(folder) for folder in folders if not (PACKAGE / folder / "__init__.py").exists()}
    assert strays == {"benchmarks", "reference", "support"}


def test_no_test_imports_another() -> None:
    for path in TESTS.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        imported += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        assert not [name for name in imported if name.startswith(("test_", "tests", "conftest"))], path
