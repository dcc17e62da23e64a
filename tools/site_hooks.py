"""Hooks of the site: pages from outside docs/, notebooks that run again when the library changes, links to formulas."""

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify

ROOT_PAGES = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}
TOPIC = re.compile(r"\n\n([^-#|\n][^\n]*)\n- ")  # a line with a list right below it: Markdown wants a blank line
SECTION = re.compile(r"^## (\d+)\. (.*)$", flags=re.MULTILINE)


def on_config(config: Any) -> Any:
    """Keep the outputs of notebooks as long as the library stays as it is, without bars and advice of others."""
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
    """Put CONTRIBUTING.md and CHANGELOG.md, with their links to docs/, in place of the pages that stand for them."""
    if page.file.src_uri not in ROOT_PAGES:
        return markdown
    name = ROOT_PAGES[page.file.src_uri]
    page.edit_url = page.edit_url and page.edit_url.replace(f"docs/{page.file.src_uri}", name)
    text = Path(name).read_text(encoding="utf-8").replace("](docs/", "](")
    text = text.replace("## Unreleased\n\n## ", "## ")
    return TOPIC.sub(r"\n\n### \1\n\n- ", text) if name == "CHANGELOG.md" else text


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Link the sections of the mathematics that docstrings cite as "MATH 4"."""
    if not page.file.src_uri.startswith("reference/"):
        return html
    titles = dict(SECTION.findall(Path("docs/math.md").read_text(encoding="utf-8")))

    def link(cited: re.Match[str]) -> str:
        anchor = slugify(f"{cited[1]}. {titles[cited[1]]}", "-")
        return f'<a href="../math.html#{anchor}">the mathematics, section {cited[1]}</a>'

    return re.sub(r"\bMATH (\d+)", link, html)
