"""Powers of encrypted vectors by a square tree: as few products in a row as there can be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Vector(NamedTuple):
    """Name of an encrypted vector: u_layer^power, times the gate e_layer if gated. Layer 0 is the input."""

    layer: int
    power: int = 1
    gated: bool = False


def depth_of_power(k: int) -> int:
    """Products that follow one another in a power u^k, or in any product of k vectors: ceil(log2 k)."""
    return max(k - 1, 0).bit_length()


def products(vectors: Iterable[Vector]) -> dict[Vector, tuple[Vector, Vector]]:
    """Products of two vectors each that make the given powers of one layer, in an order in which they can be computed.

    u^k = u^a u^(k - a) with a = ceil(k / 2), and e u^k = u^a (e u^(k - a)) with a = ceil((k + 1) / 2): the depth is
    least. Vectors of power one, and gates alone, are there from the start.
    """
    made: dict[Vector, tuple[Vector, Vector]] = {}

    def make(v: Vector) -> None:
        if v in made or v.power + v.gated <= 1:
            return
        first = (v.power + v.gated + 1) // 2  # factors in the first half
        parts = Vector(v.layer, first, False), Vector(v.layer, v.power - first, v.gated)
        for part in parts:
            make(part)
        made[v] = parts

    for vector in vectors:
        make(vector)
    return made
