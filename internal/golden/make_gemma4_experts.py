#!/usr/bin/env python3
"""Makes testdata/gemma4_experts: Gemma 4's mixture of experts beside an MLP, as the 26B-A4B has it, in a folder with images: logits, mean
NLL, greedy text, LoRA gradients of linear layers (the router's too) and of experts' parameters (target_parameters), and 20 steps over
weights in NF4 and as they are.

    python internal/golden/make_gemma4_experts.py [OUT]

Made with torch 2.8.0, transformers 5.17.0, PEFT 0.21.2 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_gemma4 as gemma4  # first: it sets the vocabulary
import make_families as families
import torch
import transformers

import make_experts
import make_fused_experts
from make_experts import bf16_errors, clear, curve, draws, lead_of, nll
from make_linear_attention import calm, rounded
from make_llama_like import SIZES, greedy

LAYERS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj|router\.proj)"  # all-linear, of the language model
LORA = dict(r=2, lora_alpha=4, target_modules=LAYERS, target_parameters=["experts.gate_up_proj", "experts.down_proj"])

# name: (name, name of its weights, what differs from SIZES)
MODELS = {
    "gemma4_experts": ("gemma4", "gemma4_experts", dict(
        gemma4.OWN, num_hidden_layers=2, layer_types=[gemma4.SLIDING, gemma4.FULL], attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=3.0,
        enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=8)),
}
SEED, RATE = 7, 4e-3  # one whose choices of experts are beyond rounding


def build(name, extra, seed=None):
    config = transformers.Gemma4Config(text_config={**SIZES, **extra}, vision_config=gemma4.VISION, audio_config=None, attn_implementation="eager")
    torch.manual_seed(SEED)  # of what images need
    m = transformers.Gemma4ForConditionalGeneration(config).float().eval()
    for p in m.parameters():  # not the buffers
        p.data = p.data.bfloat16().float()
    text = m.model.language_model
    families.randomise(text, SEED)
    for n, p in text.named_parameters():
        if "embed_tokens" in n or "q_norm" in n:  # embeddings are scaled, scores are not
            p.data = (0.4 * p.data).bfloat16().float()
        elif p.dim() == 1 and not n.endswith("norm.weight"):  # the norms of the two branches, and the router's numbers
            p.data = (1 + 0.2 * p.data).bfloat16().float()
    for i, layer in enumerate(text.layers):
        layer.layer_scalar.fill_([0.75, 1.25][i])
    return config, m


def watch_leads(peft):
    """make_experts.watch_leads: a router returns probabilities."""
    leads, chosen = [], peft.config.get_text_config().top_k_experts
    for n, module in peft.named_modules():
        if n.endswith(".router"):
            module.register_forward_hook(lambda _m, _x, y: leads.append(lead_of(y[0].detach().log(), chosen)))
    return leads


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "gemma4_experts"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    make_experts.in_nf4, make_experts.watch_leads = make_fused_experts.in_nf4, watch_leads
    models = families.logits(out, MODELS, build)
    for name, (_, m) in models.items():
        adapter = out / (name + ".lora")
        families.gradients(out, name, copy.deepcopy(m), LORA, rounded)
        runs = nll(m)
        prompts = [[1, 5, 9, 30], [1, 40]]
        runs["texts"], runs["lead"] = greedy(m, prompts)
        never = sorted({t["new_ids"][i] for t in runs["texts"] for i in (0, 7)})
        runs["suppressed"] = {"ids": never, "texts": greedy(m, prompts, never=never)[0]}
        runs["curve"] = curve(copy.deepcopy(m), adapter, RATE)
        runs["curve_of_floats"] = curve(copy.deepcopy(m), adapter, RATE, packed=False)
        runs["draws"], off = draws(m, adapter, RATE)
        runs["clear"] = clear(m, adapter)
        # Several tokens a draw go to other experts in bf16, PEFT's and ours to different ones: more draws than elsewhere.
        adds = calm(m, make_experts.in_nf4(m), adapter, make_experts.rows, every=1, times=8)
        runs["bf16"] = bf16_errors(m, adapter, adds) | {"curve": off, "gradient_nf4": bf16_errors(make_experts.in_nf4(m), adapter, adds)["gradient"]}
        print(name, "bf16", runs["bf16"], "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0],
              runs["curve"]["loss"][-1], "lead of the experts", runs["curve"]["lead"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
