#!/usr/bin/env python3
"""Lists what transformers saves of every family: config.json of a narrow model with all its layers, and the names and shapes of its tensors.

    python scripts/saved_configs.py session/testdata/saved_configs    # once with transformers 4.57, once with 5.17

Writes OUT/<version>.json.zst with zstd's command: by model_type config (the text of config.json), tensors (a name to its shape), and absent, the keys whose
absence changes nothing in transformers: a key of config.json, or key.field of an object in it. CPU, no network.
"""
import copy
import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

logging.disable(logging.CRITICAL)
NARROW = dict(vocab_size=128, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
LATENT = dict(num_key_value_heads=4, head_dim=8, q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, n_routed_experts=4,
              moe_intermediate_size=16, num_experts_per_tok=2, num_hidden_layers=12)  # latent attention
OWN = {  # what a family needs beside that, to be narrow
    "ernie4_5": {}, "gemma": {}, "gemma2": {}, "gemma3_text": {}, "glm4": dict(pad_token_id=0), "granite": {}, "llama": {}, "ministral": {}, "ministral3": {}, "mistral": {},
    "cwm": {}, "exaone4": {}, "qwen3_vl_text": dict(rope_scaling=dict(rope_type="default", mrope_section=[1, 1, 2], mrope_interleaved=True)),
    "glm4_moe": dict(n_routed_experts=4, moe_intermediate_size=16, num_experts_per_tok=2, use_qk_norm=True, num_hidden_layers=12, pad_token_id=0),
    "deepseek_v2": dict(LATENT, first_k_dense_replace=1, rope_scaling=dict(rope_type="yarn", factor=4.0, mscale=0.7, mscale_all_dim=0.7, original_max_position_embeddings=16)),
    "deepseek_v3": dict(LATENT, first_k_dense_replace=1, n_group=2, topk_group=1), "glm4_moe_lite": dict(LATENT, pad_token_id=0),
    "ernie4_5_moe": dict(moe_num_experts=4, moe_intermediate_size=16, moe_k=2, num_hidden_layers=12), "lfm2": dict(num_hidden_layers=12, layer_types=["conv", "full_attention"] * 6),
    "lfm2_moe": dict(num_experts=4, moe_intermediate_size=16, num_experts_per_tok=2, num_hidden_layers=12, layer_types=["conv", "full_attention"] * 6),
    "granitemoehybrid": dict(num_hidden_layers=12, layer_types=(["mamba", "mamba", "attention"] if transformers.__version__ < "5" else ["linear_attention", "linear_attention", "full_attention"]) * 4,
                             num_local_experts=4, shared_intermediate_size=16, mamba_n_heads=4, mamba_d_state=8),
    "bamba": dict(num_hidden_layers=12, attn_layer_indices=[2, 5, 8, 11], mamba_n_heads=4, mamba_d_state=8),
    "falcon_h1": dict(num_hidden_layers=12, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_state=8, mamba_n_groups=2),
    "nemotron_h": dict(mlp_hidden_act="relu2", mamba_num_heads=4, mamba_head_dim=8, n_groups=2, ssm_state_size=8, n_routed_experts=4, moe_intermediate_size=16,
                       moe_shared_expert_intermediate_size=16, layers_block_type=["linear_attention", "moe", "full_attention", "mlp"] * 3),
    "minimax_m2": dict(num_local_experts=4, num_experts_per_tok=2, num_hidden_layers=12),
    "olmo2": {}, "olmo3": {}, "phi3": dict(pad_token_id=0), "qwen2": {}, "qwen3": {}, "seed_oss": {}, "smollm3": dict(pad_token_id=0),
    "gemma4_text": dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=128), "gemma4_unified_text": {},
    "gpt_oss": dict(num_local_experts=4), "mixtral": dict(num_local_experts=4),
    "qwen2_moe": dict(num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16), "qwen3_moe": dict(num_experts=4, moe_intermediate_size=16, num_experts_per_tok=2),
    "afmoe": dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, num_shared_experts=1, num_hidden_layers=12), "apertus": {},
    "arcee": {}, "cohere": dict(num_hidden_layers=12), "cohere2": dict(num_hidden_layers=12), "glm": dict(pad_token_id=0),
    "hunyuan_v1_dense": {},
    "qwen3_next": dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2,
                       moe_intermediate_size=16, shared_expert_intermediate_size=16, num_hidden_layers=12),
    "qwen3_5_text": dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8),
    "qwen3_5_moe_text": dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2,
                             moe_intermediate_size=16, shared_expert_intermediate_size=16),
}
TOWER = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
FOLDERS = {"idefics3": ("llama", TOWER), "smolvlm": ("llama", TOWER), "gemma3": ("gemma3_text", TOWER), "mistral3": ("mistral", TOWER), "gemma4": ("gemma4_text", None), "gemma4_unified": ("gemma4_unified_text", None),
           "qwen3_vl": ("qwen3_vl_text", dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32, num_position_embeddings=16, deepstack_visual_indexes=[0])),
           "qwen3_5": ("qwen3_5_text", dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32)),
           "qwen3_5_moe": ("qwen3_5_moe_text", dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32))}


