"""Values of a graph as the pieces that lead to them: what readers of ONNX and of traced modules have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from mlpoly.arrays import Array, constant, eye, namespace_of, scalar, widen
from mlpoly.importers.scalar_functions import Elementwise, activations_of, combined, line
from mlpoly.networks import GLU, MLP, Affine, Network, Residual
from mlpoly.networks.assemble import Piece, Scaling, Slopes, assemble, side_by_side


@dataclass(frozen=True, eq=False)
class FinalSoftmax:
    """A softmax over the units, which may only stand at the end, and the function that it is in its library."""

    where: str
    function: Any = None


# A value of the graph that depends on the input is the tuple of the pieces that lead to it. Two values that begin with
# the same pieces have come from the same value.
Branch = tuple[Piece | Elementwise | FinalSoftmax, ...]

_SIZED = (Network, Scaling, Slopes)  # pieces with a number of units
PAIRS: dict[str, Any] = {
    "Add": np.add, "Sum": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum,
    "Min": np.minimum,
}  # fmt: skip


class Branches:
    """Pieces put together, for a reader that knows the nodes of its graph.

    `like` is an array (1,) with the library, dtype and device of the weights, `inputs` the number of inputs or None.
    """

    like: Array
    inputs: int | None = None

    def where(self, node: Any) -> str:
        """Name of a node in messages."""
        raise NotImplementedError

    def refusal(self, node: Any, reason: str) -> TypeError:
        """The error for a node that cannot be taken."""
        raise NotImplementedError

    def scaling(self, node: Any, scale: Any, shift: Any) -> Piece | Elementwise:
        """The map y -> scale * y + shift of all units, or of each by itself; numbers, or arrays (n,)."""
        sizes = {a.shape[0] for a in (scale, shift) if getattr(a, "shape", ()) not in ((), (1,))}
        if not sizes:
            return line(_number(scale), _number(shift), self.where(node))
        if len(sizes) > 1:
            raise self.refusal(node, f"its constants have {sorted(sizes)} entries")
        xp, size = namespace_of(self.like), sizes.pop()
        scale, shift = (a if hasattr(a, "shape") else self._wide(np.asarray(a)) for a in (scale, shift))
        scale, shift = (xp.broadcast_to(a, (size,)) for a in (scale, shift))
        return Scaling(scale=scale, shift=shift, dtype=self.like.dtype, name=self.where(node))

    def with_constant(self, node: Any, op: str, c: Any, first: bool) -> Piece | Elementwise:
        """A sum, difference, product or quotient with a constant; whether the value that depends on inputs is first."""
        if op in ("Add", "Sum"):
            return self.scaling(node, 1.0, c)
        if op == "Sub":
            return self.scaling(node, *((1.0, -c) if first else (-1.0, c)))
        if op == "Mul" or first:
            return self.scaling(node, c if op == "Mul" else 1 / c, 0.0)
        if getattr(c, "shape", ()) not in ((), (1,)):
            raise self.refusal(node, "it divides by values that depend on the input")
        return Elementwise(lambda y: _number(c) / y, self.where(node))

    def joined(self, node: Any, op: str, first: Branch, last: Branch) -> Branch:
        """The pieces behind a node that combines two values that depend on the input."""
        shared = 0
        while shared < min(len(first), len(last)) and first[shared] is last[shared]:
            shared += 1
        common, one, two = first[:shared], first[shared:], last[shared:]
        f, g = ([p for p in part if isinstance(p, Elementwise)] for part in (one, two))
        if len(f) == len(one) and len(g) == len(two):
            return (*common, combined(PAIRS[op], f, g, self.where(node)))
        size = self.size(common)
        if op in ("Add", "Sum") and (not one or not two):
            return (*common, Residual(self.network(one or two, size)))
        if op in ("Add", "Sum", "Sub"):
            both = self.beside(node, [first, last])
            n, odd = divmod(self.size(both) or 0, 2)
            if not odd and {self.size(first), self.size(last)} <= {n, None}:
                right = eye(n, self.like) * (-1 if op == "Sub" else 1)
                return (*both, Affine(namespace_of(right).concat([eye(n, self.like), right], axis=1)))
        if op == "Mul" and one and two:
            for gate, up in ((one, two), (two, one)):
                factor, other = self.network(gate, size), self.network(up, size)
                if isinstance(other, Affine) and isinstance(factor, Affine):
                    return (*common, GLU(factor.W, factor.b, other.W, other.b, None, None, "identity"))
                if isinstance(other, Affine) and isinstance(factor, MLP) and factor.W2 is None and factor.b2 is None:
                    return (*common, GLU(factor.W1, factor.b1, other.W, other.b, None, None, factor.activation))
        raise self.refusal(
            node, "it combines two values that depend on the input, but not as a gated unit or a residual"
        )

    def beside(self, node: Any, values: Sequence[Branch]) -> Branch:
        """The pieces behind several values side by side."""
        shared = min(map(len, values))
        while any(value[i] is not values[0][i] for value in values for i in range(shared)):
            shared -= 1
        common, tails = values[0][:shared], [value[shared:] for value in values]
        firsts = [next((p for p in tail if isinstance(p, _SIZED)), None) for tail in tails]
        sizes = [p.dim_in if isinstance(p, Network) else p.size for p in firsts if p is not None]
        size = self.size(common) or next(iter(sizes), None)
        if size is None:
            raise self.refusal(node, "the number of the inputs that it takes is not known")
        return (*common, *side_by_side([self.network(tail, size) for tail in tails]))

    def part(self, node: Any, branch: Branch, columns: slice) -> Branch:
        """The pieces that lead to some units of a value: of an affine map, or of functions of each by itself."""
        for place in range(len(branch) - 1, -1, -1):
            piece = branch[place]
            if isinstance(piece, Affine):
                rows = Affine(piece.W[columns, ...], None if piece.b is None else piece.b[columns])
                return (*branch[:place], rows, *branch[place + 1 :])
            if not isinstance(piece, Elementwise):
                break
        raise self.refusal(node, "it takes some units of a value that is not affine")

    def _wide(self, values: np.ndarray) -> Array:
        """Numbers beside the weights, in float64 where there is one."""
        return constant(values, widen(self.like))

    def size(self, path: Sequence[Any]) -> int | None:
        """Number of units behind pieces, None if not known."""
        for piece in reversed(path):
            if isinstance(piece, _SIZED):
                return piece.dim_out if isinstance(piece, Network) else piece.size
        return self.inputs

    def network(self, path: Sequence[Any], size: int | None = None) -> Network:
        """The network that computes pieces one after the other, given the number of its inputs where it is known."""
        pieces: list[Piece | tuple[float, float]] = []
        for single, run in groupby(path, lambda piece: isinstance(piece, Elementwise)):
            if single:
                pieces += [a for a in activations_of(list(run), self.like.dtype.itemsize) if a != (1.0, 0.0)]
                continue
            for piece in run:
                if isinstance(piece, FinalSoftmax):
                    raise self.refusal(piece, "it couples its inputs, and stands before the end")
                pieces.append(piece)
        sizes = (p.dim_in if isinstance(p, Network) else p.size for p in pieces if isinstance(p, _SIZED))
        size = size or self.inputs or next(sizes, None)
        if size is None:
            raise TypeError("the graph has no weights and no fixed number of inputs, which a network needs.")
        sized: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, tuple):
                scale, shift = (self._wide(np.full(size, number)) for number in piece)
                piece = Scaling(scale, shift, self.like.dtype)
            sized.append(piece)
            size = piece.dim_out if isinstance(piece, Network) else size
        if not any(isinstance(piece, (Network, Scaling)) for piece in sized):
            sized.insert(0, Scaling(self._wide(np.ones(size)), self._wide(np.zeros(size)), self.like.dtype))
        return assemble(sized)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else scalar(value.reshape(()))
