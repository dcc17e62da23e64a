"""Hooks of the site: CONTRIBUTING.md, which stands in the root of the repository, is one of its pages."""

from pathlib import Path
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put CONTRIBUTING.md, with its links to docs/, in the place of the page that stands for it."""
    if page.file.src_uri != "contributing.md":
        return markdown
    text = Path("CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](")
