#!/usr/bin/env python3
"""Makes testdata/first_families: Llama, Mistral and Qwen2, whose logits make_families.py has too, with the gradients of every linear layer, texts, NLLs and a QLoRA
curve, as make_more_families.py makes its models.

    python internal/golden/make_first_families.py [OUT]

Made with torch 2.11.0, transformers 4.57.6, PEFT 0.21.2, bitsandbytes 0.49.2, tokenizers 0.22.1 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_families as families
import torch
from make_llama_like import EVERYTHING, HEADS, T, bf16_errors, curve, greedy, nll, tokenizer
from make_more_families import build

LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)

# name: (classes of transformers, name of its weights, what differs from SIZES)
MODELS = {
    "llama": ("Llama", "llama", dict(tie_word_embeddings=True, num_key_value_heads=1, rope_scaling=LLAMA3)),
    "mistral": ("Mistral", "mistral", dict(**HEADS, sliding_window=6, tie_word_embeddings=False)),
    "qwen2": ("Qwen2", "qwen2", dict(tie_word_embeddings=True, rope_theta=1e6)),
}


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "first_families"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    models = families.logits(out, MODELS, build)
    for name in MODELS:
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=2, lora_alpha=3, target_modules=EVERYTHING))
        runs["bf16"] = bf16_errors(m, out / (name + ".lora"))
        runs["curve"] = curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
