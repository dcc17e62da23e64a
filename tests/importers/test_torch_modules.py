"""Torch modules in: each network against the module in evaluation mode, and an error for everything else."""

import copy
import functools
from itertools import pairwise

import pytest
import torch
from support.mistakes import assert_explained, mistakes
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune

import mlpoly as mp
from mlpoly.importers import find_blocks, from_torch
from mlpoly.importers.torch import activation_from_torch, register_adapter
from mlpoly.records import arrays_of, map_arrays

Norm = nn.modules.batchnorm._BatchNorm


def prepared(module, dtype=torch.float64):
    """The module in evaluation mode, with normal weights and running statistics."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in module.modules():
            for name, p in part.named_parameters(recurse=False):
                scale, mean = p.shape[-1] ** -0.5 if p.ndim == 2 else 0.5, isinstance(part, Norm) and name == "weight"
                p.copy_(mean + scale * torch.randn(p.shape, generator=generator))
            if isinstance(part, Norm) and part.running_mean is not None:
                part.running_mean.normal_(generator=generator)
                part.running_var.uniform_(0.5, 2.0, generator=generator)
    return module.to(dtype).eval()


def points(d=4, n=50):
    return 2 * torch.randn(n, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def assert_same(net, module, x=None, tolerance=1e-12):
    x = points(net.dim_in) if x is None else x
    found, expected = net(x), module(x)
    assert found.shape == expected.shape
    assert float((found - expected).detach().abs().max()) <= tolerance * float(expected.detach().abs().max())
    assert float(expected.detach().std()) > 1e-2  # the comparison is of something


def perceptron(*sizes, activation=nn.ReLU):
    layers = [part for pair in pairwise(sizes) for part in (activation(), nn.Linear(*pair))]
    return nn.Sequential(*layers[1:])


class Net(nn.Module):
    """Any parts, by name in the order given, and a function of the module and its input as forward."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


class Residual(nn.Module):
    """The names are those of blocks of transformers, which add nothing."""

    def __init__(self, d=4, h=6, factor=1.0):
        super().__init__()
        self.fc1, self.act, self.fc2, self.factor = nn.Linear(d, h), nn.Tanh(), nn.Linear(h, d), factor

    def forward(self, x):
        return x + self.factor * self.fc2(self.act(self.fc1(x)))


class Gated(nn.Module):
    def __init__(self, d=4, h=6):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(d, h), nn.Linear(d, h), nn.Linear(h, d)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


ACTIVATIONS = [
    *(nn.Identity(), nn.ReLU(), nn.LeakyReLU(), nn.LeakyReLU(0.3), nn.ReLU6(), nn.RReLU(0.1, 0.4), nn.PReLU(init=0.3)),
    *(nn.Threshold(0.2, -0.5), nn.Hardtanh(), nn.Hardtanh(-0.4, 0.9), nn.Hardsigmoid(), nn.Hardswish(), nn.GELU()),
    *(nn.GELU(approximate="tanh"), nn.SiLU(), nn.Sigmoid(), nn.LogSigmoid(), nn.Tanh(), nn.Tanhshrink(), nn.Mish()),
    *(nn.Softsign(), nn.Softplus(), nn.Softplus(beta=3.0), nn.ELU(), nn.ELU(alpha=0.4), nn.SELU(), nn.CELU(alpha=0.7)),
]


def block(activation=None):
    return prepared(nn.Sequential(nn.Linear(4, 6), nn.GELU() if activation is None else activation, nn.Linear(6, 3)))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_activations(activation):
    # Softplus is replaced by the identity above 20 / beta in PyTorch, an error of 2e-9.
    tolerance = 1e-8 if isinstance(activation, nn.Softplus) else 1e-13
    y = torch.linspace(-9, 9, 1801, dtype=torch.float64)
    expected = activation.double().eval()(y).detach()
    torch.testing.assert_close(activation_from_torch(activation)(y), expected, rtol=1e-12, atol=tolerance)
    module, x = block(activation), points().reshape(5, 10, 4)
    torch.testing.assert_close(from_torch(module)(x), module(x), rtol=1e-12, atol=10 * tolerance)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        assert torch.isfinite(x).all()  # which cannot be followed
        return self.down(torch.sin(self.up(x)))


