#!/usr/bin/env python3
"""Makes tiny random models of every family by transformers, with options drawn at random, and compares the program with transformers, PEFT and bitsandbytes.

    python scripts/families_check.py TRAINER [--seeds 3] [--first 0] [--families qwen3,gemma2] [--odd] [--keep DIR]

Drawn are sizes and options of the family, the type of the stored numbers, one file or several, and whose spelling config.json has: transformers 4's,
that before `dtype`, or transformers 5's. For each model, all bounds 1e-4 relative:
- `trainer eval` on tokenized rows against transformers' mean negative log-likelihood;
- a LoRA run on all linear layers whose adapter PEFT reads, with the names that PEFT itself would give it, and whose evaluation PEFT repeats;
- a QLoRA run whose loss falls, and whose adapter PEFT evaluates over the weights that bitsandbytes' NF4 stands for;
- where the folder has a tokenizer, the same greedy text as transformers;
- a folder that bitsandbytes quantised, some layers left out or not: evaluated as its dequantised weights are, and where no layer was left out to the
  bit as the original is when the program quantises it.
gpt_oss and the mixtures of qwen3_5 and gemma4 also have adapters on parameters of experts, and an adapter that PEFT saved is evaluated, started from and merged.
qwen3_5 has rows longer than a chunk of transformers' rule, evaluated packed and not.
Of the mixtures whose experts transformers 5 no longer has as linear layers PEFT stacks the adapter's tensors there, so their names are not compared;
scripts/mixtures_check.py tries more of their adapters.
Needs torch, transformers 4.57 or 5 (gemma4, ministral3 and qwen3_5 are in 5 alone), PEFT, bitsandbytes and safetensors on a CPU. Exit code 1: something differs.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import tokenizers
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file

transformers.utils.logging.disable_progress_bar()
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "internal" / "golden"))
from make_prequantised import dequantise_4bit, dequantised

# As transformers 5 has it: PEFT from 0.19 on takes parameters of experts for transposed where this is not said.
transformers.models.gpt_oss.modeling_gpt_oss.GptOssExperts.is_transposed = True

BOUND = 1e-4
FIVE = version("transformers") >= "5"


def common(r):
    heads = r.choice([2, 4, 6, 8])
    kv = r.choice([k for k in range(1, heads + 1) if heads % k == 0])
    head = r.choice([8, 12, 16, 24])
    c = dict(vocab_size=r.choice([64, 97, 128, 300]), hidden_size=r.choice([heads * head, heads * 8, 40, 64]), intermediate_size=r.choice([48, 72, 88, 130]),
             num_hidden_layers=r.choice([2, 3, 4]), num_attention_heads=heads, num_key_value_heads=kv, head_dim=head, max_position_embeddings=r.choice([64, 128, 256]),
             rms_norm_eps=r.choice([1e-5, 1e-6]), rope_theta=r.choice([10000.0, 500000.0, 1e6]), tie_word_embeddings=r.random() < 0.5,
             bos_token_id=1, eos_token_id=2, pad_token_id=0, attention_dropout=0.0)
    return c


def scaling(r, c):
    kind = r.choice([None, None, "linear", "llama3", "yarn"])
    if kind == "linear":
        c["rope_scaling"] = dict(rope_type="linear", factor=r.choice([2.0, 4.0]))
    elif kind == "llama3":
        c["rope_scaling"] = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    elif kind == "yarn":
        c["rope_scaling"] = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)


def kinds(r, layers):
    return [r.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]


def llama(r, c):
    scaling(r, c)
    c.update(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)


def mistral(r, c):
    scaling(r, c)
    c.update(sliding_window=r.choice([None, 5, 9]))


def qwen2(r, c):
    scaling(r, c)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    if r.random() < 0.5:
        c.update(use_sliding_window=True, sliding_window=r.choice([5, 9]), max_window_layers=r.choice([0, 1, 2]))


def qwen3(r, c):
    scaling(r, c)
    c.update(attention_bias=r.random() < 0.3)
    if r.random() < 0.4:
        c.update(use_sliding_window=True, sliding_window=r.choice([5, 9]), max_window_layers=r.choice([0, 1, 2]))


def smollm3(r, c):
    scaling(r, c)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)
    if r.random() < 0.5:
        c["no_rope_layers"] = [r.choice([0, 1]) for _ in range(c["num_hidden_layers"])]
    else:
        c["no_rope_layer_interval"] = r.choice([2, 3, 4])
    if r.random() < 0.5:
        c.update(use_sliding_window=True, sliding_window=r.choice([5, 9]))


def granite(r, c):
    scaling(r, c)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, embedding_multiplier=r.choice([1.0, 6.0, 12.0]), attention_multiplier=r.choice([1.0, 0.25, 0.0625]),
             residual_multiplier=r.choice([1.0, 0.22]), logits_scaling=r.choice([1.0, 3.0, 8.0]))


def olmo2(r, c):
    if r.random() < 0.5:
        c["rope_scaling"] = dict(type=r.choice(["linear", "dynamic"]), factor=2.0)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(attention_bias=r.random() < 0.3)


def olmo3(r, c):
    scaling(r, c)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(attention_bias=r.random() < 0.3, sliding_window=r.choice([5, 9]))
    if r.random() < 0.5:
        c["layer_types"] = kinds(r, c["num_hidden_layers"])


def seed_oss(r, c):
    scaling(r, c)
    c.update(attention_bias=r.random() < 0.7, attention_out_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, residual_dropout=0.0)


def ernie4_5(r, c):
    scaling(r, c)
    c.update(use_bias=r.random() < 0.4)


def glm4(r, c):
    c.update(attention_bias=r.random() < 0.6, partial_rotary_factor=r.choice([1.0, 0.5, 0.5, 0.25]))


def ministral(r, c):
    scaling(r, c)
    c.update(sliding_window=r.choice([5, 9]), layer_types=kinds(r, c["num_hidden_layers"]))


def mistral3(r, c):
    mistral(r, c)
    c.pop("rope_scaling", None)


def ministral3(r, c):
    rope = dict(factor=r.choice([2.0, 16.0]), beta_fast=r.choice([32.0, 4.0]), beta_slow=1.0, mscale=1.0, mscale_all_dim=r.choice([1.0, 0.0, 0.5])) | query_scale(r, c)
    c.update(sliding_window=r.choice([None, None, 9]), rope_parameters=dict({r.choice(["rope_type", "type"]): "yarn"}, **rope))


def query_scale(r, c):
    """Queries that grow from a position on that most rows reach, or few."""
    more = r.choice([{}, dict(max_position_embeddings=c["max_position_embeddings"])])
    return dict(rope_theta=c.pop("rope_theta", 1e4), original_max_position_embeddings=r.choice([3, 6, 16, 40]), llama_4_scaling_beta=r.choice([0.1, 0.4, 0.0])) | more


def gemma(r, c):
    c.update(attention_bias=r.random() < 0.3, hidden_act=r.choice(["gelu_pytorch_tanh", "gelu"]))


def gemma2(r, c):
    c.update(query_pre_attn_scalar=r.choice([c["head_dim"], 7, 144]), sliding_window=r.choice([5, 9]), attn_logit_softcapping=r.choice([None, 5.0, 50.0]),
             final_logit_softcapping=r.choice([None, 3.0, 30.0]), attention_bias=r.random() < 0.3)
    if r.random() < 0.5:
        c["layer_types"] = kinds(r, c["num_hidden_layers"])


def gemma3(r, c):
    c.update(query_pre_attn_scalar=r.choice([c["head_dim"], 7, 144]), sliding_window=r.choice([5, 9]), rope_local_base_freq=r.choice([10000.0, 5000.0]), attention_bias=r.random() < 0.3)
    if r.random() < 0.5:
        c["layer_types"] = kinds(r, c["num_hidden_layers"])
    if r.random() < 0.5:
        c["rope_scaling"] = dict(rope_type="linear", factor=8.0)


def phi3(r, c):
    del c["head_dim"]
    head = r.choice([8, 16, 32])
    c["hidden_size"] = c["num_attention_heads"] * head
    c.update(sliding_window=r.choice([None, 5, 9]), resid_pdrop=0.0, embd_pdrop=0.0)
    part = r.choice([1.0, 0.5, 0.75])
    if part != 1.0:
        c["partial_rotary_factor"] = part
    turned = int(head * part)
    if r.random() < 0.5:
        c.update(original_max_position_embeddings=32, rope_scaling=dict(type="longrope", short_factor=[1 + r.random() for _ in range(turned // 2)], long_factor=[1 + 3 * r.random() for _ in range(turned // 2)]))


def mixtral(r, c):
    scaling(r, c)
    experts = r.choice([2, 4, 5])
    c.update(num_local_experts=experts, num_experts_per_tok=r.choice(range(1, experts + 1)), sliding_window=r.choice([None, 9]), output_router_logits=False)


def gpt_oss(r, c):
    experts = r.choice([3, 4, 6])
    c.update(num_local_experts=experts, num_experts_per_tok=r.choice([1, 2, 3]), sliding_window=r.choice([5, 9]), attention_bias=True,
             layer_types=kinds(r, c["num_hidden_layers"]), output_router_logits=r.random() < 0.5, router_aux_loss_coef=r.choice([0.02, 0.9]), tie_word_embeddings=False)


def parameters(r, family, layers):
    """Target parameters for gpt-oss, with ranks and scales of their own: some of the experts' projections, in some of the layers."""
    if not family.startswith(("gpt_oss", "qwen3_5_moe", "gemma4_experts")):
        return {}
    experts = "experts" if family.startswith("gemma4") else "mlp.experts"
    names = [name for name in (experts + ".gate_up_proj", experts + ".down_proj") if r.random() < 0.8]
    names = [f"layers.{r.randrange(layers)}.{name}" if r.random() < 0.3 else name for name in names]
    if not names:
        return {}
    return dict(target_parameters=names, rank_pattern={names[0]: 3}, alpha_pattern={r"layers\.1\..*experts\..*": 5}, use_rslora=r.random() < 0.5)


