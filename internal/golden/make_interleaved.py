#!/usr/bin/env python3
"""Makes testdata/interleaved: families that rotate neighbouring pairs of a head, GLM-4-0414 and ERNIE 4.5, as make_llama_like.py makes its
models: logits by transformers, LoRA gradients by PEFT, and in NAME.runs.json greedy texts, the NLL of rows, and 20 training steps with the
weights that bitsandbytes' NF4 stands for.

    python internal/golden/make_interleaved.py [OUT]

Made with torch 2.11.0, transformers 4.57.6, PEFT 0.21.2, bitsandbytes 0.49.2, tokenizers 0.22.1 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_families as families
import torch
import transformers
from make_llama_like import EVERYTHING, HEADS, SIZES, T, bf16_errors, curve, greedy, nll, tokenizer

FUSED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj"]

# name: (classes of transformers, name of its weights, what differs from SIZES)
MODELS = {
    "ernie4_5": ("Ernie4_5", "ernie4_5", dict(**HEADS, use_bias=True, tie_word_embeddings=True, rope_theta=500000.0)),
    "ernie4_5_stretched": ("Ernie4_5", "ernie4_5", dict(**HEADS, use_bias=True, tie_word_embeddings=True, rope_theta=100.0, rope_scaling=dict(rope_type="linear", factor=3.0))),
    "glm4": ("Glm4", "glm4", dict(**HEADS, attention_bias=True, partial_rotary_factor=0.5, tie_word_embeddings=False)),
    "glm4_yarn": ("Glm4", "glm4", dict(**HEADS, attention_bias=True, tie_word_embeddings=False, rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8))),
    "glm4_whole": ("Glm4", "glm4", dict(**HEADS, attention_bias=True, partial_rotary_factor=1.0, tie_word_embeddings=False)),
}
ADAPTED = {"ernie4_5": EVERYTHING, "glm4": FUSED}


def build(kind, extra, seed):
    config = getattr(transformers, kind + "Config")(**{**SIZES, **extra}, attn_implementation="eager")
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    families.randomise(m, seed)
    return config, m


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "interleaved"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    models = families.logits(out, MODELS, build)
    for name, targets in ADAPTED.items():
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=2, lora_alpha=3, target_modules=targets))
        runs["bf16"] = bf16_errors(m, out / (name + ".lora"))
        runs["curve"] = curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
