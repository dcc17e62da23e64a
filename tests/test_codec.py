"""Records to JSON and back: what a round trip keeps, and which damage is named."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from support.records import assert_equal

from mlpoly.codec import from_plain, load_results, save_results, to_plain
from mlpoly.errors import FileFormatError


class Pair(NamedTuple):
    name: str
    amount: float


@dataclass(frozen=True)
class Inner:
    values: tuple[float, ...]
    picture: np.ndarray
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    about: dict[str, Any]
    inner: tuple[Inner, ...]
    count: int
    yes: bool | None = None
    maybe: Inner | None = None
    names: list[str] | None = None
    pairs: tuple[Pair, ...] = ()
    by_name: dict[str, float] | None = None


INNER = Inner((1.0, math.nan), np.arange(6, dtype=np.float32).reshape(2, 3), "b")
INNERS, PAIRS = (INNER, Inner((), np.zeros(0))), (Pair("p", 0.5), Pair("q", math.nan))
OUTER = Outer({"a": [1, {"b": None}]}, INNERS, 3, True, INNER, ["x"], PAIRS, {"k": 1.0})
PLAIN = {"about": {}, "inner": [], "count": 3}


@pytest.mark.parametrize("record", [OUTER, Outer({}, (), 0)])
def test_round_trip(tmp_path, record):
    save_results(tmp_path / "results.json", record)
    assert_equal(load_results(tmp_path / "results.json", Outer), record)


def test_arrays_are_beside_the_json(tmp_path):
    path = tmp_path / "results.json"
    save_results(path, OUTER)
    assert json.loads(path.read_text())["inner"][0]["picture"] == {"array": "inner.0.picture"}
    save_results(path, Outer({}, (), 0))
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]  # no array, no file of arrays


def test_plain_values():
    value = {1: (np.float64("nan"), np.arange(2), np.bool_(True), -math.inf), "p": Path("a"), "n": None, "s": "text"}
    assert to_plain(value) == {"1": [None, [0, 1], True, None], "p": "a", "n": None, "s": "text"}
    assert to_plain(INNER) == {"values": [1.0, None], "picture": [[0, 1, 2], [3, 4, 5]], "kind": "b"}


def test_files_of_other_versions(tmp_path):
    assert_equal(from_plain(Outer, PLAIN | {"new": {"array": "nowhere"}}), Outer({}, (), 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": None}, r"expected int @ \$\.count"),
        ({"about": []}, r"expected a mapping @ \$\.about"),
        ({"inner": [{"values": [1, "x"]}]}, r"@ \$\.inner\[0\]\.values\[1\]|missing @ \$\.inner\[0\]\.picture"),
        ({"inner": [{"values": [], "picture": {"array": "p"}}]}, r"@ \$\.inner\[0\]\.picture"),
        ({"maybe": {"values": [], "picture": {"array": "x"}, "kind": "c"}}, r"c not in .* @ \$\.maybe\.kind"),
        ({"by_name": {"k": 10**400}}, r"int too large .* @ \$\.by_name\['k'\]"),
    ],
)
def test_damage_is_named(change, message):
    with pytest.raises(FileFormatError, match=message):
        from_plain(Outer, PLAIN | change, {"x": np.zeros(1)})


def test_damaged_files(tmp_path):
    path = tmp_path / "results.json"
    with pytest.raises(FileNotFoundError, match=r"there is no file .*results.json"):
        load_results(path, Outer)
    path.write_text("3")
    with pytest.raises(FileFormatError, match=r"results.json is damaged or of another version \(Outer: .*Move"):
        load_results(path, Outer)
    path.write_text("{")
    with pytest.raises(FileFormatError, match=r"results.json is not a readable JSON file .* run the study again"):
        load_results(path, Outer)