def gpt_oss_mxfp4(r, c):
    gpt_oss(r, c)
    c.update(hidden_size=r.choice([32, 64, 96]), intermediate_size=r.choice([32, 64, 96]), head_dim=r.choice([8, 16]))


def odd(family, seed, c):
    """What a stranger may choose besides: sizes that divide nothing, one head of keys, heads of any even size, every kind of rotary scaling with its optional keys."""
    r = random.Random(f"odd {family} {seed}")
    moe = "moe" in family or family == "mixtral" or family.startswith("gpt_oss")
    c["vocab_size"] = r.choice([61, 65, 101, 257, 333])
    if r.random() < 0.6:
        c["num_attention_heads"] = r.choice([1, 3, 5, 6, 7])
        c["num_key_value_heads"] = 1 if r.random() < 0.6 else c["num_attention_heads"]
    elif r.random() < 0.5:
        c["num_key_value_heads"] = 1
    if family not in ("phi3", "gpt_oss_mxfp4"):
        c["hidden_size"], c["head_dim"] = r.choice([36, 50, 62, 64, 76]), r.choice([4, 6, 10, 14, 18, 20, 32, 40])
        c["intermediate_size"] = r.choice([34, 51, 74, 95])
        if family == "qwen2_moe":
            c["hidden_size"] = c.pop("head_dim") * c["num_attention_heads"]
    else:
        c["hidden_size"] = c["num_attention_heads"] * 16 if family == "phi3" else 64
    for key in ("moe_intermediate_size", "shared_expert_intermediate_size"):
        if key in c:
            c[key] = r.choice([18, 25, 44])
    if moe and r.random() < 0.2 and not family.startswith(("gpt_oss", "qwen3_5")):
        c.update(num_experts_per_tok=1, **{"num_experts" if "num_experts" in c else "num_local_experts": 1})
    c["rms_norm_eps"], c["num_hidden_layers"] = r.choice([1e-3, 1e-5, 1e-12]), r.choice([1, 2, 3, 5])
    if "layer_types" in c:
        c["layer_types"] = kinds(r, c["num_hidden_layers"])
    elif family in ("qwen2", "qwen3", "smollm3") and r.random() < 0.6:
        c.update(layer_types=kinds(r, c["num_hidden_layers"]), use_sliding_window=True, sliding_window=r.choice([2, 3, 7, 300]))
    if "no_rope_layers" in c:
        c["no_rope_layers"] = [r.choice([0, 1]) for _ in range(c["num_hidden_layers"])]
    if c.get("sliding_window"):
        c["sliding_window"] = r.choice([2, 3, 7, 300])
    c["tie_word_embeddings"] = r.random() < 0.5 and not family.startswith("gpt_oss")
    if family.startswith("qwen3_5"):
        c["rms_norm_eps"] = r.choice([1e-2, 1e-3])
        if "layer_types" in c:
            c["layer_types"] = [r.choice(["linear_attention", "full_attention"]) for _ in range(c["num_hidden_layers"])]
        part = 1.0 if c["head_dim"] % 4 else 0.5
        c["rope_parameters"].update(partial_rotary_factor=part, **r.choice([{}, dict(rope_type="linear", factor=1.7), dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)]))
        c["partial_rotary_factor"] = part
        return
    if r.random() < 0.5:
        c["eos_token_id"] = [2, 5]
    if r.random() < 0.3:
        c.update(bos_token_id=None, pad_token_id=None)
    if family in ("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite", "olmo2", "olmo3", "seed_oss", "ministral", "mistral3", "ministral3", "ministral3_images", "mixtral", "qwen3_moe") and r.random() < 0.3:
        c["hidden_act"] = r.choice(["gelu", "gelu_pytorch_tanh", "swish", "gelu_new"])
    if family == "olmo2":
        c.pop("rope_scaling", None)
        if r.random() < 0.5:
            c["rope_scaling"] = dict(type=r.choice(["linear", "dynamic"]), factor=r.choice([1.5, 3.0]))
    elif family == "phi3":
        c.pop("rope_scaling", None), c.pop("partial_rotary_factor", None)
        turned = int(16 * c.setdefault("partial_rotary_factor", r.choice([1.0, 0.75, 0.5, 0.25])))
        factors = [[1 + k * r.random() for _ in range(turned // 2)] for k in (1, 3)]
        if r.random() < 0.7:
            c.update(original_max_position_embeddings=r.choice([8, 24, 32]), rope_scaling=dict(type="longrope", short_factor=factors[0], long_factor=factors[1]))
    elif not family.startswith("gemma"):
        half, kind = c["head_dim"] // 2 if "head_dim" in c else c["hidden_size"] // c["num_attention_heads"] // 2, r.choice(["default", "linear", "dynamic", "llama3", "yarn", "yarn", "longrope"])
        more = dict(default={}, linear=dict(factor=r.choice([1.0, 1.7])), dynamic=dict(factor=r.choice([2.0, 3.5])),
                    llama3=dict(factor=r.choice([2.0, 32.0]), low_freq_factor=r.choice([1.0, 0.5]), high_freq_factor=4.0, original_max_position_embeddings=r.choice([16, 64])),
                    yarn=dict(factor=r.choice([1.5, 8.0])) | r.choice([{}, dict(attention_factor=1.3), dict(mscale=1.0, mscale_all_dim=0.7), dict(beta_fast=16.0, beta_slow=2.0), dict(truncate=False)])
                    | (dict(original_max_position_embeddings=16) if r.random() < 0.7 else {}),
                    longrope=dict(short_factor=[1 + r.random() for _ in range(half)], long_factor=[1 + 3 * r.random() for _ in range(half)]) | r.choice([{}, dict(factor=8.0, attention_factor=1.2)]))
        if family == "glm4":  # a part of a head; YaRN's ramp in transformers wants an even one
            if kind == "yarn" and int(2 * half * c["partial_rotary_factor"]) % 2:
                c["partial_rotary_factor"] = 1.0
            part = (int(2 * half * c["partial_rotary_factor"]) + 1) // 2
            more["longrope"] = {k: v[:part] if isinstance(v, list) else v for k, v in more["longrope"].items()}
        if kind == "longrope":
            c["original_max_position_embeddings"] = r.choice([8, 16, 24, 200])
        if family.startswith("ministral3"):
            c.pop("original_max_position_embeddings", None)
            if kind == "longrope" and seed % 2:  # greedy texts of it go by another length
                kind = "yarn"
            c["rope_parameters"] = query_scale(r, c) | dict(rope_type=kind) | more[kind]
            return
        c["rope_scaling"] = dict(rope_type=kind) | more[kind] if kind != "default" else None


def to_mxfp4(folder):
    """Stores the experts of a folder as gpt-oss' releases do."""
    import make_mxfp4
    state = {}
    for k, v in load_file(folder / "model.safetensors").items():
        if k.endswith(("gate_up_proj", "down_proj")):
            state[k + "_blocks"], state[k + "_scales"] = make_mxfp4.encode(v)
        else:
            state[k] = v
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | dict(quantization_config=make_mxfp4.QUANTIZATION)))


def load(folder, **more):
    """In float32, what is stored otherwise dequantised; rotary tables are made in float32."""
    config = transformers.AutoConfig.from_pretrained(folder)
    images = "ForConditionalGeneration" in config.architectures[0]
    kind = getattr(transformers, config.architectures[0]) if images else transformers.AutoModelForCausalLM
    eager = dict(experts_implementation="eager") if FIVE else {}  # others want rows of whole 16 bytes
    m = kind.from_pretrained(folder, attn_implementation="eager", **(dict(dtype=torch.float32) | eager | more))
    return m.eval() if more else m.float().eval()


def qwen3_moe(r, c):
    scaling(r, c)
    experts = r.choice([4, 6, 8])
    c.update(num_experts=experts, num_experts_per_tok=r.choice([1, 2, 3]), moe_intermediate_size=r.choice([24, 40]), norm_topk_prob=r.random() < 0.5, attention_bias=r.random() < 0.3,
             decoder_sparse_step=r.choice([1, 1, 2]), mlp_only_layers=r.choice([[], [0]]), output_router_logits=False)


def qwen2_moe(r, c):
    qwen3_moe(r, c)
    del c["head_dim"], c["attention_bias"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(shared_expert_intermediate_size=r.choice([24, 56]), qkv_bias=r.random() < 0.7, hidden_act=r.choice(["silu", "silu", "gelu"]))
    if r.random() < 0.4:
        c.update(use_sliding_window=True, sliding_window=r.choice([5, 9]), max_window_layers=r.choice([0, 1, 2]))


def qwen3_5(r, c):
    """Layers of both kinds or of one; rows of text have no use for mrope's sections, which a file may name."""
    keys, layers = r.choice([1, 2, 3]), r.choice([2, 3, 4, 5])
    c.update(num_hidden_layers=layers, rms_norm_eps=r.choice([1e-2, 1e-3]), attention_bias=r.random() < 0.3, linear_num_key_heads=keys, linear_num_value_heads=keys * r.choice([1, 2, 3]),
             linear_key_head_dim=r.choice([4, 8, 14]), linear_value_head_dim=r.choice([4, 8, 10]), linear_conv_kernel_dim=r.choice([1, 2, 3, 4]))
    how = r.choice(["interval", "types", "both"])
    if how != "types":
        c["full_attention_interval"] = r.choice([1, 2, 3, 4])
    if how != "interval":  # what counts where both are there
        c["layer_types"] = [r.choice(["linear_attention", "full_attention"]) for _ in range(layers)]
    c["max_position_embeddings"] = 256
    part = r.choice([p for p in (0.25, 0.5, 0.75, 1.0) if int(c["head_dim"] * p) % 2 == 0])
    c["rope_parameters"] = dict(rope_type="default", rope_theta=c.pop("rope_theta"), partial_rotary_factor=part, **(dict(mrope_section=[1, 1, 1], mrope_interleaved=True) if r.random() < 0.5 else {}))
    c["partial_rotary_factor"] = part


def qwen3_5_moe(r, c):
    qwen3_5(r, c)
    experts = r.choice([4, 6, 8])
    c.update(num_experts=experts, num_experts_per_tok=r.choice([1, 2, 3]), moe_intermediate_size=r.choice([24, 40]), shared_expert_intermediate_size=r.choice([24, 56]))


def gemma4(r, c):
    """Heads of their own in full layers, values that are keys, last layers that share, inputs of each layer. An epsilon that keeps norms of small sums calm."""
    layers = c["num_hidden_layers"]
    kinds = [r.choice(["sliding_attention", "sliding_attention", "full_attention"]) for _ in range(layers - 1)] + ["full_attention"]
    shared = max((n for n in range(layers - 1) if all(k in kinds[:layers - n] for k in kinds[layers - n:])), default=0)
    c.update(layer_types=kinds, sliding_window=r.choice([5, 9]), global_head_dim=r.choice([8, 16, 24]), attention_k_eq_v=r.random() < 0.5, num_kv_shared_layers=r.choice([0, shared]),
             use_double_wide_mlp=r.random() < 0.5, hidden_size_per_layer_input=r.choice([0, 0, 8]), vocab_size_per_layer_input=c["vocab_size"], rms_norm_eps=1e-2,
             final_logit_softcapping=r.choice([None, 5.0, 30.0]))
    if c["attention_k_eq_v"]:
        c["num_global_key_value_heads"] = r.choice([k for k in range(1, c["num_attention_heads"] + 1) if c["num_attention_heads"] % k == 0])
    c["rope_parameters"] = dict(sliding_attention=dict(rope_type="default", rope_theta=1e4), full_attention=dict(
        rope_type="proportional", rope_theta=c.pop("rope_theta"), partial_rotary_factor=r.choice([0.25, 0.5, 1.0])))


def gemma4_experts(r, c):
    gemma4(r, c)
    experts = r.choice([3, 4, 6])
    c.update(enable_moe_block=True, num_experts=experts, top_k_experts=r.choice([1, 2, 3]), moe_intermediate_size=r.choice([24, 40]))


# What released files of Qwen3.5 name besides, and transformers reads past.
PASSED = dict(attn_output_gate=True, output_gate_type="swish", mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, mlp_only_layers=[])


def gemma3_images(r, c):
    gemma3(r, c)
    c.pop("final_logit_softcapping", None)


FAMILIES = {  # name: the first part of transformers' class names, what its configuration is drawn by
    "llama": ("Llama", llama), "mistral": ("Mistral", mistral), "qwen2": ("Qwen2", qwen2), "qwen3": ("Qwen3", qwen3), "smollm3": ("SmolLM3", smollm3), "granite": ("Granite", granite),
    "olmo2": ("Olmo2", olmo2), "olmo3": ("Olmo3", olmo3), "seed_oss": ("SeedOss", seed_oss), "ernie4_5": ("Ernie4_5", ernie4_5), "glm4": ("Glm4", glm4), "ministral": ("Ministral", ministral), "mistral3": ("Mistral3", mistral3),
    "ministral3": ("Ministral3", ministral3), "ministral3_images": ("Mistral3", ministral3), "gemma": ("Gemma", gemma), "gemma3": ("Gemma3", gemma3_images), "gemma2": ("Gemma2", gemma2), "gemma3_text": ("Gemma3", gemma3), "phi3": ("Phi3", phi3), "mixtral": ("Mixtral", mixtral), "qwen2_moe": ("Qwen2Moe", qwen2_moe), "qwen3_moe": ("Qwen3Moe", qwen3_moe), "gpt_oss": ("GptOss", gpt_oss), "gpt_oss_mxfp4": ("GptOss", gpt_oss_mxfp4),
    "qwen3_5": ("Qwen3_5", qwen3_5), "qwen3_5_text": ("Qwen3_5", qwen3_5), "qwen3_5_moe": ("Qwen3_5Moe", qwen3_5_moe), "qwen3_5_moe_text": ("Qwen3_5Moe", qwen3_5_moe),
    "gemma4": ("Gemma4", gemma4), "gemma4_text": ("Gemma4", gemma4), "gemma4_experts": ("Gemma4", gemma4_experts), "gemma4_experts_text": ("Gemma4", gemma4_experts),
}


LINEAR_EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe")
IMAGES = {"gemma3": {}, "mistral3": dict(model_type="mistral"), "ministral3_images": dict(model_type="ministral3"), "qwen3_5": {}, "qwen3_5_moe": {}, "gemma4": {}, "gemma4_experts": {}}  # the language model of a folder with images
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=28, patch_size=14)
VISION_QWEN = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2, spatial_merge_size=1, temporal_patch_size=1, num_position_embeddings=4)
VISION_GEMMA4 = dict(num_hidden_layers=1, hidden_size=8, intermediate_size=8, num_attention_heads=1, num_key_value_heads=1, head_dim=8, patch_size=1, position_embedding_size=4,
                     pooling_kernel_size=1)


