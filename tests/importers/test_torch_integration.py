"""Torch modules in and out: same numbers, same parameters, dtypes, files, compilation."""

import copy
import functools
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from support.backends import TORCH64, compiled, in_library
from support.networks import network
from torch import nn
from torch.nn.utils import prune

import mlpoly as mp
from mlpoly.arrays import from_numpy, to_numpy
from mlpoly.importers import find_blocks, from_torch
from mlpoly.importers.torch import PolynomialModule, activation_from_torch, register_adapter

ACTIVATIONS = [
    nn.Identity(),
    nn.ReLU(),
    nn.LeakyReLU(),
    nn.LeakyReLU(0.3),
    nn.ReLU6(),
    nn.RReLU(0.1, 0.4),
    nn.PReLU(init=0.3),
    nn.Threshold(0.2, -0.5),
    nn.Hardtanh(),
    nn.Hardtanh(-0.4, 0.9),
    nn.Hardsigmoid(),
    nn.Hardswish(),
    nn.GELU(),
    nn.GELU(approximate="tanh"),
    nn.SiLU(),
    nn.Sigmoid(),
    nn.LogSigmoid(),
    nn.Tanh(),
    nn.Tanhshrink(),
    nn.Mish(),
    nn.Softsign(),
    nn.Softplus(),
    nn.Softplus(beta=3.0),
    nn.ELU(),
    nn.ELU(alpha=0.4),
    nn.SELU(),
    nn.CELU(alpha=0.7),
]


def tensor(*shape, seed=0, dtype=torch.float64):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def sequential(activation=None, d=4, h=6, o=3):
    torch.manual_seed(0)
    activation = nn.ReLU() if activation is None else activation
    return nn.Sequential(nn.Linear(d, h), activation, nn.Linear(h, o)).double()


def polynomial(gated=False, degree=3, d=4, h=6, o=3):
    if gated:
        net = in_library(network("GLU", "silu", d, h, o, scale=d**0.5, up=d**0.5), TORCH64)
    else:
        net = from_torch(sequential(nn.GELU(), d, h, o))
    return mp.fit(net, mp.Gaussian.from_samples(tensor(50, d, seed=9)), degree=degree)


# -- modules in ------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_record_equals_module(activation):
    module = sequential(activation).eval()
    x = 2 * tensor(3, 5, 4)
    torch.testing.assert_close(from_torch(module)(x), module(x), rtol=1e-12, atol=1e-8)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_activation_function_equals_module(activation):
    y = torch.linspace(-9, 9, 1801, dtype=torch.float64)
    # Softplus is replaced by the identity above 20 / beta in PyTorch, an error of 2e-9.
    tolerance = 1e-8 if isinstance(activation, nn.Softplus) else 1e-13
    expected = activation.double().eval()(y).detach()
    torch.testing.assert_close(activation_from_torch(activation)(y), expected, rtol=1e-12, atol=tolerance)


def test_every_activation_of_torch_is_covered_or_refused_by_choice():
    """A new activation module in PyTorch should be noticed here."""
    refused = {
        "GLU",
        "Hardshrink",
        "MultiheadAttention",
        "Softmax",
        "Softmax2d",
        "Softmin",
        "LogSoftmax",
    }
    refused |= {"Softshrink"}
    known = {type(a).__name__ for a in ACTIVATIONS} - {"Identity"}
    assert set(nn.modules.activation.__all__) == known | refused


def test_parameters_are_shared():
    module = sequential()
    net = from_torch(module)
    assert net.W1 is module[0].weight
    assert net.b1 is module[0].bias
    assert net.W2 is module[2].weight
    assert net.b2 is module[2].bias
    x = tensor(2, 4)
    with torch.no_grad():
        module[0].weight += 1
    torch.testing.assert_close(net(x), module(x))


def test_gradient_reaches_the_module():
    module = sequential(nn.GELU())
    x = tensor(5, 4)
    poly = mp.fit(from_torch(module), mp.Gaussian.standard(4), degree=2)
    poly(x).square().sum().backward()
    got = module[0].weight.grad[1, 2].item()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in module.parameters())

    def loss(step):
        moved = copy.deepcopy(module)
        with torch.no_grad():
            moved[0].weight[1, 2] += step
            return mp.fit(from_torch(moved), mp.Gaussian.standard(4), degree=2)(x).square().sum().item()

    assert got == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, rel=1e-6)


