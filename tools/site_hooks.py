"""Hooks of the site: pages from outside docs/, notebooks that run when the library changes, links to the reference.

Reports in docs/reports are kept without plotly's script, five megabytes that all of them share; the site has it.
"""

import ast
import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify
from plotly.offline import get_plotlyjs
from properdocs.structure.files import File

import mlpoly
from mlpoly import lm
from mlpoly.polynomials import Polynomial

ROOT_PAGES = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}
SECTION = re.compile(r"^## (\d+)\. (.*)$", flags=re.MULTILINE)
PLOTLY = "/* plotly.js is put here when the site is built */"
SCRIPT = re.compile(r"\]\(\.\./examples/(\w+)\.py\)")
# A public name in the text, such as `mp.fit(net, inputs)`; headings, links and blocks of code are passed over.
NAMED = re.compile(r"<(a|h\d|pre)\b.*?</\1>|<code>((mp|lm|poly)\.(\w+)[^<]*)</code>", flags=re.DOTALL)
POLYNOMIAL = f"{Polynomial.__module__}.{Polynomial.__qualname__}"
OWNERS = {"mp": mlpoly, "lm": lm, "poly": Polynomial}


def on_config(config: Any) -> Any:
    """Keep outputs of notebooks until the library changes, and progress bars and advice of others out of them."""
    source = hashlib.sha256()
    for path in sorted(Path("src").rglob("*")):
        if path.suffix in (".py", ".json", ".safetensors"):  # the shipped model is a part of the library
            source.update(path.read_bytes())
    kept = Path(".cache/mkdocs-jupyter", source.hexdigest()[:16])
    for old in kept.parent.glob("*"):
        if old != kept:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    config.plugins["mkdocs-jupyter"].config["cache_dir"] = str(kept)
    config.copyright = f"mlpoly {mlpoly.__version__}"  # in the footer
    profile = Path(".cache/ipython/profile_default").resolve()
    profile.mkdir(parents=True, exist_ok=True)
    # Kernels warn that they talk to this very process without encryption.
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 'ERROR'\n", encoding="utf-8")
    os.environ |= {
        "TQDM_DISABLE": "1",
        "PYTHONWARNINGS": "ignore:IProgress not found",
        "IPYTHONDIR": str(profile.parent),
    }
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for every script in examples/."""
    for path in sorted(Path("examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=script_page(path)))
    return files


def script_page(path: Path) -> str:
    """What the script says of itself in a line, then all of it, with room for its lines."""
    code = path.read_text(encoding="utf-8")
    said = (ast.get_docstring(ast.parse(code)) or "").splitlines()[0]
    return f"---\nhide: [navigation, toc]\n---\n# {path.as_posix()}\n\n{said}\n\n````python\n{code}````\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put CONTRIBUTING.md and CHANGELOG.md in place of their pages, names into the index, links to pages of scripts."""
    if page.file.src_uri == "reference/index.md":
        return re.sub(r"\((\w+\.md)\) \| \{names\}", lambda row: f"({row[1]}) | {names_on(row[1])}", markdown)
    if page.file.src_uri not in ROOT_PAGES:
        return SCRIPT.sub(r"](examples/\1.md)", markdown)
    name = ROOT_PAGES[page.file.src_uri]
    page.edit_url = page.edit_url and page.edit_url.replace(f"docs/{page.file.src_uri}", name)
    return Path(name).read_text(encoding="utf-8").replace("](docs/", "](")


def names_on(page: str) -> str:
    """Links to all names on a page of the reference, and to the methods that all polynomials have."""
    paths = re.findall(r"^::: (\S+)", Path("docs/reference", page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    links = [f"[`{path.rpartition('.')[2]}`][{path}]" for path in paths]
    if page == "polynomials.md":
        members = {name: value for name, value in vars(Polynomial).items() if name[0] != "_"}
        methods = [name for name, value in members.items() if callable(value) or hasattr(value, "__get__")]
        links += [f"[`.{name}`][{POLYNOMIAL}.{name}]" for name in methods]
    return ", ".join(links)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Link names to the reference, "MATH 4" in it to the formulas, notebooks to their files; no dash to nothing."""
    if page.file.src_uri.endswith(".ipynb"):
        return f'<p><a href="{Path(page.file.src_uri).name}" download>Download this notebook</a></p>\n{html}'
    if not page.file.src_uri.startswith("reference/"):
        return linked(html)
    html = re.sub(r'\s*–\s*<div class="doc-md-description">\s*</div>', "", html)
    titles = dict(SECTION.findall(Path("docs/math.md").read_text(encoding="utf-8")))

    def link(cited: re.Match[str]) -> str:
        anchor = slugify(f"{cited[1]}. {titles[cited[1]]}", "-")
        return f'<a href="../math.html#{anchor}">the mathematics, section {cited[1]}</a>'

    return re.sub(r"\bMATH (\d+)", link, html)


def linked(html: str) -> str:
    """Link the first mention of every public name on a page to its entry in the reference."""
    seen = set()

    def link(found: re.Match[str]) -> str:
        code, owner, name = found[2], found[3], found[4]
        if code is None or (owner, name) in seen or not hasattr(OWNERS[owner], name):
            return found[0]
        target = getattr(OWNERS[owner], name)
        if owner == "poly":
            path = f"{POLYNOMIAL}.{name}"
        elif hasattr(target, "__qualname__"):
            path = f"{target.__module__}.{target.__qualname__}"
        else:
            return found[0]
        seen.add((owner, name))
        return f'<autoref identifier="{path}" optional><code>{code}</code></autoref>'

    return NAMED.sub(link, html)


def on_post_build(config: Any, **_: Any) -> None:
    """Complete the reports: each is one file that loads nothing."""
    for path in Path(config["site_dir"], "reports").glob("*.html"):
        path.write_text(path.read_text(encoding="utf-8").replace(PLOTLY, get_plotlyjs()), encoding="utf-8")