def config_of(kind):
    if kind in OWN:
        return CONFIG_MAPPING[kind](**NARROW | OWN[kind])
    text, tower = FOLDERS[kind]
    options = dict(text_config=NARROW | OWN[text] | {"model_type": text})
    if tower:
        options["vision_config"] = dict(tower)
    return CONFIG_MAPPING[kind](**options)


def said(values):
    """What a config says, once transformers has filled it in; {} where it refuses it."""
    decode = getattr(transformers.PretrainedConfig, "_decode_special_floats", lambda v: v)  # transformers 5 writes infinity as an object
    try:
        config = AutoConfig.for_model(**decode(copy.deepcopy(values)))
        return {k: v for k, v in config.to_dict().items() if k != "transformers_version"}
    except Exception:
        return {}


def absent(values):
    whole, keys = said(values), []
    for key in sorted(values):
        if key in ("model_type", "transformers_version", "architectures", "dtype", "torch_dtype"):
            continue
        if said({k: v for k, v in values.items() if k != key}) == whole:
            keys.append(key)
        if isinstance(values[key], dict):
            for field in sorted(values[key]):
                if field == "model_type":
                    continue
                if said(values | {key: {k: v for k, v in values[key].items() if k != field}}) == whole:
                    keys.append(f"{key}.{field}")
    return keys


def saved(kind):
    config = config_of(kind)
    auto = AutoModelForImageTextToText if kind in FOLDERS else AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as folder:
        auto.from_config(config, dtype=torch.bfloat16).save_pretrained(folder, max_shard_size="100GB")
        text = pathlib.Path(folder, "config.json").read_text()
        raw = pathlib.Path(folder, "model.safetensors").read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    header.pop("__metadata__", None)
    return {"config": text, "tensors": {k: v["shape"] for k, v in sorted(header.items())}, "absent": absent(json.loads(text))}


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    all_of, torch_seed = {}, torch.manual_seed(0)
    for kind in sorted(OWN | FOLDERS):
        if kind not in CONFIG_MAPPING:
            print(f"{kind}: transformers {transformers.__version__} has none")
            continue
        try:
            all_of[kind] = saved(kind)
            print(kind, len(all_of[kind]["tensors"]), len(all_of[kind]["absent"]), flush=True)
        except Exception as e:
            print(f"{kind}: {type(e).__name__}: {str(e)[:300]}", flush=True)
    data = json.dumps(all_of, separators=(",", ":")).encode()
    packed = subprocess.run(["zstd", "-q", "--ultra", "-22", "--long=27", "-c"], input=data, capture_output=True, check=True)
    (out / f"{transformers.__version__}.json.zst").write_bytes(packed.stdout)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