def build(family, c):
    name = FAMILIES[family][0]
    if family.startswith("gemma4") and family in IMAGES:
        config = transformers.Gemma4Config(text_config=c, vision_config=VISION_GEMMA4, audio_config=None, tie_word_embeddings=c["tie_word_embeddings"], attn_implementation="eager")
        return transformers.Gemma4ForConditionalGeneration(config).eval()
    if family.startswith("qwen3_5") and family in IMAGES:
        config = getattr(transformers, f"{name}Config")(text_config=c, vision_config=VISION_QWEN | dict(out_hidden_size=c["hidden_size"]), tie_word_embeddings=c["tie_word_embeddings"], attn_implementation="eager")
        return getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    if family in IMAGES:
        more = dict(mm_tokens_per_image=4, vision_config=VISION) if family == "gemma3" else dict(vision_config=VISION | dict(head_dim=8))
        if family == "ministral3_images":
            more["tie_word_embeddings"] = c["tie_word_embeddings"]
        config = getattr(transformers, f"{name}Config")(text_config=c | IMAGES[family], **more)
        return getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    config = (getattr(transformers, f"{name}TextConfig", None) or getattr(transformers, f"{name}Config"))(**c, attn_implementation="eager")
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def spell(config, how):
    """A config.json as transformers before 4.56 or transformers 5 writes it."""
    if "text_config" in config:
        config["text_config"] = spell(config["text_config"], how)
    if how == "old":
        if "dtype" in config:
            config["torch_dtype"] = config.pop("dtype")
        if "llama_4_scaling_beta" in config.get("rope_parameters", {}):  # transformers 5 reads them in this place too
            config["rope_scaling"] = config.pop("rope_parameters")
            config["rope_theta"] = config["rope_scaling"].pop("rope_theta")
        return config
    if "rope_theta" not in config:
        return config
    rope = dict(config.pop("rope_scaling", None) or dict(rope_type="default"))
    rope.setdefault("rope_type", rope.pop("type", None))
    rope["rope_theta"] = config.pop("rope_theta")
    if "partial_rotary_factor" in config:
        rope["partial_rotary_factor"] = config.pop("partial_rotary_factor")
    if rope["rope_type"] == "longrope":
        rope["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    if "rope_local_base_freq" in config:
        rope = dict(full_attention=rope, sliding_attention=dict(rope_type="default", rope_theta=config.pop("rope_local_base_freq")))
    config["rope_parameters"] = rope
    return config


def longest(family):
    return 150 if family.startswith("qwen3_5") else 49  # transformers has the gated delta rule in chunks of 64 tokens


def make(family, seed, folder, strange=False):
    """A model in folder/model, as the program reads it, and in folder/reference, as transformers does."""
    r = random.Random(f"{family} {seed}")
    c = common(r)
    FAMILIES[family][1](r, c)
    if strange:
        odd(family, seed, c)
    torch.manual_seed(seed)
    m = build(family, c)
    g = torch.Generator().manual_seed(seed)
    plus = family.startswith(("gemma", "qwen3_5")) and not family.startswith("gemma4")
    with torch.no_grad():
        for n, p in sorted(m.named_parameters()):
            if of_images(n):
                continue
            if p.dim() == 1 and "norm" in n:
                p.copy_((0 if plus and "linear_attn" not in n else 1) + 0.2 * torch.randn(p.shape, generator=g))
            elif p.dim() == 1:
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
            elif "embed_tokens" in n:
                p.copy_(0.3 * torch.randn(p.shape, generator=g) / c.get("embedding_multiplier", 1.0))
            else:
                p.copy_(1.2 * torch.randn(p.shape, generator=g) / p.shape[-1] ** 0.5)
    stored = r.choice([torch.bfloat16, torch.float32, torch.float16])
    shards = {} if family.endswith("mxfp4") or r.random() < 0.7 else dict(max_shard_size="40KB")
    m.to(stored).save_pretrained(folder / "model", **shards)
    if family.startswith("qwen3_5") and not shards:
        as_released(folder / "model", r)
    if family.endswith("mxfp4"):
        to_mxfp4(folder / "model")
    if seed % 2:  # rows of ids need no tokenizer
        words = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab={f"t{i}" if i > 2 else f"<{i}>": i for i in range(c["vocab_size"])}, unk_token="t3"))
        words.pre_tokenizer, words.decoder = tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.decoders.WordPiece()
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<1>", eos_token="<2>", pad_token="<0>").save_pretrained(folder / "model")
    shutil.copytree(folder / "model", folder / "reference")
    how = r.choice(["as saved", "old", "transformers 5"])
    if how != "as saved":
        path = folder / "model" / "config.json"
        path.write_text(json.dumps(spell(json.loads(path.read_text()), how)))
    m = load(folder / "reference")
    rows = []
    for _ in range(6):
        ids = [r.randrange(3, c["vocab_size"]) for _ in range(r.randrange(6, longest(family)))]
        cut = r.randrange(0, len(ids) // 2)
        rows.append(dict(input_ids=ids, labels=[-100] * cut + ids[cut:]))
    (folder / "rows.jsonl").write_text("".join(json.dumps(x) + "\n" for x in rows))
    return m, rows, c, r


def of_images(name):
    return any(part in name for part in ("vision", "visual", "projector"))


def as_released(folder, r):
    """What released folders of Qwen3.5 hold besides: keys and tensors that the language model does not read."""
    config = json.loads((folder / "config.json").read_text())
    config.get("text_config", config).update({k: v for k, v in PASSED.items() if r.random() < 0.7})
    if "text_config" in config and r.random() < 0.5:
        config["language_model_only"] = False
    (folder / "config.json").write_text(json.dumps(config))
    if r.random() < 0.5:
        state = load_file(folder / "model.safetensors") | {"mtp.fc.weight": torch.ones(4, 8), "mtp.layers.0.self_attn.q_proj.weight": torch.ones(2, 2)}
        save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})


