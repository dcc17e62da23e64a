"""Networks from files: against the modules whose weights they hold; nothing in a file is run."""

import pickle
from collections import OrderedDict
from itertools import pairwise

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import save_file
from support.mistakes import assert_explained, mistakes
from torch import nn

import mlpoly as mp
from mlpoly.importers.model_files import network_from_state, read_network

X = np.random.default_rng(0).normal(size=(30, 4))


def prepared(module):
    """The module in float64 and evaluation mode, with normal weights and running statistics."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.normal_().add_("norm" in name)
        for name, b in module.named_buffers():
            if "running" in name:
                b.uniform_(0.5, 2.0)
    return module.double().eval()


def assert_same(net, module):
    expected = module(torch.tensor(X)).detach().numpy()
    assert net.prototype.dtype == np.float64
    np.testing.assert_allclose(net(X), expected, rtol=1e-11, atol=1e-11)


class Named(nn.Module):
    """Linear layers under any names, in the order given, with a tanh between them."""

    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        first, *others = self.children()
        x = first(x)
        for layer in others:
            x = layer(torch.tanh(x))
        return x


DEEP = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
MODULES = {
    "sequential": DEEP,
    "square": nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4, bias=False)),
    "numbered": Named(fc1=nn.Linear(4, 6), fc2=nn.Linear(6, 6), fc3=nn.Linear(6, 2)),
    "eleven": Named(**{f"layer{i}": nn.Linear(4, 4) for i in range(11)}),
    "prefix": Named(net=nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))),
    "one": nn.Linear(4, 3),
    # Numbers that are missing are those of activations: between the others there is none.
    "two maps in a row": nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 5), nn.Tanh(),
                                       nn.Linear(5, 3)),
    "low rank": nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2), nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3)),
    "wide": nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 7), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)),
    "bottleneck": nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 4)),
    "one bottleneck": Named(fc1=nn.Linear(4, 2), fc2=nn.Linear(2, 4)),  # an activation is named, so there is one
}  # fmt: skip
UNNUMBERED = {
    "head": Named(hidden1=nn.Linear(4, 6), hidden2=nn.Linear(6, 6), head=nn.Linear(6, 2)),
    "words": Named(up_proj=nn.Linear(4, 6), down_proj=nn.Linear(6, 3)),
}


def saved(module, path):
    state = module if isinstance(module, dict) else module.state_dict()
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
@pytest.mark.parametrize("name", MODULES)
def test_state_dicts(name, ending, tmp_path):
    module = prepared(MODULES[name])
    net = read_network(saved(module, tmp_path / f"model{ending}"), "tanh")
    assert_same(net, module)


@pytest.mark.parametrize("name", UNNUMBERED)
def test_the_order_of_names_without_numbers_is_that_of_a_state_dict(name, tmp_path):
    module = prepared(UNNUMBERED[name])
    for ending in (".pt", ".pth", ".bin", ".ckpt"):
        assert_same(read_network(saved(module, tmp_path / f"model{ending}"), "tanh"), module)
    with pytest.raises(ValueError, match=r"do not show the order of the layers; pass them in order .*from_layers"):
        read_network(saved(module, tmp_path / "model.safetensors"), "tanh")


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_checkpoints(key, tmp_path):
    module = prepared(DEEP)
    inside = OrderedDict((f"module.net.{name}", p) for name, p in module.state_dict().items())
    torch.save({key: inside, "epoch": 3, "lr": 0.1}, tmp_path / "model.ckpt")
    assert_same(read_network(tmp_path / "model.ckpt", "tanh"), module)


def test_an_activation_for_each_layer(tmp_path):
    module = prepared(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)))
    assert_same(read_network(saved(module, tmp_path / "model.pt"), ["relu", "tanh"]), module)


class Factored(nn.Module):
    """A linear map of low rank in its middle, or an activation between its two parts."""

    def __init__(self, between):
        super().__init__()
        self.enter, self.a, self.b, self.leave = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(2, 6), nn.Linear(6, 3)
        self.between = between

    def forward(self, x):
        low = self.a(torch.tanh(self.enter(x)))
        return self.leave(torch.tanh(self.b(torch.tanh(low) if self.between else low)))


@pytest.mark.parametrize("between", [True, False])
def test_the_activation_in_a_bottleneck_has_to_be_given(between, tmp_path):
    module = prepared(Factored(between))
    place = saved(module, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"a and b map 6 -> 2 -> 6 values") as caught:
        read_network(place, "tanh")
    ways = ["tanh", "tanh", "tanh"], ["tanh", None, "tanh"]
    assert all(str(way) in str(caught.value) for way in ways)
    for way in (ways[0],) if between else (ways[1], ["tanh", "identity", "tanh"]):
        net = read_network(place, way)
        assert net.activation_names == "tanh"
        assert_same(net, module)
    flax = {}
    for name, layer in module.named_children():
        flax |= {f"{name}.kernel": layer.weight.detach().numpy().T, f"{name}.bias": layer.bias.detach().numpy()}
    with pytest.raises(ValueError, match=r"a and b map 6 -> 2 -> 6 values"):
        network_from_state(flax, "tanh")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_dtypes(dtype, tmp_path):
    module = prepared(DEEP).to(dtype)
    net = read_network(saved(module, tmp_path / "model.pt"), "tanh")
    assert net.prototype.dtype == np.float32
    expected = DEEP.double()(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(net(X), expected, rtol=1e-4, atol=1e-4)


class Gated(nn.Module):
    def __init__(self, names, inner=nn.Linear):
        super().__init__()
        self.names = names
        for name, sizes in zip(names, [(4, 6), (4, 6), (6, 3)], strict=True):
            setattr(self, name, inner(*sizes))

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(nn.functional.silu(gate(x)) * up(x))


@pytest.mark.parametrize(
    "names", [("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"), ("wi_0", "wi_1", "wo")], ids=str
)
def test_gated_units(names, tmp_path):
    module = prepared(Gated(names))
    state = {f"layers.0.mlp.{name}": p for name, p in module.state_dict().items()}
    net = read_network(saved(state, tmp_path / "model.safetensors"), "silu")
    assert repr(net) == "GLU(4 -> 6 -> 3, silu)"
    assert_same(net, module)


def test_layouts_of_other_libraries():
    rng = np.random.default_rng(0)
    W, b, V, c = rng.normal(size=(4, 4)), rng.normal(size=4), rng.normal(size=(4, 4)), rng.normal(size=4)
    expected = np.tanh(X @ W + b) @ V + c
    flax = {"Dense_0.kernel": W, "Dense_0.bias": b, "Dense_1.kernel": V, "Dense_1.bias": c}
    np.testing.assert_allclose(network_from_state(flax, "tanh")(X), expected, rtol=1e-12)
    plain = {"W1": W, "b1": b, "W2": V, "b2": c}
    np.testing.assert_allclose(network_from_state(plain, "tanh", "in_out")(X), expected, rtol=1e-12)
    transposed = {"W1": W.T, "b1": b, "W2": V.T, "b2": c}
    np.testing.assert_allclose(network_from_state(transposed, "tanh")(X), expected, rtol=1e-12)


def test_onnx_files(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
        agraph (double[N, 2] x) => (double[N, 2] y) <double[2, 2] W = {1.0, 2.0, 3.0, 4.0}> {
            h = MatMul (x, W)
            y = Relu (h)
        }"""
    onnx.save(onnx.parser.parse_model(text), str(tmp_path / "model.onnx"))
    net = read_network(tmp_path / "model.onnx")
    assert repr(net) == "MLP(2 -> 2 -> 2, relu)"
    with pytest.raises(ValueError, match="holds its activations"):
        read_network(tmp_path / "model.onnx", "relu")


