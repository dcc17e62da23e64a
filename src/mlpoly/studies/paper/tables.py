"""Records as rows: JSON-ready dictionaries, and CSV files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly.files import write_csv

__all__ = ["plain", "write_table"]


def plain(value: Any) -> Any:
    """The same in words that JSON has: records become dictionaries, arrays lists, NaN and infinities None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def write_table(path: Path, records: Sequence[Any]) -> None:
    """One row per record, one column per field; a field that is a tuple gets a column for each entry."""
    rows: list[dict[str, Any]] = [{} for _ in records]
    for row, record in zip(rows, records, strict=True):
        for name, value in plain(record).items():
            if isinstance(value, list):
                row |= {f"{name}_{i}": v for i, v in enumerate(value, start=1)}
            else:
                row[name] = value
    write_csv(path, rows)
