"""Hooks of the site: pages from outside docs/, notebooks that run again when the library changes, links to formulas."""

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify

SECTION = re.compile(r"^## (\d+)\. (.*)$", flags=re.MULTILINE)


def on_config(config: Any) -> Any:
    """Keep outputs of notebooks until the library changes, and progress bars and advice of others out of them."""
    source = hashlib.sha256()
    for path in sorted(Path("src").rglob("*.py")):
        source.update(path.read_bytes())
    kept = Path(".cache/mkdocs-jupyter", source.hexdigest()[:16])
    for old in kept.parent.glob("*"):
        if old != kept:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    config.plugins["mkdocs-jupyter"].config["cache_dir"] = str(kept)
    os.environ |= {"TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put CONTRIBUTING.md, with its links to docs/, in the place of the page that stands for it."""
    if page.file.src_uri != "contributing.md":
        return markdown
    text = Path("CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](")


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Link the sections of the mathematics that docstrings cite as "MATH 4"."""
    if not page.file.src_uri.startswith("reference/"):
        return html
    titles = dict(SECTION.findall(Path("docs/math.md").read_text(encoding="utf-8")))

    def link(cited: re.Match[str]) -> str:
        anchor = slugify(f"{cited[1]}. {titles[cited[1]]}", "-")
        return f'<a href="../math.html#{anchor}">the mathematics, section {cited[1]}</a>'

    return re.sub(r"\bMATH (\d+)", link, html)
