"""Products from pieces in bfloat16 have the digits of float32, and quadratic forms need only one triangle."""

import numpy as np
import pytest
import torch

from mlpoly.arrays import products

SIDE = 96
EPS = 2.0**-24


def on_a_cpu(total, left, right):
    """What tensor cores are asked for: exact products of bfloat16, sums in float32."""
    assert left.dtype == right.dtype == torch.bfloat16
    found = left.float() @ right.float()
    return found if total is None else total.add_(found)


@pytest.fixture
def small(monkeypatch):
    """Detours for small matrices on the CPU."""
    monkeypatch.setattr(products, "_add_product", on_a_cpu)
    monkeypatch.setattr(products, "_in_pieces", lambda left, right: left.dtype in (torch.float32, torch.bfloat16))
    monkeypatch.setattr(products, "_LARGE", 16)
    monkeypatch.setattr(products, "_RUN", 40)  # the last run is shorter


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_products_in_pieces_have_the_digits_of_float32(small, dtype, size):
    torch.manual_seed(0)
    rows, matrix = (torch.randn(50, SIDE) * size).to(dtype), torch.randn(SIDE, 30)
    found = products.product(rows, matrix)
    assert found.dtype == torch.float32
    exact = rows.double() @ matrix.double()
    # Pieces leave out 2^-24 of a product; the sums of SIDE terms in float32 are the rest.
    scale = rows.double().abs() @ matrix.double().abs()
    assert float(((found - exact).abs() / scale).max()) < 4 * EPS


def test_pieces_are_the_matrix():
    a = torch.randn(64, 64) * torch.logspace(-30, 30, 64)
    assert torch.equal(sum(p.double() for p in products._pieces(a)), a.double())


@pytest.mark.parametrize("library", ["numpy", "torch", "in pieces"])
def test_quadratic_forms_need_one_triangle(small, monkeypatch, library):
    rng = np.random.default_rng(0)
    root, rows = rng.standard_normal((SIDE, SIDE)), rng.standard_normal((20, SIDE))
    exact = np.einsum("id,de,ie->i", rows, root @ root.T, rows)
    pair = rows, root @ root.T
    tolerance = 1e-14
    if library != "numpy":
        pair = tuple(torch.tensor(a, dtype=torch.float32 if library == "in pieces" else None) for a in pair)
        tolerance = 1e-14 if library == "torch" else 8 * EPS
    count = []
    plain = products.product
    monkeypatch.setattr(products, "product", lambda a, b: count.append(a.shape[1] * b.shape[1]) or plain(a, b))
    found = np.asarray(products.quadratic_forms(*pair), dtype=float)
    np.testing.assert_allclose(found, exact, rtol=tolerance * np.sqrt(SIDE))
    assert sum(count) == 5 / 8 * SIDE**2