def test_dropout_and_nesting_are_passed_over():
    inner = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.2), nn.Tanh(), nn.Dropout(0.5), nn.AlphaDropout(0.1))
    module = nn.Sequential(inner, nn.Identity(), nn.Linear(6, 3), nn.Dropout(0.1)).double().eval()
    x = tensor(7, 4)
    torch.testing.assert_close(from_torch(module)(x), module(x))
    assert from_torch(module).activation.name == "tanh"


def test_without_second_linear_or_activation_or_bias():
    x = tensor(7, 4)
    for parts in (
        [nn.Linear(4, 6), nn.ReLU()],
        [nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Dropout()],
        [nn.Linear(4, 6), nn.Linear(6, 3, bias=False)],
        [nn.Linear(4, 6)],
    ):
        module = nn.Sequential(*parts).double().eval()
        torch.testing.assert_close(from_torch(module)(x), module(x))
    assert from_torch(nn.Sequential(nn.Linear(4, 6), nn.ReLU())).W2 is None


def test_parametrised_weights_keep_their_graph():
    module = sequential()
    nn.utils.parametrizations.weight_norm(module[0])
    x = tensor(5, 4)
    net = from_torch(module)
    torch.testing.assert_close(net(x), module(x))
    net(x).sum().backward()
    assert module[0].parametrizations.weight.original0.grad is not None


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.down(torch.sin(self.up(x)))


def adapt(block):
    return mp.MLP(block.up.weight, block.up.bias, block.down.weight, block.down.bias, activation="sin")


@pytest.mark.parametrize("matches", [Block, lambda m: type(m).__name__ == "Block"], ids=["type", "predicate"])
def test_adapter(adapters, matches):
    block = Block().double()
    with pytest.raises(TypeError, match="does not know Block"):
        from_torch(block)
    register_adapter(matches, adapt)
    torch.testing.assert_close(from_torch(block)(tensor(5, 4)), block(tensor(5, 4)))


def test_latest_adapter_wins(adapters):
    register_adapter(Block, lambda m: 1 / 0)
    register_adapter(Block, adapt)
    assert from_torch(Block()).activation.name == "sin"


def test_advice_begins_with_the_simplest_thing():
    """One line with the names of the module's own parts, and no guess at what its forward does."""
    with pytest.raises(TypeError) as caught:
        from_torch(Block())
    message = str(caught.value)
    code = "mlpoly.from_torch(torch.nn.Sequential(m.up, act, m.down))"
    assert message.startswith("from_torch does not know Block: it sees submodules") and "elu" not in message.lower()
    assert f"with act the activation that forward applies, as a module: {code}. " in message and len(message) < 700
    assert eval(code, {"mlpoly": mp, "torch": torch, "m": Block(), "act": nn.Tanh()}).dim_hidden == 6


class Named(nn.Module):
    """An MLP whose parts have names that nobody has thought of; the first is passed over."""

    def __init__(self, scale=1.0, error=None):
        super().__init__()
        self.drop, self.lin_in, self.nl, self.lin_out = nn.Dropout(), nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3)
        self.register_buffer("runs", torch.zeros(1))
        self.scale, self.error = scale, error
        self.double()

    def forward(self, x):
        self.runs += 1
        if self.error is not None:
            raise self.error
        return self.scale * self.lin_out(self.drop(self.nl(self.lin_in(x))))