def nll(m, rows):
    total, n = 0.0, 0
    for row in rows:
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"][1:])
        with torch.no_grad():
            logits = m(input_ids=ids, use_cache=False).logits[0, :-1].double()
        keep = labels != -100
        total += float(torch.nn.functional.cross_entropy(logits[keep], labels[keep], reduction="sum"))
        n += int(keep.sum())
    return total / n


def run(*command):
    p = subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=300)
    if p.returncode:
        raise RuntimeError(f"exit code {p.returncode}: {(p.stderr or p.stdout).strip()[-700:]}")
    return p.stdout


worst = {}  # of each comparison, the largest relative difference and whose it is


def differs(what, ours, theirs, of):
    off = abs(ours - theirs) / abs(theirs)
    worst[what] = max(worst.get(what, (0, "")), (off, of))
    if not off <= BOUND:
        raise RuntimeError(f"{what}: {ours!r}, transformers {theirs!r}: {off:.2g} relative")


def greedy(trainer, folder, m, rows):
    """Ten tokens after the beginnings of rows, without transformers' cache: with one, its windows differ from those that it evaluates with where config.json names no
    layer_types, and at one token. LongRoPE goes by prompt and answer together, as docs/internals/NUMERICS.md says."""
    config = m.config.get_text_config()
    original = getattr(config, "original_max_position_embeddings", None)
    for row in rows[:3]:
        ids = row["input_ids"][:16]
        made = json.loads(run(trainer, "generate", "--model", folder / "model", "--prompt", " ".join(f"t{i}" for i in ids), "--max-tokens", 10, "--json"))
        if original and len(ids) + 10 > original:
            config.original_max_position_embeddings = 1
        ends = config.eos_token_id
        theirs, text = [], list(ids)
        while len(theirs) < 10 and not (theirs and theirs[-1] in (ends if isinstance(ends, list) else [ends])):
            with torch.no_grad():
                theirs.append(int(m(input_ids=torch.tensor([text + theirs]), use_cache=False).logits[0, -1].argmax()))
        if original:
            config.original_max_position_embeddings = original
        if made["stopped"] == "end":
            made["ids"].append(theirs[-1])
        if made["prompt_tokens"] != len(ids) or made["ids"] != theirs:
            raise RuntimeError(f"greedy: {made}, transformers {theirs}")


