"""From hidden units to outputs: W M W' summed over chunks of M, as a matrix or its diagonal alone."""

from __future__ import annotations

from mlpoly.arrays import Array, namespace


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
        left, right = self.readout[:, rows] @ chunk, self.readout[:, columns]
        half = left @ right.T if self.full else namespace(left=left).sum(left * right, axis=1)
        half = 0.5 * half if rows == columns else half
        self._half = half if self._half is None else self._half + half

    @property
    def used(self) -> bool:
        """Whether anything was added."""
        return self._half is not None

    @property
    def value(self) -> Array:
        """The sum W M W', (o, o), or its diagonal (o,)."""
        return self._half + self._half.T if self.full else 2 * self._half