def adapt(block):
    return mp.MLP(block.up.weight, block.up.bias, block.down.weight, block.down.bias, activation="sin")


@pytest.mark.parametrize("matches", [Block, lambda m: type(m).__name__ == "Block"], ids=["type", "predicate"])
def test_adapter(adapters, matches):
    module = Block().double()
    with pytest.raises(TypeError, match=r"cannot follow the forward of Block: line .*register_adapter\(Block"):
        from_torch(module)
    register_adapter(Block, lambda m: 1 / 0)
    register_adapter(matches, adapt)  # the latest wins
    inside = nn.Sequential(module, nn.Linear(3, 2).double())
    for whole in (module, inside):
        assert_same(from_torch(whole), whole)
    register_adapter(Block, lambda m: m.up.weight)
    with pytest.raises(TypeError, match=r"must return an MLP or a GLU, or an mlpoly\.Chain"):
        from_torch(module)
    with pytest.raises(TypeError, match="register_adapter takes"):
        register_adapter("Block", adapt)


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
    assert_same(net, module.eval())


def assert_computes(net, module):
    """The same far out as well, up to the rounding of both in the module's dtype."""
    dtype = net.prototype.dtype
    x = 300 * points().to(dtype)
    exact = module.double()(x.double())
    error = map_arrays(net, lambda a: a.double())(x.double()) - exact
    assert error.norm() <= 8 * torch.finfo(dtype).eps * exact.norm()  # weights that a scale entered are rounded once


dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)


@dtypes
@pytest.mark.parametrize("scale", [1.0, 1.001, 1.00001, 0.99998])
def test_a_scale_beside_one_is_seen(dtype, scale):
    module = Named(scale=scale).to(dtype).eval()
    if dtype.itemsize == 2 and scale != 1:  # the weights have no digits for it
        with pytest.raises(TypeError, match=r"Named is more than its forward.* differs from the network's by 0.*%|e-0"):
            from_torch(module)
    else:
        assert_computes(from_torch(module), module)


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


@pytest.mark.parametrize(("limit", "inside"), [(5.0, True), (500.0, True), (500.0, False)])
@dtypes
def test_limits_far_out_are_seen(dtype, limit, inside):
    module = Limited(limit, inside).to(dtype).eval()
    assert_computes(from_torch(module), module)


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
@dtypes
def test_sines_of_large_numbers_may_be_rounded(dtype):
    register_adapter(Block, adapt)
    assert from_torch(Block().to(dtype)).activation.name == "sin"


@pytest.mark.parametrize("make", [torch.jit.script, lambda module: torch.jit.trace(module, torch.zeros(1, 4))])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused_with_a_remedy(make):
    hidden = make(block().float())
    for act in (from_torch, find_blocks):
        with pytest.raises(TypeError, match=r"\(TorchScript\), which hides its parts; pass the module .*onnx\.export"):
            act(hidden)
    with pytest.raises(TypeError, match=r"\(TorchScript\), which hides its parts; use the module it was made from"):
        from_torch(nn.Sequential(hidden, nn.ReLU()))
    inside = nn.ModuleList([hidden, block()])
    assert [block.name for block in find_blocks(inside)] == ["1"]


@pytest.mark.parametrize("error", [AttributeError("no x"), KeyError("k"), ZeroDivisionError("by zero")], ids=repr)
def test_errors_of_the_module_itself_are_told_as_such(error):
    with pytest.raises(TypeError, match=rf"cannot follow the forward of Named \({type(error).__name__}: ") as caught:
        from_torch(Named(error=error))
    assert caught.value.__cause__ is error


