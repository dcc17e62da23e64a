"""Tables as text, HTML and DataFrames: the same entries, and names that stay text."""

import math
from html.parser import HTMLParser

import numpy as np

from mlpoly.records import record
from mlpoly.tables import Table, TableList, Tabular

NASTY = "<script>alert('a & b')</script> 50% {x}_1^2 $y$ #~|\\"
TABLE = Table(
    ("name", "value", "count"),
    (("first", -0.000123456, 3), ("a long name", 1234567.0, None), (NASTY, math.nan, np.int64(7))),
    "Title & more",
    "f(x) = W_2 leaky_relu(W_1 x + b_1) + sum_c w_c",
    "a note",
)


class Cells(HTMLParser):
    """Tags in their order, and the texts of cells by row."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_text():
    title, formula, head, rule, *rows, note = str(TABLE).splitlines()
    assert (title, formula, note) == (TABLE.title, TABLE.formula, TABLE.note)
    assert set(rule) == {"-"} and len(rule) == max(map(len, rows))
    assert head.split() == ["name", "value", "count"]
    end = head.index("value") + len("value")  # numbers stand to the right
    assert rows[0].startswith("first ") and rows[0][:end].endswith("-0.0001235") and rows[0].endswith("3")
    assert rows[1][:end].endswith("1.235e+06") and len(rows[1]) == end  # nothing in place of None
    assert NASTY in rows[2] and rows[2][:end].endswith("nan")


def test_html_is_escaped_and_whole():
    html = TABLE.html()
    found = Cells(html)
    assert set(found.tags) == {"div", "strong", "i", "sub", "table", "thead", "tbody", "tr", "th", "td", "small"}
    assert found.rows[0] == list(TABLE.columns)
    assert found.rows[1] == ["first", "−0.0001235", "3"]
    assert found.rows[3][0] == NASTY
    assert "Title &amp; more" in html and "<i>W</i><sub>2</sub> leaky_relu(" in html and "∑<sub>c</sub>" in html
    assert "color" not in html  # the notebook's own, light or dark
    assert "mathjax_ignore" in html  # a dollar in a name begins no formula


def test_dataframe_has_all_rows():
    import pandas

    short = Table(("a", "b"), tuple((i, i / 3) for i in range(30)), limit=4)
    assert str(short).splitlines()[-1] == "... and 26 more rows" and len(str(short).splitlines()) == 7
    assert len(Cells(short.html()).rows) == 5
    frame = short.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == ["a", "b"]
    np.testing.assert_array_equal(frame["b"], np.arange(30) / 3)


def test_empty_tables():
    assert str(Table((), ())) == "" and Cells(Table((), ()).html()).rows == []
    assert str(Table(("a", "b"), ())).splitlines()[0] == "a  b"
    assert str(TableList()) == ""


def test_lists_of_rows():
    class Row:
        def row(self):
            return {"name": "x", "big": True, "none": None}

    assert str(TableList([Row(), Row()])).splitlines()[2:] == ["x     yes"] * 2
    assert str(Table.of([{"a": 1}, {"a": 22}])).splitlines() == [" a", "--", " 1", "22"]


def test_traced_arrays_fall_back_to_repr():
    import jax

    @record
    class Pair(Tabular):
        one: object

        def __repr__(self):
            return "Pair(...)"

        def _table(self):
            return Table(("one",), ((float(self.one),),))

    seen = []

    @jax.jit
    def look(value):
        pair = Pair(value)
        seen.append((str(pair), pair._repr_html_()))
        return value

    look(1.0)
    assert seen == [("Pair(...)", None)]
    assert str(Pair(np.array(2.5))).splitlines()[-1] == "2.5"
