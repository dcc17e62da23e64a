"""What `make docs` checks of the built site finds every fault; the search works in pages opened from a folder."""

import importlib.util
import shutil
from pathlib import Path

import pytest
from support.browser import Browser

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("check_site", ROOT / "tools" / "check_site.py")
check_site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_site)

GOOD = r"""
<link rel="stylesheet" href="style.css"><h2 id="one">One</h2>
<a href="#one">here</a> <a href="more/two.html#two%20a">there</a> <a href="more/">folder</a>
<a href="/style.css">root</a>
<a href="https://example.org/page#part">elsewhere</a> <a href="mailto:a@example.org">mail</a>
<img src="data:image/png;base64,AA"> <p>It costs 5 $ or 6.</p> <code>$x$ \alpha</code> <pre>\(x\)</pre>
<script>let s = "$a$";</script> <math><mi>\x</mi></math>
"""


def faults_with(added: str, folder: Path) -> list[str]:
    (folder / "more").mkdir()
    for name in ("two.html", "index.html"):
        (folder / "more" / name).write_text('<a name="two a" href="../index.html#one">back</a>', encoding="utf-8")
    (folder / "style.css").write_text("", encoding="utf-8")
    (folder / "index.html").write_text(GOOD + added, encoding="utf-8")
    faults, external = check_site.check(folder)
    assert "https://example.org/page#part" in external
    return faults


def test_a_good_site_has_no_faults(tmp_path: Path) -> None:
    assert faults_with("", tmp_path) == []


@pytest.mark.parametrize(
    ("added", "fault"),
    [
        ('<a href="three.html">x</a>', "a dead link: three.html"),
        ('<img src="none.png">', "a dead link: none.png"),
        ('<a href="more/two.html#three">x</a>', "a dead anchor: more/two.html#three"),
        ('<a href="#two">x</a>', "a dead anchor: #two"),
        ('<script src="https://example.org/a.js"></script>', "it loads https://example.org/a.js from another host"),
        ('<img src="//example.org/a.png">', "it loads //example.org/a.png from another host"),
        ("<p>so $x^2$ is</p>", "an unrendered formula: $x^2$"),
        (r"<p>so \(x\) is</p>", r"an unrendered formula: \("),
        (r"<td>\mathcal{N}</td>", r"an unrendered formula: \mathcal"),
        ("<p>[<code>f</code>][mlpoly.f] is</p>", "a name without an entry in the reference: mlpoly.f"),
        ('<div data-mime-type="application/vnd.jupyter.stderr">W</div>', "a notebook shows a warning"),
    ],
)
def test_every_fault_is_found(added: str, fault: str, tmp_path: Path) -> None:
    assert faults_with(added, tmp_path) == [f"index.html: {fault}"]


def test_a_worker_runs_in_a_page_from_a_folder(window: Browser, tmp_path: Path) -> None:
    """As the theme makes it: by a path relative to the page, with scripts of its own relative to the worker."""
    shutil.copy(ROOT / "docs" / "iframe-worker.js", tmp_path)
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "twice.js").write_text("self.twice = (x) => 2 * x;", encoding="utf-8")
    (tmp_path / "workers" / "worker.js").write_text(
        'addEventListener("message", async (e) => { await importScripts("twice.js"); postMessage(twice(e.data)); });',
        encoding="utf-8",
    )
    (tmp_path / "page.html").write_text(
        """<!doctype html><head><script src="iframe-worker.js"></script></head><body><script>
        const worker = new Worker("workers/worker.js");
        worker.addEventListener("message", (event) => { window.answer = event.data; });
        worker.postMessage(21);
        </script></body>""",
        encoding="utf-8",
    )
    window.open(tmp_path / "page.html")
    window.wait("return window.answer === 42")