CHANGES = {
    "hook": lambda m: m[0].register_forward_hook(lambda part, args, output: 2 * output),
    "hook of the input": lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
    "patched part": lambda m: setattr(m[0], "forward", lambda x, before=m[0].forward: 1.5 * before(x)),
    "patched": lambda m: setattr(m, "forward", lambda x, before=m.forward: 1.001 * before(x)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_sequential_that_was_changed_is_refused(change):
    module = block()
    change(module)
    with pytest.raises(TypeError, match=r"more than its forward.*differs from the network's by .*%.*Hooks"):
        from_torch(module)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_forward_that_only_wraps_the_old_one_is_no_obstacle(dtype):
    """As accelerate puts one on modules whose weights it moves."""
    module = block().to(dtype)
    module[0].forward = functools.partial(lambda forward, x: forward(x), module[0].forward)
    assert from_torch(module).W1 is module[0].weight


def test_hooks_that_only_watch_are_no_obstacle():
    module, seen = block(), []
    module.register_forward_hook(lambda m, args, output: seen.append(output.shape))
    assert repr(from_torch(module)) == "MLP(4 -> 6 -> 3, gelu)"
    module(points(n=2))
    assert seen[-1] == (2, 3)


COMPUTED = {
    "legacy spectral_norm": nn.utils.spectral_norm,  # before its first run another weight stands there
    "legacy weight_norm": nn.utils.weight_norm,
    "pruning": lambda part: prune.random_unstructured(part, "weight", 0.5),
    "spectral_norm": nn.utils.parametrizations.spectral_norm,  # in training, looking at the weight changes it
    "weight_norm": nn.utils.parametrizations.weight_norm,
    "orthogonal": nn.utils.parametrizations.orthogonal,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("change", COMPUTED.values(), ids=COMPUTED)
def test_weights_that_are_computed(change, training):
    module = block().train(training)
    change(module[0])
    before = [b.clone() for b in module.buffers()]
    net = from_torch(module)
    assert all(torch.equal(a, b) for a, b in zip(before, module.buffers(), strict=True))
    assert module.training is module[0].training is training
    assert_same(net, module.eval())
    net(points()).sum().backward()
    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_lazy_linear():
    module = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(3))
    with pytest.raises(TypeError, match="run one batch"):
        from_torch(module)
    module.double()(points())
    assert_same(from_torch(module), module)


PARTS = {
    "4-6": lambda: nn.Linear(4, 6),
    "6-4": lambda: nn.Linear(6, 4),
    "linear": lambda: nn.Linear(4, 4),
    "unbiased": lambda: nn.Linear(4, 4, bias=False),
    "norm": lambda: nn.BatchNorm1d(4),
    "fixed": lambda: nn.BatchNorm1d(4, eps=0.3, affine=False),
    "sync": lambda: nn.SyncBatchNorm(4),
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "slopes": lambda: nn.PReLU(4),
    "gated": Gated,
    "residual": Residual,
}


ORDERS = {
    "Affine(4 -> 6)": ["4-6", "4-6 6-4 4-6"],
    "Affine(4 -> 4)": ["4-6 6-4", "norm", "norm fixed"],
    "MLP(4 -> 6 -> 6, relu)": ["4-6 relu", "4-6 relu 6-4 4-6"],
    "MLP(4 -> 4 -> 6, relu)": ["relu 4-6"],
    "MLP(4 -> 4 -> 4, relu)": [
        *("4-6 6-4 relu", "linear norm relu linear", "linear relu norm linear", "norm linear relu linear"),
        *("linear relu linear norm", "linear relu norm", "norm relu linear", "linear norm norm relu"),
        *("linear relu norm norm linear", "unbiased norm relu norm unbiased", "linear fixed relu fixed linear"),
        "linear sync relu sync linear",
    ],
    "MLP(4 -> 8 -> 4, relu)": ["linear slopes"],
    "GLU(4 -> 6 -> 4, silu)": ["norm gated", "gated norm", "gated norm linear"],
    "Chain(4 -> 6 -> 6)": ["4-6 relu tanh"],
    "Chain(4 -> 4 -> 4 -> 6)": ["tanh relu 4-6"],
    "Chain(4 -> 4 -> 4 -> 4)": ["linear relu norm tanh linear", "residual norm residual",
                                "norm linear norm relu norm linear norm tanh linear norm"],
    "Chain(4 -> 6 -> 4 -> 4)": ["gated norm relu"],
    "Chain(4 -> 6 -> 4 -> 6 -> 4)": ["4-6 tanh 6-4 tanh 4-6 tanh 6-4"],
    "Chain(4 -> 8 -> 4 -> 8 -> 4)": ["linear slopes linear slopes"],
    "Chain(4 -> 8 -> 4 -> 8 -> 6)": ["linear slopes linear slopes 4-6"],
    "Chain(4 -> 8 -> 4 -> 8 -> 4 -> 4)": ["linear slopes linear slopes relu"],
}  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), [(words, shown) for shown in ORDERS for words in ORDERS[shown]])
def test_parts_in_any_order(words, expected):
    module = prepared(nn.Sequential(*(PARTS[word]() for word in words.split())))
    before = copy.deepcopy(module.state_dict())
    net = from_torch(module)
    assert repr(net) == expected
    assert_same(net, module)
    net(points()).square().sum().backward()
    got = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    module(points()).square().sum().backward()
    for gradient, p in zip(got, module.parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad, rtol=1e-9, atol=1e-9 * float(p.grad.abs().max()))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_the_parameters_are_those_of_the_module():
    module = prepared(perceptron(4, 6, 5, 3))
    net = from_torch(module)
    assert {id(a) for a in arrays_of(net).values()} == {id(p) for p in module.parameters()}
    with torch.no_grad():
        module[2].weight += 1.0
    assert_same(net, module)


