#!/usr/bin/env python3
"""Makes testdata/latent: tiny random models with multi-head latent attention and mixtures of experts: logits, mean NLL, greedy
text, LoRA gradients of all linear layers and of the experts' parameters, and 20 steps of QLoRA, as make_parameter_experts.py makes others.
deepseek_v3 and glm4_moe_lite have the same weights.

    python internal/golden/make_latent.py [OUT]

Made with torch 2.15.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU.
PEFT would take the names of shared experts for experts: its conversion of names is left out, so that they are adapted too.
"""
import copy
import json
import pathlib
import sys

import peft.utils.transformers_weight_conversion as conversion
import torch

import make_experts
import make_families
import make_parameter_experts
from make_families import SIZES
from make_linear_attention import calm

SMALL = dict(hidden_size=8, intermediate_size=16, num_attention_heads=2, num_key_value_heads=2, moe_intermediate_size=8, num_experts_per_tok=2,
             kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=8, n_routed_experts=4, n_shared_experts=1, tie_word_embeddings=True)
THIRD = dict(q_lora_rank=8, v_head_dim=8, attention_bias=True)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, mscale=0.7, mscale_all_dim=0.5, original_max_position_embeddings=16)

# name: (classes of transformers, name of its weights, what differs from SIZES and SMALL)
MODELS = {
    "deepseek_v2": ("DeepseekV2", "deepseek_v2", dict(q_lora_rank=None, v_head_dim=16, first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=2,
                                                      topk_group=1, routed_scaling_factor=1.5, rope_parameters=YARN)),
    "deepseek_v3": ("DeepseekV3", "glm4_moe_lite", dict(THIRD, first_k_dense_replace=1, n_group=2, topk_group=1, rope_interleave=False, routed_scaling_factor=4.0, rope_parameters=YARN)),
    "glm4_moe_lite": ("Glm4MoeLite", "glm4_moe_lite", dict(THIRD, mlp_layer_types=["dense", "sparse"])),
}
# name: rate of the curve
CURVES = {"deepseek_v2": 1e-2, "deepseek_v3": 1.5e-2, "glm4_moe_lite": 1.5e-2}
PARAMETERS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
SEEDS = {"deepseek_v2": 1, "glm4_moe_lite": 2}


def build(kind, extra, seed):
    import transformers
    config = getattr(transformers, kind + "Config")(**{**SIZES, **SMALL, **extra}, attn_implementation="eager")
    config._experts_implementation = "eager"
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    seed = SEEDS[{"deepseek_v3": "glm4_moe_lite"}.get(config.model_type, config.model_type)]
    make_families.randomise(m, seed)
    g = torch.Generator().manual_seed(100 + seed)
    for name, p in sorted([*m.named_buffers(), *m.named_parameters()]):
        if name.endswith("e_score_correction_bias"):
            p.data = (0.2 * torch.rand(p.shape, generator=g)).bfloat16().float()
    return config, m


def watch_leads(peft):
    """make_experts.watch_leads, of routers by scores: the lead of the last group over the next counts too, and experts of other groups do not."""
    leads = []

    def look(m, x, _y):
        logits = torch.nn.functional.linear(x[0].detach().reshape(-1, m.weight.shape[1]).float(), m.weight)
        bias = getattr(m, "e_score_correction_bias", None)
        scores = logits.softmax(-1) if bias is None else logits.sigmoid() + bias
        groups, taken = m.num_group or 1, m.topk_group or 1
        if taken < groups:
            own = scores.view(len(scores), groups, -1)
            of_group = own.max(-1).values if bias is None else own.topk(2, dim=-1).values.sum(-1)
            leads.append(make_experts.lead_of(of_group, taken))
            mask = torch.zeros_like(of_group).scatter_(1, of_group.topk(taken, dim=-1).indices, 1)
            scores = scores[mask.repeat_interleave(own.shape[-1], 1).bool()].view(len(scores), -1)
        if m.top_k < scores.shape[1]:
            leads.append(make_experts.lead_of(scores, m.top_k))

    for n, module in peft.named_modules():
        if n.endswith("mlp.gate"):
            module.register_forward_hook(look)
    return leads


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "latent"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    conversion._convert_peft_config_moe = lambda *_: None  # else shared experts are taken for experts
    make_experts.in_nf4, make_experts.watch_leads = make_parameter_experts.in_nf4, watch_leads
    make_families.T = 12  # small files
    models = make_families.logits(out, MODELS, build)
    for name in SEEDS:
        make_parameter_experts.release(str(out / (name + ".safetensors")), name)
    for name, lr in CURVES.items():
        m, folder = models[name][1], out / (name + ".lora")
        make_families.gradients(out, name, copy.deepcopy(m), dict(target_modules="all-linear", target_parameters=PARAMETERS, r=1, lora_alpha=2), lambda x: x.bfloat16().float())
        runs = make_experts.nll(m) | make_experts.greedy(m, [[1, 5, 9, 30], [1, 40]])
        runs["curve"] = make_experts.curve(copy.deepcopy(m), folder, lr)
        low = make_experts.curve(copy.deepcopy(m), folder, lr, low=True)["loss"]
        off = [abs(a - b) / b for a, b in zip(low, runs["curve"]["loss"])]
        runs["clear"] = make_experts.clear(m, folder)
        # One group of two, by a sum: a token near the border moves all of its experts in bf16, so more draws.
        adds = calm(m, make_parameter_experts.in_nf4(m), folder, make_experts.rows) if name == "deepseek_v3" else (0,)
        over = make_experts.bf16_errors(make_parameter_experts.in_nf4(m), folder, adds)["gradient"]
        own = make_experts.bf16_errors(m, folder, adds)
        runs["bf16"] = make_experts.bf16_errors(m, folder) | {k: own[k] for k in ("gradient", "add") if k in own}
        runs["bf16"] |= {"curve": sum(off) / len(off), "gradient_nf4": over}
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1],
              "lead of the experts", runs["curve"]["lead"], "clear", runs["clear"], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
