"""What `make docs` checks of the built site finds every fault; formulas are drawn; the search works in a folder."""

import importlib.util
import re
import shutil
from pathlib import Path

import markdown
import pytest
from support.browser import Browser

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SPEC = importlib.util.spec_from_file_location("check_site", ROOT / "tools" / "check_site.py")
assert SPEC and SPEC.loader
check_site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_site)

GOOD = r"""
<link rel="stylesheet" href="style.css"><h2 id="one">One</h2>
<a href="#one">here</a> <a href="more/two.html#two%20a">there</a> <a href="more/">folder</a>
<a href="/style.css">root</a>
<a href="https://example.org/page#part">elsewhere</a> <a href="mailto:a@example.org">mail</a>
<img src="data:image/png;base64,AA"> <p>It costs 5 $ or 6.</p> <code>$x$ \alpha</code> <pre>\(x\)</pre>
<script>let s = "$a$";</script> <span class="arithmatex">\(x\)</span>
"""


def faults_with(added: str, folder: Path) -> list[str]:
    (folder / "more").mkdir()
    for name in ("two.html", "index.html"):
        (folder / "more" / name).write_text('<a name="two a" href="../index.html#one">back</a>', encoding="utf-8")
    (folder / "style.css").write_text("", encoding="utf-8")
    (folder / "index.html").write_text(GOOD + added, encoding="utf-8")
    return check_site.check(folder)


@pytest.mark.parametrize(
    ("added", "fault"),
    [
        ("", None),
        ('<a href="three.html">x</a>', "a dead link: three.html"),
        ('<a href="more/two.html#three">x</a>', "a dead anchor: more/two.html#three"),
        ('<a href="#two">x</a>', "a dead anchor: #two"),
        ('<img src="//example.org/a.png">', "it loads //example.org/a.png from another host"),
        ("<p>so $x^2$ is</p>", "an unrendered formula: $x^2$"),
        (r"<td>\mathcal{N}</td>", r"an unrendered formula: \mathcal"),
        ("<p>[<code>f</code>][mlpoly.f] is</p>", "a name without an entry in the reference: mlpoly.f"),
        ('<div data-mime-type="application/vnd.jupyter.stderr">W</div>', "a notebook shows a warning"),
    ],
)
def test_every_fault_is_found(added: str, fault: str | None, tmp_path: Path) -> None:
    assert faults_with(added, tmp_path) == ([f"index.html: {fault}"] if fault else [])


def test_the_mathematics_has_the_sections_that_the_code_cites() -> None:
    sections = set(re.findall(r"^##+ (\d+[a-z]?)\. ", (DOCS / "math.md").read_text(encoding="utf-8"), re.MULTILINE))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    cited = {section for text in sources for section in re.findall(r"MATH (\d+[a-z]?)", text)}
    assert len(cited) > 10 and cited <= sections


def test_all_formulas_are_drawn_without_a_request(window: Browser, tmp_path: Path) -> None:
    """As the site has them: by the extension of its configuration and the KaTeX beside it."""
    options = {"pymdownx.arithmatex": {"generic": True}}
    extensions = ["tables", "fenced_code", "md_in_html", "pymdownx.arithmatex"]
    reader = markdown.Markdown(extensions=extensions, extension_configs=options)
    body = "\n".join(reader.reset().convert(path.read_text(encoding="utf-8")) for path in sorted(DOCS.glob("*.md")))
    assert body.count("arithmatex") > 500
    shutil.copytree(DOCS / "javascripts", tmp_path / "javascripts")
    scripts = [f'<script src="javascripts/{name}.js"></script>' for name in ("katex/katex.min", "formulas")]
    head = '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="javascripts/katex/katex.min.css">'
    (tmp_path / "page.html").write_text(f"{head}<body>{body}{''.join(scripts)}", encoding="utf-8")
    window.open(tmp_path / "page.html")
    places, drawn, faults = window.run(
        "const all = name => [...document.querySelectorAll(name)];"
        "return [all('.arithmatex').length, all('.arithmatex > :is(.katex, .katex-display)').length,"
        " all('.katex-error').map(e => e.title)]"
    )
    assert faults == [] and places == drawn > 500
    assert [address for address in window.requests() if not address.startswith(("file:", "data:"))] == []


def test_a_worker_runs_in_a_page_from_a_folder(window: Browser, tmp_path: Path) -> None:
    """As the theme makes it: by a path relative to the page, with scripts of its own relative to the worker."""
    shutil.copy(DOCS / "iframe-worker.js", tmp_path)
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