def test_nested_sequentials_and_parts_that_do_nothing():
    inner = nn.Sequential(nn.Linear(12, 6), nn.Dropout(0.5), nn.Sequential(nn.GELU(), nn.AlphaDropout()))
    other = nn.Sequential(nn.Linear(6, 5), nn.Tanh())
    module = nn.Sequential(nn.Flatten(), inner, nn.Identity(), other, nn.Linear(5, 2))
    net = from_torch(prepared(module))
    assert repr(net) == "Chain(12 -> 6 -> 5 -> 2)"
    x = points(12)
    torch.testing.assert_close(net(x), module(x.reshape(-1, 3, 4)), rtol=1e-12, atol=1e-12)
    assert repr(from_torch(module.train())) == repr(net)  # Dropout does not matter


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(dtype):
    x = points().float()
    for parts in (
        [*perceptron(4, 6, 5, 3)],
        [nn.Linear(4, 6), nn.BatchNorm1d(6), nn.GELU(), nn.Linear(6, 3)],
        [nn.Linear(4, 6), nn.PReLU(6), nn.Linear(6, 3)],
        [Residual(), nn.Linear(4, 3)],
    ):
        module = prepared(nn.Sequential(*parts), dtype)
        net = from_torch(module)
        assert {a.dtype for a in arrays_of(net).values()} == {dtype}
        exact = copy.deepcopy(module).double()(x.double())
        error = (net.to(torch.zeros(1, dtype=torch.float64))(x.double()) - exact).norm() / exact.norm()
        assert error < 4 * torch.finfo(dtype).eps  # of the folded weights; the others are the module's own


def test_batch_norm_in_float32_among_weights_in_16_bits():
    module = prepared(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)), torch.bfloat16)
    module[1].float()
    assert from_torch(module).W1.dtype == torch.bfloat16
    with pytest.raises(TypeError, match=r"different kinds \(torch.bfloat16 on cpu, torch.float32 on cpu\); convert"):
        from_torch(nn.Sequential(*module, nn.ReLU(), nn.Linear(3, 3)))


def test_other_devices():
    parts = [nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 6), nn.PReLU(6), nn.Linear(6, 4), Residual(), nn.BatchNorm1d(4)]
    net = from_torch(nn.Sequential(*parts).eval().to("meta"))
    assert {a.device.type for a in arrays_of(net).values()} == {"meta"}
    assert net(torch.empty(5, 4, device="meta")).shape == (5, 4)


def test_what_torch_compile_made():
    module = prepared(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), Residual(6), nn.Linear(6, 3)))
    inside = nn.Sequential(*module[:2], torch.compile(module[2], backend="eager"), module[3])
    for compiled in (torch.compile(module, backend="eager"), inside):
        net = from_torch(compiled)
        assert net.layers[0].W1 is module[0].weight
        assert_same(net, module)


def in_order(module, x):
    for part in module.children():
        x = part(x)
    return x


def one_activation(module, x):
    for part in module.layers[:-1]:
        x = module.act(part(x))
    return module.layers[-1](x)


def residual(module, x):
    return x + in_order(module, x)


