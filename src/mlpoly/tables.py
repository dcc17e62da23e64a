"""How results show themselves: as tables in text, notebooks and DataFrames, and as pictures."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from numbers import Integral, Real
from typing import Any

from mlpoly.arrays import readable
from mlpoly.extras import library
from mlpoly.records import arrays_of

Cell = str | float | int | bool | None  # an entry of a table; None stays empty


@dataclass(frozen=True)
class Table:
    """Rows of texts and numbers under the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]  # one entry for each column: a text, a number, or None for an empty place
    title: str = ""
    note: str = ""  # remark below the rows
    limit: int | None = None  # number of rows that are shown; by default all, as always in the DataFrame

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Cell]], **options: Any) -> "Table":
        """Table of rows with the same keys, which name the columns."""
        columns = tuple(rows[0]) if rows else ()
        return cls(columns, tuple(tuple(row[name] for name in columns) for row in rows), **options)

    def __str__(self) -> str:
        cells, numeric, remark = self._shown()
        lines = [self.title]
        if self.columns:
            widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
            places = [f"{{:{'>' if right else '<'}{width}}}" for right, width in zip(numeric, widths, strict=True)]
            table = ["  ".join(places).format(*row).rstrip() for row in (self.columns, *cells)]
            lines += [table[0], "-" * max(map(len, table)), *table[1:]]
        return "\n".join([line for line in lines if line] + ([remark] if remark else []))

    def html(self) -> str:
        """HTML for a notebook: every text is escaped, and colours are inherited."""
        cells, numeric, remark = self._shown()
        sides = [f"text-align: {'right' if right else 'left'}" for right in numeric]

        def row(tag: str, texts: Iterable[str]) -> str:
            made = (f'<{tag} style="{side}">{escape(text)}</{tag}>' for side, text in zip(sides, texts, strict=True))
            return f"<tr>{''.join(made)}</tr>"

        # MathJax must not take dollars in names for formulas.
        parts = ['<div class="tex2jax_ignore mathjax_ignore">']
        parts += [f"<div><strong>{escape(self.title)}</strong></div>"] if self.title else []
        if self.columns:
            signs = ["\N{MINUS SIGN}" if right else "-" for right in numeric]
            body = "".join(row("td", (t.replace("-", m) for t, m in zip(texts, signs, strict=True))) for texts in cells)
            parts.append(f"<table><thead>{row('th', self.columns)}</thead><tbody>{body}</tbody></table>")
        parts += [f"<div><small>{escape(remark)}</small></div>"] if remark else []
        return "".join([*parts, "</div>"])

    def to_pandas(self) -> Any:
        """Return all rows as a DataFrame."""
        return library("pandas", "pandas", "to_pandas").DataFrame(list(self.rows), columns=list(self.columns))

    def _shown(self) -> tuple[list[list[str]], list[bool], str]:
        """Texts of the rows that are shown, which columns hold numbers, and the remark below."""
        shown = self.rows[: self.limit]
        columns = zip(*self.rows, strict=True) if self.rows else [[""]] * len(self.columns)
        numeric = [all(value is None or isinstance(value, Real) for value in column) for column in columns]
        left = len(self.rows) - len(shown)
        more = f"... and {left} more rows" if left else ""
        remark = "\n".join(filter(None, (more, self.note)))
        return [[cell_text(value) for value in row] for row in shown], numeric, remark


class Tabular(ABC):
    """A result that shows itself as a table: printed, in a notebook and as a DataFrame."""

    @abstractmethod
    def _table(self) -> Table:
        """The result as a table."""

    def __repr__(self) -> str:
        return str(self._table()) if self._readable() else f"{type(self).__name__}(traced)"

    def __str__(self) -> str:
        return str(self._table()) if self._readable() else repr(self)

    def _repr_html_(self) -> str | None:
        return self._table().html() if self._readable() else None

    def to_pandas(self) -> Any:
        """Return the table as a DataFrame, with all its rows; needs pandas."""
        return self._table().to_pandas()

    def _readable(self) -> bool:
        """Whether there are values to show: not while JAX or torch.compile is tracing."""
        return not hasattr(self, "_moving") or readable(*arrays_of(self).values())


class TableList(Tabular, list[Any]):
    """A list of records with a method ``row()``, which prints as a table of them."""

    def _table(self) -> Table:
        return Table.of([record.row() for record in self])


class Plottable:
    """A result with a picture. `mlpoly.charts` has a function for each kind of result, which describes its picture."""

    def chart(self, **options: Any) -> Any:
        """Describe the picture, for matplotlib or for a page; options are those of the function in `mlpoly.charts`."""
        from mlpoly.charts import chart_of  # above this module: imported on demand

        return chart_of(self, **options)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the picture with matplotlib, and return the figure.

        On axes `ax` a chart has its first panel, while other pictures of several axes take their place in the figure;
        by default it is a new figure of pyplot. The options are those of `chart`, such as `title`.
        """
        from mlpoly.charts.matplotlib import show  # needs matplotlib

        return show(self.chart(**options), ax)


def cell_text(value: Cell) -> str:
    """An entry as text: numbers to four significant digits, None as nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real) and not isinstance(value, Integral):
        return "nan" if math.isnan(value) else f"{float(value):.4g}"
    return str(value)


def output_label(output: int | None, outputs: int, names: Sequence[str] | None = None) -> str:
    """How titles call an output: by its name or number; nothing for the only one; None is a direction of outputs."""
    if output is None:
        return "a direction of the outputs"
    return names[output] if names else f"output {output}" if outputs > 1 else ""


def largest_entries(values: Sequence[float], names: Sequence[str] | None = None, k: int = 4, minus: str = "-") -> str:
    """The k largest entries of a vector by magnitude, with the names of their places: "+0.71 age, -0.5 bmi"."""
    order = sorted(range(len(values)), key=lambda i: -abs(values[i]))[:k]
    sizes = [f"{values[i]:+.2g}".replace("-", minus) for i in order]
    shown = [f"{s} {f'x{i}' if names is None else names[i]}" for s, i in zip(sizes, order, strict=True) if values[i]]
    return ", ".join(shown) + (", ..." if shown and sum(map(bool, values)) > k else "")