def scale_codes(v, table):
    """The entries that the program has for numbers in [-1,1], as bitsandbytes' CUDA code: the nearest, of two that are as near the one that a binary search stands
    on last."""
    at, below, above = torch.full(v.shape, 127), torch.zeros(v.shape, dtype=torch.long), torch.full(v.shape, 255)
    for step in (64, 32, 16, 8, 4, 2, 1):
        up = v > table[at]
        below, above, at = torch.where(up, at, below), torch.where(up, above, at), torch.where(up, at + step, at - step)
    up = v > table[at]
    return torch.where(up, torch.where(v > (table[above] + table[at]) * 0.5, above, at), torch.where(v < (table[below] + table[at]) * 0.5, below, at))


def scales_on_midpoints(weight):
    """Whether a scale has another code than by bitsandbytes' CPU code before 0.50, which has the lower one of two that are as near."""
    import bitsandbytes.functional as F
    table = F.create_dynamic_map()
    table[0] = -1
    _, state = F.quantize_4bit(weight.contiguous(), blocksize=64, quant_type="nf4", compress_statistics=False)
    off = state.absmax.float() - state.absmax.float().mean()
    theirs, _ = F.quantize_blockwise(off, blocksize=256)
    return any(bool((scale_codes(b * (1 / b.abs().max()), table) != t).any()) for b, t in zip(off.split(256), theirs.split(256)) if b.abs().max() > 0)