def parts(*sizes):
    return {f"part_{i}": part for i, part in enumerate(perceptron(*sizes, activation=nn.GELU))}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Net(in_order, **parts(4, 6, 5, 6, 7, 3)), "Chain(4 -> 6 -> 5 -> 6 -> 7 -> 3)"),
        (Net(in_order, flat=nn.Flatten(), body=perceptron(4, 6, 5), act=nn.Tanh(), head=nn.Linear(5, 2)),
         "Chain(4 -> 6 -> 5 -> 2)"),
        (Net(lambda m, x: m.net(x.reshape(len(x), -1)), net=perceptron(4, 6, 5, 3)), "Chain(4 -> 6 -> 5 -> 3)"),
        (Net(one_activation, layers=nn.ModuleList([nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 4)]), act=nn.GELU()),
         "Chain(4 -> 6 -> 5 -> 4)"),
        (Net(lambda m, x: m.fc2(m.act(m.norm(m.fc1(x)))), act=nn.GELU(), fc1=nn.Linear(4, 6), norm=nn.BatchNorm1d(6),
             fc2=nn.Linear(6, 3)), "MLP(4 -> 6 -> 3, gelu)"),
        (Net(residual, **parts(4, 6, 4)), "Residual(MLP(4 -> 6 -> 4, gelu))"),
        (Net(residual, **parts(4, 6, 5, 4)), "Residual(Chain(4 -> 6 -> 5 -> 4))"),
        (Net(residual, norm=nn.BatchNorm1d(4), **parts(4, 6, 4)), "Residual(MLP(4 -> 6 -> 4, gelu))"),
        (Net(residual, inner=Residual()), "Residual(Residual(MLP(4 -> 6 -> 4, tanh)))"),
        (Net(lambda m, x: x + one_activation(m, x), layers=nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]),
             act=nn.ReLU()), "Residual(MLP(4 -> 4 -> 4, relu))"),
        (Residual(), "Residual(MLP(4 -> 6 -> 4, tanh))"),
        (Residual(h=4), "Residual(MLP(4 -> 4 -> 4, tanh))"),
        (Net(in_order, gated=Gated(), again=Gated()), "Chain(4 -> 6 -> 4 -> 6 -> 4)"),
    ],
)  # fmt: skip
def test_classes(module, expected):
    module = prepared(module)
    net = from_torch(module)
    assert repr(net) == expected
    assert_same(net, module)
    net(points()).square().sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def in_parts(*bounds):
    """A gated unit over slices of one product."""

    def forward(m, x):
        gate, up = (m.a(x)[..., slice(*pair)] for pair in bounds)
        return m.b(functional.silu(gate) * up)

    return forward


def chunked(m, x):
    gate, up = m.a(x).chunk(2, dim=-1)
    return m.b(torch.sigmoid(gate) * up)


def gelu_by_hand(m, x):
    h = m.a(x)
    return m.b(0.5 * h * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h**3))))


def masked(m, x, mask=None):
    return m.b(torch.relu(m.a(x if mask is None else x * mask)))


