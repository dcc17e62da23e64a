"""A polynomial as a torch module."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mlpoly.arrays import as_float_array, chunks, differentiated, to_numpy
from mlpoly.importers.fused_neurons import fused_values
from mlpoly.polynomials import Polynomial, Source
from mlpoly.polynomials.neurons import NeuronPolynomial
from mlpoly.records import arrays_of, map_arrays, replace

_AT_ONCE = 2**24  # values of neurons at a time: 64 MB in float32, of which a few exist


class PolynomialModule(nn.Module):
    """A polynomial as a module that replaces the block it was fitted to.

    The arrays are buffers, copied and named after the fields of the polynomial (``units_directions``): the module moves
    with ``.to(...)`` and saves with ``state_dict()``, and an optimiser does not change it. Gradients reach the input,
    and after ``requires_grad_()`` on the buffers the coefficients.

    It computes in float32 or wider, also inside ``torch.autocast``. Only inputs of 16 bits are multiplied with the
    matrices of neurons in 16 bits, as the block itself does; the polynomials of the neurons stay in float32. For
    float32 throughout, pass ``x.float()``. ``.to(torch.bfloat16)`` on a model that contains the module rounds the
    coefficients to 8 bits for good; to keep them, insert it after the model has been converted.

    ``torch.compile`` traces it without a graph break from PyTorch 2.11.

    Parameters
    ----------
    polynomial : Polynomial
        Any form, of any array library; as an attribute, the polynomial over the present buffers.
    """

    def __init__(self, polynomial: Polynomial) -> None:
        super().__init__()
        if not isinstance(polynomial, Polynomial):
            raise TypeError(f"polynomial must be made by mlpoly.fit or mlpoly.load, got {type(polynomial).__name__}.")
        self._of_neurons = isinstance(polynomial, NeuronPolynomial)
        plain = replace(polynomial, inputs=None, report=None)  # the inputs it was fitted under are not kept
        names = [name.replace(".", "_") for name in arrays_of(plain)]
        for name, array in zip(names, arrays_of(plain).values(), strict=True):
            own = array.detach().clone() if isinstance(array, torch.Tensor) else torch.tensor(to_numpy(array).copy())
            self.register_buffer(name, own)
        self._copies: dict[str, tuple[torch.Tensor, int, torch.Tensor]] = {}  # of matrices, see `_narrow`
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

    def _polynomial(self, dtype: torch.dtype, of_matrices: torch.dtype | None = None) -> Any:
        """The polynomial over the buffers in a dtype, its matrices in another; without a copy if they have it."""
        buffers = dict(self.named_buffers())

        def array(name: str) -> torch.Tensor:
            if of_matrices is not None and name.endswith(("directions", "readout")):
                return self._narrow(name, buffers[name], of_matrices)
            return buffers[name].to(dtype)

        return map_arrays(self._names, array)

    def _narrow(self, name: str, buffer: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A buffer in 16 bits, from a copy that is kept while the buffer does not change."""
        if buffer.dtype == dtype or torch.compiler.is_compiling() or differentiated(buffer) or buffer.is_inference():
            return buffer.to(dtype)
        kept = self._copies.get(name)
        if kept is None or kept[0] is not buffer or kept[1] != buffer._version or kept[2].dtype != dtype:
            kept = self._copies[name] = buffer, buffer._version, buffer.to(dtype)
        return kept[2]

    def __getstate__(self) -> dict[str, Any]:
        """Without the copies."""
        return {**self.__dict__, "_copies": {}}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values (..., o) at points x (..., d), in the dtype of x."""
        as_float_array("x", x)  # refuse integers: values would be rounded to the dtype of x
        wide = torch.promote_types(torch.promote_types(x.dtype, self.dtype), torch.float32)
        with full_precision(x):
            if x.itemsize == 2 and self._of_neurons:
                values = _in_16_bits(self._polynomial(wide, x.dtype), x)
            else:
                values = self._polynomial(wide)(x)
        return values.to(x.dtype)

    def extra_repr(self) -> str:
        """Text between the brackets when the module is printed."""
        return repr(self.polynomial)


def _in_16_bits(p: Any, x: torch.Tensor) -> torch.Tensor:
    """Values with the large products in the dtype of x, and everything else in that of the polynomial."""
    gate = None if p.series.gated is None else p.units.gate
    # The forms stay in 16 bits: the next operation widens them as it reads, which saves a pass over the memory.
    y, z = functional.linear(x, p.units.directions), None if gate is None else functional.linear(x, gate.directions)
    values = p.neuron_values(z is not None)
    if torch.compiler.is_compiling() or any(differentiated(a) for a in (y, *arrays_of(p).values())):
        hidden = values(y, z).to(x.dtype)
    else:
        hidden = y.reshape(-1, y.shape[-1])
        others = None if z is None else z.reshape(hidden.shape)
        fused = fused_values(p, hidden, others)
        # Without a kernel in the memory of y, some rows at a time, so that what is computed on the way stays small.
        for rows in chunks(hidden.shape[0], max(1, _AT_ONCE // max(1, hidden.shape[1]))) if fused is None else ():
            hidden[rows] = values(hidden[rows], None if others is None else others[rows])
        hidden = hidden if fused is None else fused
        hidden = hidden.reshape(y.shape)
    if p.readout is None:
        return hidden if p.bias is None else hidden + p.bias
    out = functional.linear(hidden, p.readout)
    return out if p.bias is None else out + p.bias


# Checked here and not while a module runs: torch.compile cannot trace the check.
_AUTOCAST = {kind for kind in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(kind)}


def full_precision(x: torch.Tensor) -> AbstractContextManager[Any]:
    """Turn off autocast, which would multiply in 16 bits, on devices that have it."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if kind in _AUTOCAST else nullcontext()