def nf4_midpoints():
    import bitsandbytes.functional as F
    table = torch.tensor(F.get_4bit_type("nf4", device="cpu").tolist(), dtype=torch.float64)
    return ((table[1:] + table[:-1]) / 2).float()


def on_midpoints(weight):
    """How many scaled weights are a midpoint of NF4's entries, of which bitsandbytes' device code takes the lower and its CPU code from 0.49 on either."""
    flat = weight.float().reshape(-1)
    return sum(int(torch.isin(b * (1 / b.abs().max()), nf4_midpoints()).sum()) for b in flat.split(64))


def in_nf4(m):
    """The weights that NF4 with double quantisation stands for, of every linear layer of the language model but the head, midpoints as in bitsandbytes' device
    code. The table of scales has -1 as its lowest entry, as bitsandbytes' CPU code had it before 0.50 (decision 0037)."""
    import bitsandbytes.functional as F
    table = F.create_dynamic_map()
    table[0] = -1
    with torch.no_grad():
        for n, mod in m.named_modules():
            if isinstance(mod, torch.nn.Linear) and not n.endswith("lm_head") and not of_images(n):
                round_nf4(mod.weight, table)
        if m.config.model_type == "gpt_oss":  # its experts stay as they are stored
            return m
        for n, p in m.named_parameters():  # experts, each matrix by itself, which transformers has as parameters
            if n.endswith("experts.gate_up_proj"):
                for w in p:
                    for half in w.chunk(2):
                        round_nf4(half, table)
            elif n.endswith("experts.down_proj") and p.dim() == 3:
                for w in p:
                    round_nf4(w, table)
            elif n.endswith("mlp.gate.weight") and m.config.model_type in LINEAR_EXPERTS and FIVE:  # the router, a linear layer under transformers 4
                round_nf4(p, table)
    return m