FORWARDS = {
    "relu": (lambda m, x: m.b(functional.relu(m.a(x))), "MLP(4 -> 6 -> 3, relu)"),
    "method": (lambda m, x: m.b(m.a(x).relu()), "MLP(4 -> 6 -> 3, relu)"),
    "in place": (lambda m, x: m.b(functional.relu_(m.a(x))), "MLP(4 -> 6 -> 3, relu)"),
    "slope": (lambda m, x: m.b(functional.leaky_relu(m.a(x), 0.2)), "MLP(4 -> 6 -> 3, leaky_relu(0.2))"),
    "tanh gelu": (lambda m, x: m.b(functional.gelu(m.a(x), approximate="tanh")), "MLP(4 -> 6 -> 3, gelu_tanh)"),
    "gelu by hand": (gelu_by_hand, "MLP(4 -> 6 -> 3, gelu_tanh)"),
    "silu by hand": (lambda m, x: (lambda h: m.b(h * torch.sigmoid(h)))(m.a(x)), "MLP(4 -> 6 -> 3, silu)"),
    "square": (lambda m, x: m.b(m.a(x) ** 2), "MLP(4 -> 6 -> 3, square)"),
    "limits": (lambda m, x: m.b(m.a(x).clamp(0, 6)), "MLP(4 -> 6 -> 3, relu6)"),
    "pixels": (lambda m, x: m.b(torch.relu(m.a((x - 0.5) / 0.25))), "MLP(4 -> 6 -> 3, relu)"),
    "images": (lambda m, x: m.b(torch.relu(m.a(x.view(x.size(0), -1)))), "MLP(4 -> 6 -> 3, relu)"),
    "dropout": (lambda m, x: m.b(functional.dropout(m.a(x), 0.5, m.training).tanh()), "MLP(4 -> 6 -> 3, tanh)"),
    "products": (lambda m, x: torch.relu(x @ m.a.weight.T + m.a.bias) @ m.b.weight.t(), "MLP(4 -> 6 -> 3, relu)"),
    "linear": (lambda m, x: functional.linear(torch.relu(m.a(x)), m.b.weight, m.b.bias), "MLP(4 -> 6 -> 3, relu)"),
    "bilinear": (lambda m, x: m.b(m.a(x) * m.c(x)), "GLU(4 -> 6 -> 3, identity)"),
    "gated": (lambda m, x: m.b(functional.silu(m.a(x)) * m.c(x)), "GLU(4 -> 6 -> 3, silu)"),
    "residual": (lambda m, x: (lambda h: h + m.e(torch.relu(m.d(h))))(m.c(x)), "Chain(4 -> 6 -> 6)"),
    "mask": (masked, "MLP(4 -> 6 -> 3, relu)"),
    "low rank": (lambda m, x: m.b(torch.relu(m.a(x) + 0.5 * (x @ m.c.weight[:2].T) @ m.c.weight[:, :2].T)),
                 "MLP(4 -> 6 -> 3, relu)"),
    "einsum": (lambda m, x: m.b(torch.relu(torch.einsum("nd,hd->nh", x, m.a.weight))), "MLP(4 -> 6 -> 3, relu)"),
    "turned around": (lambda m, x: m.b(m.a(x).tanh().flip(-1)), "MLP(4 -> 6 -> 3, tanh)"),
    "heads": (lambda m, x: (lambda h: torch.cat((m.b(h), m.d(h)), 1))(torch.relu(m.a(x))), "MLP(4 -> 6 -> 8, relu)"),
    "difference": (lambda m, x: m.b(torch.relu(m.a(x))) - m.b(torch.relu(m.c(x))), "MLP(4 -> 12 -> 3, relu)"),
    "towers": (lambda m, x: torch.cat([torch.relu(m.a(x)), torch.relu(m.c(x))], dim=-1), "MLP(4 -> 12 -> 12, relu)"),
    "skip": (lambda m, x: torch.cat([torch.relu(m.a(x)), x], dim=-1), "Chain(4 -> 14 -> 14 -> 10)"),
    "shortcut": (lambda m, x: m.b(torch.relu(m.a(x))) + m.b(m.c(x)), "Chain(4 -> 10 -> 10 -> 3)"),
    "twice the input": (lambda m, x: 2 * x - m.d(torch.relu(m.a(x)))[:, :4], "Chain(4 -> 12 -> 12 -> 4)"),
}  # fmt: skip


@pytest.mark.parametrize(("forward", "expected"), FORWARDS.values(), ids=FORWARDS)
def test_forward_is_followed(forward, expected):
    sizes = {"b": (6, 3), "a": (4, 6), "c": (4, 6), "d": (6, 5), "e": (5, 6)}
    module = prepared(Net(forward, **{name: nn.Linear(*size) for name, size in sizes.items()}))
    net = from_torch(module)
    assert repr(net) == expected
    assert_same(net, module)
    mp.fit(net, mp.Gaussian.standard(4), degree=2)(points()).square().sum().backward()
    assert module.a.weight.grad is not None or module.c.weight.grad is not None


@pytest.mark.parametrize(
    ("forward", "activation"),
    [(chunked, "sigmoid"), (in_parts((0, 6), (6, 12)), "silu"), (lambda m, x: m.b(functional.glu(m.a(x))), "sigmoid")],
    ids=["chunk", "slices", "glu"],
)
def test_gated_units_of_one_product(forward, activation):
    module = prepared(Net(forward, a=nn.Linear(4, 12), b=nn.Linear(6, 3)))
    assert repr(from_torch(module)) == f"GLU(4 -> 6 -> 3, {activation})"
    assert_same(from_torch(module), module)


