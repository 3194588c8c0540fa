#!/usr/bin/env python3
"""Makes testdata/shared_experts: tiny random models of qwen2_moe, whose mixtures have an expert that all tokens go through, as
make_experts.py makes those of other families: logits, mean NLL, greedy text, LoRA gradients and 20 steps of QLoRA.

    python internal/golden/make_shared_experts.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import torch

import make_experts
import make_families
from make_families import SIZES

# name: (model type, name of its weights, what differs from SIZES)
MODELS = {
    "qwen2_moe": ("qwen2_moe", "qwen2_moe", dict(moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=5, num_experts_per_tok=2)),
    "qwen2_moe_mixed": ("qwen2_moe", "qwen2_moe_mixed", dict(
        intermediate_size=16, moe_intermediate_size=8, shared_expert_intermediate_size=12, num_experts=4, num_experts_per_tok=3, num_hidden_layers=4,
        num_key_value_heads=4, decoder_sparse_step=2, mlp_only_layers=[1], qkv_bias=False, norm_topk_prob=True, tie_word_embeddings=True,
        use_sliding_window=True, sliding_window=5, max_window_layers=2, output_router_logits=True, router_aux_loss_coef=0.02, hidden_act="gelu")),
}


def build(_kind, extra, seed):
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM
    config = Qwen2MoeConfig(**{**SIZES, **extra}, attn_implementation="eager")
    m = Qwen2MoeForCausalLM(config).float().eval()
    make_families.randomise(m, seed)
    return config, m


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "shared_experts"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    models = make_families.logits(out, MODELS, build)
    m, lr, folder = models["qwen2_moe"][1], 6e-3, out / "qwen2_moe.lora"
    runs = make_experts.nll(m) | make_experts.greedy(m, [[1, 5, 9, 30], [1, 40]])
    make_families.gradients(out, "qwen2_moe", copy.deepcopy(m), dict(target_modules="all-linear", r=2, lora_alpha=4))
    runs["curve"] = make_experts.curve(copy.deepcopy(m), folder, lr)
    low = make_experts.curve(copy.deepcopy(m), folder, lr, low=True)["loss"]
    off = [abs(a - b) / b for a, b in zip(low, runs["curve"]["loss"])]
    runs["clear"] = make_experts.clear(m, folder)
    over = make_experts.bf16_errors(make_experts.in_nf4(m), folder)["gradient"]
    runs["bf16"] = make_experts.bf16_errors(m, folder) | {"curve": sum(off) / len(off), "gradient_nf4": over}
    print("mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1],
          "lead of the experts", runs["curve"]["lead"], runs["bf16"])
    (out / "qwen2_moe.runs.json").write_text(json.dumps(runs) + "\n")
    make_families.gradients(out, "qwen2_moe_mixed", models["qwen2_moe_mixed"][1], dict(r=2, lora_alpha=5, target_modules="all-linear"))
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
