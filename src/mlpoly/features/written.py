"""Polynomials written out: as text and SymPy expressions."""

from collections.abc import Sequence
from typing import Any

from mlpoly.arrays import Array, as_integer, readable
from mlpoly.extras import library
from mlpoly.features.monomials import check_count, count_monomials, in_order
from mlpoly.features.term_table import input_names, monomial_name, single_output
from mlpoly.polynomials import Polynomial

_MOST = 100_000  # monomials of a SymPy expression
_WRITTEN, _OUTPUTS = 24, 3  # most monomials, and outputs, of a polynomial that is written out


def sympy_expression(
    poly: Polynomial, output: int | str | Array, names: Sequence[str] | None, digits: int | None = None
) -> Any:
    """Return the SymPy expression; the arguments are those of `Polynomial.to_sympy`."""
    sympy = library("sympy", "sympy", "to_sympy")
    labels = input_names(poly, names)
    check_count(poly, _MOST, "poly.terms(k=...) lists the strongest, poly.truncate(2) has fewer")
    symbols, one = [sympy.Symbol(name) for name in labels], single_output(poly, output)
    precision = 15 if digits is None else as_integer("digits", digits, 1)
    constant = sympy.Float(float(one.coefficients().constant[0]), precision)
    products = (
        sympy.Mul(sympy.Float(c, precision), *(symbols[i] for i in factors)) for c, factors in in_order(one) if c
    )
    return sympy.Add(constant, *products)


def text_formula(poly: Polynomial) -> str:
    """One line for each output if the polynomial is small and its values can be read, otherwise its repr."""
    small = count_monomials(poly.dim_in, poly.degree) <= _WRITTEN and poly.dim_out <= _OUTPUTS
    if not small or not readable(poly.prototype):
        return repr(poly)
    names, lines = input_names(poly, None), []
    for i in range(poly.dim_out):
        one = single_output(poly, i)
        constant = (float(one.coefficients().constant[0]), ())
        written = _sum([constant, *(term for term in in_order(one) if term[0])], names)
        lines.append(f"{'p' if poly.dim_out == 1 else f'p{i}'} = {written}")
    return "\n".join(lines)


def _sum(terms: Sequence[tuple[float, tuple[int, ...]]], names: Sequence[str]) -> str:
    """Terms with their signs between them; coefficients of four digits."""
    minus, written = "\N{MINUS SIGN}", ""
    for i, (coefficient, factors) in enumerate(terms):
        sign = minus if coefficient < 0 else "+" if i else ""
        number = f"{abs(coefficient):.4g}".replace("-", minus)
        written += (f" {sign} " if i else sign) + f"{number} {monomial_name(factors, names)}".rstrip()
    return written
