#!/usr/bin/env python3
"""Makes testdata/linear_experts: Qwen3.5's mixtures of experts, alone and in a folder with images, as make_linear_attention.py makes the
models without experts: logits, mean NLL, greedy text, LoRA gradients of linear layers and of experts' parameters (target_parameters), and
20 steps over weights in NF4 and as they are.

    python internal/golden/make_linear_experts.py [OUT]

Made with torch 2.8.0, transformers 5.17.0, PEFT 0.21.2 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import torch

import make_experts
import make_families
import make_fused_experts
from make_experts import bf16_errors, clear, curve, draws, greedy, nll
from make_linear_attention import DELTA, FULL, LINEAR, build, calm, rounded

# all-linear, of the language model
LAYERS = "(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj|in_proj_qkv|in_proj_z|in_proj_b|in_proj_a|out_proj|shared_expert_gate)"
LORA = dict(r=2, lora_alpha=4, target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
EXPERTS = dict(DELTA, moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=5, num_experts_per_tok=2)

# name: (name, name of its weights, what differs from SIZES)
MODELS = {
    "qwen3_5_moe": ("qwen3_5_moe", "qwen3_5_moe", dict(EXPERTS, num_hidden_layers=2, layer_types=[LINEAR, FULL])),
    "qwen3_5_moe_text": ("qwen3_5_moe_text", "qwen3_5_moe_text", dict(
        EXPERTS, num_hidden_layers=2, full_attention_interval=2, tie_word_embeddings=True, output_router_logits=True, router_aux_loss_coef=0.05)),
}
SEEDS = {"qwen3_5_moe": 3, "qwen3_5_moe_text": 2}
RATE = 4e-3


def in_nf4(m):
    """make_fused_experts.in_nf4, but for routers, which are no linear layers."""
    low = make_fused_experts.in_nf4(m)
    for (n, p), (_, was) in zip(low.named_parameters(), m.named_parameters()):
        if n.endswith("mlp.gate.weight"):
            p.data = was.data.clone()
    return low


def watch_leads(peft):
    """make_fused_experts.watch_leads, of a configuration that may be inside of another."""
    leads, chosen = [], peft.config.get_text_config().num_experts_per_tok
    for n, module in peft.named_modules():
        if n.endswith("mlp.gate"):
            module.register_forward_hook(lambda _m, _x, y: leads.append(make_experts.lead_of(y[0].detach(), chosen)))
    return leads


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "linear_experts"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    make_experts.in_nf4, make_experts.watch_leads = in_nf4, watch_leads
    models = make_families.logits(out, MODELS, lambda name, extra, seed: build(name, extra, seed, "Qwen3_5Moe", SEEDS))
    for name, (_, m) in models.items():
        adapter = out / (name + ".lora")
        make_families.gradients(out, name, copy.deepcopy(m), dict(LORA, target_modules=r".*language_model.*\." + LAYERS if name == "qwen3_5_moe" else r".*\." + LAYERS), rounded)
        runs = nll(m) | greedy(m, [[1, 5, 9, 30], [1, 40]])
        runs["curve"] = curve(copy.deepcopy(m), adapter, RATE)
        runs["draws"], off = draws(m, adapter, RATE)
        runs["clear"] = clear(m, adapter)
        adds = calm(m, in_nf4(m), adapter, make_experts.rows)
        runs["bf16"] = bf16_errors(m, adapter, adds) | {"curve": off, "gradient_nf4": bf16_errors(in_nf4(m), adapter, adds)["gradient"]}
        print(name, "bf16", runs["bf16"], "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0],
              runs["curve"]["loss"][-1], "lead of the experts", runs["curve"]["lead"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
