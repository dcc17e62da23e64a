"""Polynomials out: a polynomial as a torch module."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mlpoly.arrays import as_float_array, to_numpy
from mlpoly.polynomials import ChaosPolynomial, DensePolynomial, Gate, Polynomial, RidgePolynomial, Source, Tails
from mlpoly.polynomials.ridge import check_bound
from mlpoly.records import replace

__all__ = ["PolynomialModule", "full_precision"]

# The arrays of each form.
_FIELDS: dict[type[Polynomial], tuple[str, ...]] = {
    RidgePolynomial: ("directions", "shifts", "scales", "series", "readout", "bias"),
    DensePolynomial: ("center", "constant", "linear", "quadratic"),
    ChaosPolynomial: ("center", "whitener", "values"),
}
# Those of the parts that a ridge form may have.
_PARTS: dict[str, tuple[type, tuple[str, ...]]] = {
    "gate": (Gate, ("directions", "shifts", "slopes", "series")),
    "tails": (Tails, ("slopes", "gate")),
}


class PolynomialModule(nn.Module):
    """A polynomial as a module: drop-in for the block that it was fitted to.

    The arrays are buffers, named like the fields of the polynomial (those of gate and tails ``gate_...`` and
    ``tails_...``): the module moves with ``.to(...)`` and saves with ``state_dict()``, and an optimiser leaves it
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
        if type(polynomial) not in _FIELDS:
            raise TypeError(
                f"polynomial must be a RidgePolynomial, a DensePolynomial or a ChaosPolynomial, "
                f"got {type(polynomial).__name__}."
            )
        self.bound = _checked_bound(bound, polynomial)
        self.fast = bool(fast) and isinstance(polynomial, RidgePolynomial)
        for name in _FIELDS[type(polynomial)]:
            self.register_buffer(name, _copied(getattr(polynomial, name)))
        tails = getattr(polynomial, "tails", None)
        self._tails_bound = {} if tails is None else {"bound": tails.bound}
        self._parts = [part for part in _PARTS if getattr(polynomial, part, None) is not None]
        for part in self._parts:
            for name in _PARTS[part][1]:
                self.register_buffer(f"{part}_{name}", _copied(getattr(getattr(polynomial, part), name)))
        # What is no array: source, exponents. The distribution that it was fitted under stays behind.
        self._rest = replace(
            polynomial, inputs=None, report=None, **dict.fromkeys((*_FIELDS[type(polynomial)], *self._parts))
        )

    @property
    def source(self) -> Source:
        """Where the polynomial comes from."""
        return self._rest.source

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
        cast: dict[str, Any] = {name: b.to(dtype) for name, b in self.named_buffers()}
        for part in self._parts:
            kind, names = _PARTS[part]
            given = {name: cast.pop(f"{part}_{name}", None) for name in names}
            cast[part] = kind(**given, **(self._tails_bound if part == "tails" else {}))
        return replace(self._rest, **cast)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values (..., o) at points x (..., d), in the dtype of x; unless `fast`, 16 bits are computed in float32."""
        as_float_array("x", x)  # a polynomial takes integers, but here values would be rounded to the dtype of x
        wide = torch.promote_types(torch.promote_types(x.dtype, self.dtype), torch.float32)
        limits = {} if self.bound is None else {"bound": self.bound}
        with full_precision(x):
            p = self._polynomial(wide)
            values: torch.Tensor = self._fast_values(p, x) if self.fast and x.itemsize == 2 else p(x, **limits)
        return values.to(x.dtype)

    def _fast_values(self, p: RidgePolynomial, x: torch.Tensor) -> torch.Tensor:
        """Values with the three large products in the dtype of x, and everything else in that of the polynomial."""
        # The forms stay in 16 bits: what follows widens them while it reads them, which saves a pass.
        hidden = p.neurons(lambda w: functional.linear(x, w.to(x.dtype)), self.bound)
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


def _copied(array: Any) -> torch.Tensor | None:
    if array is None:
        return None
    if isinstance(array, torch.Tensor):
        return array.detach().clone()
    return torch.tensor(to_numpy(array))
