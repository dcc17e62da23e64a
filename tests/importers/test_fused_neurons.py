"""The kernel for neurons in 16 bits: its values, and what happens where it does not work."""

import sys

import pytest
import torch
from support.backends import TORCH32, in_library
from support.networks import network

import mlpoly as mp
from mlpoly.importers import fused_neurons

D, H = 8, 300


def polynomial(form, degree, bound):
    kind = ("GLU", "silu") if form == "glu" else ("MLP", "gelu")
    poly = mp.fit(in_library(network(*kind, D, H, 3), TORCH32), mp.Gaussian(torch.linspace(-1, 1, D)), degree)
    return poly if bound is None else poly.bounded(bound)


def forms(poly, dtype, n=21):
    torch.manual_seed(0)
    y, z = poly.forms_at(torch.randn(n, D))
    return y.to(dtype), None if z is None else z.to(dtype)


def interpreted():
    """Whether Triton's own functions were made for its interpreter, as they are if it is asked for at the import."""
    return type(sys.modules["triton"].language.zeros).__name__ == "InterpretedFunction"


@pytest.fixture
def anywhere(monkeypatch):
    """The kernel is tried on any device, and what was found about it is forgotten."""
    monkeypatch.setattr(fused_neurons, "_runs_here", lambda y: True)
    monkeypatch.setattr(fused_neurons, "_agree", {})


@pytest.mark.parametrize("form", ["mlp", "glu"])
@pytest.mark.parametrize("degree", [0, 1, 3])
@pytest.mark.parametrize("bound", [None, 1.0])
def test_values_under_tritons_interpreter(anywhere, monkeypatch, form, degree, bound):
    if "triton" in sys.modules and not interpreted():
        pytest.skip("Triton was imported to compile; run this file alone")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")
    fused_neurons._kernel.cache_clear()
    try:
        for dtype in (torch.bfloat16, torch.float16):
            poly = polynomial(form, degree, bound)
            y, z = forms(poly, dtype)
            found = fused_neurons.fused_values(poly, y, z)
            exact = poly.neurons(y.float(), None if z is None else z.float())
            assert found is not None and found.dtype == dtype
            torch.testing.assert_close(found.float(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-4)
    finally:
        fused_neurons._kernel.cache_clear()


class Kernel:
    """Stands for a compiled kernel: adds an error to the right values, or raises."""

    def __init__(self, poly, error):
        self.poly, self.error, self.calls = poly, error, 0

    def __getitem__(self, grid):
        assert grid == (3, 2)  # 21 rows and 300 units, for programs of 8 and 256
        return self.launch

    def launch(self, y, z, out, table, n, h, plain, factor, bounded, rows, columns):
        self.calls += 1
        if self.error is None:
            raise RuntimeError("no compiler")
        # The coefficients are where the kernel looks for them: Horner in t.
        assert (n, h, plain, factor, bounded) == (21, H, 4, 3, False) and table.shape == (2 + 4 + 3, H)
        t = table[0] + table[1] * y.float()
        values = [sum(c * t**k for k, c in enumerate(part)) for part in (table[2:6], table[6:])]
        out.copy_(values[0] + z.float() * values[1] + self.error)


@pytest.mark.parametrize(("error", "used"), [(0.0, True), (1.0, False), (None, False)])
def test_a_kernel_that_does_not_work_is_not_used(anywhere, monkeypatch, error, used):
    poly = polynomial("glu", 3, None)
    y, z = forms(poly, torch.bfloat16)
    kernel = Kernel(poly, error)
    monkeypatch.setattr(fused_neurons, "_kernel", lambda: kernel)
    for _ in range(2):
        assert (fused_neurons.fused_values(poly, y, z) is not None) == used
    assert kernel.calls == (2 if used else 1)
    module = poly.to_torch()
    with torch.no_grad():  # the same either way, within rounding to 16 bits
        x = torch.randn(21, D).bfloat16()
        torch.testing.assert_close(module(x).float(), module(x.float()), rtol=0.1, atol=0.1)
