"""From weights of layers, or pieces as other libraries list them, to a network of as few layers as possible."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from mlpoly.activations import Activation, get
from mlpoly.arrays import Array, astype, cast_like, eye, namespace_of, promote
from mlpoly.networks.affine import Affine
from mlpoly.networks.chain import Chain, Residual
from mlpoly.networks.layer import Forms, Layer, Network, check_bias, check_weight
from mlpoly.networks.mlp import MLP
from mlpoly.networks.simplify import simplified
from mlpoly.records import replace

Layout = Literal["out_in", "in_out"]
ActivationLike = str | Activation | Callable[[Array], Array]

_USERS = "'out_in' for PyTorch and Equinox, 'in_out' for scikit-learn, Keras and Flax"


class PieceError(TypeError):
    """Pieces do not fit one after the other."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> scale * x + shift, both (n,), in float32 or wider; the weights they enter keep their own dtype."""

    scale: Array
    shift: Array
    dtype: Any  # of the weights of an affine map, if the scaling has to become one
    name: str = "Scaling"  # in errors

    @property
    def size(self) -> int:
        """Number of inputs and outputs n."""
        return int(self.scale.shape[0])

    def __repr__(self) -> str:
        return f"{self.name}({self.size})"

    def after(self, first: "Scaling | Affine") -> "Scaling | Affine":
        """The map x -> scale * first(x) + shift."""
        if isinstance(first, Scaling):
            return Scaling(self.scale * first.scale, self.scale * first.shift + self.shift, self.dtype, self.name)
        moved = self.shift if first.b is None else self.scale * first.b + self.shift
        return Affine(cast_like(self.scale[:, None] * first.W, first.W), cast_like(moved, first.W))

    def before(self, last: Layer) -> Layer:
        """The layer x -> last(scale * x + shift)."""

        def moved(weight: Array, bias: Array | None) -> tuple[Array, Array]:
            wide, shift = promote(weight, self.shift)
            offset = wide @ shift if bias is None else wide @ shift + bias
            return cast_like(weight * self.scale, weight), cast_like(offset, weight)

        forms = last.forms
        gate = () if forms.gate_directions is None else moved(forms.gate_directions, forms.gate_bias)
        made = last.with_parts(Forms(*moved(forms.directions, forms.bias), *gate), last.readout, last.bias)
        return replace(made, names=None)

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


def assemble(pieces: Sequence[Piece]) -> Network:
    """Return the network that computes pieces one after the other.

    Scalings are folded into the weights beside them; the other weights of layers stay the arrays that they are. At
    least one piece has a size. A PieceError is raised where a piece takes another number of inputs than the one before
    it gives, and a TypeError for weights of several dtypes or devices.
    """
    pieces = [part for piece in pieces for part in (piece.layers if isinstance(piece, Chain) else [piece])]
    size = None
    for piece in pieces:
        takes = piece.dim_in if isinstance(piece, Network) else size if isinstance(piece, Activation) else piece.size
        if size is not None and takes != size:
            raise PieceError(f"{piece!r} takes {takes} inputs, but the parts before it give {size}.")
        size = piece.dim_out if isinstance(piece, Network) else takes
    weights = [piece.prototype for piece in pieces if isinstance(piece, Network)]
    if len(places := {(str(w.dtype), str(w.device)) for w in weights}) > 1:
        kinds = ", ".join(f"{dtype} on {device}" for dtype, device in sorted(places))
        raise TypeError(f"the parts have weights of different kinds ({kinds}); convert the module with .to(...).")

    def as_network(part: Network | Scaling) -> Network:
        return part.affine(weights[0].dtype if weights else part.dtype) if isinstance(part, Scaling) else part

    parts: list[Network | Scaling] = []
    for piece in pieces:
        last = parts[-1] if parts else None
        if isinstance(piece, Scaling) and isinstance(last, Affine | Scaling):
            parts[-1] = piece.after(last)
        elif isinstance(piece, Layer) and isinstance(last, Scaling):
            parts[-1] = last.before(piece)
        elif isinstance(piece, Network | Scaling):
            parts.append(piece)
        elif isinstance(last, Affine | Scaling):
            parts[-1] = _hidden_layer(as_network(last), piece)
        else:  # units of what the layer before gives, or of the inputs
            beside = as_network(last or next(p for p in pieces if isinstance(p, Network | Scaling)))
            size = beside.dim_in if last is None else beside.dim_out
            parts.append(_hidden_layer(Affine(eye(size, beside.prototype)), piece))
    return simplified(Chain([as_network(part) for part in parts]))