def test_parts_of_any_name():
    module = Named()
    before = torch.get_rng_state()
    net = from_torch(module)
    assert net.W1 is module.lin_in.weight and net.b2 is module.lin_out.bias
    assert module.runs == 0 and module.training  # the test inputs left no trace
    assert torch.equal(torch.get_rng_state(), before)
    x = tensor(5, 4)
    torch.testing.assert_close(net(x), module.eval()(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_scale_of_a_thousandth_is_seen(dtype):
    assert from_torch(Named().to(dtype)).dim_out == 3
    with pytest.raises(TypeError, match=r"Named has the parts of an MLP.*differs from the network's by 0\.10%"):
        from_torch(Named(scale=1.001).to(dtype))


class Limited(Named):
    """The same parts, with a limit on the hidden units or on the outputs."""

    def __init__(self, limit, inside):
        super().__init__()
        self.limit, self.inside = limit, inside

    def forward(self, x):
        hidden = self.lin_in(x)
        if self.inside:
            return self.lin_out(self.nl(hidden.clamp(max=self.limit)))
        return self.lin_out(self.nl(hidden)).clamp(-self.limit, self.limit)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("limit", [5.0, 50.0, 500.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_limits_far_out_are_seen(dtype, limit, inside):
    with pytest.raises(TypeError, match=r"Limited has the parts of an MLP, .* differs from the network's by .*%"):
        from_torch(Limited(limit, inside).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [1.00001, 0.99998])
def test_a_scale_beside_one_is_seen(dtype, scale):
    with pytest.raises(TypeError, match=r"differs from the network's by [12]e-05 of its size"):
        from_torch(Named(scale=scale).to(dtype))


def test_modules_that_cannot_do_float64_are_compared_less_closely():
    class Single(Named):
        def forward(self, x):
            if x.dtype == torch.float64:
                raise NotImplementedError("no float64 on this device")
            return super().forward(x)

    assert from_torch(Single(scale=1.00005).float()).dim_out == 3
    with pytest.raises(TypeError, match=r"differs from the network's by 0\.10%"):
        from_torch(Single(scale=1.001).float())


@pytest.mark.parametrize("wide", [16, 1500])
@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh(), nn.Softplus(), nn.Hardswish(), nn.GELU("tanh")], ids=str)
def test_rounding_is_not_taken_for_another_function(activation, wide):
    torch.manual_seed(0)
    one, two, three = nn.Linear(wide, 2 * wide), nn.Linear(2 * wide, wide), nn.Linear(wide, 3)
    module = nn.Sequential(one, activation, two, activation, three)
    assert from_torch(module).dim_out == 3
    # The mean of a batch norm is a thousand deviations, so that folding it loses three of the seven digits of float32.
    norm = nn.BatchNorm1d(2 * wide)
    norm.running_mean.normal_().add_(1000)
    with torch.no_grad():
        one.bias.add_(1000)
    assert from_torch(nn.Sequential(one, norm, activation, two).eval()).dim_out == wide


@pytest.mark.usefixtures("adapters")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_sines_of_large_numbers_may_be_rounded(dtype):
    register_adapter(Block, adapt)
    assert from_torch(Block().to(dtype)).activation.name == "sin"


@pytest.mark.parametrize("make", [torch.jit.script, lambda module: torch.jit.trace(module, torch.zeros(1, 4))])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused_with_a_remedy(make):
    hidden = make(sequential(nn.GELU()).float())
    for act in (from_torch, find_blocks):
        with pytest.raises(TypeError, match=r"\(TorchScript\), which hides its parts; pass the module .*onnx\.export"):
            act(hidden)
    with pytest.raises(TypeError, match=r"\(TorchScript\), which hides its parts; use the module it was made from"):
        from_torch(nn.Sequential(hidden, nn.ReLU()))
    inside = nn.ModuleList([hidden, sequential(nn.GELU())])
    assert [block.name for block in find_blocks(inside)] == ["1"]


@pytest.mark.parametrize("error", [AttributeError("no x"), KeyError("k"), ZeroDivisionError("by zero")], ids=repr)
def test_errors_of_the_module_itself_are_told_as_such(error):
    with pytest.raises(TypeError, match=rf"a test input gave an error \({type(error).__name__}: ") as caught:
        from_torch(Named(error=error))
    assert caught.value.__cause__ is error


def hooked(module):
    module[0].register_forward_hook(lambda m, args, output: 2 * output)


def pre_hooked(module):
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))


def patched_part(module):
    before = module[0].forward
    module[0].forward = lambda x: 1.5 * before(x)


def patched(module):
    before = module.forward
    module.forward = lambda x: 1.001 * before(x)


