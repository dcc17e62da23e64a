"""From pieces, as the formats of other libraries list them, to a network of as few layers as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from mlpoly.activations import Activation
from mlpoly.arrays import Array, astype, cast_like, eye, namespace, promote
from mlpoly.networks.affine import Affine
from mlpoly.networks.chain import Chain
from mlpoly.networks.glu import GLU
from mlpoly.networks.layer import Layer, Network
from mlpoly.networks.mlp import MLP


class PieceError(TypeError):
    """Pieces do not fit one after the other."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> scale * x + shift, both (n,), in float32 or wider; the weights they enter keep their own dtype.

    Attributes
    ----------
    scale, shift : array (n,)
    dtype : dtype
        Dtype of the weights of an affine map, if the scaling has to become one.
    name : str
        Name in errors.
    """

    scale: Array
    shift: Array
    dtype: Any
    name: str = "Scaling"

    @property
    def size(self) -> int:
        """Number of inputs and outputs n."""
        return int(self.scale.shape[0])

    def __repr__(self) -> str:
        return f"{self.name}({self.size})"

    def of(self, other: Scaling) -> Scaling:
        """The scaling that comes after another one, joined with it."""
        return Scaling(self.scale * other.scale, self.scale * other.shift + self.shift, self.dtype, self.name)

    def of_affine(self, first: Affine) -> Affine:
        """The affine map x -> scale * first(x) + shift."""
        W, b = first.W, first.b
        moved = self.shift if b is None else self.scale * b + self.shift
        return Affine(cast_like(self.scale[:, None] * W, W), cast_like(moved, W))

    def before_affine(self, last: Affine) -> Affine:
        """The affine map x -> last(scale * x + shift)."""
        W, b = last.W, last.b
        wide, shift = promote(W, self.shift)
        moved = wide @ shift
        return Affine(cast_like(W * self.scale, W), cast_like(moved if b is None else moved + b, W))

    def affine(self, dtype: Any) -> Affine:
        """The scaling as an affine map with a diagonal weight."""
        return Affine(astype(eye(self.size, self.scale) * self.scale, dtype), astype(self.shift, dtype))


@dataclass(frozen=True, eq=False)
class Slopes:
    """y -> y if y > 0 else slopes * y, with a slope for every unit: PReLU."""

    slopes: Array

    @property
    def size(self) -> int:
        """Number of units n."""
        return int(self.slopes.shape[0])

    def __repr__(self) -> str:
        return f"PReLU({self.size})"


# A network, or a part of one. Activations have any number of inputs.
Piece = Network | Scaling | Slopes | Activation
_Units = (Activation, Slopes)


def assemble(pieces: Sequence[Piece]) -> Network:
    """Return the network that computes pieces one after the other.

    Scalings are folded into the weights beside them. Other weights stay the arrays that they are.

    Parameters
    ----------
    pieces : sequence of Network, Scaling, Slopes or Activation
        At least one piece that has a size.

    Raises
    ------
    PieceError
        If a piece takes another number of inputs than the one before it gives.
    TypeError
        For weights of several dtypes or devices.
    """
    _check_sizes(pieces)
    folded = _fold_scalings(pieces)
    layers: list[Network] = []
    open_end = False  # whether the last layer ends with activations, so that an affine map can read them out
    for piece, following in zip_longest(folded, folded[1:]):
        before = layers[-1] if layers else None
        if isinstance(piece, _Units):
            if isinstance(before, Affine):
                layers[-1] = _hidden_layer(before, piece)
            else:  # activations of what the layer before gives
                layers.append(_hidden_layer(_identity(before, folded), piece))
        elif isinstance(following, _Units) or not isinstance(piece, Affine):
            layers.append(piece)
        elif (isinstance(before, MLP) and open_end) or (isinstance(before, GLU) and before.W_down is None):
            layers[-1] = before.followed_by(piece)
        elif isinstance(before, Affine):
            layers[-1] = MLP(before.W, before.b, piece.W, piece.b, "identity")
        else:
            layers.append(piece)
        open_end = isinstance(piece, _Units)
    return layers[0] if len(layers) == 1 else Chain(layers)


def _check_sizes(pieces: Sequence[Piece]) -> None:
    """Raise unless each piece takes as many inputs as the one before it gives, in one dtype and on one device."""
    size = None
    for piece in pieces:
        needed = size
        if isinstance(piece, Network):
            needed = piece.dim_in
        elif isinstance(piece, (Scaling, Slopes)):
            needed = piece.size
        if size is not None and needed != size:
            raise PieceError(f"{piece!r} takes {needed} inputs, but the parts before it give {size}.")
        size = piece.dim_out if isinstance(piece, Network) else needed
    places = {(str(p.prototype.dtype), str(p.prototype.device)) for p in pieces if isinstance(p, Network)}
    if len(places) > 1:
        found = ", ".join(f"{dtype} on {device}" for dtype, device in sorted(places))
        raise TypeError(f"the parts have weights of different kinds ({found}); convert the module with .to(...).")


def _fold_scalings(pieces: Sequence[Piece]) -> list[Network | Slopes | Activation]:
    """Join every scaling with the affine map before it, or else the layer behind it, or else the layer before it.

    A scaling with no layer beside it becomes an affine map.
    """
    made: list[Any] = []
    for piece in pieces:
        before = made[-1] if made else None
        if isinstance(piece, Scaling) and isinstance(before, Scaling):
            made[-1] = piece.of(before)
        elif isinstance(piece, Scaling) and isinstance(before, Affine):
            made[-1] = piece.of_affine(before)
        elif isinstance(piece, Affine) and isinstance(before, Scaling):
            made[-1] = before.before_affine(piece)
        elif isinstance(piece, Layer) and isinstance(before, Scaling):
            made[-1] = piece.preceded_by(before.affine(piece.prototype.dtype))
        else:
            made.append(piece)
    folded: list[Network | Slopes | Activation] = []
    for piece, following in zip_longest(made, made[1:]):
        before = folded[-1] if folded else None
        if not isinstance(piece, Scaling):
            folded.append(piece)
        elif isinstance(before, Layer) and not isinstance(following, _Units):
            folded[-1] = before.followed_by(piece.affine(before.prototype.dtype))
        else:
            folded.append(piece.affine(piece.dtype))
    return folded


def _identity(before: Network | None, pieces: Sequence[Network | Slopes | Activation]) -> Affine:
    """The identity at the place of an affine map that is missing before an activation."""
    known = before or next(piece for piece in pieces if isinstance(piece, Network))
    return Affine(eye(known.dim_in if before is None else known.dim_out, known.prototype))


def _hidden_layer(first: Affine, units: Activation | Slopes) -> MLP:
    W, b = first.W, first.b
    if isinstance(units, Activation):
        return MLP(W, b, None, None, units)
    # One slope per unit, as two ReLUs per unit: y if y > 0 else s y = relu(y) - s relu(-y).
    xp, one = namespace(W=W), eye(units.size, W)
    readout = xp.concat([one, -one * cast_like(units.slopes, W)], axis=1)
    return MLP(xp.concat([W, -W]), None if b is None else xp.concat([b, -b]), readout, None, "relu")
