"""Public Hermite coefficients of an activation."""

import math
from collections.abc import Callable

import numpy as np

from mlpoly.activations.record import Activation
from mlpoly.activations.registry import get
from mlpoly.arrays import Array, as_float_array, as_integer, check_finite, namespace, readable
from mlpoly.arrays.placement import astype, constant, promote, scalar


def hermite_coefficients(
    activation: str | Activation | Callable[[Array], Array], mean: Array, std: Array, degree: int
) -> Array:
    """Hermite coefficients (degree + 1, ...) of an activation under N(mean, std^2), for arrays that broadcast.

    ``act(mean + std t) = sum_k a_k He_k(t)`` with the probabilists' Hermite polynomials He_k and
    ``a_k = E[act(mean + std t) He_k(t)] / k!`` (MATH 1). They are in the array library, dtype and device of `mean` and
    `std` (16-bit floats give float32).

    Examples
    --------
    >>> import mlpoly as mp
    >>> mp.activations.hermite_coefficients("square", 0.0, 1.0, 2).round(12).tolist()
    [1.0, 0.0, 1.0]
    """
    act = get(activation)
    degree = as_integer("degree", degree, 0)
    given = {"mean": mean, "std": std}
    arrays = {name: as_float_array(name, a) for name, a in given.items() if not isinstance(a, (int, float))}
    like = next(iter(arrays.values()), np.zeros(()))  # whose library and dtype a plain number takes
    mean, std = (arrays[name] if name in arrays else constant(float(a), like) for name, a in given.items())
    xp = namespace(mean=mean, std=std)
    mean, std = promote(mean, std)
    check_finite("mean", mean)
    check_finite("std", std)
    if readable(std) and bool(xp.any(std < 0)):
        raise ValueError("std must not be negative; pass a standard deviation, not a variance or a covariance.")
    try:
        np.broadcast_shapes(tuple(mean.shape), tuple(std.shape))
    except ValueError:
        shapes = f"mean has shape {tuple(mean.shape)} and std {tuple(std.shape)}"
        raise ValueError(f"{shapes}: they must broadcast; give them one shape, or one of them as a number.") from None
    mean, std = xp.broadcast_arrays(mean, std)
    c = act.project(mean, std, degree)
    # a_k = c_k / sqrt(k!); through the logarithm, so that no factorial overflows.
    scale = constant([math.exp(-0.5 * math.lgamma(k + 1)) for k in range(degree + 1)], c)
    out = astype(c * xp.reshape(scale, (-1, *[1] * len(mean.shape))), mean.dtype)
    if readable(out) and not bool(xp.all(xp.isfinite(out))):
        raise ValueError(
            f"the coefficients of {act.name!r} are not finite numbers of {out.dtype}: the function overflows or is "
            f"undefined within reach of N(mean, std^2), where |mean| is up to {scalar(xp.max(xp.abs(mean))):.3g} and "
            f"std up to {scalar(xp.max(std)):.3g}. Make mean and std smaller."
        )
    return out
