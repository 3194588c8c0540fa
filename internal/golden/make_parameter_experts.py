#!/usr/bin/env python3
"""Makes testdata/parameter_experts: tiny random mixtures whose routers choose experts by scores, of families whose routers and experts are
parameters in transformers 5, as make_scored_experts.py makes others: logits, mean NLL, greedy text, LoRA gradients of all linear layers and
of the experts' parameters, and 20 steps of QLoRA; and testdata/short_conv, LFM2 without experts.

    python internal/golden/make_parameter_experts.py [OUT]

Made with torch 2.15.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU. PEFT would take the names of some families'
shared experts for experts: its conversion of names is left out, so that they are adapted too.
"""
import copy
import json
import pathlib
import sys

import peft.utils.transformers_weight_conversion as conversion
import torch
from safetensors.torch import load_file, save_file

import make_experts
import make_families
import make_fused_experts
from make_linear_attention import calm
from make_families import SIZES

CONV, FULL = "conv", "full_attention"
SMALL = dict(hidden_size=24, intermediate_size=24, num_attention_heads=3, num_key_value_heads=1)
HEAD = dict(SMALL, head_dim=8)
LFM2 = dict(SMALL, norm_eps=1e-5, conv_L_cache=3)

# name: (classes of transformers, name of its weights, what differs from SIZES)
MODELS = {
    "ernie4_5_moe": ("Ernie4_5_Moe", "ernie4_5_moe", dict(HEAD, moe_intermediate_size=8, moe_num_experts=4, moe_k=2, moe_num_shared_experts=2, tie_word_embeddings=True)),
    "lfm2_moe": ("Lfm2Moe", "lfm2_moe", dict(LFM2, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2, num_dense_layers=1, routed_scaling_factor=1.5, layer_types=[CONV, FULL])),
    "minimax_m2": ("MiniMaxM2", "minimax_m2", dict(HEAD, intermediate_size=8, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True,
                                                   rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5))),
}
CONVS = {
    "lfm2": ("Lfm2", "lfm2", dict(LFM2, num_hidden_layers=3, layer_types=[CONV, FULL, CONV], block_multiple_of=8)),
}
RATES = {"ernie4_5_moe": 1e-2, "lfm2": 1e-2, "lfm2_moe": 1e-2, "minimax_m2": 1e-2}
PARAMETERS = {name: [f"{block}.experts.gate_up_proj", f"{block}.experts.down_proj"] for name, block in
              (("ernie4_5_moe", "mlp"), ("lfm2_moe", "feed_forward"), ("minimax_m2", "mlp"))}
SEEDS = {"ernie4_5_moe": 1, "lfm2": 2, "lfm2_moe": 3, "minimax_m2": 6}


def rounded(x):
    return x.bfloat16().float()


def build(kind, extra, seed):
    import transformers
    config = getattr(transformers, kind + "Config")(**{**SIZES, **extra}, attn_implementation="eager")
    config._experts_implementation = "eager"
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    seed = SEEDS[config.model_type]
    make_families.randomise(m, seed)
    g = torch.Generator().manual_seed(100 + seed)
    for name, p in sorted([*m.named_parameters(), *m.named_buffers()]):
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            p.data = rounded(0.2 * torch.rand(p.shape, generator=g))
        elif name.endswith(("norm.weight", "layernorm.weight")):
            pass
        elif p.dim() == 3 and "conv" not in name:  # a stack of experts
            p.data = rounded(p.data * (p.shape[1] / p.shape[2]) ** 0.5)
    return config, m


def in_nf4(m):
    """make_fused_experts.in_nf4, but for routers and corrections, which are no linear layers."""
    low = make_fused_experts.in_nf4(m)
    for (n, p), (_, was) in zip(low.named_parameters(), m.named_parameters()):
        if n.endswith((".gate.weight", "correction_bias")):
            p.data = was.data.clone()
    return low


def watch_leads(peft):
    """make_experts.watch_leads, by corrected scores."""
    leads = []

    def look(m, x, y):
        logits = y[0].detach()
        if hasattr(m, "moe_statics"):
            leads.append(make_experts.lead_of(m.moe_statics(logits.softmax(-1)), m.top_k))
        else:
            leads.append(make_experts.lead_of(logits.sigmoid() + x[1], m.top_k))

    for n, module in peft.named_modules():
        if n.endswith((".mlp.gate", ".feed_forward.gate")):
            module.register_forward_hook(look)
    return leads