def test_products_of_all_pairs_of_inputs():
    module = prepared(Net(lambda m, x: m.b(m.a(x), m.a(x)), a=nn.Linear(4, 5), b=nn.Bilinear(5, 5, 3)))
    one = prepared(Net(lambda m, x: (lambda h: m.b(h, h))(m.a(x)), a=nn.Linear(4, 5), b=nn.Bilinear(5, 5, 3)))
    assert_same(from_torch(one), one)
    with pytest.raises(TypeError, match="its two inputs are not the same value"):
        from_torch(module)


def test_a_softmax_by_function_is_left_out():
    """The classifier of many a tutorial."""
    module = prepared(Net(lambda m, x: functional.log_softmax(m.b(functional.relu(m.a(x))), dim=1),
                          a=nn.Linear(4, 6), b=nn.Linear(6, 3)))  # fmt: skip
    with pytest.warns(UserWarning, match="leaves out the 'log_softmax' in line .* the logits"):
        net = from_torch(module)
    assert_same(lambda x: torch.log_softmax(net(x), -1), module, points())


@pytest.mark.parametrize(
    "end", [lambda y: y.squeeze(-1), lambda y: y.squeeze(), lambda y: y[:, 0], lambda y: y.view(-1), torch.ravel]
)
def test_a_single_output_without_its_axis(end):
    module = prepared(Net(lambda m, x: end(m.b(torch.relu(m.a(x)))), a=nn.Linear(4, 6), b=nn.Linear(6, 1)))
    assert_same(lambda x: from_torch(module)(x)[:, 0], module, points())


@pytest.mark.parametrize("factor", [0.999, 0.5, 2.0])
@pytest.mark.parametrize("size", [1.0, 1e-2])
def test_a_small_branch_must_be_right_as_well(factor, size):
    module = prepared(Residual(), torch.float32)
    with torch.no_grad():
        for p in module.fc2.parameters():
            p *= size
    assert repr(from_torch(module)) == "Residual(MLP(4 -> 6 -> 4, tanh))"
    module.factor = factor
    assert_same(from_torch(module), module, points().float(), 1e-5)
    module.factor = torch.nn.Parameter(torch.tensor(factor))
    assert_same(from_torch(module), module, points().float(), 1e-5)


def test_blocks_of_models_are_single_layers():
    """Deep networks and residual connections inside a model are not blocks of it."""
    model = nn.ModuleDict({"deep": perceptron(4, 6, 6, 4), "skip": Net(residual, **parts(4, 6, 4)), "gated": Gated()})
    model["block"] = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
    model["mixed"] = nn.Sequential(nn.Linear(4, 4), Residual(), nn.Linear(4, 4))
    model["norm"] = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    # "mixed.1" has the names of a ViT's block, but computes something else.
    assert [b.name for b in find_blocks(model)] == ["gated", "block", "mixed.1"]
    blocks = find_blocks(model)
    assert [type(b.net()) for b in blocks[:2]] == [mp.GLU, mp.MLP]
    with pytest.raises(TypeError, match="net must have one hidden layer here, got Residual"):
        blocks[2].net()


@pytest.mark.parametrize("softmax", [nn.Softmax(-1), nn.Softmax(1), nn.LogSoftmax(-1)], ids=str)
@pytest.mark.parametrize("place", ["sequential", "nested", "class", "named"])
def test_a_softmax_at_the_end_is_left_out(softmax, place):
    logits = perceptron(4, 6, 5, 3)
    module = {
        "sequential": lambda: nn.Sequential(*logits, softmax, nn.Dropout()),
        "nested": lambda: nn.Sequential(logits[:2], Net(in_order, rest=logits[2:], end=nn.Sequential(softmax))),
        "class": lambda: Net(in_order, first=nn.Linear(4, 6), act=nn.ReLU(), rest=logits[2:], softmax=softmax),
        "named": lambda: Net(in_order, fc1=nn.Linear(4, 6), act=nn.ReLU(), fc2=nn.Linear(6, 3), softmax=softmax),
    }[place]()
    prepared(module)
    said = rf"leaves out the {type(softmax).__name__} at the end of .* the logits"
    with pytest.warns(UserWarning, match=said) as seen:
        net = from_torch(module)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert_same(lambda x: softmax(net(x)), module, points())
    assert isinstance(list(module.modules())[-1], (nn.Softmax, nn.LogSoftmax, nn.Dropout))  # it is still there