def round_nf4(weight, table):
    import bitsandbytes.functional as F
    codes, state = F.quantize_4bit(weight.data.contiguous(), blocksize=64, quant_type="nf4", compress_statistics=False)
    if on_midpoints(weight):
        each = torch.cat([torch.bucketize(b * (1 / b.abs().max()), nf4_midpoints()) for b in weight.data.reshape(-1).split(64)])
        each = torch.nn.functional.pad(each, (0, len(each) % 2), value=7)
        codes = (each[::2] << 4 | each[1::2]).to(torch.uint8).view(codes.shape)
    offset = state.absmax.mean()
    for scales in state.absmax.split(256):  # views
        top = (scales - offset).abs().max()
        scales.copy_(table[scale_codes((scales - offset) * (1 / top), table)] * top + offset if top > 0 else scales)
    weight.copy_(dequantise_4bit(codes, state))


def prequantised(trainer, family, folder, rows, r, of):
    """A folder that bitsandbytes quantised."""
    options = [dict(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested) for kind in ("nf4", "fp4") for nested in (False, True)]
    options.append(dict(load_in_8bit=True))
    o = dict(r.choice(options))
    reference = load(folder / "reference")
    original = reference.state_dict()
    linear = [mod.weight.data for n, mod in reference.named_modules() if isinstance(mod, torch.nn.Linear) and not n.endswith("lm_head") and not of_images(n)]
    dtype = torch.float16 if "load_in_8bit" in o else torch.bfloat16
    if "load_in_4bit" in o and any(v.numel() % 64 for v in linear):
        dtype = torch.float32  # on a CPU bitsandbytes scales a last block that is not full in 16 bits, where the weight is in 16 bits
    original = {k: v.to(dtype).float() for k, v in original.items()}
    images = ["vision_tower", "multi_modal_projector", "visual", "embed_vision"] if r.random() < 0.5 or family.startswith(("qwen3_5", "gemma4")) else []
    few = load(folder / "reference").config.get_text_config().num_hidden_layers < 2
    layers = [n for n in ("self_attn", "layers.0.mlp", "down_proj") if r.random() < 0.25 and "moe" not in family and "experts" not in family and family != "mixtral" and not few]
    skipped = ["lm_head"] + images + layers
    q = load(folder / "reference", dtype=dtype, device_map={"": "cpu"}, quantization_config=transformers.BitsAndBytesConfig(**o, llm_int8_skip_modules=skipped))
    q.save_pretrained(folder / "bnb")
    m = load(folder / "reference")
    m.load_state_dict(original | dequantised(q))
    base = ["--set", f"base_model={folder}/bnb", "--set", "adapter=qlora"]
    value = lambda *more: json.loads(run(trainer, "eval", folder / "run.yaml", "--json", *more))["eval_loss"]
    stored = [f"--set=quantization.{k}={v}" for k, v in (dict(bits=8, type="int8", double_quant="false") if "load_in_8bit" in o else
              dict(bits=4, type=o["bnb_4bit_quant_type"], double_quant=str(o["bnb_4bit_use_double_quant"]).lower())).items()]
    ours = value(*base, *stored)
    differs("mean NLL of bitsandbytes' folder", ours, nll(m, rows), of)
    other_bytes = o.get("bnb_4bit_use_double_quant") and nested_table(folder) != -1  # of scales, from bitsandbytes 0.50 on, which also rounds FP4 otherwise
    other_bytes = other_bytes or o.get("bnb_4bit_quant_type") == "fp4" and version("bitsandbytes") >= "0.50"
    other_bytes = other_bytes or family.startswith(("qwen3_5_moe", "gemma4_experts")) or FIVE and family in LINEAR_EXPERTS  # bitsandbytes leaves experts that are parameters as they are
    other_bytes = other_bytes or o.get("bnb_4bit_quant_type") == "nf4" and any(on_midpoints(v.to(dtype)) for v in linear)
    other_bytes = other_bytes or o.get("bnb_4bit_use_double_quant") and any(scales_on_midpoints(v.to(dtype)) for v in linear)
    if not layers and dtype in (json_dtype(folder), torch.float32) and not other_bytes:
        here = value("--set", "adapter=qlora", *stored)
        # torch adds up the scales, whose mean double quantisation stores, in float32: exact in bf16, else off by a rounding, and then a scale may have another code
        if here != ours and not (o.get("bnb_4bit_use_double_quant") and json_dtype(folder) != torch.bfloat16 and abs(here - ours) < BOUND * ours):
            raise RuntimeError(f"{o}: bitsandbytes' folder evaluates to {ours!r}, the model quantised here to {here!r}")
    return f"; {o.get('bnb_4bit_quant_type', 'int8')}{' nested' * o.get('bnb_4bit_use_double_quant', False)}{' dynamic' * bool(layers)}"


def nested_table(folder):
    return min(float(v[0]) for f in (folder / "bnb").glob("*.safetensors") for k, v in load_file(f).items() if k.endswith("nested_quant_map"))


def json_dtype(folder):
    config = json.loads((folder / "reference" / "config.json").read_text())
    return getattr(torch, config["dtype"])