@pytest.mark.parametrize("change", [hooked, pre_hooked, patched_part, patched])
def test_a_sequential_that_was_changed_is_refused(change):
    module = sequential(nn.GELU())
    change(module)
    with pytest.raises(TypeError, match=r"more than its parts.*differs from the network's by .*%.*Forward hooks"):
        from_torch(module)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_forward_that_only_wraps_the_old_one_is_no_obstacle(dtype):
    """As accelerate puts one on modules whose weights it moves."""
    module = sequential(nn.GELU()).to(dtype)
    module[0].forward = functools.partial(lambda forward, x: forward(x), module[0].forward)
    assert from_torch(module).W1 is module[0].weight


def test_hooks_that_only_watch_are_no_obstacle():
    module, seen = sequential(nn.GELU()), []
    module.register_forward_hook(lambda m, args, output: seen.append(output.shape))
    assert repr(from_torch(module)) == "MLP(4 -> 6 -> 3, gelu)"
    module(tensor(2, 4))
    assert seen[-1] == (2, 3)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        nn.utils.spectral_norm,  # before its first run the weight that stands there is not the one it will use
        nn.utils.weight_norm,
        lambda part: prune.random_unstructured(part, "weight", 0.5),
        nn.utils.parametrizations.spectral_norm,  # in training, looking at the weight changes it
        nn.utils.parametrizations.orthogonal,
    ],
    ids=["legacy spectral_norm", "legacy weight_norm", "pruning", "spectral_norm", "orthogonal"],
)
def test_weights_that_are_computed(change, training):
    module = sequential(nn.GELU()).train(training)
    change(module[0])
    before = [b.clone() for b in module.buffers()]
    net = from_torch(module)
    assert all(torch.equal(a, b) for a, b in zip(before, module.buffers(), strict=True))
    assert module.training is module[0].training is training
    x = tensor(5, 4)
    torch.testing.assert_close(net(x), module.eval()(x), rtol=1e-12, atol=1e-14)
    net(x).sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def test_what_torch_compile_made_is_taken_for_what_it_was_given():
    module = sequential(nn.GELU())
    assert from_torch(torch.compile(module, backend="eager")).W1 is module[0].weight
    inside = nn.Sequential(torch.compile(module[0], backend="eager"), module[1], module[2])
    assert from_torch(inside).W1 is module[0].weight


def test_prelu_with_a_slope_for_each_unit():
    module = sequential(nn.PReLU(6))
    with torch.no_grad():
        module[1].weight.copy_(torch.linspace(-1, 1, 6))
    x = tensor(9, 4)
    net = from_torch(module)
    torch.testing.assert_close(net(x), module(x))
    net(x).sum().backward()
    assert bool((module[1].weight.grad != 0).any())
    with pytest.raises(TypeError, match=r"PReLU\(6\) is a different function for every unit"):
        activation_from_torch(module[1])


def test_adapter_errors(adapters):
    register_adapter(Block, lambda m: m.up.weight)
    with pytest.raises(TypeError, match=r"must return an MLP or a GLU, or an mlpoly\.Chain"):
        from_torch(Block())
    with pytest.raises(TypeError, match="register_adapter takes"):
        register_adapter("Block", adapt)


class LowRank(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Bilinear(1, 1, 1), r"does not know Bilinear.*register_adapter\(Bilinear, lambda m"),
        (nn.Sequential(LowRank(2, 2), nn.ReLU()), r"LowRank is not known; .*register_adapter\(LowRank, lambda m"),
        (nn.Sequential(nn.Linear(2, 2), nn.Hardshrink()), "does not know the activation Hardshrink; it knows"),
        (nn.Sequential(nn.Linear(2, 2), nn.Softplus(threshold=1.0)), "threshold"),
        (np.ones(3), "must be a torch.nn.Module"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_errors(module, message):
    with pytest.raises(TypeError, match=message):
        from_torch(module)


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_lazy_linear():
    module = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(3))
    with pytest.raises(TypeError, match="run one batch"):
        from_torch(module)
    x = tensor(5, 4, dtype=torch.float32)
    torch.testing.assert_close(module(x), from_torch(module)(x))


@pytest.mark.process
def test_import_needs_no_torch():
    code = "import sys, mlpoly, mlpoly.importers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.process