def refuse(*parts):
    return lambda: from_torch(nn.Sequential(*parts).eval())


def head():
    return [nn.Flatten(), nn.Linear(4, 3)]


def net(function, **parts):
    return lambda: from_torch(Net(function, **parts).eval())


AFFINE = r"on inputs of one size it is affine: its matrix, .* can stand in an mlpoly\.Affine"
DIVIDES = "divides by the size of its own input"
OTHER = r"'mul' in line \d+, .* of Net: it combines two values .* Nor does it compute its parts in their order"
REMEDY = r"remove them, or pass the weights yourself: mlpoly.MLP.*in an mlpoly.Chain, with mlpoly.Residual"


@mistakes(
    [
        ("bilinear", lambda: from_torch(nn.Bilinear(1, 1, 1)), TypeError, "its two inputs are not the same value"),
        ("activation", refuse(nn.Linear(2, 2), nn.Hardshrink()), TypeError, "know the activation Hardshrink; it knows"),
        ("softplus", refuse(nn.Linear(2, 2), nn.Softplus(threshold=1.0)), TypeError, "threshold"),
        ("slopes", lambda: activation_from_torch(nn.PReLU(6)), TypeError, r"PReLU\(6\) is a different function for"),
        ("sizes", refuse(nn.Linear(4, 6), nn.ReLU(), nn.Linear(5, 3)), TypeError,
         r"Affine\(5 -> 3\) takes 5 inputs, but the parts before it give 6"),
        ("training", lambda: from_torch(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))), TypeError,
         "BatchNorm1d is in training mode", r"call module\.eval\(\) first"),
        ("convolution", refuse(nn.Conv2d(1, 2, 3), *head()), TypeError, "Conv2d is not fully connected", AFFINE),
        ("layer norm", refuse(nn.Linear(4, 4), nn.LayerNorm(4), *head()), TypeError, f"LayerNorm {DIVIDES}"),
        ("attention", refuse(nn.MultiheadAttention(4, 2), *head()), TypeError, "Attention mixes the positions"),
        ("transformer layer", refuse(nn.TransformerEncoderLayer(4, 2, 8), *head()), TypeError,
         "TransformerEncoderLayer is more than its feedforward block"),
        ("softmax inside", refuse(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 3)), TypeError,
         "cannot take Softmax of Sequential: it couples its inputs, and stands before the end"),
        ("flatten", refuse(nn.Flatten(0), nn.Linear(4, 4)), TypeError, r"Flatten\(start_dim=0, .* is not passed",
         r"use Flatten\(start_dim=1\)"),
        ("pre-norm", net(lambda m, x: x + m.mlp(m.norm(x)), norm=nn.LayerNorm(4), mlp=perceptron(4, 6, 4)), TypeError,
         f"LayerNorm {DIVIDES}.*But from_torch knows blocks inside, such as 'mlp'"),
        ("product", net(lambda m, x: in_order(m, x) * in_order(m, x), **parts(4, 6, 4)), TypeError, OTHER, REMEDY),
        ("several heads", net(lambda m, x: (m.a(x), x), a=nn.Linear(4, 6)), TypeError, "Net returns a tuple, not one"),
        ("positions", net(lambda m, x: m.b(m.a(x).relu().sum(1)), a=nn.Linear(4, 6), b=nn.Linear(6, 3)), TypeError,
         r"cannot take Net: Affine\(6 -> 3\) takes 6 inputs, but the parts before it give 1"),
        ("sizes in forward", net(lambda m, x: m.b(m.a(x)) if len(x) else x, a=nn.Linear(4, 6), b=nn.Linear(6, 3)),
         TypeError, r"cannot follow the forward of Net \(.*len.*\)", r"torch\.onnx\.export\(.*from_onnx\('m\.onnx'\)"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)
