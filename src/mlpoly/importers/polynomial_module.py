"""A polynomial as a torch module."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mlpoly.arrays import as_float_array, to_numpy
from mlpoly.polynomials import Polynomial, Source
from mlpoly.records import arrays_of, map_arrays, replace


class PolynomialModule(nn.Module):
    """A polynomial as a module that replaces the block it was fitted to.

    The arrays are buffers, named after the fields of the polynomial (``units_directions``, ``series_plain``): the
    module moves with ``.to(...)`` and saves with ``state_dict()``, and an optimiser does not change it. It owns a copy
    of its numbers, so that training the network does not affect it; gradients reach the input, and after
    ``requires_grad_()`` on the buffers the coefficients.

    Unless `fast`, it computes in float32 or wider, also inside ``torch.autocast``, because powers of 16-bit numbers
    lose their digits. ``.to(torch.bfloat16)`` on it, or on a model that contains it, rounds the coefficients to 8 bits
    for good; to keep them, insert it after the model has been converted. ``torch.compile`` traces it without a graph
    break from PyTorch 2.11.

    Parameters
    ----------
    polynomial : Polynomial
        Any form, of any array library; as an attribute, the polynomial over the present buffers.
    fast : bool
        For forms made of neurons and inputs in 16 bits: multiply matrices in 16 bits, as the block itself does, and
        compute the polynomials in float32. Several times faster on a GPU; the error is that of the block's own
        arithmetic.
    """

    def __init__(self, polynomial: Polynomial, fast: bool = False) -> None:
        super().__init__()
        if not isinstance(polynomial, Polynomial):
            raise TypeError(f"polynomial must be made by mlpoly.fit or mlpoly.load, got {type(polynomial).__name__}.")
        self.fast = bool(fast) and hasattr(polynomial, "neurons")
        plain = replace(polynomial, inputs=None, report=None)  # the inputs it was fitted under are not kept
        names = [name.replace(".", "_") for name in arrays_of(plain)]
        for name, array in zip(names, arrays_of(plain).values(), strict=True):
            own = array.detach().clone() if isinstance(array, torch.Tensor) else torch.tensor(to_numpy(array).copy())
            self.register_buffer(name, own)
        rest = iter(names)
        self._names = map_arrays(plain, lambda _: next(rest))  # the polynomial, with names of buffers as its arrays

    @property
    def source(self) -> Source:
        """Provenance of the polynomial."""
        return self._names.source

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the buffers."""
        return next(self.buffers()).dtype

    @property
    def polynomial(self) -> Any:
        """The polynomial over the present buffers, in float32 at least."""
        return self._polynomial(torch.promote_types(self.dtype, torch.float32))

    def _polynomial(self, dtype: torch.dtype) -> Any:
        """The polynomial over the buffers in a dtype, without a copy if they have it."""
        buffers = dict(self.named_buffers())
        return map_arrays(self._names, lambda name: buffers[name].to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values (..., o) at points x (..., d), in the dtype of x; unless `fast`, 16 bits are computed in float32."""
        as_float_array("x", x)  # refuse integers: values would be rounded to the dtype of x
        wide = torch.promote_types(torch.promote_types(x.dtype, self.dtype), torch.float32)
        with full_precision(x):
            p = self._polynomial(wide)
            values: torch.Tensor = self._fast_values(p, x) if self.fast and x.itemsize == 2 else p(x)
        return values.to(x.dtype)

    def _fast_values(self, p: Any, x: torch.Tensor) -> torch.Tensor:
        """Values with the three large products in the dtype of x, and everything else in that of the polynomial."""
        # The forms stay in 16 bits: the next operation widens them as it reads, which saves a pass over the memory.
        y, z = (
            None if w is None else functional.linear(x, w.to(x.dtype))
            for w in (p.units.directions, None if p.units.gate is None else p.units.gate.directions)
        )
        hidden = p.neurons(y, z)
        if p.readout is None:
            return p.read_out(hidden)
        values = functional.linear(hidden.to(x.dtype), p.readout.to(x.dtype))
        return values if p.bias is None else values + p.bias

    def extra_repr(self) -> str:
        """Text between the brackets when the module is printed."""
        return repr(self.polynomial)


# Checked here and not while a module runs: torch.compile cannot trace the check.
_AUTOCAST = {kind for kind in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(kind)}


def full_precision(x: torch.Tensor) -> AbstractContextManager[Any]:
    """Turn off autocast, which would multiply in 16 bits, on devices that have it."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if kind in _AUTOCAST else nullcontext()