def test_without_torch_the_error_names_the_remedy():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from mlpoly.importers import from_torch\n"
        "try: from_torch(None)\n"
        "except ImportError as e: sys.exit('mlpoly[torch]' not in str(e))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- polynomials out -------------------------------------------------------------------------------

both = pytest.mark.parametrize("gated", [False, True], ids=["mlp", "glu"])


@both
@pytest.mark.parametrize("degree", [0, 1, 3])
def test_values_at_any_leading_axes(gated, degree):
    poly = polynomial(gated, degree)
    module = poly.to_torch()
    assert isinstance(module, PolynomialModule)
    for shape in [(4,), (5, 4), (2, 3, 4), (0, 4)]:
        x = tensor(*shape)
        torch.testing.assert_close(module(x), poly(x), rtol=0, atol=0)


@both
def test_from_numpy(gated):
    poly = polynomial(gated)
    as_numpy = poly.to(np.zeros(1))
    for a in mp.records.arrays_of(as_numpy).values():
        a.flags.writeable = False
    x = tensor(5, 4)
    torch.testing.assert_close(as_numpy.to_torch()(x), poly(x))
    np.testing.assert_allclose(as_numpy(x.numpy()), poly(x).detach().numpy(), rtol=1e-12)


def test_hidden_units_as_outputs():
    poly = mp.fit(mp.MLP(tensor(6, 4)), mp.Gaussian.standard(4), degree=2)
    module = poly.to_torch()
    assert "readout" not in module.state_dict()
    torch.testing.assert_close(module(tensor(5, 4)), poly(tensor(5, 4)))


def test_module_owns_its_numbers():
    net = sequential()
    poly = mp.fit(from_torch(net), mp.Gaussian.standard(4), degree=2)
    module, x = poly.to_torch(), tensor(5, 4)
    before = module(x).clone()
    with torch.no_grad():
        net[0].weight += 1
    torch.testing.assert_close(module(x), before)
    assert not list(module.parameters())
    assert not any(b.requires_grad for b in module.buffers())
    torch.testing.assert_close(copy.deepcopy(module)(x), before)


def test_autocast_does_not_reach_the_polynomial():
    module = polynomial().to_torch().float()
    x = tensor(50, 4, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x)
    torch.testing.assert_close(out, module(x), rtol=0, atol=0)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_inputs_are_computed_in_float32(gated, dtype):
    module = polynomial(gated).to_torch().float()
    x = tensor(50, 4, dtype=dtype)
    out = module(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out, module(x.float()).to(dtype), rtol=0, atol=0)


