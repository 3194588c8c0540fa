#!/usr/bin/env python3
"""Makes testdata/dialects, testdata/more_dialects and testdata/dialect_experts: tiny random models of families that differ little from others, without and with mixtures of
experts, as make_state_space.py makes its models: logits by transformers, LoRA gradients of all linear layers and of the experts' parameters by PEFT, greedy texts, mean NLL, and 20
steps of QLoRA. Weights have few different values, which pack well.

    python internal/golden/make_dialects.py [OUT]

Made with torch 2.11.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU. PEFT would take the names of shared experts for experts: its conversion of
names is left out, so that they are adapted too.
"""
import copy
import json
import pathlib
import sys

import peft.utils.transformers_weight_conversion as conversion
import torch
import transformers

import make_experts
import make_families
import make_fused_experts
import make_parameter_experts
from make_parameter_experts import plain_runs

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
SIZES = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=64,
             vocab_size=make_families.VOCAB, bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5, tie_word_embeddings=True)
EXPERTS = dict(SIZES, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2)
COHERE = {k: v for k, v in SIZES.items() if k not in ("head_dim", "rms_norm_eps")} | dict(pad_token_id=0, logit_scale=0.5)

# name: (classes of transformers, name of its weights, what the model is)
MODELS = {
    "hunyuan_v1_dense": ("HunYuanDenseV1", "hunyuan_v1_dense", dict(SIZES, attention_bias=True, rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, alpha=50.0, factor=1.0))),
    "apertus": ("Apertus", "apertus", dict(SIZES, rope_parameters=dict(rope_type="llama3", rope_theta=1e4, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                                      original_max_position_embeddings=16))),
}
MORE = {
    "arcee": ("Arcee", "arcee", dict(SIZES, rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16))),
    "cohere": ("Cohere", "cohere", dict(COHERE, attention_bias=True)),
    "cohere2": ("Cohere2", "cohere2", dict(COHERE, sliding_window=5, layer_types=[SLIDING, FULL])),
    "glm": ("Glm", "glm", dict(SIZES, pad_token_id=0, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
}
MIXTURES = {
    "qwen3_next": ("Qwen3Next", "qwen3_next", dict(EXPERTS, rms_norm_eps=1e-2, shared_expert_intermediate_size=8, layer_types=[LINEAR, FULL], linear_num_key_heads=2, linear_num_value_heads=4,
                                                  linear_key_head_dim=4, linear_value_head_dim=4, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
    "afmoe": ("Afmoe", "afmoe", dict(EXPERTS, num_dense_layers=1, num_shared_experts=1, route_scale=1.5, sliding_window=5, layer_types=[SLIDING, FULL], mup_enabled=True)),
}
RATES = dict.fromkeys([*MODELS, *MORE, *MIXTURES], 1e-2)
SEEDS = dict.fromkeys(RATES, 1) | {"qwen3_next": 5}
PARAMETERS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
CORRECTIONS = "e_score_correction_bias", "expert_bias"


def coarse(x, parts=2):
    """The nearest multiples of a part of the power of two near the numbers' size."""
    step = 2.0 ** round(float(x.square().mean().sqrt().log2())) / parts
    return (x / step).round() * step


def build(kind, extra, seed):
    config = getattr(transformers, kind + "Config")(**extra, attn_implementation="eager")
    config._experts_implementation = "eager"
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    make_families.randomise(m, SEEDS[config.model_type])
    g = torch.Generator().manual_seed(100 + SEEDS[config.model_type])
    less_one = kind == "Qwen3Next"  # norms whose weights are stored less one
    for name, p in sorted([*m.named_buffers(), *m.named_parameters()]):
        if name.endswith(CORRECTIONS):
            p.data = coarse(0.2 * torch.rand(p.shape, generator=g))
        elif name.endswith(("norm.weight", "layernorm.weight")):
            p.data = coarse(p.data - 1) + (0 if less_one and "linear_attn" not in name else 1)
        elif not isinstance(p, torch.nn.Parameter):
            pass
        elif p.dim() == 3 and "conv" not in name:  # of a stack the second dimension is not what a product sums over
            p.data = coarse(p.data * (p.shape[1] / p.shape[2]) ** 0.5)
        else:
            p.data = coarse(p.data)
    return config, m


def in_nf4(m):
    """make_fused_experts.in_nf4, but for routers, which are no linear layers."""
    low = make_fused_experts.in_nf4(m)
    for (n, p), (_, was) in zip(low.named_parameters(), m.named_parameters()):
        if n.endswith(("mlp.gate.weight",) + CORRECTIONS):
            p.data = was.data.clone()
    return low


def watch_leads(peft):
    """make_experts.watch_leads, of routers that return more than logits."""
    leads = []
    for n, module in peft.named_modules():
        if n.endswith("mlp.gate"):
            module.register_forward_hook(lambda m, _x, y: leads.append(make_experts.lead_of(y[0].detach(), m.top_k)))
        elif n.endswith("mlp.router"):
            module.register_forward_hook(lambda m, x, y: leads.append(make_experts.lead_of(y[0].detach().sigmoid() + x[1], m.top_k)))
    return leads


def with_experts(name, m, folder, runs, rate):
    """What runs of mixtures have beside those of others."""
    low = make_experts.curve(copy.deepcopy(m), folder, rate, low=True)["loss"]
    off = [abs(a - b) / b for a, b in zip(low, runs["curve"]["loss"])]
    runs["clear"] = make_experts.clear(m, folder)
    runs["bf16"] |= {"curve": sum(off) / len(off), "gradient_nf4": make_experts.bf16_errors(in_nf4(m), folder)["gradient"]}


def runs_of(out, models, mixtures):
    for name, (_, m) in models.items():
        if name not in RATES:
            continue
        folder = out / (name + ".lora")
        lora = dict(target_modules="all-linear", r=1, lora_alpha=2) | (dict(target_parameters=PARAMETERS) if mixtures else {})
        make_families.gradients(out, name, copy.deepcopy(m), lora, coarse)
        runs = make_experts.nll(m) | make_experts.greedy(m, [[1, 5, 9, 30], [1, 40]]) if mixtures else plain_runs(m)
        runs["curve"] = make_experts.curve(copy.deepcopy(m), folder, RATES[name])
        runs["bf16"] = make_experts.bf16_errors(m, folder)
        if mixtures:
            with_experts(name, m, folder, runs, RATES[name])
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], "lead of the experts", runs["curve"]["lead"],
              runs.get("clear"), runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata"
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    conversion._convert_peft_config_moe = lambda *_: None
    make_families.T = 12  # small files
    for folder, models in (("dialects", MODELS), ("more_dialects", MORE), ("dialect_experts", MIXTURES)):
        mixtures, folder = models is MIXTURES, out / folder
        folder.mkdir(parents=True, exist_ok=True)
        make_experts.in_nf4, make_experts.watch_leads = (in_nf4, watch_leads) if mixtures else (make_experts.in_nf4, lambda _: [0.0])
        made = make_families.logits(folder, models, build)
        for name in {w for _, w, _ in models.values()} & make_parameter_experts.RELEASED.keys():
            make_parameter_experts.release(str(folder / (name + ".safetensors")), name)
        runs_of(folder, made, mixtures)
        make_experts.tokenizer(folder / "tokenizer.json")
        for f in folder.rglob("*"):
            f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
