"""Formulas of the documentation: all of them become MathML, with every letter, number and sign, and are drawn."""

import importlib.util
import re
import unicodedata
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import markdown
import pytest
from support.browser import Browser

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
CODE = re.compile(r"```.*?```|`[^`\n]+`", flags=re.DOTALL)
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$", flags=re.DOTALL)

spec = importlib.util.spec_from_file_location("mathml_hook", ROOT / "tools" / "mathml_hook.py")
assert spec and spec.loader
hook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hook)


def built(text: str) -> str:
    """HTML of Markdown as the site has it."""
    extensions = ["tables", "fenced_code", "toc", "md_in_html", "pymdownx.arithmatex"]
    return hook.render(markdown.markdown(text, extensions=extensions, extension_configs=GENERIC))


GENERIC = {"pymdownx.arithmatex": {"generic": True}}


def formulas(page: Path) -> list[tuple[str, bool]]:
    """LaTeX of every formula, and whether it stands on lines of its own; found without the site's Markdown."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    return [(display or inline, bool(display)) for display, inline in FORMULA.findall(text)]


def written(latex: str) -> Counter[str]:
    """Letters, digits and signs that a formula asks for, apart from symbols with a name."""
    latex = re.sub(r"\\(begin|end)\{\w+\}|&", "", latex)
    latex = re.sub(r"\\(sin|cos|tan|log)(?![A-Za-z])", r"\1", latex)
    return Counter(re.findall(r"[A-Za-z0-9+=!-]", re.sub(r"\\[A-Za-z]+", "", latex)))


def drawn(mathml: str) -> Counter[str]:
    """The same of what was made of it."""
    text = "".join(ET.fromstring(mathml).itertext()).replace("−", "-")
    return Counter(re.findall(r"[A-Za-z0-9+=!-]", unicodedata.normalize("NFKC", re.sub("[…′]", "", text))))


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_every_formula_is_drawn_with_every_letter_and_sign(page: Path) -> None:
    found = formulas(page)
    for latex, display in found:
        assert drawn(hook.convert(latex, display)) == written(latex), latex
    html = built(page.read_text(encoding="utf-8"))
    assert html.count("<math") == len(found)
    assert html.count('display="block"') == sum(display for _, display in found)
    left = re.sub(r"<(code|pre)\b.*?</\1>", "", html, flags=re.DOTALL)
    assert "$" not in left and "arithmatex" not in left and not re.search(r"\\[a-zA-Z(\[]", left)


def test_the_page_of_the_mathematics_has_formulas_and_the_sections_that_the_code_cites() -> None:
    page = (ROOT / "docs" / "math.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^##+ (\d+[a-z]?)\. ", page, flags=re.MULTILINE))
    assert {str(n) for n in range(1, 13)} <= sections
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    cited = {section for text in sources for section in re.findall(r"MATH (\d+[a-z]?)", text)}
    assert len(cited) > 10 and cited <= sections
    assert len(formulas(ROOT / "docs" / "math.md")) > 400
    assert not re.search(r"^    \S", page, flags=re.MULTILINE)  # none is left as indented text


def test_the_site_uses_the_hook_its_extension_and_its_style() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"pymdownx\.arithmatex: \{ generic: true \}", config)
    assert "tools/mathml_hook.py" in config and "stylesheets/math.css" in config


@pytest.mark.parametrize(
    ("latex", "shown"),
    [
        (r"x \sim \mathcal{N}(0, I)", "x∼𝒩(0,I)"),
        (r"\lVert B_c x - f \rVert^2", "‖Bcx−f‖2"),
        (r"\langle u, q \rangle \pm \lbrace j \rbrace", "⟨u,q⟩±{j}"),
        (r"\mathbb{E}[\mathrm{act}'(y)]", "𝔼[act′(y)]"),
        (r"a_k^\top \odot \mathrm{He}_k(t)", "ak⊤⊙Hek(t)"),
        (r"\mathcal{L} + \hat{x}", "ℒ+xˆ"),
        (r"r < 0", "r<0"),
    ],
)
def test_symbols(latex: str, shown: str) -> None:
    assert "".join(ET.fromstring(hook.convert(latex)).itertext()) == shown


def test_a_sum_has_its_limits_below_where_there_is_room() -> None:
    assert "<munder>" in hook.convert(r"\left( \sum_c \pi_c \right) g", display=True)
    assert "<munder" not in hook.convert(r"\sum_c \pi_c")
    assert "<munder" not in hook.convert(r"\frac{\sum_c \pi_c}{2}", display=True)


def test_a_minus_is_a_sign_or_an_operation() -> None:
    signs = [[mo.get("form") for mo in ET.fromstring(hook.convert(f)).iter() if mo.text == "−"] for f in SIGNED]
    assert signs == [["prefix"], ["prefix"], ["prefix"], [None], [None]]


SIGNED = ("(-1)^k", "(z, -z)", "x = -z", "f(x) - g", "k! - 1")


@pytest.mark.parametrize(
    ("latex", "named"),
    [
        (r"\frobnicate x", "frobnicate"),
        (r"\frac{a}{b", "brace"),
        (r"a_", "a_"),
        (r"\left( a", "left"),
        (r"\begin{aligned} a &= b \end{aligned}", "aligned"),
        (r"\boldsymbol{x}", "bold"),
        (r"\mathcal N", "script"),
    ],
)
def test_what_cannot_be_drawn_is_refused(latex: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        hook.convert(latex)
    with pytest.raises(ValueError, match=named):
        built(f"Text with ${latex}$ inside.")


def test_dollars_that_are_no_formulas_stay() -> None:
    html = built("It costs $5 or $6; `$HOME`.\n\n```sh\necho $HOME $PATH\n```\n")
    assert "$5 or $6" in html and html.count("$HOME") == 2 and "<math" not in html


def test_punctuation_stays_with_its_formula() -> None:
    html = built("If ($a$), then $b$, and $c$ too.")
    assert re.findall(r'<span class="formula">(.*?)</span>', re.sub("<math.*?</math>", "M", html)) == ["(M),", "M,"]
    assert built("$$\na\n$$") == f'<div class="formula" data-search-exclude>{hook.convert("a", display=True)}</div>'


def test_a_wide_formula_scrolls_in_its_own_box(window: Browser, tmp_path: Path) -> None:
    body = built((ROOT / "docs" / "math.md").read_text(encoding="utf-8"))
    style = (ROOT / "docs" / "stylesheets" / "math.css").read_text(encoding="utf-8")
    page = tmp_path / "math.html"
    head = f'<!doctype html><meta charset="utf-8"><style>{style}</style>'
    page.write_text(f'{head}<body class="md-typeset">{body}', encoding="utf-8")
    window.resize(400, 900)
    window.open(page)
    assert window.run("return document.documentElement.scrollWidth") == 400
    wide, narrow = window.run(
        "const boxes = [...document.querySelectorAll('div.formula')];"
        "const wide = boxes.filter(b => b.scrollWidth > b.clientWidth).length; return [wide, boxes.length - wide]"
    )
    assert wide > 5 and narrow > 5
    assert window.run("return [...document.querySelectorAll('math')].every(m => m.getBoundingClientRect().width > 2)")
    # Scripts and fractions are laid out: a formula is taller than its line of text.
    heights = window.run("return [...document.querySelectorAll('math')].map(m => m.getBoundingClientRect().height)")
    assert max(heights) > 2 * min(heights)
    assert [a for a in window.requests() if not a.startswith("file:")] == []
