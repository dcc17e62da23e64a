"""Language models of two layers with random experts, that several tests share."""

import torch
import transformers

from support.tiny_models import SIZES, D

__all__ = ["MIXTURES", "D", "deepseek", "mixtral", "olmoe", "qwen"]

_COMMON = SIZES | {"num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _made(kind, config, seed):
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:  # strong enough that blocks and routers are far from linear
                weight.normal_(0, 0.5)
    return model


def mixtral():
    config = transformers.MixtralConfig(**_COMMON, num_local_experts=4, num_experts_per_tok=2)
    return _made(transformers.MixtralForCausalLM, config, 0)


def olmoe():
    config = transformers.OlmoeConfig(**_COMMON, num_experts=8, num_experts_per_tok=3)
    return _made(transformers.OlmoeForCausalLM, config, 1)


def qwen():
    sizes = {"moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "num_experts": 4}
    config = transformers.Qwen2MoeConfig(**_COMMON, **sizes, num_experts_per_tok=2, mlp_only_layers=[0])
    return _made(transformers.Qwen2MoeForCausalLM, config, 2)


def deepseek():
    sizes = {"moe_intermediate_size": 8, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1}
    ranks = {"q_lora_rank": None, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
    groups = {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 2}
    config = transformers.DeepseekV3Config(**_COMMON | {"num_key_value_heads": 2}, **sizes, **ranks, **groups)
    return _made(transformers.DeepseekV3ForCausalLM, config, 3)


MIXTURES = [mixtral, olmoe, qwen, deepseek]
