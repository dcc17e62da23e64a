"""Principal forms of a model's blocks: how few output directions carry a block's variance at each degree."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from mlpoly.arrays import to_numpy
from mlpoly.features import principal_forms
from mlpoly.inputs import Gaussian
from mlpoly.polynomials import Polynomial

__all__ = ["BlockForms", "block_forms"]

_DEGREES, _FORMS = 3, 64  # of the highest degree, and of the most forms, that are looked at


@dataclass(frozen=True)
class BlockForms:
    """Fractions of one block's variance at one degree that its leading principal forms carry."""

    block: str
    degree: int
    fractions: tuple[float, ...]  # of each form by itself, largest first

    def together(self, count: int) -> float:
        """Fraction that the first forms carry together; all there are, if there are fewer."""
        return sum(self.fractions[:count])

    def row(self) -> dict[str, Any]:
        """Fractions of the first form, the first two, four, ..., for a table."""
        carried = list(accumulate(self.fractions))
        counts = [2**i for i in range(_FORMS.bit_length())]
        named = {f"first_{count}": carried[min(count, len(carried)) - 1] for count in counts}
        return {"block": self.block, "degree": self.degree} | named


def block_forms(poly: Polynomial, block: str, inputs: Gaussian) -> list[BlockForms]:
    """Principal forms of a block's polynomial at degree 1, 2 and 3, as far as it has them; see `principal_forms`."""
    found = []
    for degree in range(1, min(_DEGREES, poly.degree) + 1):
        fractions = to_numpy(principal_forms(poly, degree, _FORMS, inputs).fractions)
        found.append(BlockForms(block, degree, tuple(map(float, fractions))))
    return found
