"""Polynomials written out: as text, LaTeX, HTML and SymPy expressions."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from typing import Any

from mlpoly.arrays import Array, readable
from mlpoly.extras import library
from mlpoly.features.monomials import check_count, count_monomials, in_order
from mlpoly.features.term_table import input_names, monomial_name, single_output, strongest_terms
from mlpoly.polynomials import Polynomial

_MOST = 100_000  # monomials of a SymPy expression
_WRITTEN = 24  # most monomials of a polynomial that is written out whole
_QUICK = 1_000_000  # most monomials among which a notebook looks for the strongest
_SHOWN, _OUTPUTS = 8, 3  # strongest terms of each output, and outputs, in a notebook

_Terms = list[tuple[float, tuple[int, ...]]]


def sympy_expression(poly: Polynomial, output: int | Array, names: Sequence[str] | None) -> Any:
    """Return the SymPy expression; the arguments are those of `Polynomial.to_sympy`."""
    sympy = library("sympy", "sympy", "to_sympy")
    labels = input_names(poly, names)
    check_count(poly, _MOST, "poly.terms(k=...) lists the strongest, poly.truncate(2) has fewer")
    symbols, one = [sympy.Symbol(name) for name in labels], single_output(poly, output)
    found = [sympy.Float(float(one.coefficients().constant[0]))]
    for monomials in in_order(one):
        for coefficient, factors in zip(monomials.coefficients.tolist(), monomials.inputs.tolist(), strict=True):
            if coefficient:
                found.append(sympy.Mul(sympy.Float(coefficient), *(symbols[i] for i in factors)))
    return sympy.Add(*found)


def text_formula(poly: Polynomial) -> str:
    """One line for each output if the polynomial is small, otherwise its repr."""
    outputs = _written(poly, _WRITTEN)
    if outputs is None:
        return repr(poly)
    names = input_names(poly, None)
    lines = []
    for i, (terms, _) in enumerate(outputs):
        label = "p" if len(outputs) == 1 else f"p{i}"
        lines.append(f"{label} = " + _sum(terms, lambda f: monomial_name(f, names), " ", "\N{MINUS SIGN}"))
    return "\n".join(lines)


def latex_formula(poly: Polynomial) -> str:
    """The first outputs in their strongest terms, for notebooks."""
    outputs = _written(poly, None) or []
    names = [_latex_name(name) for name in input_names(poly, None)]

    def product(factors: tuple[int, ...]) -> str:
        powers = {i: factors.count(i) for i in dict.fromkeys(factors)}
        return r"\,".join(names[i] if n == 1 else f"{{{names[i]}}}^{{{n}}}" for i, n in powers.items())

    lines = []
    for i, (terms, rest) in enumerate(outputs):
        label = "p(x)" if poly.dim_out == 1 else f"p_{{{i}}}(x)"
        more = rf" + \cdots\;({rest}\ \text{{more}})" if rest else ""
        lines.append(f"{label} &= " + _sum(terms, product, r"\,", "-", _latex_number) + more)
    if not lines:
        return rf"$p:\ \mathbb{{R}}^{{{poly.dim_in}}} \to \mathbb{{R}}^{{{poly.dim_out}}},\ \deg p = {poly.degree}$"
    if len(outputs) < poly.dim_out:
        lines.append(rf"&\ \vdots\quad ({poly.dim_out}\ \text{{outputs}})")
    return r"$\begin{aligned}" + r" \\ ".join(lines) + r"\end{aligned}$"


def html_formula(poly: Polynomial) -> str:
    """What it is, and the first outputs in their strongest terms, for notebooks."""
    outputs = _written(poly, None) or []
    names = [_html_name(name) for name in input_names(poly, None)]

    def product(factors: tuple[int, ...]) -> str:
        powers = {i: factors.count(i) for i in dict.fromkeys(factors)}
        return "&thinsp;".join(names[i] if n == 1 else f"{names[i]}<sup>{n}</sup>" for i, n in powers.items())

    lines = []
    for i, (terms, rest) in enumerate(outputs):
        label = "<i>p</i>" if poly.dim_out == 1 else f"<i>p</i><sub>{i}</sub>"
        more = f" + … <small>({rest} more; poly.terms())</small>" if rest else ""
        lines.append(f"<div>{label} = {_sum(terms, product, '&thinsp;', '−', _html_number)}{more}</div>")
    if len(outputs) < poly.dim_out and lines:
        lines.append(f"<div><small>… {poly.dim_out} outputs</small></div>")
    return f"<div><div><code>{html.escape(repr(poly))}</code></div>{''.join(lines)}</div>"


def _written(poly: Polynomial, whole: int | None) -> list[tuple[_Terms, int]] | None:
    """Terms of the first outputs with the number of those left out, or None where they cannot be read or are too many.

    With `whole` all terms of all outputs in order, if there are at most so many; otherwise the strongest, as far as the
    inputs are known.
    """
    count = count_monomials(poly.dim_in, poly.degree)
    if not readable(poly.prototype) or count > (_QUICK if whole is None else whole):
        return None
    if whole is not None and poly.dim_out > _OUTPUTS:
        return None
    found: list[tuple[_Terms, int]] = []
    for i in range(min(poly.dim_out, _OUTPUTS)):
        one = single_output(poly, i)
        constant = (float(one.coefficients().constant[0]), ())
        if count <= _WRITTEN:
            every: _Terms = [constant]
            for m in in_order(one):
                every += [(c, tuple(f)) for c, f in zip(m.coefficients.tolist(), m.inputs.tolist(), strict=True)]
            found.append(([term for term in every if term[0] or not term[1]], 0))
        elif poly.inputs is not None:
            strong = strongest_terms(poly, i, None, _SHOWN, None, None)
            found.append(([constant, *((t.coefficient, t.inputs) for t in strong)], count - len(strong)))
        else:
            return None
    return found


def _sum(
    terms: _Terms,
    product: Callable[[tuple[int, ...]], str],
    space: str,
    minus: str,
    number: Callable[[float], str] = lambda value: f"{value:.4g}",
) -> str:
    """Terms with their signs between them; coefficients of four digits."""
    written = ""
    for i, (coefficient, factors) in enumerate(terms):
        sign = (minus if coefficient < 0 else "") if i == 0 else f" {minus} " if coefficient < 0 else " + "
        size = number(abs(coefficient))
        written += sign + (f"{size}{space}{product(factors)}" if factors else size)
    return written


def _latex_number(value: float) -> str:
    mantissa, _, exponent = f"{value:.4g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def _html_number(value: float) -> str:
    mantissa, _, exponent = f"{value:.4g}".partition("e")
    return f"{mantissa}·10<sup>{int(exponent)}</sup>".replace("-", "−") if exponent else mantissa


def _latex_name(name: str) -> str:
    """A name as a symbol: x_{3}, or upright with special characters escaped."""
    if match := re.fullmatch(r"([A-Za-z])_?(\d+)", name):
        return f"{match[1]}_{{{match[2]}}}"
    if re.fullmatch(r"[A-Za-z]", name):
        return name
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return r"\text{" + "".join(special.get(c, "\\" + c if c in "&%$#_{}" else c) for c in name) + "}"


def _html_name(name: str) -> str:
    if match := re.fullmatch(r"([A-Za-z])_?(\d+)", name):
        return f"<i>{match[1]}</i><sub>{match[2]}</sub>"
    return f"<i>{html.escape(name)}</i>"
