"""Activations without elementary coefficients: their functions, and where each one bends.

Every function keeps its relative accuracy in the tails and near zero, because errors are measured relative to the size
of the activation where the Gaussian is.
"""

import math
from collections.abc import Callable, Sequence

from mlpoly.activations.quadrature import fixed_projection
from mlpoly.activations.record import Activation
from mlpoly.arrays import Array, namespace_of

# Ladders double away from the nearest pole: i pi for the logistic function, i pi/2 for tanh.
_LOGISTIC = (2.0, 6.0, 14.0, 30.0, 80.0)
_TANH = (1.0, 3.0, 7.0, 15.0, 40.0)
_SWISH_BEND = 2.3993572805154676678  # where y tanh(y / 2) = 2, the points of inflection of y σ(y)
_ALGEBRAIC = (3.0, 15.0, 63.0, 255.0, 1023.0, 4095.0, 16383.0)


def _both(ladder: Sequence[float], scale: float = 1.0, *extra: float) -> list[float]:
    return sorted({*extra, *(sign * c * scale for c in ladder for sign in (-1, 1))})


def _small(y: Array) -> Array:
    """exp(-|y|), which never overflows; |y| has no gradient at zero, and that of -y gives those of σ and softplus."""
    xp = namespace_of(y)
    return xp.exp(xp.where(y > 0, -y, y))


def _sigmoid(y: Array) -> Array:
    small = _small(y)  # both tails keep their digits
    return namespace_of(y).where(y > 0, 1.0, small) / (1 + small)


def _logistic_slope(y: Array) -> Array:
    """Derivative of the logistic function, with all its digits in both tails."""
    small = _small(y)
    return small / ((1 + small) * (1 + small))


def _swish_slope(y: Array, gate: Array, gate_slope: Array | float) -> Array:
    """Derivative of y σ(gate(y)): σ(gate) (1 + y gate' σ(-gate))."""
    return _sigmoid(gate) * (1 + y * gate_slope * _sigmoid(-gate))


def _softplus(y: Array) -> Array:
    xp = namespace_of(y)
    return xp.where(y > 0, y, 0.0) + xp.log1p(_small(y))


def _tanh(y: Array) -> Array:
    return namespace_of(y).tanh(y)


def _tanhshrink(y: Array) -> Array:
    """`y - tanh(y)`, near zero by the continued fraction of tanh, where the difference would cancel."""
    xp = namespace_of(y)
    near = xp.where(xp.abs(y) < 1, y, 0.0)
    square = near * near
    fraction = 19.0 + square * 0
    for odd in range(17, 1, -2):
        fraction = odd + square / fraction
    quotient = square / fraction
    return xp.where(xp.abs(y) < 1, near * quotient / (1 + quotient), y - xp.tanh(y))


def _gelu_tanh_gate(y: Array) -> tuple[Array, Array]:
    """2 sqrt(2/π) (y + 0.044715 y³) and its derivative."""
    near = namespace_of(y).clip(y, -1e3, 1e3)  # so that the cube does not overflow; farther out the gate is 0 or 1
    scale, cubic = 2 * math.sqrt(2 / math.pi), 0.044715
    return scale * (near + cubic * near * near * near), scale * (1 + 3 * cubic * near * near)


def _mish_slope(y: Array) -> Array:
    plus = _softplus(y)
    return _tanh(plus) + y * _sigmoid(y) * (4 * _logistic_slope(2 * plus))  # tanh'(u) = 4 σ'(2 u)


def _negative_exponential(y: Array) -> Array:
    """expm1(y) for y < 0, else 0."""
    xp = namespace_of(y)
    return xp.expm1(xp.where(y < 0, y, 0.0))


def _positive(y: Array) -> Array:
    return namespace_of(y).where(y > 0, y, 0.0)


_EXPONENTIAL = (-60.0, -28.0, -12.0, -4.0, 0.0)


def _make(
    name: str,
    formula: str,
    function: Callable[[Array], Array],
    derivative: Callable[[Array], Array],
    edges: Sequence[float],
    kinks: tuple[float, ...] = (),
    strip: float | None = None,
    bends: tuple[float, ...] = (),
) -> Activation:
    project, how = fixed_projection(function, edges, strip), "quadrature"
    return Activation(name, function, project, formula, how, kinks, strip=strip, derivative=derivative, bends=bends)


def _decay(y: Array, size: float, rate: float) -> Array:
    """`size` exp(rate y) for y < 0, else 1."""
    xp = namespace_of(y)
    return xp.where(y < 0, size * xp.exp(rate * xp.where(y < 0, y, 0.0)), 1.0)


