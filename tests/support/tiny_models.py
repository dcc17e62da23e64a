"""Language models of two layers with random weights, and token ids for them, that several tests share."""

import torch
import transformers
from torch import nn

from mlpoly.importers import find_blocks
from support.backends import assert_close

D, VOCABULARY = 16, 32
SIZES = {"vocab_size": VOCABULARY, "hidden_size": D, "intermediate_size": 24, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "max_position_embeddings": 64}


def llama(**options):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=1, pad_token_id=0, **options)
    return transformers.LlamaForCausalLM(config).eval()


def gpt2(**options):
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=D, n_layer=2, n_head=2, n_positions=64, **options)
    return transformers.GPT2LMHeadModel(config).eval()


def bert(kind="BertForMaskedLM", **options):
    torch.manual_seed(2)
    return getattr(transformers, kind)(transformers.BertConfig(**SIZES, **options)).eval()


def albert(**options):
    """Embeddings of half the width of the layers."""
    torch.manual_seed(2)
    return transformers.AlbertForMaskedLM(transformers.AlbertConfig(**SIZES, embedding_size=D // 2, **options)).eval()


def gemma2(**options):
    torch.manual_seed(2)
    config = transformers.Gemma2Config(**SIZES, num_key_value_heads=1, head_dim=8, pad_token_id=0, **options)
    return transformers.Gemma2ForCausalLM(config).eval()


def vit(kind="ViTModel", **options):
    """Four patches and a class token for each image."""
    torch.manual_seed(3)
    sizes = {name: SIZES[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    config = transformers.ViTConfig(**sizes, num_attention_heads=2, image_size=8, patch_size=4, **options)
    return getattr(transformers, kind)(config).eval()


def wav2vec2(kind="Wav2Vec2Model"):
    """Nineteen positions for 80 values of a sound."""
    torch.manual_seed(4)
    sizes = {name: SIZES[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")}
    convolutions = {"conv_dim": (8, 8), "conv_stride": (2, 2), "conv_kernel": (3, 3), "num_conv_pos_embeddings": 4}
    options = {"num_attention_heads": 2, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0}
    return getattr(transformers, kind)(transformers.Wav2Vec2Config(**sizes, **convolutions, **options)).eval()


def whisper():
    """Ten positions for twenty frames of a sound."""
    torch.manual_seed(5)
    parts = {f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in (("layers", 1), ("ffn_dim", 24))}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_mel_bins": 8}
    lengths = {"max_source_positions": 10, "max_target_positions": 12}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    config = transformers.WhisperConfig(vocab_size=VOCABULARY, d_model=D, **parts, **heads, **lengths, **ids)
    return transformers.WhisperForConditionalGeneration(config).eval()


def t5(kind="T5ForConditionalGeneration"):
    torch.manual_seed(6)
    sizes = {"vocab_size": VOCABULARY, "d_model": D, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    return getattr(transformers, kind)(transformers.T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0)).eval()


class Lookup(nn.Module):
    """A model whose block sees rows of a table, so that they can be chosen."""

    def __init__(self, table):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, width = nn.Embedding.from_pretrained(table), table.shape[1]
        self.mlp = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width))

    def forward(self, ids):
        return self.mlp(self.embedding(ids))


def token_ids(n, b=3, t=7, seed=0):
    """Batches (b, t), n of them; 0, which pads, is not among the ids."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, VOCABULARY, (b, t), generator=generator) for _ in range(n)]


def recorded(model, batches, modules=None, outputs=False):
    """What enters modules, by default the blocks, or leaves them (n, d), seen by plain hooks on the whole model."""
    seen = {}

    def keep(name):
        def hook(module, args, result):
            value = result if outputs else args
            value = value[0] if isinstance(value, tuple) else value
            seen.setdefault(name, []).append(value.detach().flatten(0, -2).clone())

        return hook

    modules = {block.name: block.entry for block in find_blocks(model)} if modules is None else modules
    handles = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
    with torch.no_grad():
        for batch in batches:
            model(**batch) if isinstance(batch, dict) else model(batch)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(parts) for name, parts in seen.items()}


def shaken(model):
    """In double precision, with norms that do more than nothing."""
    for name, parameter in model.named_parameters():
        if "norm" in name or ".ln_" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model.double()


def assert_same_moments(one, other, tolerance=1e-12):
    assert one.names == other.names
    for name in one.names:
        ours, theirs = one.groups(name), other.groups(name)
        assert {n: p.count for n, p in ours.items()} == {n: p.count for n, p in theirs.items()}
        for number, part in ours.items():
            assert_close(part.mean, theirs[number].mean, tolerance)
            assert_close(part.scatter, theirs[number].scatter, tolerance)
