"""Hooks of the site: CONTRIBUTING.md and the scripts in examples/, which stand outside docs/, are among its pages.

Reports in docs/reports are kept without plotly's script, five megabytes that all of them share; the site has it.
"""

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from plotly.offline import get_plotlyjs

PLOTLY = "/* plotly.js is put here when the site is built */"
SCRIPT = re.compile(r"\]\(\.\./examples/(\w+)\.py\)")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for every script in examples/."""
    for path in sorted(Path("examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=script_page(path)))
    return files


def script_page(path: Path) -> str:
    """What the script says of itself in a line, then all of it."""
    code = path.read_text(encoding="utf-8")
    said = (ast.get_docstring(ast.parse(code)) or "").splitlines()[0]
    return f"# {path.as_posix()}\n\n{said}\n\n````python\n{code}````\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put CONTRIBUTING.md, with its links to docs/, in the place of its page; links to scripts lead to their pages."""
    if page.file.src_uri == "contributing.md":
        return Path("CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return SCRIPT.sub(r"](examples/\1.md)", markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Complete the reports: each is one file that loads nothing."""
    for path in Path(config["site_dir"], "reports").glob("*.html"):
        path.write_text(path.read_text(encoding="utf-8").replace(PLOTLY, get_plotlyjs()), encoding="utf-8")