def elu(name: str, alpha: float, scale: float = 1.0, formula: str = "y if y > 0 else alpha (exp(y) - 1)") -> Activation:
    """ELU and SELU: scale * (y_+ + alpha (exp(y_-) - 1))."""
    function = lambda y: scale * (_positive(y) + alpha * _negative_exponential(y))  # noqa: E731
    return _make(name, formula, function, lambda y: scale * _decay(y, alpha, 1.0), _EXPONENTIAL, (0.0,))


def celu(name: str, alpha: float) -> Activation:
    """CELU: y_+ + alpha (exp(y_-/alpha) - 1)."""
    _check_positive("alpha", alpha)
    formula, edges = "y if y > 0 else alpha (exp(y/alpha) - 1)", [alpha * c for c in _EXPONENTIAL]
    function = lambda y: _positive(y) + alpha * _negative_exponential(y / alpha)  # noqa: E731
    return _make(name, formula, function, lambda y: _decay(y, 1.0, 1 / alpha), edges, (0.0,))


def softplus(name: str, beta: float) -> Activation:
    """Softplus: log(1 + exp(beta y)) / beta."""
    _check_positive("beta", beta)
    formula, edges = "log(1 + exp(beta y)) / beta", _both(_LOGISTIC, 1 / beta)
    function, slope = lambda y: _softplus(beta * y) / beta, lambda y: _sigmoid(beta * y)
    return _make(name, formula, function, slope, edges, strip=math.pi / beta)


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"activation parameter {name} must be positive, got {value}.")


def numeric_activations() -> list[Activation]:
    """Records of all activations without parameters that need quadrature."""
    edges = _both(_LOGISTIC)
    return [
        _make(
            "gelu_tanh",
            "y σ(2 sqrt(2/π) (y + 0.044715 y³))",
            lambda y: y * _sigmoid(_gelu_tanh_gate(y)[0]),
            lambda y: _swish_slope(namespace_of(y).clip(y, -1e3, 1e3), *_gelu_tanh_gate(y)),
            _both((1.0, 2.5, 4.0, 6.0, 9.0), 1.0, 0.0),
            bends=(-1.4185040087908283555, 1.4185040087908283555),
            strip=2.7547706,  # the roots of 2 sqrt(2/π) (y + 0.044715 y³) = i π are ±0.6343685 + 2.7547706 i
        ),
        _make(
            "quick_gelu",
            "y σ(1.702 y)",
            lambda y: y * _sigmoid(1.702 * y),
            lambda y: _swish_slope(y, 1.702 * y, 1.702),
            _both(_LOGISTIC, 1 / 1.702),
            strip=math.pi / 1.702,
            bends=(-_SWISH_BEND / 1.702, _SWISH_BEND / 1.702),
        ),
        _make(
            "silu",
            "y σ(y)",
            lambda y: y * _sigmoid(y),
            lambda y: _swish_slope(y, y, 1.0),
            edges,
            strip=math.pi,
            bends=(-_SWISH_BEND, _SWISH_BEND),
        ),
        _make("sigmoid", "σ(y) = 1 / (1 + exp(-y))", _sigmoid, _logistic_slope, edges, strip=math.pi, bends=(0.0,)),
        _make("logsigmoid", "log σ(y)", lambda y: -_softplus(-y), lambda y: _sigmoid(-y), edges, strip=math.pi),
        _make("tanh", "tanh(y)", _tanh, lambda y: 4 * _logistic_slope(2 * y), _both(_TANH), (), math.pi / 2, (0.0,)),
        _make("tanhshrink", "y - tanh(y)", _tanhshrink, lambda y: _tanh(y) ** 2, _both(_TANH), (), math.pi / 2, (0.0,)),
        _make(
            "mish",
            "y tanh(softplus(y))",
            lambda y: y * _tanh(_softplus(y)),
            _mish_slope,
            _both(_LOGISTIC, 1.0, 0.0),
            bends=(-2.25637639636079312, 1.4905711794854284593),
            strip=0.75 * math.pi,  # (1 + exp(y))² = -1
        ),
        _make(
            "softsign",
            "y / (1 + |y|)",
            lambda y: y / (1 + namespace_of(y).abs(y)),
            lambda y: (1 + namespace_of(y).abs(y)) ** -2,
            _both(_ALGEBRAIC, 1.0, 0.0),
            (0.0,),
        ),
    ]
