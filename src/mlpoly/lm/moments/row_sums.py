"""Mean and covariance of the rows that a hook sees, summed where they are: on the model's device."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from mlpoly.inputs import MomentAccumulator

Precision = Literal["single", "double"]
ByGroup = Mapping[int, MomentAccumulator]  # of the inputs of a block, by number; in float64 on the CPU

# A product of fewer rows is bound by the d x d sums that it is added to, not by arithmetic: on an H200 and d = 4096,
# this many reach 0.89 of the rate of the bare product, 1024 reach 0.76.
_ENOUGH = 4096
# Larger products need more memory for the float32 copy of their rows, and add up more float32 roundings.
_AT_MOST = 4096
# Up to this width the processor makes float64 products about as fast as the model itself runs.
_NARROW = 1024


def merge_groups(one: ByGroup, other: ByGroup) -> dict[int, MomentAccumulator]:
    """Return the groups of both; those of the same number become one. Neither is changed."""
    merged = dict(one)
    for number, part in other.items():
        merged[number] = MomentAccumulator(part.dim).merge(merged[number]).merge(part) if number in merged else part
    return dict(sorted(merged.items()))


class RowSums:
    """Sums over a stream of rows, in the given precision: by default double on the CPU up to 1024 columns, else single.

    Products are made for a few thousand rows at a time and added up in float64. Rows are shifted by the mean of the
    first few thousand, so that a large mean costs no digits.
    """

    def __init__(self, precision: Precision | None = None) -> None:
        self._precision = precision
        self._waiting: list[Tensor] = []
        self._count = 0
        self._shift: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        """Take rows (n, d); they may change afterwards."""
        waiting = sum(part.shape[0] for part in self._waiting)
        if waiting + rows.shape[0] < _ENOUGH:
            self._waiting.append(rows.clone())
        else:
            self._multiply([*self._waiting, rows])

    def _multiply(self, parts: list[Tensor]) -> None:
        self._waiting = []
        for piece in (parts[0] if len(parts) == 1 else torch.cat(parts)).split(_AT_MOST):
            wide = piece.to(torch.promote_types(piece.dtype, torch.float32))
            if self._shift is None:
                d, device = wide.shape[1], wide.device
                choice = "double" if device.type == "cpu" and d <= _NARROW else "single"
                self._dtype = torch.float64 if (self._precision or choice) == "double" else torch.float32
                home = torch.device("cpu") if device.type == "mps" else device  # Apple's GPUs have no float64
                # Rounded to float32, so that it is the same number in both precisions.
                self._shift = wide.mean(0).float().to(home).double()
                options: dict[str, Any] = {"dtype": torch.float64, "device": home}
                self._product, self._sum = torch.zeros(d, d, **options), torch.zeros(d, **options)
            work = torch.promote_types(wide.dtype, self._dtype)  # narrowed only when the mean is gone
            shifted = (wide.to(work) - self._shift.to(work).to(wide.device)).to(self._dtype)
            with exact_products(shifted.device):
                product = shifted.T @ shifted
            home = self._product.device
            self._product += product.to(home)
            self._sum += shifted.sum(0).to(home).double()
            self._count += piece.shape[0]

    def result(self) -> MomentAccumulator:
        """Return the moments of all rows, on the CPU."""
        if self._waiting:
            self._multiply(self._waiting)
        assert self._shift is not None  # rows were added
        n = self._count
        mean = self._shift + self._sum / n
        scatter = torch.addr(self._product, self._sum, self._sum, alpha=-1 / n)
        return MomentAccumulator.from_moments(n, mean.cpu(), (scatter + scatter.T).mul_(0.5).cpu())


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Products of float32 numbers with all their digits: no autocast, no TensorFloat, no bfloat16."""
    with ExitStack() as stack:
        if torch.amp.is_autocast_available(device.type):
            stack.enter_context(torch.autocast(device.type, enabled=False))
        for backend in (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)):
            # The newer of the two ways to say it: it leaves what was said in the older way readable.
            for name, exact in (("fp32_precision", "ieee"), ("allow_tf32", False)):
                if hasattr(backend, name):
                    stack.callback(setattr, backend, name, getattr(backend, name))
                    setattr(backend, name, exact)
                    break
        yield