def back(trainer, folder, adapted, value, rows, of):
    """An adapter of PEFT's own with B that is not zero: evaluated, started from, and merged."""
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for n, p in sorted(adapted.named_parameters()):
            if "lora_" in n:
                p.copy_(0.2 * torch.randn(p.shape, generator=g))
    adapted.save_pretrained(folder / "peft")
    theirs = nll(adapted, rows)
    differs("mean NLL with PEFT's adapter", value("--adapter", folder / "peft"), theirs, of)
    run(trainer, "train", folder / "run.yaml", "--quiet", "--set", f"lora.init_from={folder}/peft", "--set", f"output_dir={folder}/again", "--set", "training.learning_rate=1e-30")
    ours, peft = load_file(folder / "again/adapter_model.safetensors"), load_file(folder / "peft/adapter_model.safetensors")
    if ours.keys() != peft.keys() or any(not torch.allclose(ours[k], peft[k], rtol=0, atol=1e-6) for k in ours):
        raise RuntimeError("an adapter started from PEFT's is another without training")
    run(trainer, "merge", "--model", folder / "model", "--adapter", folder / "peft", "--out", folder / "merged")
    merged = load(folder / "merged")
    wide = adapted.merge_and_unload().state_dict()
    for n, p in merged.state_dict().items():
        if not torch.allclose(p, wide[n], rtol=2 ** -8, atol=1e-6 * float(wide[n].abs().max())):  # as the base is stored
            raise RuntimeError(f"merged: {n} differs by {float((p - wide[n]).abs().max())}")


TEXT = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj|in_proj_qkv|in_proj_z|in_proj_b|in_proj_a|out_proj|shared_expert_gate|router\.proj|per_layer_model_projection|per_layer_input_gate|per_layer_projection)"  # images have layers of these names too


def check(trainer, family, seed, folder, strange=False):
    m, rows, c, r = make(family, seed, folder, strange)
    of = f"{family} {seed}"
    more = parameters(r, family, c["num_hidden_layers"])
    config = dict(base_model=str(folder / "model"), adapter="lora", lora=dict(r=4, alpha=8, target_modules="all-linear") | more, device="cpu",
                  dataset=dict(path=str(folder / "rows.jsonl"), format="tokenized", max_length=max(64, longest(family)), packing=r.random() < 0.5),
                  training=dict(max_steps=12, batch_size=2, learning_rate=1e-2, logging_steps=1), output_dir=str(folder / "run"))
    (folder / "run.yaml").write_text(json.dumps(config))  # JSON is YAML
    value = lambda *more: json.loads(run(trainer, "eval", folder / "run.yaml", "--json", *more))["eval_loss"]
    ours, theirs = value(), nll(m, rows)
    differs("mean NLL", ours, theirs, of)
    if family.startswith("qwen3_5"):
        for packing in ("true", "false"):  # no state of one row reaches the next
            differs("mean NLL, rows packed and not", value("--set", f"dataset.packing={packing}"), theirs, of)
    if seed % 2:
        greedy(trainer, folder, m, rows)

    run(trainer, "train", folder / "run.yaml", "--quiet")
    tensors = load_file(folder / "run/adapter_model.safetensors")
    saved = json.loads((folder / "run/adapter_config.json").read_text())
    targets = TEXT if family in IMAGES else "all-linear"
    fresh = get_peft_model(load(folder / "reference"), LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM", **more))
    want = {k: tuple(v.shape) for k, v in get_peft_model_state_dict(fresh).items()}
    got = {k: tuple(v.shape) for k, v in tensors.items()}
    if got != want and not (FIVE and family in LINEAR_EXPERTS):
        raise RuntimeError(f"the adapter has not PEFT's names: more {sorted(set(got) - set(want))[:3]}, less {sorted(set(want) - set(got))[:3]} (target_modules {saved['target_modules']})")
    adapted = PeftModel.from_pretrained(load(folder / "reference"), folder / "run").eval()
    differs("mean NLL with the adapter", value("--adapter", folder / "run"), nll(adapted, rows), of)
    if more:
        back(trainer, folder, adapted, value, rows, of)

    run(trainer, "train", folder / "run.yaml", "--quiet", "--set", "adapter=qlora", "--set", f"output_dir={folder}/qrun")
    losses = [json.loads(line) for line in (folder / "qrun/metrics.jsonl").read_text().splitlines()]
    losses = [x["loss"] for x in losses if "loss" in x]
    if len(losses) < 12 or not min(losses[-4:]) < losses[0]:
        raise RuntimeError(f"QLoRA's losses do not fall: {losses}")
    adapted = PeftModel.from_pretrained(in_nf4(load(folder / "reference")), folder / "qrun").eval()
    differs("mean NLL with QLoRA's adapter", value("--set", "adapter=qlora", "--adapter", folder / "qrun"), nll(adapted, rows), of)
    quantised = "" if family.startswith("gpt_oss") else prequantised(trainer, family, folder, rows, r, of)
    return f"mean NLL {ours:.6f}, off by {abs(ours - theirs) / theirs:.1g}; QLoRA {losses[0]:.3f} -> {losses[-1]:.3f}{quantised}"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("trainer", type=pathlib.Path)
    ap.add_argument("--seeds", type=int, default=3)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--odd", action="store_true", help="sizes that divide nothing, and rare options")
    ap.add_argument("--families", default=",".join(f for f, (name, _) in FAMILIES.items() if hasattr(transformers, name + "Config") and IMAGES.get(f, {}).get("model_type", "llama") in transformers.CONFIG_MAPPING))
    ap.add_argument("--keep", type=pathlib.Path, help="folder for the models and runs")
    a = ap.parse_args()
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for family in a.families.split(","):
            for seed in range(a.first, a.first + a.seeds):
                folder = (a.keep or pathlib.Path(scratch)) / f"{family}-{seed}"
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    print(f"{family} {seed}: {check(a.trainer.resolve(), family, seed, folder, a.odd)}", flush=True)
                except Exception as e:  # every model is tried
                    failed += 1
                    print(f"{family} {seed}: FAILED: {type(e).__name__}: {e}", flush=True)
    for what, (off, of) in worst.items():
        print(f"{what}: off by at most {off:.1g} ({of})")
    if failed:
        sys.exit(f"{failed} failed")


main()
