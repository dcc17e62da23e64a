"""Check the built site: python tools/check_site.py out/site, which `make docs` does.

Every link and every anchor leads somewhere within the folder, no page requests anything from another host when it is
opened, no LaTeX is left but in marked formulas, every name that is linked has an entry in the reference, and no
notebook shows a warning. Links to other hosts are not followed.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LATEX = re.compile(r"\$[^\s$][^$]*\$|\\[(\[]|\\[a-zA-Z]{2,}")
REFERENCE = re.compile(r"\]\[(mlpoly[\w.]*)\]")  # what is left of [`fit`][mlpoly.fit] if there is no such entry
VERBATIM = {"code", "pre", "script", "style", "math", "title"}  # where a dollar or a backslash stands for itself


class SitePage(HTMLParser):
    """Links, anchors and faults of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[bool, str]] = []  # whether it is loaded with the page; where it leads
        self.anchors: set[str] = set()
        self.faults: list[str] = []
        self.verbatim = 0
        self.formula = False  # which KaTeX draws
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name: value or "" for name, value in attrs}
        self.anchors |= {names[key] for key in ("id", "name") if key in names}
        self.links += [(key == "src" or tag == "link", names[key]) for key in ("href", "src") if key in names]
        self.verbatim += tag in VERBATIM
        self.formula = names.get("class") == "arithmatex"
        if "stderr" in names.get("data-mime-type", ""):
            self.faults.append("a notebook shows a warning")

    def handle_endtag(self, tag: str) -> None:
        self.verbatim -= tag in VERBATIM
        self.formula = False

    def handle_data(self, data: str) -> None:
        if self.verbatim or self.formula:
            return
        if match := LATEX.search(data):
            self.faults.append(f"an unrendered formula: {match[0]}")
        if match := REFERENCE.search(data):
            self.faults.append(f"a name without an entry in the reference: {match[1]}")


def check(site: Path) -> list[str]:
    """Faults of all pages."""
    pages = {path: SitePage(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        own = list(page.faults)
        for loaded, link in page.links:
            scheme, host, place, _, anchor = urlsplit(link)
            if host:
                own += [f"it loads {link} from another host"] if loaded else []
            elif not scheme:
                base = site if place.startswith("/") else path.parent  # a server sends 404.html for any folder
                target = (base / unquote(place).lstrip("/")).resolve() if place else path
                target = target / "index.html" if target.is_dir() else target
                if not target.is_file():
                    own.append(f"a dead link: {link}")
                elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                    own.append(f"a dead anchor: {link}")
        faults += [f"{path.relative_to(site)}: {fault}" for fault in dict.fromkeys(own)]
    return faults


if __name__ == "__main__":
    sys.exit("\n".join(check(Path(sys.argv[1]).resolve())) or 0)
