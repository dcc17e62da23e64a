"""Polynomials as torch modules: their own numbers, dtypes, files, gradients, compilation.

tests/polynomials/test_polynomial_contract.py compares the values of every form.
"""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from support.backends import TORCH64, compiled, in_library
from support.networks import network
from torch import nn

import mlpoly as mp
from mlpoly.importers.torch import PolynomialModule
from mlpoly.records import arrays_of

D = 4


def tensor(*shape, seed=0, dtype=torch.float64):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def polynomial(form, degree=3, d=D, h=6, o=3):
    """A fit of a layer in torch, or dense or of chaos form under a mixture."""
    net = network("MLP", "gelu", d, h, o)
    if form == "glu":
        net = network("GLU", "silu", d, h, o, scale=d**0.5, up=d**0.5)
    inputs = mp.Gaussian.from_samples(tensor(50, d, seed=9))
    if form.startswith(("dense", "chaos")):
        rng = np.random.default_rng(0)
        roots, means = 0.5 * rng.standard_normal((2, d, d)), rng.standard_normal((2, d))
        parts = (np.array([0.5, 0.5]), means, roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(d))
        inputs = mp.GaussianMixture(*map(torch.tensor, parts))
        degree, fitted = int(form[-1]), 3 if form.startswith("chaos") else int(form[-1])
        return mp.fit(in_library(net, TORCH64), inputs, fitted).truncate(degree)
    return mp.fit(in_library(net, TORCH64), inputs, degree)


both = pytest.mark.parametrize("form", ["mlp", "glu"])
forms = pytest.mark.parametrize("form", ["mlp", "glu", "dense 0", "dense 1", "dense 2", "chaos 1", "chaos 3"])


@forms
def test_values_at_any_leading_axes(form):
    poly = polynomial(form)
    module = poly.to_torch()
    assert isinstance(module, PolynomialModule)
    for shape in [(4,), (5, 4), (2, 3, 4), (0, 4)]:
        torch.testing.assert_close(module(tensor(*shape)), poly(tensor(*shape)), rtol=0, atol=0)
    back, x = module.polynomial, tensor(5, D)
    assert type(back) is type(poly) and back.inputs is None and back.source == poly.source == module.source
    torch.testing.assert_close(back.truncate(1)(x), poly.truncate(1)(x), rtol=0, atol=0)
    assert f"degree={poly.degree}, 4 -> 3" in repr(module)
    as_numpy = poly.to(np.zeros(1))
    for a in arrays_of(as_numpy).values():
        a.flags.writeable = False
    torch.testing.assert_close(as_numpy.to_torch()(x), poly(x), rtol=1e-12, atol=1e-12)


@forms
def test_a_module_owns_its_numbers(form, tmp_path):
    poly = polynomial(form)
    module, x = poly.to_torch(), tensor(50, D)
    expected = poly(x).clone()
    for a in arrays_of(poly).values():
        a += 1
    assert not list(module.parameters()) and not any(b.requires_grad for b in module.buffers())
    torch.save(module.state_dict(), tmp_path / "state.pt")
    loaded = copy.deepcopy(module)
    for buffer in loaded.buffers():
        buffer.zero_()
    missing = loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), strict=True)
    assert not missing.missing_keys and not missing.unexpected_keys
    for other in (module, loaded, copy.deepcopy(module), module.train(), module.eval(), nn.Sequential(module).train()):
        torch.testing.assert_close(other(x), expected, rtol=0, atol=0)


