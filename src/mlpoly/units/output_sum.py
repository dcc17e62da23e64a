"""From hidden units to outputs: W M W' summed over chunks of M, as a matrix or its diagonal alone."""

from __future__ import annotations

from mlpoly.arrays import Array, chunks, namespace

__all__ = ["OutputSum"]

_PAIRS = 4096  # listed pairs at a time


class OutputSum:
    """W M W' for symmetric M given as chunks on and above its diagonal.

    Parameters
    ----------
    readout : array (o, h)
    full : bool
        Sum the (o, o) matrix; otherwise its diagonal (o,) alone, which costs no o x o array.
    """

    def __init__(self, readout: Array, full: bool) -> None:
        self.readout = readout
        self.full = full
        # W U W' for the upper triangle U of M with its diagonal halved: M = U + U'.
        self._half: Array = None

    def add(self, rows: slice, columns: slice, chunk: Array) -> None:
        """Add a chunk M[rows, columns]."""
        left = self.readout[:, rows] @ chunk
        self._add(left, self.readout[:, columns], 0.5 if rows == columns else 1.0)

    def add_listed(self, i: Array, j: Array, values: Array) -> None:
        """Add values at the positions (i, j), i <= j, each listed once."""
        xp = namespace(values=values)
        for part in chunks(values.shape[0], _PAIRS):
            halved = values[part] * xp.where(i[part] == j[part], 0.5, 1.0)
            left = xp.take(self.readout, i[part], axis=1) * halved
            self._add(left, xp.take(self.readout, j[part], axis=1), 1.0)

    def _add(self, left: Array, right: Array, factor: float) -> None:
        xp = namespace(left=left)
        half = factor * (left @ right.T if self.full else xp.sum(left * right, axis=1))
        self._half = half if self._half is None else self._half + half

    @property
    def used(self) -> bool:
        """Whether anything was added."""
        return self._half is not None

    @property
    def value(self) -> Array:
        """The sum W M W', (o, o), or its diagonal (o,)."""
        return self._half + self._half.T if self.full else 2 * self._half
