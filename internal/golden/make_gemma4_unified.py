#!/usr/bin/env python3
"""Makes testdata/gemma4_unified: the language model of Gemma 4 in a folder whose images and sound have no networks of their own, and alone,
as make_gemma4.py makes its models.

    python internal/golden/make_gemma4_unified.py [OUT]

Made with torch 2.8.0, transformers 5.17.0, PEFT 0.21.2, bitsandbytes 0.49.2, tokenizers 0.22.2 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_gemma4 as gemma4  # first: it sets the vocabulary
import make_families as families
import torch
import transformers
from make_gemma import curve
from make_llama_like import EVERYTHING, SIZES, bf16_errors, greedy, nll, tokenizer

OWN = {k: v for k, v in gemma4.OWN.items() if k != "hidden_size_per_layer_input"} | dict(head_dim=8, global_head_dim=16)
VISION = dict(patch_size=1, pooling_kernel_size=1, mm_embed_dim=4, mm_posemb_size=2, output_proj_dims=4)

# name: (name, name of its weights, what differs from SIZES)
MODELS = {
    "gemma4_unified": ("gemma4_unified", "gemma4_unified", dict(OWN, num_hidden_layers=2, layer_types=[gemma4.SLIDING, gemma4.FULL], attention_k_eq_v=True,
                                                                num_global_key_value_heads=1, final_logit_softcapping=3.0)),
    "gemma4_unified_text": ("gemma4_unified_text", "gemma4_unified_text", dict(OWN, num_hidden_layers=3, layer_types=[gemma4.SLIDING, gemma4.SLIDING, gemma4.FULL])),
}
# Draws whose curves rounding moves little.
SEEDS = {"gemma4_unified": 1, "gemma4_unified_text": 0}
DRAWS = range(0, 40, 5)  # of ids, for PEFT's own error in bf16


def build(name, extra, seed=None):
    sizes, seed = {**SIZES, **extra}, SEEDS[name]  # not the order of names
    torch.manual_seed(seed)  # of what images need
    if name == "gemma4_unified":
        config = transformers.Gemma4UnifiedConfig(text_config=sizes, vision_config=VISION, audio_config=None, attn_implementation="eager")
        m = transformers.Gemma4UnifiedForConditionalGeneration(config).float().eval()
        text = m.model.language_model
    else:
        config = transformers.Gemma4UnifiedTextConfig(**sizes, attn_implementation="eager")
        m = transformers.Gemma4UnifiedForCausalLM(config).float().eval()
        text = m.model
    for p in m.parameters():  # not the buffers
        p.data = p.data.bfloat16().float()
    families.randomise(text, seed)
    for n, p in text.named_parameters():
        if "embed_tokens" in n or "q_norm" in n:  # embeddings are scaled, scores are not
            p.data = (0.4 * p.data).bfloat16().float()
    for i, layer in enumerate(text.layers):
        layer.layer_scalar.fill_([0.75, 1.25, 0.625][i])
    return config, m


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "gemma4_unified"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = 12
    models = families.logits(out, MODELS, build)
    for name in MODELS:
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=1, lora_alpha=1.5, target_modules=EVERYTHING), gemma4.rounded)
        runs["bf16"] = bf16_errors(m, out / (name + ".lora"), DRAWS)
        runs["curve"] = curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
