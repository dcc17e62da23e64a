"""Polynomials written out: as text, HTML and SymPy expressions."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlpoly.arrays import Array, readable
from mlpoly.extras import library
from mlpoly.features.monomials import check_count, count_monomials, in_order
from mlpoly.features.term_table import input_names, single_output, strongest_terms
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
    constant = sympy.Float(float(one.coefficients().constant[0]))
    products = (sympy.Mul(sympy.Float(c), *(symbols[i] for i in factors)) for c, factors in in_order(one) if c)
    return sympy.Add(constant, *products)


@dataclass(frozen=True)
class Notation:
    """How a formula is written; ``power`` and ``exponent`` are templates."""

    name: Callable[[str], str]  # of an input, from its own
    power: str  # of a name and an exponent
    exponent: str  # of a mantissa and a power of ten
    space: str  # between factors
    minus: str

    def sum(self, terms: _Terms, names: Sequence[str]) -> str:
        """Terms with their signs between them; coefficients of four digits."""
        names = [self.name(name) for name in names]
        written = ""
        for i, (coefficient, factors) in enumerate(terms):
            sign = self.minus if coefficient < 0 else "+" if i else ""
            sign = f" {sign} " if i else sign
            powers = [(names[j], factors.count(j)) for j in dict.fromkeys(factors)]
            product = [name if n == 1 else self.power.format(name, n) for name, n in powers]
            written += sign + self.space.join([self.number(abs(coefficient)), *product])
        return written

    def number(self, value: float) -> str:
        """A positive number with four digits."""
        mantissa, _, exponent = f"{value:.4g}".partition("e")
        return self.exponent.format(mantissa, int(exponent)).replace("-", self.minus) if exponent else mantissa


def text_formula(poly: Polynomial) -> str:
    """One line for each output if the polynomial is small, otherwise its repr."""
    outputs = _written(poly, _WRITTEN)
    if outputs is None:
        return repr(poly)
    names = input_names(poly, None)
    labels = ["p"] if len(outputs) == 1 else [f"p{i}" for i in range(len(outputs))]
    notation = replace(_TEXT, space=" * ") if any(" " in name for name in names) else _TEXT  # as in names of terms
    formulas = (notation.sum(terms, names) for terms, _ in outputs)
    return "\n".join(f"{label} = {formula}" for label, formula in zip(labels, formulas, strict=True))


def html_formula(poly: Polynomial) -> str:
    """What it is, and the first outputs in their strongest terms, for notebooks."""
    names, lines = input_names(poly, None), []
    for i, (terms, rest) in enumerate(_written(poly, None) or []):
        label = "<i>p</i>" if poly.dim_out == 1 else f"<i>p</i><sub>{i}</sub>"
        more = f" + … <small>({rest} more; poly.terms())</small>" if rest else ""
        lines.append(f"<div>{label} = {_HTML.sum(terms, names)}{more}</div>")
    if 0 < len(lines) < poly.dim_out:
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
    written: list[tuple[_Terms, int]] = []
    for i in range(min(poly.dim_out, _OUTPUTS)):
        one = single_output(poly, i)
        constant = (float(one.coefficients().constant[0]), ())
        if count <= _WRITTEN:
            written.append(([constant, *(term for term in in_order(one) if term[0])], 0))
        elif poly.inputs is not None:
            strong = strongest_terms(poly, i, None, _SHOWN, None, None)
            written.append(([constant, *((t.coefficient, t.inputs) for t in strong)], count - len(strong)))
        else:
            return None
    return written


def _html_name(name: str) -> str:
    if match := re.fullmatch(r"([A-Za-z])_?(\d+)", name):
        return f"<i>{match[1]}</i><sub>{match[2]}</sub>"
    return f"<i>{html.escape(name)}</i>"


_TEXT = Notation(str, "{}^{}", "{}e{:+03d}", " ", "\N{MINUS SIGN}")
_HTML = Notation(_html_name, "{}<sup>{}</sup>", "{}·10<sup>{}</sup>", "&thinsp;", "\N{MINUS SIGN}")
