#!/usr/bin/env python3
"""Makes testdata/gemma4: the language model of Gemma 4, alone with per-layer inputs and layers that share keys and values, and in a
folder with images where full layers have heads of their own and no values, as make_llama_like.py makes its models: logits by
transformers, LoRA gradients by PEFT, and in NAME.runs.json greedy texts, the NLL of rows, and 20 training steps with the weights that
bitsandbytes' NF4 stands for.

    python internal/golden/make_gemma4.py [OUT]

Made with torch 2.8.0, transformers 5.17.0, PEFT 0.21.2, bitsandbytes 0.49.2, tokenizers 0.22.2 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_families as families
import torch
import transformers

families.VOCAB = 48
from make_gemma import curve
from make_llama_like import EVERYTHING, SIZES, bf16_errors, greedy, nll, tokenizer

SLIDING, FULL = "sliding_attention", "full_attention"
OWN = dict(hidden_size=16, intermediate_size=8, num_attention_heads=2, num_key_value_heads=2, head_dim=8, global_head_dim=16, sliding_window=5, rms_norm_eps=1e-2,
           hidden_size_per_layer_input=0, rope_parameters={
               SLIDING: dict(rope_type="default", rope_theta=100.0), FULL: dict(rope_type="proportional", partial_rotary_factor=0.6, rope_theta=5000.0)})
# A layer's input of 4 columns and an epsilon of 1e-2 make nearly every draw chaotic: norms enlarge errors of small sums by up to 1/sqrt(epsilon).
SMALL = dict(OWN, num_key_value_heads=1, num_hidden_layers=4, layer_types=[SLIDING, FULL, SLIDING, FULL], num_kv_shared_layers=2, use_double_wide_mlp=True, rms_norm_eps=0.1,
             hidden_size_per_layer_input=8, vocab_size_per_layer_input=families.VOCAB, use_bidirectional_attention="vision")
PROJECTIONS = EVERYTHING + ["per_layer_model_projection", "per_layer_input_gate", "per_layer_projection"]
TEXT = r".*language_model.*\.(" + "|".join(EVERYTHING) + ")"  # the vision tower has layers of these names too
VISION = dict(num_hidden_layers=1, hidden_size=4, intermediate_size=4, num_attention_heads=1, num_key_value_heads=1, head_dim=4, patch_size=1,
              position_embedding_size=4, pooling_kernel_size=1)

# name: (name, name of its weights, what differs from SIZES)
MODELS = {
    "gemma4": ("gemma4", "gemma4", dict(OWN, num_hidden_layers=2, layer_types=[SLIDING, FULL], attention_k_eq_v=True,
                                        num_global_key_value_heads=1, final_logit_softcapping=3.0)),
    "gemma4_text": ("gemma4_text", "gemma4_text", SMALL),
}
# Draws of which errors of bf16's size move gradients little (make_first_families.py's moved, at most MOVED) and a change of the weights by
# 1e-7 the curves' gradient norms by less than 1e-4. The second is the one of 40 whose gradients they move least, by 0.06.
SEEDS = {"gemma4": 7, "gemma4_text": 17}


def build(name, extra, seed=None):
    sizes, seed = {**SIZES, **extra}, SEEDS[name]  # not the order of names
    if name == "gemma4":
        config = transformers.Gemma4Config(text_config=sizes, vision_config=VISION, audio_config=None, attn_implementation="eager")
        torch.manual_seed(seed)  # of what images need
        m = transformers.Gemma4ForConditionalGeneration(config).float().eval()
        for p in m.parameters():  # not the buffers
            p.data = p.data.bfloat16().float()
        text = m.model.language_model
    else:
        config = transformers.Gemma4TextConfig(**sizes, attn_implementation="eager")
        m = transformers.Gemma4ForCausalLM(config).float().eval()
        text = m.model
    families.randomise(text, seed)
    for n, p in text.named_parameters():
        if "embed_tokens" in n:  # they are scaled
            p.data = (0.4 * p.data).bfloat16().float()
        elif "q_norm" in n:  # scores are not scaled
            p.data = (0.25 * p.data).bfloat16().float()
    for i, layer in enumerate(text.layers):
        layer.layer_scalar.fill_([0.75, 1.25, 0.625, 1.5][i])
    return config, m


def rounded(x):
    return x.bfloat16().float()


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "gemma4"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = 12
    models = families.logits(out, MODELS, build)
    for name in ("gemma4", "gemma4_text"):
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=1, lora_alpha=1.5, target_modules=TEXT if name == "gemma4" else PROJECTIONS), rounded)
        runs["bf16"] = bf16_errors(m, out / (name + ".lora"), range(0, families.VOCAB, 3))
        runs["curve"] = curve(copy.deepcopy(m), out / (name + ".lora"), lr=2e-2 if name == "gemma4" else 2e-3)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
