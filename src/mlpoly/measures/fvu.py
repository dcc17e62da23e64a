"""Fraction of variance unexplained: how much of the network the polynomial misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlpoly.arrays import (
    Array,
    as_float_array,
    cast_result,
    check_finite,
    check_shape,
    chunks,
    namespace,
    readable,
    scalar,
    to_numpy,
    widen,
)
from mlpoly.inputs import Gaussian, GaussianMixture, Inputs, Samples
from mlpoly.measures.components import check_functions, check_models, components
from mlpoly.measures.error import Error, gaussian_error
from mlpoly.measures.number import Number
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial
from mlpoly.records import record

__all__ = ["FVU", "checked_samples", "fvu", "fvu_by_component", "fvu_of_outputs", "outputs_of"]

_ROWS = 8192  # samples at a time, so that the hidden units of many samples do not fill the memory


@record
class FVU(Number):
    """Fraction of variance unexplained; 0 is a perfect polynomial, 1 is as good as the mean.

    Where one number is wanted it stands for `total`: ``float(f)``, ``f"{f:.3f}"`` and ``f < 0.1`` work.

    Two conventions for all outputs together are in use, and they differ:

    Attributes
    ----------
    total : array ()
        Summed over outputs: sum_o E(f_o - p_o)^2 / sum_o Var f_o.
    per_output : array (o,)
        The same for each output: E(f_o - p_o)^2 / Var f_o.
    flattened : array ()
        Over flattened outputs, as in the code of the paper: var(f - p) / var(f) with all outputs of all inputs in one
        list. The variance then includes that between the means of the outputs, and an error that is the same for all
        outputs does not count.
    explained : array ()
        1 - total.
    standard_error : array () or None
        Of `total`, on data: it is a ratio of two means over the samples.
    bound : array () or None
        Of `total`, in closed form: how much series that were cut may have changed it, rounding aside; 0 for exact
        kernels.
    """

    total: Array
    per_output: Array
    flattened: Array
    standard_error: Array | None = None
    bound: Array | None = None

    @property
    def explained(self) -> Array:
        """Fraction of variance explained, 1 - total."""
        return 1 - self.total

    def _number(self) -> Array:
        return self.total

    def __repr__(self) -> str:
        if not readable(self.total):
            return "FVU(traced)"
        error = "" if self.standard_error is None else f" +- {scalar(self.standard_error):.1g}"
        return f"FVU(total={scalar(self.total):.3g}{error}, outputs={self.per_output.shape[0]})"


def fvu(
    net: Layer | Callable[[Array], Array],
    poly: Polynomial | Callable[[Array], Array],
    inputs: Inputs | None = None,
    *,
    samples: Array | None = None,
) -> FVU:
    """Fraction of the variance of a network that a polynomial leaves unexplained.

    ``E|f - p|^2 / E|f - E f|^2``, for each output and for all together. The residual is not centred: a constant error
    counts as an error, so the fraction may exceed 1.

    Parameters
    ----------
    net : MLP or GLU
        On data also any callable from (n, d) to (n, o), such as a deep network.
    poly : Polynomial
        On data any polynomial or callable. In closed form a `RidgePolynomial` or a `DensePolynomial`, of any origin:
        it need not be optimal, nor fitted under these inputs.
    inputs : Gaussian, GaussianMixture or Samples, optional
        Closed form under a distribution, without a sample (MATH 5), or on weighted samples. By default what the
        polynomial was fitted under.
    samples : array (n, d), optional
        The same on data, with the population variance and a standard error, instead of `inputs`.

    Returns
    -------
    FVU
        In the array library, dtype and device of the network (float32 where that has 16 bits).

    Raises
    ------
    ValueError
        Also if an output of the network is constant: it has no variance to explain.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "relu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=2)
    >>> round(float(mp.fvu(net, poly).total), 4)
    0.0331
    >>> x = np.random.default_rng(0).standard_normal((1000, 2))
    >>> bool(mp.fvu(net, poly, samples=x).total < 0.1)
    True
    """
    if inputs is not None and samples is not None:
        raise ValueError("give either inputs (a distribution) or samples=x (data of shape (n, d)), and not both.")
    if isinstance(inputs, Samples):
        return fvu_of_outputs(*outputs_of(net, poly, checked_samples(net, poly, inputs.x)), inputs.weights)
    if samples is not None:
        return fvu_of_outputs(*outputs_of(net, poly, checked_samples(net, poly, samples)))
    return _under(net, poly, inputs)


def _under(net: Any, poly: Any, inputs: Inputs | None) -> FVU:
    """The closed form under a distribution."""
    check_functions(net, poly)
    inputs = poly.inputs if inputs is None else inputs
    if inputs is None:
        raise ValueError(
            "give inputs (a distribution) or samples=x (data of shape (n, d)): this polynomial, read from a file or "
            "made by arithmetic, does not know what it was fitted under."
        )
    if isinstance(inputs, Samples):
        return fvu(net, poly, inputs)
    return _closed_form(net, [(w, poly, g) for w, g in components(net, inputs)])


def fvu_by_component(net: Layer, polys: Sequence[Polynomial], inputs: GaussianMixture) -> FVU:
    """The same where each component of a mixture has a polynomial of its own, and it is known which is which.

    Parameters
    ----------
    net : MLP or GLU
    polys : sequence of RidgePolynomial or DensePolynomial
        One for each component, in their order.
    inputs : GaussianMixture
    """
    for poly in polys:
        check_functions(net, poly)
    if len(polys) != len(inputs.weights):
        raise ValueError(f"polys holds {len(polys)} polynomials, expected {len(inputs.weights)}: one per component.")
    parts = components(net, inputs)
    return _closed_form(net, [(w, poly, g) for poly, (w, g) in zip(polys, parts, strict=True)])


def _check_varying(variance: Array) -> None:
    """Raise if an output has no variance, (o,)."""
    if not readable(variance):
        return
    flat = [i for i, v in enumerate(to_numpy(variance)) if not v > 0]
    if flat:
        raise ValueError(
            f"FVU is undefined: {_listed(flat)} of the network has no variance, so there is nothing to explain. "
            f"Leave it out of the network (rows of the last weight and bias), or use inputs on which it varies."
        )


def _ratios(error: Error) -> tuple[Array, Array, Array]:
    """Total, per output and flattened, from the moments of network and residual."""
    xp = namespace(miss=error.miss)
    _check_varying(error.variance)
    total = xp.sum(error.miss) / xp.sum(error.variance)
    # One list of all outputs: what the outputs' means differ by is variance, what the residuals' means share is none.
    spread = xp.mean(error.variance) + xp.mean((error.mean - xp.mean(error.mean)) ** 2)
    flattened = (xp.mean(error.miss) - xp.mean(error.miss_mean) ** 2) / spread
    return total, error.miss / error.variance, flattened


def _listed(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
    return f"output {shown}" if len(indices) == 1 else f"each of the outputs {shown}"


# -- on data -----------------------------------------------------------------------------------------------------------


def checked_samples(net: Callable[[Array], Array], poly: Callable[[Array], Array], samples: Any) -> Array:
    """Samples (n, d) that fit both models, enough of them for a variance."""
    dim = check_models(net, poly)
    samples = as_float_array("samples", samples, integers=True)
    check_shape("samples", samples, (None, dim), "n samples in rows, as many columns as the network has inputs")
    if samples.shape[0] < 2:
        raise ValueError(f"samples holds {samples.shape[0]} rows; a variance needs at least 2.")
    check_finite("samples", samples)
    return samples


def outputs_of(
    net: Callable[[Array], Array], poly: Callable[[Array], Array], samples: Array, known: Array | None = None
) -> tuple[Array, Array]:
    """Outputs (n, o) of two models on checked samples (n, d); those of `net` may be known already."""
    f = _in_blocks("net(samples)", net, samples) if known is None else known
    p = _in_blocks("poly(samples)", poly, samples)
    check_shape("poly(samples)", p, tuple(f.shape), "one row per sample, as many columns as the network has outputs")
    return f, p


def _in_blocks(name: str, model: Callable[[Array], Array], samples: Array) -> Array:
    """Outputs (n, o) of all samples, some thousand at a time."""
    rows = [samples[block, ...] for block in chunks(samples.shape[0], _ROWS)]
    made = namespace(samples=samples).concat([as_float_array(name, model(x)) for x in rows])
    check_shape(name, made, (samples.shape[0], None), "one row per sample, outputs in columns")
    return made


def fvu_of_outputs(f: Array, p: Array, weights: Array | None = None) -> FVU:
    """FVU from the outputs (n, o) of network and polynomial on the same samples, of weights (n,) with sum one."""
    xp = namespace(f=f, p=p)
    share = widen(f[:, :1]) * 0 + 1 / f.shape[0] if weights is None else widen(weights)[:, None]
    residual, wide = widen(f) - widen(p), widen(f)
    squares = residual**2
    # Deviations from the first sample: a large mean costs no digits.
    mean = wide[0, :] + xp.sum(share * (wide - wide[:1, ...]), axis=0)
    variance = xp.sum(share * (wide - mean) ** 2, axis=0)
    rounding = 2 * float(xp.finfo(f.dtype).eps) * xp.max(xp.abs(wide), axis=0)
    variance = xp.where(variance > rounding**2, variance, 0.0)
    zero = variance * 0
    error = Error(mean, variance, xp.sum(share * residual, axis=0), xp.sum(share * squares, axis=0), zero, zero)
    total, per_output, flattened = _ratios(error)
    # A ratio of means: to first order its error is that of the mean of (residual - total * deviation) (delta method).
    each = xp.sum(squares, axis=1) - total * xp.sum((wide - mean) ** 2, axis=1)
    effective = 1 / xp.sum(share**2)
    spread = xp.sum((share[:, 0] * (each - xp.sum(share[:, 0] * each))) ** 2) * effective / (effective - 1)
    standard_error = xp.sqrt(spread) / xp.sum(variance)
    return FVU(*[cast_result(a, f) for a in (total, per_output, flattened, standard_error)])


# -- in closed form ----------------------------------------------------------------------------------------------------


def _closed_form(net: Layer, pieces: Sequence[tuple[Array, Polynomial, Gaussian]]) -> FVU:
    parts = [(weight, gaussian_error(net, poly, g)) for weight, poly, g in pieces]
    mean = sum(w * e.mean for w, e in parts)
    variance = sum(w * (e.variance + (e.mean - mean) ** 2) for w, e in parts)
    rounding = sum(w * e.rounding for w, e in parts)
    xp = namespace(variance=variance)
    error = Error(
        mean,
        xp.where(variance > rounding, variance, 0.0),
        sum(w * e.miss_mean for w, e in parts),
        sum(w * e.miss for w, e in parts),
        sum(w * e.bound for w, e in parts),
        rounding,
    )
    total, per_output, flattened = _ratios(error)
    bound = xp.sum(error.bound) / xp.sum(error.variance)
    made = [cast_result(a, net.prototype) for a in (total, per_output, flattened, bound)]
    return FVU(made[0], made[1], made[2], bound=made[3])
