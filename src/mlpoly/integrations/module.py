"""Polynomials out: a polynomial as a torch module."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mlpoly.arrays import as_float_array, to_numpy
from mlpoly.polynomials import Polynomial, RidgePolynomial, Source
from mlpoly.polynomials.ridge import check_bound
from mlpoly.records import arrays_of, map_arrays, replace

__all__ = ["PolynomialModule", "full_precision"]

class PolynomialModule(nn.Module):
    """A polynomial as a module: drop-in for the block that it was fitted to.

    The arrays are buffers, named like the fields of the polynomial (those of its parts ``gate_...`` and the like): the
    module moves with ``.to(...)`` and saves with ``state_dict()``, and an optimiser leaves it
    alone. It owns a copy of its numbers, so that training the network goes on without touching it; gradients reach the
    input, and the coefficients after ``requires_grad_()`` on the buffers.

    Unless `fast`, it computes in float32 or wider, also inside ``torch.autocast``, because powers of 16-bit numbers
    lose their digits. ``.to(torch.bfloat16)`` on it, or on a model that it is a part of, rounds the coefficients to 8
    bits, for good; the arithmetic stays in float32. Put it in its place after the model has been converted to keep
    them.

    Parameters
    ----------
    polynomial : RidgePolynomial, DensePolynomial or ChaosPolynomial
        Of any array library.
    bound : float, optional
        For the ridge form: hold every preactivation within this many standard deviations of its mean, or go on along
        the polynomial's `tails`, see `RidgePolynomial.__call__`. The module is then a piecewise polynomial. The state
        dict does not hold it.
    fast : bool
        For the ridge form and inputs in 16 bits: multiply matrices in 16 bits, as the block itself does, and compute
        the polynomials in float32. Several times faster on a GPU; the error is that of the block's own arithmetic.

    Attributes
    ----------
    polynomial : RidgePolynomial, DensePolynomial or ChaosPolynomial
        Over the buffers as they are now, without the bound.
    bound : float or None
    fast : bool
    """

    def __init__(self, polynomial: Polynomial, bound: float | None = None, fast: bool = False) -> None:
        super().__init__()
        if not isinstance(polynomial, Polynomial):
            raise TypeError(
                f"polynomial must be a RidgePolynomial, a DensePolynomial or a ChaosPolynomial, "
                f"got {type(polynomial).__name__}."
            )
        self.bound = _checked_bound(bound, polynomial)
        self.fast = bool(fast) and hasattr(polynomial, "neurons")
        plain = replace(polynomial, inputs=None, report=None)  # the distribution that it was fitted under stays behind
        names = [name.replace(".", "_") for name in arrays_of(plain)]
        for name, array in zip(names, arrays_of(plain).values(), strict=True):
            own = array.detach().clone() if isinstance(array, torch.Tensor) else torch.tensor(to_numpy(array))
            self.register_buffer(name, own)
        rest = iter(names)
        self._names = map_arrays(plain, lambda _: next(rest))  # the polynomial with names of buffers for its arrays

    @property
    def source(self) -> Source:
        """Where the polynomial comes from."""
        return self._names.source

    @property
    def dtype(self) -> torch.dtype:
        """Of the buffers."""
        return next(self.buffers()).dtype

    @property
    def polynomial(self) -> Any:
        """The polynomial over the buffers as they are now."""
        return self._polynomial(self.dtype)

    def _polynomial(self, dtype: torch.dtype) -> Any:
        """The polynomial over the buffers in a dtype; nothing is copied where they have it."""
        buffers = dict(self.named_buffers())
        return map_arrays(self._names, lambda name: buffers[name].to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values (..., o) at points x (..., d), in the dtype of x; unless `fast`, 16 bits are computed in float32."""
        as_float_array("x", x)  # a polynomial takes integers, but here values would be rounded to the dtype of x
        wide = torch.promote_types(torch.promote_types(x.dtype, self.dtype), torch.float32)
        limits = {} if self.bound is None else {"bound": self.bound}
        with full_precision(x):
            p = self._polynomial(wide)
            values: torch.Tensor = self._fast_values(p, x) if self.fast and x.itemsize == 2 else p(x, **limits)
        return values.to(x.dtype)

    def _fast_values(self, p: Any, x: torch.Tensor) -> torch.Tensor:
        """Values with the three large products in the dtype of x, and everything else in that of the polynomial."""
        # The forms stay in 16 bits: what follows widens them while it reads them, which saves a pass.
        y, z = (None if w is None else functional.linear(x, w.to(x.dtype)) for w in _directions(p))
        hidden = p.neurons(y, z, self.bound)
        if p.readout is None:
            return p.read_out(hidden)
        values = functional.linear(hidden.to(x.dtype), p.readout.to(x.dtype))
        return values if p.bias is None else values + p.bias

    def extra_repr(self) -> str:
        """What print shows of the module."""
        p = self.polynomial
        bound = "" if self.bound is None else f", bound={self.bound:g}"
        return f"degree={p.degree}, {p.dim_in} -> {p.dim_out}, {p.source}{bound}"


# Asked here and not while a module runs: torch.compile cannot look into the question.
_AUTOCAST = {kind for kind in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(kind)}


def full_precision(x: torch.Tensor) -> AbstractContextManager[Any]:
    """Autocast, which would multiply in 16 bits, off; it does not exist on every device."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if kind in _AUTOCAST else nullcontext()


def _checked_bound(bound: Any, polynomial: Polynomial) -> float | None:
    if bound is None:
        return None
    if not isinstance(polynomial, RidgePolynomial):
        raise TypeError(
            f"bound holds the preactivations of a RidgePolynomial, and a {type(polynomial).__name__} has none; leave "
            f"it out, or fit under one Gaussian or with method='neuronwise'."
        )
    bound = check_bound(bound)
    if polynomial.tails is not None:
        polynomial.tails.check(bound)
    return bound


def _directions(p: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Directions (h, d) of the linear forms of a polynomial made of neurons."""
    return p.directions, None if p.gate is None else p.gate.directions
