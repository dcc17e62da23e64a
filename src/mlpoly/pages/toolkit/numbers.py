"""Numbers as people read them: few digits, a true minus sign, thin spaces between thousands, no line break inside."""

import math
from collections.abc import Callable, Iterable, Sequence

_MINUS, _THIN, _FIXED = "\N{MINUS SIGN}", "\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PERCENT = f"{_THIN}%"
_MISSING = "–"


def number(value: float, digits: int = 3) -> str:
    """Return a number to some significant digits; a power of ten if it is tiny or huge, a dash if it is not finite."""
    if not math.isfinite(value):
        return _MISSING
    size = abs(value)
    if size != 0 and not 1e-4 <= size < 1e7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}{_FIXED}×{_FIXED}10{str(int(exponent)).translate(_RAISED)}".replace("-", _MINUS)
    if size >= 10**digits or value == int(value):
        return f"{value:,.0f}".replace(",", _THIN).replace("-", _MINUS)
    return f"{value:#.{digits}g}".rstrip(".").replace("-", _MINUS)


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign, whichever it is."""
    return f"+{number(value, digits)}" if value > 0 else number(value, digits)


def percent(value: float, decimals: int | None = 1) -> str:
    """Return a fraction as a percentage; None for decimals gives three significant digits."""
    if not math.isfinite(value):
        return _MISSING
    return (number(100 * value) if decimals is None else f"{100 * value:.{decimals}f}") + _PERCENT


def span(values: Iterable[float], show: Callable[[float], str] = number) -> str:
    """Return the range of several numbers, as "0.011 to 0.013" or "2 to 3 %"; one number where all read the same."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return _MISSING
    low, high = show(min(finite)), show(max(finite))
    return low if low == high else f"{low.removesuffix(_PERCENT)} to {high}"


def rounded(values: Iterable[float], digits: int = 4) -> list[float]:
    """Return values to the few digits that a page shows, for the data of its scripts."""
    return [float(f"{value:.{digits}g}") for value in values]


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if not math.isfinite(seconds):
        return _MISSING
    if seconds < 120:
        return f"{number(seconds)}{_THIN}s"
    if seconds < 7200:
        return f"{number(seconds / 60)}{_THIN}min"
    return f"{number(seconds / 3600)}{_THIN}h"


def listing(items: Sequence[object]) -> str:
    """Return several things in a sentence: "a", "a and b", "a, b and c"."""
    names = [str(item) for item in items]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 seed", "3 seeds"."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"
