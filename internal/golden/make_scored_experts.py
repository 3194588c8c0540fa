#!/usr/bin/env python3
"""Makes testdata/scored_experts: tiny random mixtures whose routers choose experts by scores with a correction, as make_experts.py makes
those of other families: logits, mean NLL, greedy text, LoRA gradients and 20 steps of QLoRA.

    python internal/golden/make_scored_experts.py [OUT]

Made with torch 2.15.0, transformers 4.57.6, PEFT 0.18.0 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import torch

import make_experts
import make_families
from make_families import SIZES

SMALL = dict(hidden_size=24, intermediate_size=24, head_dim=8, num_attention_heads=3, num_key_value_heads=1, moe_intermediate_size=8, num_experts_per_tok=2)

# name: (classes of transformers, name of its weights, what differs from SIZES and SMALL)
MODELS = {
    "glm4_moe": ("Glm4Moe", "glm4_moe", dict(n_routed_experts=4, n_group=2, topk_group=1, use_qk_norm=True, routed_scaling_factor=1.5, first_k_dense_replace=1,
                                             partial_rotary_factor=0.5, attention_bias=True, tie_word_embeddings=True)),
    "glm4_moe_plain": ("Glm4Moe", "glm4_moe", dict(n_routed_experts=4, n_group=1, topk_group=1, use_qk_norm=True, norm_topk_prob=False, num_experts_per_tok=3,
                                                   first_k_dense_replace=1, partial_rotary_factor=0.25, attention_bias=True, tie_word_embeddings=True)),
}
# name: rate of the curve
CURVES = {"glm4_moe": 1e-2}


def build(kind, extra, seed):
    import transformers
    config = getattr(transformers, kind + "Config")(**{**SIZES, **SMALL, **extra}, attn_implementation="eager")
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    make_families.randomise(m, seed)
    g = torch.Generator().manual_seed(100 + seed)
    for name, p in sorted([*m.named_buffers(), *m.named_parameters()]):
        if name.endswith("e_score_correction_bias"):
            p.data = (0.2 * torch.rand(p.shape, generator=g)).bfloat16().float()
    return config, m


def lead(router, logits):
    """The least lead of a token's last expert over the next, by corrected scores; groups are left out."""
    bias = getattr(router, "e_score_correction_bias", None)
    return make_experts.lead_of(logits.sigmoid() + bias, router.top_k)


def watch_leads(peft):
    """make_experts.watch_leads, of routers by scores."""
    leads = []
    for n, module in peft.named_modules():
        if n.endswith("mlp.gate"):
            module.register_forward_hook(lambda m, x, _y: leads.append(lead(m, torch.nn.functional.linear(x[0].detach().reshape(-1, m.weight.shape[1]).float(), m.weight))))
    return leads


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "scored_experts"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    make_experts.watch_leads = watch_leads
    models = make_families.logits(out, MODELS, build)
    for name, lr in CURVES.items():
        m, folder = models[name][1], out / (name + ".lora")
        make_families.gradients(out, name, copy.deepcopy(m), dict(target_modules="all-linear", r=1, lora_alpha=2), lambda x: x.bfloat16().float())
        runs = make_experts.nll(m) | make_experts.greedy(m, [[1, 5, 9, 30], [1, 40]])
        runs["curve"] = make_experts.curve(copy.deepcopy(m), folder, lr)
        low = make_experts.curve(copy.deepcopy(m), folder, lr, low=True)["loss"]
        off = [abs(a - b) / b for a, b in zip(low, runs["curve"]["loss"])]
        runs["clear"] = make_experts.clear(m, folder)
        over = make_experts.bf16_errors(make_experts.in_nf4(m), folder)["gradient"]
        runs["bf16"] = make_experts.bf16_errors(m, folder) | {"curve": sum(off) / len(off), "gradient_nf4": over}
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1],
              "lead of the experts", runs["curve"]["lead"], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
