"""Feedforward blocks of transformers and TransformerLens, in tiny models with random weights.

Each block is compared with the model's own tensors, or with a module that computes the same as there.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from support.tiny_models import SIZES, D
from torch import nn
from torch.nn import functional

import mlpoly as mp
from mlpoly.importers import find_blocks, from_torch
from mlpoly.importers.advice import is_mixture
from mlpoly.importers.torch import activation_from_torch, register_adapter
from mlpoly.importers.torch_modules import convert
from mlpoly.records import arrays_of

H, LAYERS = 24, 2

COMMON = SIZES | {"pad_token_id": 0}
LLAMA = COMMON | {"num_key_value_heads": 1, "head_dim": 8}
GEMMA = LLAMA | {"query_pre_attn_scalar": 8}
BART = {"vocab_size": 32, "d_model": D, "pad_token_id": 0}
for part in ("encoder", "decoder"):
    BART |= {f"{part}_layers": LAYERS, f"{part}_attention_heads": 2, f"{part}_ffn_dim": H}
T5 = {"vocab_size": 32, "d_model": D, "d_ff": H, "d_kv": 8, "num_heads": 2, "num_layers": LAYERS, "pad_token_id": 0}
IDS = torch.arange(1, 15).reshape(2, 7)
TOKENS = {"input_ids": IDS}
BOTH = {"input_ids": IDS, "decoder_input_ids": IDS}
IMAGE = {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)}
SOUND = {"input_features": torch.linspace(-1, 1, 2 * 4 * 20).reshape(2, 4, 20), "decoder_input_ids": IDS}


@dataclass(frozen=True)
class Case:
    """A family, the smallest model of it, and what should be found there."""

    family: str
    options: dict[str, Any]
    pattern: str  # of names, with {} for the number of the block; several are separated by spaces
    net: str
    model: str = ""
    feed: dict[str, Any] = field(default_factory=lambda: TOKENS)
    part_of_layer: bool = False
    count: int = LAYERS

    def build(self):
        torch.manual_seed(0)
        config = getattr(transformers, f"{self.family}Config")(**self.options)
        model = getattr(transformers, self.model or f"{self.family}Model")(config).eval()
        # Initial weights are so small that activations are linear, and biases zero: no test of either.
        with torch.no_grad():
            for p in model.parameters():
                p.normal_(std=0.3)
        return model

    @property
    def names(self):
        return [name.format(i) for name in self.pattern.split() for i in range(self.count)]


GPT2 = {"vocab_size": 32, "n_embd": D, "n_inner": H, "n_layer": LAYERS, "n_head": 2, "n_positions": 64}
DISTIL = {"vocab_size": 32, "dim": D, "hidden_dim": H, "n_layers": LAYERS, "n_heads": 2, "max_position_embeddings": 64}
VIT = {k: COMMON[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")}
VIT |= {"image_size": 8, "patch_size": 4}
OPT = {k: v for k, v in COMMON.items() if k != "intermediate_size"} | {"ffn_dim": H, "word_embed_proj_dim": D}
FALCON = {k: v for k, v in COMMON.items() if k != "intermediate_size"} | {"ffn_hidden_size": H}
WHISPER = BART | {"num_mel_bins": 4, "max_source_positions": 10, "max_target_positions": 16}
WHISPER |= {"decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2}
WAV = {"conv_dim": (8,), "conv_kernel": (4,), "conv_stride": (4,), "num_feat_extract_layers": 1}
WAV |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0}
WAVES = {"input_values": torch.linspace(-1, 1, 80).sin().reshape(2, 40)}
MLP, BIG = f"MLP({D} -> {H} -> {D}, %s)", f"MLP({D} -> {4 * D} -> {D}, %s)"
GLU = f"GLU({D} -> {H} -> {D}, %s)"

CASES = [
    Case("GPT2", GPT2, "h.{}.mlp", MLP % "gelu_tanh"),
    Case("GPTNeoX", COMMON, "layers.{}.mlp", MLP % "gelu"),
    Case("GPTJ", GPT2 | {"rotary_dim": 4}, "h.{}.mlp", MLP % "gelu_tanh"),
    Case("OPT", OPT, "decoder.layers.{}", MLP % "relu", part_of_layer=True),
    Case("OPT", OPT | {"enable_bias": False}, "decoder.layers.{}", MLP % "relu", part_of_layer=True),
    Case("Bert", COMMON, "encoder.layer.{}", MLP % "gelu", part_of_layer=True),
    Case("Bert", COMMON | {"chunk_size_feed_forward": 1}, "encoder.layer.{}", MLP % "gelu", part_of_layer=True),
    Case("Albert", COMMON | {"embedding_size": 8}, "encoder.albert_layer_groups.0.albert_layers.{}",
         MLP % "gelu_tanh", part_of_layer=True, count=1),  # all layers are one
    Case("DistilBert", DISTIL, "transformer.layer.{}.ffn", MLP % "gelu"),
    Case("DistilBert", DISTIL | {"chunk_size_feed_forward": 1}, "transformer.layer.{}.ffn", MLP % "gelu"),
    Case("ViT", VIT, "layers.{}.mlp", MLP % "gelu", feed=IMAGE),
    Case("CLIPVision", VIT, "encoder.layers.{}.mlp", MLP % "quick_gelu", feed=IMAGE),
    Case("T5", T5, "encoder.block.{}.layer.1.DenseReluDense decoder.block.{}.layer.2.DenseReluDense", MLP % "relu",
         feed=BOTH),
    Case("T5", T5 | {"feed_forward_proj": "gated-gelu"}, "encoder.block.{}.layer.1.DenseReluDense", GLU % "gelu_tanh",
         model="T5EncoderModel"),
    Case("Whisper", WHISPER, "encoder.layers.{} decoder.layers.{}", MLP % "gelu", feed=SOUND, part_of_layer=True),
    Case("Bart", BART, "encoder.layers.{} decoder.layers.{}", MLP % "gelu", feed=BOTH, part_of_layer=True),
    Case("Wav2Vec2", COMMON | WAV, "encoder.layers.{}.feed_forward", MLP % "gelu", feed=WAVES),
    Case("Llama", LLAMA, "layers.{}.mlp", GLU % "silu"),
    Case("Llama", LLAMA | {"mlp_bias": True}, "model.layers.{}.mlp", GLU % "silu", model="LlamaForCausalLM"),
    Case("Gemma2", GEMMA, "layers.{}.mlp", GLU % "gelu_tanh"),
    Case("Gemma3Text", GEMMA, "layers.{}.mlp", GLU % "gelu_tanh", model="Gemma3TextModel"),
    Case("Phi", COMMON, "layers.{}.mlp", MLP % "gelu_tanh"),
    Case("Phi3", LLAMA, "layers.{}.mlp", GLU % "silu"),
    Case("Glm", LLAMA, "layers.{}.mlp", GLU % "silu"),
    Case("Falcon", FALCON | {"bias": True}, "h.{}.mlp", MLP % "gelu"),
    Case("Bloom", {"vocab_size": 32, "hidden_size": D, "n_layer": LAYERS, "n_head": 2}, "h.{}.mlp",
         BIG % "gelu_tanh", part_of_layer=True),
    Case("Nemotron", LLAMA, "layers.{}.mlp", MLP % "relu2"),
    Case("Starcoder2", LLAMA, "layers.{}.mlp", MLP % "gelu_tanh"),
]  # fmt: skip


def case_name(case):
    return f"{case.family} {case.pattern}"


@pytest.fixture
def llama():
    return next(c for c in CASES if c.family == "Llama").build()


def record(model, blocks, feed):
    """What hooks on entry and exit see while the model runs: pairs of tensors by name."""
    seen = {b.name: [[], []] for b in blocks}
    hooks = []
    for b in blocks:
        # Copies: Falcon adds the attention's output to the block's, in place.
        hooks.append(b.entry.register_forward_pre_hook(lambda m, args, at=seen[b.name]: at[0].append(args[0].clone())))
        hooks.append(b.exit.register_forward_hook(lambda m, args, out, at=seen[b.name]: at[1].append(out.clone())))
    with torch.no_grad():
        model(**feed)
    for hook in hooks:
        hook.remove()
    return seen


def assert_near(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape
    found, expected = found.detach(), expected.detach()
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_blocks_of_a_model(case):
    model = case.build()
    blocks = find_blocks(model)
    assert [b.name for b in blocks] == case.names
    seen = record(model, blocks, case.feed)
    for b in blocks:
        net = b.net()
        assert repr(net) == case.net
        assert (b.entry is b.exit is b.module) is not case.part_of_layer
        assert len(seen[b.name][0]) == len(seen[b.name][1]) > 0
        for x, y in zip(*seen[b.name], strict=True):
            assert_near(net(x), y)
            assert float(y.std()) > 1e-2  # the comparison is of something
        x = torch.randn(3, 5, D)
        if not case.part_of_layer:
            assert_near(from_torch(b.module)(x), b.module(x))


def test_layers_of_torch_itself():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, 2, H, activation="gelu", batch_first=True)
    model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
    blocks = find_blocks(model)
    assert [b.name for b in blocks] == ["layers.0", "layers.1"]
    for name, ((x,), (y,)) in record(model, blocks, {"src": torch.randn(2, 5, D)}).items():
        assert_near(next(b for b in blocks if b.name == name).net()(x), y)


class Remote(nn.Module):
    """A gated unit from some repository, with the names that Llama uses."""

    def __init__(self, limit=None, linear=nn.Linear):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(D, H), linear(D, H), linear(H, D)
        self.act_fn, self.dropout, self.limit = nn.SiLU(), nn.Dropout(0.5), limit

    def forward(self, x):
        gate = self.gate_proj(x) if self.limit is None else self.gate_proj(x).clamp(max=self.limit)
        return self.down_proj(self.dropout(self.act_fn(gate) * self.up_proj(x)))


class Extended(Remote):
    def __init__(self, **more):
        super().__init__()
        for name, part in more.items():
            setattr(self, name, part)


class Counting(Remote):
    """Writes to a buffer whenever it runs, and may be off by a thousandth."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, x):
        self.runs += 1
        return self.factor * super().forward(x)


