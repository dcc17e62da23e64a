r"""A hook of mkdocs: LaTeX in pages and docstrings becomes MathML while the site is built.

Every current browser draws MathML, so the site needs neither a script nor a font of its own, and no network. Formulas
are marked by pymdownx.arithmatex (generic): ``$...$`` in the text and ``$$...$$`` on lines of their own, which GitHub
draws too. A formula that cannot be converted stops the build.
"""

from __future__ import annotations

import html
import itertools
import re
from typing import Any
from xml.etree import ElementTree as ET

from latex2mathml.converter import convert_to_element

# With the punctuation beside it, which no line may begin or end with.
FORMULA = re.compile(r'(\(?)<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\2>([.,;:)]*)', flags=re.DOTALL)

OPERATORS = set("~±∓{}⟨⟩⌈⌉⌊⌋≪≫≈")  # that latex2mathml writes as identifiers
FENCES = dict.fromkeys("([{⟨⌈⌊", "prefix") | dict.fromkeys(")]}⟩⌉⌋", "postfix")
ACCENTS = {"^": "ˆ", "~": "˜"}
SCRIPTS = {"msub", "msup", "msubsup", "munder", "mover", "munderover"}
THIN = "0.167em"  # TeX's space beside the name of a function


def convert(latex: str, display: bool = False) -> str:
    """MathML of a formula; raises ValueError for one that latex2mathml does not understand."""
    if re.sub(r"\\[{}]", "", latex).count("{") != re.sub(r"\\[{}]", "", latex).count("}"):
        raise ValueError(f"a brace is missing in the formula {latex!r}.")
    # Bars that say on which side they stand get the spacing of brackets.
    stretched = re.sub(r"\\(l|r)(vert|Vert)\b", lambda m: rf"\{'left' if m[1] == 'l' else 'right'}\{m[2]}", latex)
    try:
        root = convert_to_element(stretched.strip(), display="block" if display else "inline")
    except Exception as error:
        raise ValueError(f"the formula {latex!r} is not LaTeX that latex2mathml converts: {error!r}.") from error
    for place in root.iter():
        place.text = html.unescape(place.text or "") or None  # latex2mathml writes characters as entities
        if re.search(r"[\\&$#]", place.text or ""):
            raise ValueError(f"{place.text!r} in the formula {latex!r} is not known to latex2mathml.")
    _repair(root, display)
    for place in root.iter():
        if (variant := place.get("mathvariant", "normal")) != "normal":  # MathML Core has no other
            raise ValueError(f"browsers do not draw {variant} letters in the formula {latex!r}; write \\mathcal{{N}}.")
    return ET.tostring(root, encoding="unicode")


def _repair(element: ET.Element, display: bool, script: bool = False) -> None:
    """Make latex2mathml's output what browsers draw as TeX does: they follow MathML Core, which has less."""
    text = element.text or ""
    if element.tag == "mi" and text in OPERATORS:
        element.tag, element.text = "mo", text.replace("~", "∼")
    if element.tag == "mo":
        if element.attrib.pop("minsize", ""):  # brackets of a binomial coefficient: as tall as it is
            del element.attrib["maxsize"]
        elif text in FENCES and "form" not in element.attrib:
            element.attrib |= {"form": FENCES[text], "stretchy": "false"}
        if text in ("⊤", "∂", "∇"):  # signs, without the space of an operator
            element.tag, element.attrib = "mi", {"mathvariant": "normal"}
        elif script or text in ("/", "."):
            element.attrib |= {"lspace": "0", "rspace": "0"}
    if element.tag == "mi" and "Α" <= text <= "Ω":
        element.set("mathvariant", "normal")
    children = list(element)
    if element.tag == "mrow" and len(children) > 1 and all(c.get("mathvariant") == "normal" for c in children):
        word = "".join(c.text or "" for c in children)
        element.clear()
        element.tag, element.text = "mi", word
        return
    if element.tag in ("msup", "msubsup") and children[-1].text == "′":
        # Fonts have it small and high already, so it stands beside the letter and not above it once more.
        letter, prime = children[0], ET.Element("mo", lspace="0", rspace="0")
        prime.text, primed = "′", ET.Element("mrow")
        primed.extend([letter, prime])
        element[:] = [primed, *children[1:-1]]
        element.tag, children = ("msub" if len(children) == 3 else "mrow"), list(element)
    if element.tag == "mover":
        children[1].text = ACCENTS.get(children[1].text or "", children[1].text)
        element.set("accent", "true")
    if display and element.tag in ("msub", "msubsup") and children[0].text == "∑":
        element.tag = element.tag.replace("msub", "munder").replace("sup", "over")
    for place, child in enumerate(children):
        inner = element.tag in SCRIPTS and place > 0
        _repair(child, display and not inner and element.tag != "mfrac", script or inner)
    if element.tag in ("mrow", "math", "mtd"):
        _sign(element)
        _space_names(element)


def _sign(row: ET.Element) -> None:
    """A minus behind a bracket, a comma or a relation is a sign, without the space of a difference."""
    for before, sign in zip([None, *row], row, strict=False):
        first = before is None or (before.tag == "mo" and before.get("form") != "postfix" and before.text != "!")
        if sign.tag == "mo" and sign.text in ("−", "±", "∓") and first:
            sign.attrib |= {"form": "prefix", "lspace": "0", "rspace": "0"}


def _space_names(row: ET.Element) -> None:
    """Thin spaces between the name of a function and what it multiplies, or is applied to without a bracket."""
    for one, two in itertools.pairwise(list(row)):
        ends = one.tag not in ("mo", "mspace", "mtext") or (one.text or "") in (")", "]", "⟩", "!")
        begins = two.tag not in ("mo", "mspace", "mtext") or ((two.text or "") in ("⟨", "∑", "∫") and _is_name(one))
        if ends and begins and (_is_name(one) or _is_name(two)):
            row.insert(list(row).index(two), ET.Element("mspace", width=THIN))


def _is_name(element: ET.Element) -> bool:
    """Whether it is a word such as act or He_k."""
    base = element[0] if element.tag in SCRIPTS else element
    return base.tag == "mi" and len(base.text or "") > 1 and (base.text or "").isalpha()


def render(page: str) -> str:
    """HTML of a page with its formulas as MathML; display formulas in a box of their own that scrolls."""

    def formula(found: re.Match[str]) -> str:
        before, _, bracket, latex, after = found.groups()
        made = convert(html.unescape(latex), display=bracket == "[")
        if bracket == "[":
            return f'{before}<div class="formula" data-search-exclude>{made}</div>{after}'
        return f'<span class="formula">{before}{made}{after}</span>' if before or after else made

    return FORMULA.sub(formula, page)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the HTML of every page."""
    try:
        return render(html)
    except ValueError as error:
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{page.file.src_uri}: {error}") from error
