"""The site: formulas are drawn, sections that the code cites are there, and the search works in a folder."""

import re
import shutil
from pathlib import Path

import markdown

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_the_mathematics_has_the_sections_that_the_code_cites():
    sections = set(re.findall(r"^##+ (\d+[a-z]?)\. ", (DOCS / "math.md").read_text(encoding="utf-8"), re.MULTILINE))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    cited = {section for text in sources for section in re.findall(r"MATH (\d+[a-z]?)", text)}
    assert len(cited) > 10 and cited <= sections


def test_all_formulas_are_drawn_without_a_request(window, tmp_path):
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


def test_a_worker_runs_in_a_page_from_a_folder(window, tmp_path):
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