class Conditioned(Remote):
    def forward(self, x, condition):
        return super().forward(x) + condition


class LowRank(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x.mean(-1, keepdim=True)


class Wrapped(nn.Module):
    """As peft does it: the Linear is inside, and its weight shows through."""

    def __init__(self, *shape):
        super().__init__()
        self.base_layer, self.lora_A = nn.Linear(*shape), nn.Linear(shape[0], 2)

    @property
    def weight(self):
        return self.base_layer.weight


class SameLinear(nn.Linear):
    """Another forward, the same function; Falcon has one."""

    def forward(self, x):
        return x @ self.weight.T + self.bias


def test_structure_is_enough():
    torch.manual_seed(0)
    module = Remote().eval()
    assert repr(from_torch(module)) == GLU % "silu"
    assert_near(from_torch(module)(torch.ones(3, D)), module(torch.ones(3, D)))
    assert repr(from_torch(Remote(linear=SameLinear))) == GLU % "silu"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Remote(limit=3.0), "Remote has parts named as in Llama.*differs from the network's by .*%.*register_adapter"),
        (Remote(linear=LowRank), "differs from the network's"),
        (Counting(1.001).bfloat16(), r"differs from the network's by 0\.10%"),
        (Remote(linear=Wrapped), "gate_proj of Remote is a Wrapped, not a Linear.*merge_and_unload"),
        (Extended(down_proj=nn.Linear(2 * H, D)), f"{H} hidden units, of which it reads {2 * H}"),
        (Conditioned(), r"a test input gave an error \(.*condition"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_other_functions_of_the_same_parts_are_refused(module, message):
    with pytest.raises(TypeError, match=message):
        from_torch(module)


@pytest.mark.parametrize(
    "module",
    [Counting(1.001), Extended(norm=nn.LayerNorm(H)), Extended(scale=nn.Parameter(torch.ones(D)))],
    ids=["a factor", "a part that is not used", "a parameter that is not used"],
)
def test_what_forward_does_decides(module):
    x = torch.randn(5, D)
    assert_near(from_torch(module)(x), module.eval()(x))


def test_bloom_with_slices_leaves_its_bias_out():
    options = {"vocab_size": 32, "hidden_size": D, "n_layer": 1, "n_head": 2}
    config = transformers.BloomConfig(**options, pretraining_tp=2, slow_but_exact=True)
    model = transformers.BloomModel(config)
    with torch.no_grad():
        model.h[0].mlp.dense_4h_to_h.bias.fill_(1.0)
    with pytest.raises(TypeError, match=r"BloomMLP has parts named as in BLOOM.*differs"):
        find_blocks(model)[0].net()


def test_quantised_weights(llama):
    dtype = torch.int8
    part = llama.layers[0].mlp.up_proj
    part.weight = nn.Parameter(torch.zeros(H, D).to(dtype), requires_grad=False)
    with pytest.raises(TypeError, match=rf"up_proj of LlamaMLP has a quantised weight \({dtype}\).*dequantize"):
        find_blocks(llama)[0].net()


@pytest.mark.parametrize("family", ["GPT2", "Llama", "Phi3", "OPT"])
def test_weights_are_shared_and_gradients_reach_them(family):
    model = next(c for c in CASES if c.family == family).build()
    block = find_blocks(model)[0]
    net = convert(block.module, part=True)
    parameters = list(block.module.mlp.parameters() if hasattr(block.module, "mlp") else block.module.parameters())
    memory = {p.untyped_storage().data_ptr() for p in parameters}
    for record_ in (net, block.net()):
        weights = list(arrays_of(record_).values())
        assert {w.untyped_storage().data_ptr() for w in weights} <= memory
        assert all(w.requires_grad for w in weights) is (record_ is net)
    net(torch.ones(D)).sum().backward()
    assert all(p.grad is not None for p in (block.entry.parameters() if family == "OPT" else parameters))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bit_models(dtype):
    for case in (c for c in CASES if c.family in ("GPT2", "Llama", "Falcon", "Bloom", "T5", "Bert")):
        block = find_blocks(case.build().to(dtype))[0]
        own, net = convert(block.module, part=True), block.net()
        assert {w.dtype for w in arrays_of(own).values()} == {dtype}
        assert {w.dtype for w in arrays_of(net).values()} == {torch.float32}
        assert torch.equal(net(torch.ones(D)), own(torch.ones(D)))
        assert mp.fit(net, mp.Gaussian.standard(D), degree=2).series.plain.dtype == torch.float32
    assert block.net(torch.float64)(torch.ones(D, dtype=torch.float64)).dtype == torch.float64


def test_one_matrix_in_another_dtype():
    """T5 keeps wo in float32 when the model is in 16 bits."""
    block = next(b for c in CASES if c.family == "T5" for b in find_blocks(c.build()))
    expected = from_torch(block.module)
    block.module.wi.to(torch.bfloat16)
    net = from_torch(block.module)
    assert net.W1.dtype == net.W2.dtype == torch.float32
    assert torch.equal(net.W2, expected.W2)
    assert_near(net.W1, expected.W1, 1e-2)


REFUSED = {"gelu_10", "laplace", "sqrtsoftplus", "xielu"}


def test_every_activation_of_transformers_is_covered_or_refused_by_choice():
    """A new activation in transformers should be noticed here."""
    y = torch.linspace(-9, 9, 1801, dtype=torch.float64)
    for name in set(transformers.activations.ACT2CLS) - REFUSED:
        module = transformers.activations.ACT2FN[name].double()
        # FastGELU and others write sqrt(2 / pi) with ten digits.
        torch.testing.assert_close(activation_from_torch(module)(y), module(y).detach(), rtol=1e-8, atol=1e-8)
    for name in REFUSED - {"xielu"}:  # which warns that it has no kernel
        with pytest.raises(TypeError, match="does not know the activation"):
            activation_from_torch(transformers.activations.ACT2FN[name])


PATTERNS = {
    **dict.fromkeys(["model.layers.*.mlp", "layers.*.mlp", "*.mlp", "mlp", "*"], (0, 1)),
    **dict.fromkeys(["layers.1.mlp", "layers.[1-9].mlp", "1.mlp"], (1,)),
}


def test_patterns(llama):
    model = nn.ModuleDict({"model": llama})
    for pattern, expected in PATTERNS.items():
        assert [b.name for b in find_blocks(model, pattern)] == [f"model.layers.{i}.mlp" for i in expected]


def test_pattern_errors(llama):
    for pattern in ("layers.*.ffn", "p", "layers.?", ""):
        with pytest.raises(ValueError, match=r"no feedforward block of LlamaModel.*\(2\) are layers.0.mlp, layers.1"):
            find_blocks(llama, pattern)
    with pytest.raises(TypeError, match="blocks must be a pattern"):
        find_blocks(llama, 1)
    many = nn.ModuleList([Remote() for _ in range(30)])
    with pytest.raises(ValueError, match=r"\(30\) are 0, 1, 2, 3, 4, 5, \.\.\., 24, 25, 26, 27, 28, 29\."):
        find_blocks(many, "x")


def test_any_module_by_name():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.own = nn.LayerNorm(D), nn.Module()
            self.up, self.down = nn.Linear(D, H), nn.Linear(H, D)

        def forward(self, x):
            return self.down(functional.silu(self.up(x)))

    model = nn.ModuleDict({"layers": nn.ModuleList([Layer(), Layer()]), "norm": nn.LayerNorm(D)})
    blocks = find_blocks(model, "layers.*[0-9]")
    assert [block.name for block in blocks] == ["layers.0", "layers.1"]
    x = torch.randn(5, D)
    assert_near(blocks[1].net()(x), model["layers"][1](x))
    with pytest.raises(ValueError, match=r"matches no .*LayerNorm"):
        find_blocks(model, "norm")
    with pytest.raises(ValueError, match="matches no"):
        find_blocks(model, "mlp")


def test_nothing_found(llama):
    with pytest.raises(TypeError, match=r"knows in ModuleList.*Linear, Bilinear.*register_adapter\(TheBlocksClass"):
        find_blocks(nn.ModuleList([nn.Linear(2, 2), nn.Bilinear(2, 2, 2)]))
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got str"):
        find_blocks("llama")
    with pytest.raises(TypeError, match=r"follow the forward of LlamaModel .*such as 'layers.0.mlp'.*find_blocks"):
        from_torch(llama)


def test_mixture_of_experts():
    sizes = {"moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "num_experts": 4}
    config = transformers.Qwen2MoeConfig(**LLAMA | sizes | {"mlp_only_layers": [0]})
    model = transformers.Qwen2MoeModel(config)
    names = [b.name for b in find_blocks(model)]  # test_experts.py has the rest
    assert names[0] == "layers.0.mlp" and names[-1] == "layers.1.mlp.shared_expert" and len(names) == 6
    with pytest.raises(ValueError, match=r"'layers.1.mlp' is a mixture of experts, several blocks behind a router"):
        find_blocks(model, "layers.1.mlp")
    for module in (model.layers[1].mlp, model.layers[1].mlp.experts):
        with pytest.raises(TypeError, match="mixture of experts, that is, several blocks behind a router"):
            from_torch(module)
    assert not is_mixture(model.layers[1])


def test_own_adapter(adapters):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.a, self.b = nn.LayerNorm(D), nn.Linear(D, H), nn.Linear(H, D)

        def forward(self, x):
            return x + self.b(torch.sin(self.a(self.norm(x))))

    model = nn.Sequential(Layer(), Layer())
    with pytest.raises(TypeError, match="no feedforward block"):
        find_blocks(model)
    register_adapter(Layer, lambda m: mp.MLP(m.a.weight, m.a.bias, m.b.weight, m.b.bias, "sin"), entry="a", exit="b")
    blocks = find_blocks(model)
    assert [b.name for b in blocks] == ["0", "1"]
    for name, ((x,), (y,)) in record(model, blocks, {"input": torch.randn(5, D)}).items():
        assert_near(blocks[int(name)].net()(x), y)
    with pytest.raises(TypeError, match="entry and exit must be names"):
        register_adapter(Layer, lambda m: None, entry=nn.Linear)


class Squared(nn.Module):
    """A block with a squared ReLU, alone or as a part of its module, which may take more than one tensor."""

    def __init__(self, part, more=False):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(D), nn.Linear(D, H), nn.Linear(H, D)
        self.part, self.more = part, more

    def forward(self, x, more=None):
        assert not self.more or more is not None
        return x + self.block(self.norm(x)) if self.part else self.block(x)

    def block(self, x):
        return self.b(torch.relu(self.a(x)) ** 2)


def as_mlp(activation):
    return lambda m: mp.MLP(m.a.weight, m.a.bias, m.b.weight, m.b.bias, activation)


class Rows(Squared):
    def forward(self, x):
        assert x.ndim == 2
        return self.block(x)


@pytest.mark.parametrize("module", [Squared(False), Squared(True), Rows(False)], ids=["block", "part", "rows"])
def test_a_wrong_adapter_is_refused(adapters, module):
    """The squared ReLU taken for a GELU."""
    ends = {"entry": "a", "exit": "b"} if module.part else {}
    take = from_torch if isinstance(module, Rows) else lambda m: find_blocks(nn.ModuleList([m]))[0].net()
    register_adapter(type(module), as_mlp("gelu"), **ends)
    with pytest.raises(TypeError, match=r"adapter for \w+ is not what the module computes: .* differs .*%"):
        take(module)
    register_adapter(type(module), as_mlp("relu2"), **ends)
    assert take(module).activation.name == "relu2"


@pytest.mark.parametrize("part", [False, True])
def test_an_adapter_that_cannot_be_checked_warns(adapters, part):
    register_adapter(Squared, as_mlp("relu2"), **({"entry": "a", "exit": "b"} if part else {}))
    with pytest.warns(UserWarning, match="adapter for Squared is not compared with the module, which does not run"):
        find_blocks(nn.ModuleList([Squared(part, more=True)]))[0].net()


class ScaledLayer(nn.TransformerEncoderLayer):
    """The parts of torch's layer; the feedforward part is another."""

    def _ff_block(self, x):
        return self.linear2(self.activation(2 * self.linear1(x)))


def test_more_than_a_block_is_refused_where_a_network_is_asked_for():
    layers = [
        nn.TransformerEncoderLayer(D, 2, H),
        nn.TransformerDecoderLayer(D, 2, H),
        *(next(c for c in CASES if c.family == f).build().get_submodule(at)
          for f, at in (("Bert", "encoder.layer.0"), ("OPT", "decoder.layers.0"), ("Bloom", "h.0.mlp"))),
    ]  # fmt: skip
    for layer in layers:
        with pytest.raises(
            TypeError, match=r"does more than its feedforward block, between .*find_blocks\(module\)\[0\]"
        ):
            from_torch(layer)
        with pytest.raises(TypeError, match=r"find_blocks\(module\)"):
            from_torch(nn.Sequential(nn.Linear(D, D), layer))
        (block,) = find_blocks(layer)
        assert (block.net().dim_in, block.net().dim_out) == (D, D)
    with pytest.raises(TypeError, match="for ScaledLayer is not what the module computes"):
        find_blocks(ScaledLayer(D, 2, H))[0].net()


def gelu_new(x):
    """As TransformerLens defines it."""
    return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))