@both
@pytest.mark.parametrize("bound", [None, 2.0])
def test_fast_products_err_as_the_network_does(gated, bound):
    poly = polynomial(gated, d=64, h=256, o=32)
    x = tensor(50, 64).bfloat16()
    poly = poly if bound is None else poly.bounded(bound)
    exact, sizes = poly.to_torch()(x.double()), poly.to_torch()(x.double()).norm()
    fast, safe = poly.to_torch(fast=True), poly.to_torch()
    error, careful = ((m.float()(x).double() - exact).norm() / sizes for m in (fast, safe))
    # Rounding to 8 bits of preactivations, hidden units and outputs, each of about 2^-9; only the last one if careful.
    assert 2**-9 / 4 < careful < 2**-9
    assert careful < error < 2**-6
    assert fast(x).dtype == torch.bfloat16
    torch.testing.assert_close(fast(x.float()), safe(x.float()), rtol=0, atol=0)  # nothing to gain in 32 bits
    fused = compiled(fast, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(fused(x), fast(x), rtol=2**-6, atol=float(sizes) * 1e-4)


def test_sixteen_bit_module_computes_in_float32():
    module = polynomial().to_torch().to(torch.bfloat16)
    x = tensor(50, 4, dtype=torch.bfloat16)
    exact = copy.deepcopy(module).double()(x.double())
    assert module.series_plain.dtype == torch.bfloat16
    torch.testing.assert_close(module(x), exact.to(torch.bfloat16), rtol=1e-2, atol=1e-3)
    assert module(x.float()).sub(exact).abs().max() < 1e-4


@pytest.mark.parametrize("given", [torch.float32, torch.float64])
@pytest.mark.parametrize("own", [torch.float32, torch.float64])
def test_output_has_the_dtype_of_the_input(given, own):
    module = polynomial().to_torch().to(own)
    assert module(tensor(5, 4, dtype=given)).dtype == given


def test_integer_input_is_refused():
    with pytest.raises(TypeError, match="floating"):
        polynomial().to_torch()(torch.ones(5, 4, dtype=torch.int64))


@both
def test_state_dict_round_trip(gated, tmp_path):
    module = polynomial(gated).to_torch()
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other = copy.deepcopy(module)
    for buffer in other.buffers():
        buffer.zero_()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    torch.testing.assert_close(other(tensor(5, 4)), module(tensor(5, 4)), rtol=0, atol=0)
    names = {f"units_{name}" for name in ("directions", "shifts", "scales", "bias")} | {
        "series_plain",
        "readout",
        "bias",
    }
    gate = {f"units_gate_{name}" for name in ("directions", "shifts", "slopes", "bias")} | {"series_gated"}
    assert set(module.state_dict()) == (names | gate if gated else names)


@both
def test_state_dict_of_another_polynomial_of_the_same_shape(gated):
    module, other = (p.bounded(2.0).to_torch() for p in (polynomial(gated), 2.0 * polynomial(gated)))
    x = tensor(5, 4)
    expected = 2.0 * polynomial(gated).bounded(2.0)(x)
    missing = other.load_state_dict(module.state_dict(), strict=True)
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    torch.testing.assert_close(2.0 * other(x), expected)
    with pytest.raises(RuntimeError, match="size mismatch"):
        polynomial(gated, degree=2).bounded(2.0).to_torch().load_state_dict(module.state_dict())


@both
def test_sixteen_bit_coefficients_are_rounded_once(gated):
    module = polynomial(gated).to_torch().float()
    x = tensor(50, 4, dtype=torch.float32)
    rounded = copy.deepcopy(module).to(torch.bfloat16)
    back = copy.deepcopy(rounded).float()
    torch.testing.assert_close(rounded(x), back(x), rtol=0, atol=0)
    size = module(x).abs().max()
    assert (rounded(x) - module(x)).abs().max() < 0.05 * size  # 8 bits in every coefficient


@both
def test_training_mode_and_copies(gated):
    module, x = polynomial(gated).bounded(1.5).to_torch(), tensor(50, 4)
    expected = module(x)
    for other in (copy.deepcopy(module), module.train(), module.eval(), nn.Sequential(module).train()):
        torch.testing.assert_close(other(x), expected, rtol=0, atol=0)


@both
def test_gradients_of_input_and_coefficients(gated):
    module = polynomial(gated).to_torch()
    x = tensor(3, 4, seed=3).requires_grad_()
    # The biases of the units are kept for `bounded`; a polynomial that has its series no longer needs them.
    used = {name: b.requires_grad_() for name, b in module.named_buffers() if not re.search("units.*_bias", name)}
    module(x).square().sum().backward()
    assert all(bool((b.grad != 0).any()) for b in (x, *used.values()))

    def value(x, *buffers):
        return torch.func.functional_call(module, dict(zip(used, buffers, strict=True)), (x,))

    assert torch.autograd.gradcheck(value, (x, *used.values()))


# -- a bound on the preactivations -----------------------------------------------------------------


@both
def test_bound_changes_nothing_inside(gated):
    poly, x = polynomial(gated), tensor(200, 4)
    reach = poly.units.standardise(poly.forms_at(x)[0]).abs().max().item()
    torch.testing.assert_close(poly.bounded(1.01 * reach).to_torch()(x), poly(x), rtol=0, atol=0)
    assert not torch.allclose(poly.bounded(0.5 * reach).to_torch()(x), poly(x))


@both
@pytest.mark.parametrize("bound", [1.0, 4.0])
def test_bound_is_a_line_from_the_clamped_preactivation(gated, bound):
    """One neuron at a time, in powers: A(y) + z B(y) with y = w.x held, and z = v.x; beyond it the chords."""
    poly, x = polynomial(gated), 5 * tensor(200, 4)
    a, b = poly.powers()
    units, lines = poly.units, poly.bounded(bound)
    y = x @ units.directions.T
    held = torch.maximum(torch.minimum(y, units.shifts + bound * units.scales), units.shifts - bound * units.scales)
    assert (held != y).any()
    excess = (y - held) / units.scales
    hidden = sum(c * held**k for k, c in enumerate(a))
    hidden = hidden + excess * torch.where(excess < 0, lines.slopes[0], lines.slopes[1])
    if gated:
        z = x @ units.gate.directions.T
        e = z - units.gate.shifts - units.gate.slopes * (held - units.shifts) / units.scales
        hidden = hidden + z * sum(c * held**k for k, c in enumerate(b))
        hidden = hidden + e * excess * torch.where(excess < 0, lines.gate_slopes[0], lines.gate_slopes[1])
    expected = poly.read_out(hidden)
    torch.testing.assert_close(lines.to_torch()(x), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(lines(x), expected, rtol=1e-9, atol=1e-9)


@both
@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_bound_in_every_library(gated, library, tmp_path):
    poly, x = polynomial(gated).bounded(2.0), 5 * tensor(20, 4)
    expected = poly(x).detach().numpy()
    poly.save(tmp_path / "p.safetensors")
    other = mp.load(tmp_path / "p.safetensors", library=library)
    found = np.asarray(other(from_numpy(x.numpy().astype(to_numpy(other.bounds).dtype), library)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * abs(expected).max())  # JAX is in float32


@both
def test_bound_tames_growth(gated):
    poly, x = polynomial(gated, degree=5), tensor(50, 4)
    far = poly.bounded(3.0).to_torch()
    growth = far(1e4 * x).norm() / far(1e3 * x).norm()
    assert growth < 110 if gated else growth < 11  # like the units themselves: linear, times the second factor
    assert poly(1e4 * x).norm() / poly(1e3 * x).norm() > 1e4


@pytest.mark.parametrize("bound", [0, -1.0, float("nan"), float("inf"), "4", True])
def test_bound_must_be_positive(bound):
    with pytest.raises(ValueError, match="bound must be a positive number of standard deviations"):
        polynomial().bounded(bound)


@pytest.mark.parametrize("kind", ["dense 2", "chaos 3"])
def test_bound_needs_neurons(kind):
    with pytest.raises(TypeError, match=r"has no neurons .* one Gaussian or with method='neuronwise'"):
        other_polynomial(kind).bounded(4.0)


def test_bound_is_shown():
    module = polynomial().bounded(4).to_torch()
    assert "bound=4" in repr(module)
    assert "BoundedPolynomial" in repr(module.to("meta"))  # whose numbers cannot be read


@both
def test_polynomial_of_a_module(gated):
    poly = polynomial(gated)
    back = poly.to_torch().polynomial
    assert back.source == poly.source
    torch.testing.assert_close(back(tensor(5, 4)), poly(tensor(5, 4)))
    torch.testing.assert_close(back.truncate(1)(tensor(5, 4)), poly.truncate(1)(tensor(5, 4)))


# -- polynomials out, in dense and chaos form ------------------------------------------------------

FORMS = ["dense 0", "dense 1", "dense 2", "chaos 1", "chaos 3"]
forms = pytest.mark.parametrize("form", FORMS)


def other_polynomial(form, dtype=torch.float64):
    rng = np.random.default_rng(0)
    roots, means = 0.5 * rng.standard_normal((2, 4, 4)), rng.standard_normal((2, 4))
    parts = (np.array([0.5, 0.5]), means, roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(4))
    inputs = mp.GaussianMixture(*(torch.tensor(p, dtype=dtype) for p in parts))
    net = from_torch(sequential(nn.GELU()).to(dtype))
    degree = int(form[-1])
    return mp.fit(net, inputs, degree) if form.startswith("dense") else mp.fit(net, inputs, 3).truncate(degree)


@forms
def test_other_forms_at_any_leading_axes(form):
    poly = other_polynomial(form)
    module = poly.to_torch()
    for shape in [(4,), (5, 4), (2, 3, 4), (0, 4)]:
        torch.testing.assert_close(module(tensor(*shape)), poly(tensor(*shape)), rtol=0, atol=0)
    back = module.polynomial
    assert type(back) is type(poly)
    assert back.source == poly.source == module.source
    assert back.inputs is None
    torch.testing.assert_close(back(tensor(5, 4)), poly(tensor(5, 4)), rtol=0, atol=0)
    assert f"degree={poly.degree}, 4 -> 3" in repr(module)


@forms
def test_other_forms_from_numpy(form):
    poly = other_polynomial(form)
    fields = {k: v.numpy() for k, v in poly.to_torch().named_buffers()}
    for a in fields.values():
        a.flags.writeable = False
    extra = {"exponents": poly.exponents} if form.startswith("chaos") else {}
    as_numpy = type(poly)(**fields, **extra)
    x = tensor(5, 4)
    torch.testing.assert_close(as_numpy.to_torch()(x), poly(x), rtol=1e-12, atol=1e-12)


@forms
def test_other_forms_own_their_numbers(form, tmp_path):
    poly = other_polynomial(form)
    module, x = poly.to_torch(), tensor(5, 4)
    expected = poly(x)
    poly.center.add_(1)
    torch.testing.assert_close(module(x), expected, rtol=0, atol=0)
    assert not list(module.parameters())
    torch.save(module.state_dict(), tmp_path / "state.pt")
    copied = copy.deepcopy(module)
    for buffer in copied.buffers():
        buffer.zero_()
    copied.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    torch.testing.assert_close(copied(x), expected, rtol=0, atol=0)
    names = (
        {"center", "whitener", "values"} if form.startswith("chaos") else {"center", "constant", "linear", "quadratic"}
    )
    missing = {"dense 0": {"linear", "quadratic"}, "dense 1": {"quadratic"}}.get(form, set())
    assert set(module.state_dict()) == names - missing


@forms
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_forms_keep_the_dtype_of_the_input(form, dtype):
    module = other_polynomial(form).to_torch().float()
    x = tensor(50, 4, dtype=dtype)
    out = module(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out, module(x.float()).to(dtype), rtol=0, atol=0)


@forms
def test_other_forms_move_and_differentiate(form):
    poly = other_polynomial(form)
    meta = poly.to_torch().to("meta")
    assert meta(torch.empty(5, 4, dtype=torch.float64, device="meta")).shape == (5, 3)
    x = tensor(4).requires_grad_()
    poly.to_torch()(x)[1].backward()
    torch.testing.assert_close(x.grad, poly.gradient(x.detach())[1])


@forms
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
def test_other_forms_compile(form):
    module = other_polynomial(form).to_torch()
    # The chaos form looks up its exponents, which torch.compile does outside the graph.
    fused = compiled(module, backend="aot_eager", fullgraph=form.startswith("dense"))
    torch.testing.assert_close(fused(tensor(5, 4)), module(tensor(5, 4)))


def test_repr_and_errors():
    assert "degree=3, 4 -> 3" in repr(polynomial().to_torch())
    with pytest.raises(TypeError, match=r"polynomial must be made by mlpoly\.fit"):
        PolynomialModule(nn.Linear(2, 2))


def test_moves_between_devices():
    module = polynomial().to_torch().to("meta")
    assert module(torch.empty(5, 4, dtype=torch.float64, device="meta")).shape == (5, 3)


def test_gradient_with_respect_to_the_input():
    poly = polynomial()
    x = tensor(4).requires_grad_()
    poly.to_torch()(x)[1].backward()
    torch.testing.assert_close(x.grad, poly.gradient(x.detach())[1])


@both
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, None), (torch.bfloat16, None), (torch.float32, 1.0)])
def test_compiles_without_graph_breaks(gated, dtype, bound):
    poly = polynomial(gated)
    module = (poly if bound is None else poly.bounded(bound)).to_torch().float()
    fused = compiled(module, backend="aot_eager", fullgraph=True)
    x = tensor(5, 4, dtype=dtype)
    torch.testing.assert_close(fused(x), module(x), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@both
@pytest.mark.filterwarnings("ignore")
def test_compiles_with_inductor(gated):
    module = polynomial(gated).bounded(2.0).to_torch()
    x = tensor(5, 4)
    try:
        out = compiled(module, fullgraph=True)(x)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        pytest.skip(f"no compiler for inductor: {str(error)[:80]}")
    torch.testing.assert_close(out, module(x))