class Trap:
    """An object whose pickle runs code."""

    def __reduce__(self):
        return exec, ("from pathlib import Path; Path('ran').touch()",)


@pytest.mark.parametrize("ending", [".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib"])
def test_no_code_is_run(ending, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / f"model{ending}"
    for write in (lambda: place.write_bytes(pickle.dumps(Trap())), lambda: torch.save({"0.weight": Trap()}, place)):
        write()
        with pytest.raises(ValueError, match="would run"):
            read_network(place, "relu")
        assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Trap()))
    assert (tmp_path / "ran").exists()  # the trap works


def linears(*sizes):
    return {f"{2 * i}.weight": np.ones((o, d)) for i, (d, o) in enumerate(pairwise(sizes))}


def state(**options):
    names = {name.replace("__", "."): a for name, a in options.items()}
    return lambda: network_from_state(names, "relu", ordered=False)


FROM_TORCH = r"mlpoly\.from_torch\(model"


@mistakes(
    [
        ("no activation", lambda: network_from_state(linears(4, 6, 3)), ValueError, "do not show the activation",
         "--activation relu"),
        ("convolution", state(conv__weight=np.ones((2, 1, 3, 3)), fc__weight=np.ones((3, 2))), ValueError,
         "'conv' has a weight of shape .* a convolution", FROM_TORCH),
        ("layer norm", state(norm__weight=np.ones(4), fc__weight=np.ones((3, 4))), ValueError, "a normalisation"),
        ("bias alone", state(fc__bias=np.ones(4)), ValueError, "no weight"),
        ("other names", state(embed=np.ones((4, 4)), fc__weight=np.ones((3, 4))), ValueError, "'embed' is not",
         "mlpoly lm"),
        ("order", state(encoder__weight=np.ones((2, 5)), decoder__weight=np.ones((5, 2))), ValueError,
         "names decoder, encoder do not show the order", "from_layers"),
        ("sizes", lambda: network_from_state(linears(4, 6) | {"2.weight": np.ones((3, 5))}, "relu"), ValueError,
         "takes 5 inputs", "layout"),
        ("batch norm", state(fc1__weight=np.eye(4), bn__running_mean=np.zeros(4)), ValueError,
         r"a batch norm \(bn\)", FROM_TORCH),
        ("activations", lambda: network_from_state(linears(4, 6, 3), ["relu"] * 2), ValueError, "activation has 2"),
        ("ending", lambda: read_network("model.h5"), ValueError, "not a kind of file", r"\.safetensors, \.pt"),
        ("missing", lambda: read_network("nosuch.pt"), FileNotFoundError, "no file nosuch.pt"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_files_that_hold_something_else(tmp_path):
    module = prepared(DEEP)
    place = tmp_path / "model.pt"
    torch.save(module, place)
    with pytest.raises(ValueError, match=r"a whole module.*torch\.save\(model\.state_dict\(\), path\)"):
        read_network(place, "tanh")
    for content, said in (([1, 2], "a list"), ({"epoch": 3}, "'epoch'"), (torch.ones(3), "a Tensor"), ({}, "nothing")):
        torch.save(content, place)
        with pytest.raises(ValueError, match=f"holds .*{said}.*, not a state dict; save the weights alone"):
            read_network(place, "tanh")
    poly = mp.fit(mp.MLP(np.eye(2)), mp.Gaussian.standard(2), 2)
    poly.save(tmp_path / "poly.safetensors")
    with pytest.raises(ValueError, match=r"RidgePolynomial.* holds no network; mlpoly\.load reads a polynomial"):
        read_network(tmp_path / "poly.safetensors", "tanh")


def test_damaged_files(tmp_path):
    module = prepared(DEEP)
    for ending in (".pt", ".safetensors"):
        place = saved(module, tmp_path / f"model{ending}")
        whole = place.read_bytes()
        for content in (b"", whole[: len(whole) // 2], b"not a model"):
            place.write_bytes(content)
            with pytest.raises(
                mp.FileFormatError, match=r"is damaged|not a file of PyTorch, or damaged|not a readable"
            ):
                read_network(place, "tanh")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_archives_of_torchscript_are_code(tmp_path):
    torch.jit.trace(prepared(nn.Linear(4, 3)), torch.tensor(X)).save(tmp_path / "script.pt")
    with pytest.raises(ValueError, match="would run code; save the weights alone"):
        read_network(tmp_path / "script.pt", "tanh")