def side_by_side(nets: Sequence[Network]) -> list[Network]:
    """The layers, one after the other, that have the outputs of several networks of the same inputs in a row."""
    like, size, ends = nets[0].prototype, nets[0].dim_in, [nets[0].dim_in]
    for net in nets:
        ends.append(ends[-1] + net.dim_out)
    xp, slots = namespace_of(like), eye(ends[-1], like)  # of the inputs, then of the outputs of each network
    rows = [slots[start:end, :] for start, end in pairwise(ends)]

    def joined(biases: Sequence[Array | None], sizes: Sequence[int]) -> Array:
        zero = slots[0, :1] * 0
        return xp.concat([xp.broadcast_to(zero, (n,)) if b is None else b for b, n in zip(biases, sizes, strict=True)])

    if all(isinstance(net, MLP) and net.activation == nets[0].activation for net in nets):  # type: ignore[attr-defined]
        layers: list[Any] = list(nets)
        writes = [
            row.T[size:, :] if net.W2 is None else row.T[size:, :] @ net.W2
            for net, row in zip(layers, rows, strict=True)
        ]
        W1, W2 = xp.concat([net.W1 for net in layers]), xp.concat(writes, axis=1)
        b1 = joined([net.b1 for net in layers], [net.dim_hidden for net in layers])
        b2 = joined([net.b2 for net in layers], [net.dim_out for net in layers])
        return [MLP(W1, b1, W2, b2, layers[0].activation)]
    affine = [
        net if isinstance(net, Affine) else Affine(row[:, :size]) for net, row in zip(nets, rows, strict=True)
    ]  # zeros beside
    b = joined([None, *(net.b for net in affine)], [size, *(net.dim_out for net in affine)])
    made: list[Network] = [Affine(xp.concat([slots[:size, :size], *(net.W for net in affine)]), b)]
    for net, row in zip(nets, rows, strict=True):
        if not isinstance(net, Affine):
            made.append(Residual(Chain([Affine(slots[:size, :]), net, Affine(row.T)])))
    return [*made, Affine(slots[size:, :])]


def _hidden_layer(first: Any, units: Activation | Slopes) -> MLP:
    W, b = first.W, first.b
    if isinstance(units, Activation):
        return MLP(W, b, None, None, units)
    # One slope per unit, as two ReLUs per unit: y if y > 0 else s y = relu(y) - s relu(-y).
    xp, one = namespace_of(W), eye(units.size, W)
    readout = xp.concat([one, -one * cast_like(units.slopes, W)], axis=1)
    return MLP(xp.concat([W, -W]), None if b is None else xp.concat([b, -b]), readout, None, "relu")


def from_layers(
    layers: Sequence[tuple[Array, Array | None]],
    activation: ActivationLike | Sequence[ActivationLike | None] = "relu",
    layout: Layout = "out_in",
) -> Network:
    """See `mlpoly.MLP.from_layers`."""
    if not isinstance(layers, Sequence) or isinstance(layers, (str, bytes)) or not layers:
        raise TypeError(f"layers must be a list of pairs (weight, bias), got {type(layers).__name__} {layers!r:.60}.")
    if layout not in get_args(Layout):
        raise ValueError(f"layout must be {_USERS}, got {layout!r}.")
    several = isinstance(activation, Sequence) and not isinstance(activation, str)
    activations: Any = activation if several else [activation] * (len(layers) - 1)
    if len(activations) != len(layers) - 1:
        raise ValueError(
            f"activation has {len(activations)} entries, but {len(layers)} layers have {len(layers) - 1} activations "
            f"between them; give one name for all, or a list of {len(layers) - 1}."
        )
    pieces: list[Piece] = []
    outputs, hint = None, f"in the layout {layout!r}; pass layout={_USERS}"
    for i, pair in enumerate(layers):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"layers[{i}] must be a pair (weight, bias), where the bias may be None, got {type(pair).__name__}."
            )
        W = check_weight(f"the weight of layers[{i}]", pair[0], (None, None), "a matrix")
        W = W if layout == "out_in" else W.T
        if outputs not in (None, W.shape[1]):
            takes = f"layers[{i}] takes {W.shape[1]} inputs, but layers[{i - 1}] has {outputs} outputs"
            raise ValueError(f"{takes} {hint}.")
        outputs = W.shape[0]
        b = check_bias(f"the bias of layers[{i}]", pair[1], outputs, f" {hint}")
        pieces.append(Affine(W, b))
        if i < len(activations) and activations[i] is not None:
            pieces.append(get(activations[i]))
    return assemble(pieces)
