"""Neurons of a polynomial in one pass over the memory of a GPU, for inputs of 16 bits.

PyTorch's operations read and write the hidden units a dozen times, which takes as long as the products around them.
"""

from functools import cache
from typing import Any

import torch

from mlpoly.polynomials import BoundedPolynomial
from mlpoly.special import in_powers

_HIGHEST = 3  # degree up to which powers are as accurate as Hermite polynomials
_ROWS, _COLUMNS = 8, 256  # of the hidden units, for one program on the GPU
_agree: dict[Any, bool] = {}  # whether the kernel of a kind of polynomial gives what PyTorch gives


def fused_values(p: Any, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor | None:
    """Values of neurons in the dtype of their forms y and z (n, h), or None where there is no kernel for them."""
    bounded, gated = isinstance(p, BoundedPolynomial), z is not None
    kind = y.dtype, y.device, p.degree, bounded, gated
    kernel = _kernel() if _runs_here(y) and p.degree <= _HIGHEST and y.numel() and _agree.get(kind, True) else None
    if kernel is None:
        return None
    try:
        # Coefficients (rows, h) in the order in which the kernel reads them.
        units, plain = p.units, in_powers(p.series.at_no_factor(p.units))
        inverse, zero = units.inverse_scales, units.shifts * 0
        factor = [] if z is None else in_powers(p.series.gated)
        rows = [-units.shifts * inverse, inverse, *plain, *factor]
        if bounded:
            rows += [p.bounds + zero, *p.slopes]
            if z is not None:
                lines = [zero, zero] if p.gate_slopes is None else [*p.gate_slopes]
                rows += [*lines, units.gate.shifts, units.gate.slopes]
        table, out, h = torch.stack([r.float() for r in rows]), torch.empty_like(y), y.shape[1]
        grid = -(-y.shape[0] // _ROWS), -(-h // _COLUMNS)
        with torch.cuda.device_of(y):  # which need not be the current one
            kernel[grid](
                y, y if z is None else z, out, table, y.shape[0], h, len(plain), len(factor), bounded, _ROWS, _COLUMNS
            )
    except Exception:  # whatever a machine raises that cannot compile it
        _agree[kind] = False
        return None
    if kind not in _agree:  # the first time
        few = slice(0, 64)
        exact = p.neuron_values(gated)(y[few].float(), None if z is None else z[few].float())
        apart, size = (out[few].float() - exact).abs().nan_to_num(), exact.abs().nan_to_num()
        _agree[kind] = bool((apart <= 2 * torch.finfo(y.dtype).eps * size + 1e-5 * size.mean()).all())
    return out if _agree[kind] else None


def _runs_here(y: torch.Tensor) -> bool:
    return y.is_cuda


@cache
def _kernel() -> Any:
    """The kernel, or None without Triton."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    # fmt: off
    def neurons(  # type: ignore[no-untyped-def]
        y, z, out, table, n, h, plain: tl.constexpr, factor: tl.constexpr, bounded: tl.constexpr,
        rows: tl.constexpr, columns: tl.constexpr,
    ):
        # fmt: on
        i = tl.program_id(0) * rows + tl.arange(0, rows)
        j = tl.program_id(1) * columns + tl.arange(0, columns)
        inside = j < h
        at = i[:, None].to(tl.int64) * h + j[None, :]
        here = (i[:, None] < n) & inside[None, :]
        t = tl.load(y + at, here, 0.0).to(tl.float32)
        t = t * tl.load(table + h + j, inside, 0.0)[None, :] + tl.load(table + j, inside, 0.0)[None, :]
        held = t
        if bounded:
            at_bounds = table + (2 + plain + factor) * h + j
            bound = tl.load(at_bounds, inside, 0.0)[None, :]
            held = tl.minimum(tl.maximum(t, -bound), bound)
        value = tl.zeros_like(t)
        for k in tl.static_range(plain):
            value = value * held + tl.load(table + (1 + plain - k) * h + j, inside, 0.0)[None, :]
        second = tl.zeros_like(t)
        for k in tl.static_range(factor):
            second = second * held + tl.load(table + (1 + plain + factor - k) * h + j, inside, 0.0)[None, :]
        if bounded:
            excess = t - held
            low, high = tl.load(at_bounds + h, inside, 0.0)[None, :], tl.load(at_bounds + 2 * h, inside, 0.0)[None, :]
            value += tl.where(excess < 0, low, high) * excess
            if factor > 0:
                low = tl.load(at_bounds + 3 * h, inside, 0.0)[None, :]
                high = tl.load(at_bounds + 4 * h, inside, 0.0)[None, :]
                line = tl.where(excess < 0, low, high) * excess
                shift = tl.load(at_bounds + 5 * h, inside, 0.0)[None, :]
                slope = tl.load(at_bounds + 6 * h, inside, 0.0)[None, :]
                value -= line * (shift + slope * held)
                second += line
        if factor > 0:
            value += tl.load(z + at, here, 0.0).to(tl.float32) * second
        tl.store(out + at, value.to(out.dtype.element_ty), here)

    return triton.jit(neurons)
