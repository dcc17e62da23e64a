"""The benchmarks in small, what counts as worse, and the documents' numbers, which are those that are kept."""

import json
from pathlib import Path

import pytest

from benchmarks import check, common, encrypted, page, tables
from benchmarks.__main__ import CPU, GPU, run_here

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("key", "old", "good", "bad"),
    [
        ("quadratic / product", 1.0, 1.4, 1.6),
        ("share of the rate", 0.6, 0.45, 0.35),
        ("SGD / closed form, to excess 0.01", 100.0, 60.0, 45.0),
        ("median FVU", 0.1, 0.105, 0.12),
        ("CUDA against CPU, worst", 1e-14, 5e-14, 2e-13),
        ("fit, SwiGLU, degree 3: launches", 100, 104, 106),
        ("fit, ReLU, degree 3: products / W S", 0.625, 0.65, 1.0),
    ],
)
def test_worse_means_worse_by_more_than_the_tolerance(key, old, good, bad):
    assert check.comparable(key)
    assert not check.worse(key, old, good) and check.worse(key, old, bad)


def test_a_tiny_run_is_kept_compared_and_written(tmp_path, monkeypatch, capsys):
    """Quadratics for every neuron are closer than one polynomial for all, and encryption changes next to nothing."""
    pytest.importorskip("tenseal")
    monkeypatch.setattr(common, "FOLDER", tmp_path / "bench")
    run_here("encrypted", tiny=True)
    run = page.read(tmp_path / "bench")
    for table in run["encrypted"]["results"]["tables"].values():
        errors = {name: row["test"]["FVU"] for name, row in table["degrees"]["2"]["rows"].items()}
        assert errors[encrypted.OURS] < errors["one least-squares polynomial per layer"]
        for row in table["encrypted"].values():
            assert row["same class"] == row["images"] == 5 and 0 < row["largest difference"] < 1e-3
    assert check.main([str(tmp_path / "bench"), str(tmp_path / "bench")]) == 0
    worse = json.loads((tmp_path / "bench" / "encrypted.json").read_text())
    worse["results"] = {k: v / 9 if isinstance(v, float) else v for k, v in worse["results"].items()}
    (tmp_path / "worse").mkdir()
    (tmp_path / "worse" / "encrypted.json").write_text(common.as_text(worse))
    assert check.main([str(tmp_path / "worse"), str(tmp_path / "bench")]) == 1
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "encrypted.md").write_text("<!-- table: encrypted runs -->\n<!-- end -->\n")
    page.main([str(tmp_path / "bench"), "--docs", str(tmp_path / "docs")])
    assert "| 5 of 5 |" in (tmp_path / "docs" / "encrypted.md").read_text()
    assert (tmp_path / "docs" / "images" / "bench-encrypted.png").stat().st_size > 10_000


def test_the_documents_numbers_are_those_of_the_kept_results():
    run = page.read(page.KEPT)
    assert set(run) == {*CPU, *GPU} - {"blocks"}  # which only prints
    assert (DOCS / "benchmarks.md").read_text() == page.page(run)
    for path in DOCS.glob("*.md"):
        assert tables.filled(path.read_text(), run) == path.read_text(), path.name
