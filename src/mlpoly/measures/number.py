"""Records that stand for one number."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, scalar

__all__ = ["Number"]


class Number:
    """Lets a record be converted, formatted and compared like the one number that it is about."""

    def _number(self) -> Array:
        raise NotImplementedError

    def __float__(self) -> float:
        return scalar(self._number())

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __lt__(self, other: Any) -> Any:
        return self._number() < _plain(other)

    def __le__(self, other: Any) -> Any:
        return self._number() <= _plain(other)

    def __gt__(self, other: Any) -> Any:
        return self._number() > _plain(other)

    def __ge__(self, other: Any) -> Any:
        return self._number() >= _plain(other)


def _plain(value: Any) -> Any:
    return value._number() if isinstance(value, Number) else value