def normal(*shape):
    return nn.Parameter(torch.randn(*shape, dtype=torch.float64))


class PlainBlock(nn.Module):
    def __init__(self, act_fn=gelu_new):
        super().__init__()
        self.W_in, self.b_in, self.W_out, self.b_out = normal(D, H), normal(H), normal(H, D), normal(D)
        self.act_fn, self.hook_pre, self.hook_post = act_fn, nn.Identity(), nn.Identity()

    def forward(self, x):
        pre = self.hook_pre(x @ self.W_in + self.b_in)
        return self.hook_post(self.act_fn(pre)) @ self.W_out + self.b_out


class GatedBlock(PlainBlock):
    """The bias b_in is added to the product."""

    inside = False

    def __init__(self, act_fn=functional.silu):
        super().__init__(act_fn)
        self.W_gate = normal(D, H)

    def forward(self, x):
        gate, up = self.act_fn(x @ self.W_gate), x @ self.W_in
        return (gate * (up + self.b_in) if self.inside else gate * up + self.b_in) @ self.W_out + self.b_out


class BiasInside(GatedBlock):
    inside = True


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (PlainBlock, MLP % "gelu_tanh"),
        (lambda: PlainBlock(functional.relu), MLP % "relu"),
        (lambda: PlainBlock(nn.GELU()), MLP % "gelu"),
        (GatedBlock, GLU % "silu"),
        (BiasInside, GLU % "silu"),
    ],
)
def test_blocks_of_transformer_lens(make, shown):
    torch.manual_seed(0)
    module, x = make(), torch.randn(30, D, dtype=torch.float64)
    net = from_torch(module)
    assert repr(net) == shown
    torch.testing.assert_close(net(x), module(x), rtol=1e-12, atol=1e-12)
    model = nn.ModuleDict({"blocks": nn.ModuleList([nn.ModuleDict({"mlp": m}) for m in (make(), module)])})
    blocks = find_blocks(model)
    assert [b.name for b in blocks] == ["blocks.0.mlp", "blocks.1.mlp"]
    assert blocks[1].entry is blocks[1].exit is module
    assert torch.equal(blocks[1].net()(x), net(x))