@forms
def test_inputs_and_coefficients_in_fewer_bits(form):
    module, x = polynomial(form).to_torch().float(), tensor(50, D, dtype=torch.float32)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        narrow = x.to(dtype)
        out, wide = module(narrow), module(narrow.float())
        assert out.dtype == dtype
        # Neurons multiply in 16 bits: roundings of preactivations, hidden units and outputs.
        rounding = 4 * torch.finfo(dtype).eps if dtype != torch.float32 and form in ("mlp", "glu") else 0
        torch.testing.assert_close(out.float(), wide.to(dtype).float(), rtol=0, atol=rounding * float(wide.abs().max()))
    assert module(x.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        inside = module(x)
    torch.testing.assert_close(inside, module(x), rtol=0, atol=0)
    rounded = copy.deepcopy(module).to(torch.bfloat16)  # coefficients: rounded once, to 8 bits
    assert {b.dtype for b in rounded.buffers()} == {torch.bfloat16}
    torch.testing.assert_close(rounded(x), copy.deepcopy(rounded).float()(x), rtol=0, atol=0)
    assert (rounded(x) - module(x)).abs().max() < 0.05 * module(x).abs().max()
    exact = copy.deepcopy(rounded).double()(x.double())
    assert rounded(x).sub(exact).abs().max() < 1e-4


@both
@pytest.mark.parametrize("bound", [None, 2.0])
def test_16_bits_err_as_the_network_does(form, bound):
    poly = polynomial(form, d=64, h=256, o=32)
    x = tensor(50, 64).bfloat16()
    poly = poly if bound is None else poly.bounded(bound)
    exact, module = poly.to_torch()(x.double()), poly.to_torch().float()
    error, careful = ((a.double() - exact).norm() / exact.norm() for a in (module(x), module(x.float()).bfloat16()))
    # Rounding to 8 bits of preactivations, hidden units and outputs, each of about 2^-9; only the last one if careful.
    assert 2**-9 / 4 < careful < 2**-9
    assert careful < error < 2**-6
    assert module(x).dtype == torch.bfloat16
    with torch.no_grad():
        torch.testing.assert_close(module(x.reshape(5, 10, 64)), module(x).reshape(5, 10, 32), rtol=0, atol=0)
        torch.testing.assert_close(module(x[0]), module(x[:1])[0], rtol=2**-6, atol=float(exact.norm()) * 1e-4)
    watched = x.clone().requires_grad_()
    torch.testing.assert_close(module(watched), module(x), rtol=2**-6, atol=float(exact.norm()) * 1e-4)
    module(watched).float().sum().backward()
    assert bool((watched.grad != 0).any())
    fused = compiled(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(fused(x), module(x), rtol=2**-6, atol=float(exact.norm()) * 1e-4)


def test_matrices_in_16_bits_follow_the_buffers():
    module, x = polynomial("glu").to_torch().float(), tensor(5, D).bfloat16()
    before = module(x)
    assert len(pickle.dumps(copy.deepcopy(module))) == len(pickle.dumps(polynomial("glu").to_torch().float()))
    with torch.no_grad():
        module.readout.mul_(2)
    biasless = before - module.bias.bfloat16()
    torch.testing.assert_close(module(x) - module.bias.bfloat16(), 2 * biasless, rtol=2**-5, atol=2**-5)
    other = polynomial("glu", degree=3).to_torch().float()
    module.load_state_dict(other.state_dict())
    torch.testing.assert_close(module(x), before, rtol=0, atol=0)
    torch.testing.assert_close(module.double()(x), other.double()(x), rtol=0, atol=0)


def test_a_coefficient_alone_has_a_gradient_in_16_bits():
    module = polynomial("glu").to_torch().float()
    module.series_plain.requires_grad_()
    module(tensor(5, D).bfloat16()).float().square().sum().backward()
    assert bool((module.series_plain.grad != 0).any())


@both
def test_gradients_of_input_and_coefficients(form):
    module = polynomial(form).to_torch()
    x = tensor(3, 4, seed=3).requires_grad_()
    # The biases of the units are kept for `bounded`; a polynomial that has its series no longer needs them.
    used = {name: b.requires_grad_() for name, b in module.named_buffers() if not re.search("units.*_bias", name)}
    module(x).square().sum().backward()
    assert all(bool((b.grad != 0).any()) for b in (x, *used.values()))

    def value(x, *buffers):
        return torch.func.functional_call(module, dict(zip(used, buffers, strict=True)), (x,))

    assert torch.autograd.gradcheck(value, (x, *used.values()))


@forms
def test_compiles_without_graph_breaks(form):
    module = polynomial(form).to_torch().float()
    # The chaos form looks up its exponents, which torch.compile does outside the graph.
    fused = compiled(module, backend="aot_eager", fullgraph=not form.startswith("chaos"))
    for dtype in (torch.float64, torch.bfloat16) if form in ("mlp", "glu") else (torch.float64,):
        x = tensor(5, 4, dtype=dtype)
        torch.testing.assert_close(fused(x), module(x), rtol=1e-6, atol=1e-6)


def test_display_and_errors():
    module = polynomial("mlp").bounded(4).to_torch()
    assert "bound=4" in repr(module)
    assert "BoundedPolynomial" in repr(module.to("meta"))  # whose numbers cannot be read
    with pytest.raises(TypeError, match=r"polynomial must be made by mlpoly\.fit"):
        PolynomialModule(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="floating"):
        polynomial("mlp").to_torch()(torch.ones(5, 4, dtype=torch.int64))
    for form in ("dense 2", "chaos 3"):
        with pytest.raises(TypeError, match=r"has no neurons .* one Gaussian or with method='neuronwise'"):
            polynomial(form).bounded(4.0)