# name: (block in transformers, block in a release, names of an expert's layers, correction in transformers and in a release)
LATENT = ("mlp", "mlp", ("gate_proj", "up_proj", "down_proj"), "gate.e_score_correction_bias", "gate.e_score_correction_bias")
RELEASED = {"ernie4_5_moe": ("mlp", "mlp", ("gate_proj", "up_proj", "down_proj"), "gate.moe_statics.e_score_correction_bias", "moe_statics.e_score_correction_bias"),
            "lfm2_moe": ("feed_forward", "feed_forward", ("w1", "w3", "w2"), "expert_bias", "expert_bias"),
            "deepseek_v2": LATENT, "glm4_moe_lite": LATENT, "qwen3_next": LATENT,
            "afmoe": ("mlp", "mlp", ("gate_proj", "up_proj", "down_proj"), "expert_bias", "expert_bias"),
            "minimax_m2": ("mlp", "block_sparse_moe", ("w1", "w3", "w2"), "e_score_correction_bias", "e_score_correction_bias")}


def release(path, name):
    """Writes a file anew with the names of a release, which save_pretrained writes too: a tensor for each expert."""
    block, to, (gate, up, down), correction, its = RELEASED[name]
    state = {}
    for k, v in load_file(path).items():
        layer, mixed, rest = k.partition("." + block + ".")
        if not mixed or rest not in (correction, "gate.weight", "experts.gate_up_proj", "experts.down_proj"):
            state[k] = v
        elif rest == "experts.gate_up_proj":
            for e, w in enumerate(v):
                state[f"{layer}.{to}.experts.{e}.{gate}.weight"], state[f"{layer}.{to}.experts.{e}.{up}.weight"] = (x.contiguous() for x in w.chunk(2))
        elif rest == "experts.down_proj":
            state |= {f"{layer}.{to}.experts.{e}.{down}.weight": w.contiguous() for e, w in enumerate(v)}
        else:
            state[f"{layer}.{to}.{its if rest == correction else rest}"] = v
    save_file(state, path, metadata={"format": "pt"})


def curves(out, models, mixtures):
    for name, (_, m) in models.items():
        folder = out / (name + ".lora")
        if mixtures:
            release(str(out / (name + ".safetensors")), name)
        linear = sorted({n.rsplit(".", 1)[-1] for n, x in m.named_modules() if isinstance(x, torch.nn.Linear) and n != "lm_head"})
        lora = dict(target_modules=linear, r=1 if mixtures else 2, lora_alpha=2)
        if mixtures:
            lora["target_parameters"] = PARAMETERS[name]
        make_families.gradients(out, name, copy.deepcopy(m), lora, rounded)
        runs = make_experts.nll(m) | make_experts.greedy(m, [[1, 5, 9, 30], [1, 40]]) if mixtures else plain_runs(m)
        runs["curve"] = make_experts.curve(copy.deepcopy(m), folder, RATES[name])
        runs["bf16"] = make_experts.bf16_errors(m, folder)
        if mixtures:
            low = make_experts.curve(copy.deepcopy(m), folder, RATES[name], low=True)["loss"]
            off = [abs(a - b) / b for a, b in zip(low, runs["curve"]["loss"])]
            runs["clear"] = make_experts.clear(m, folder)
            # Over NF4 one or two tokens of lfm2_moe's rows go to other experts in bf16, PEFT's and ours to different ones: more draws.
            adds = calm(m, in_nf4(m), folder, make_experts.rows) if name == "lfm2_moe" else (0,)
            own = make_experts.bf16_errors(m, folder, adds)
            runs["bf16"] |= {k: own[k] for k in ("gradient", "add") if k in own}
            runs["bf16"] |= {"curve": sum(off) / len(off), "gradient_nf4": make_experts.bf16_errors(in_nf4(m), folder, adds)["gradient"]}
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1],
              "lead of the experts", runs["curve"]["lead"] if mixtures else None, runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


def plain_runs(m):
    from make_llama_like import greedy
    runs = make_experts.nll(m)
    runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
    return runs


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata"
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    conversion._convert_peft_config_moe = lambda *_: None
    make_experts.in_nf4, make_experts.watch_leads = in_nf4, watch_leads
    for folder, models, mixtures in (("parameter_experts", MODELS, True), ("short_conv", CONVS, False)):
        (out / folder).mkdir(parents=True, exist_ok=True)
        if not mixtures:
            make_experts.watch_leads = lambda _: [0.0]
        curves(out / folder, make_families.logits(out / folder, models, build), mixtures)


if __name__ == "__main__":
    main()
