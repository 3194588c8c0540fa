#!/usr/bin/env python3
"""Makes testdata/more_families: Mistral 3 in a folder with images, OLMo 3 and Seed-OSS, as make_llama_like.py makes its models: logits by
transformers, LoRA gradients by PEFT, and in NAME.runs.json greedy texts, the NLL of rows, and 20 training steps with the weights that
bitsandbytes' NF4 stands for.

    python internal/golden/make_more_families.py [OUT]

Made with torch 2.11.0, transformers 4.57.6, PEFT 0.21.2, bitsandbytes 0.50.2, tokenizers 0.22.1 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_families as families
import make_gemma
import torch
import transformers
from make_llama_like import EVERYTHING, HEADS, SIZES, T, bf16_errors, curve, greedy, nll, tokenizer

FULL, SLIDING = "full_attention", "sliding_attention"
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8)

# name: (classes of transformers, name of its weights, what differs from SIZES)
MODELS = {
    "mistral3": ("Mistral3", "mistral3", dict(**HEADS, sliding_window=5, rope_theta=1e6, tie_word_embeddings=False)),
    "olmo3": ("Olmo3", "olmo3", dict(attention_bias=True, num_key_value_heads=1, layer_types=[SLIDING, FULL], sliding_window=5, rope_scaling=YARN)),
    "olmo3_pattern": ("Olmo3", "olmo3", dict(attention_bias=True, num_key_value_heads=1, sliding_window=3)),
    "seed_oss": ("SeedOss", "seed_oss", dict(**HEADS, rope_scaling=dict(rope_type="default"))),
}


def build(kind, extra, seed):
    sizes = {**SIZES, **extra}
    if kind == "Mistral3":
        config = transformers.Mistral3Config(text_config=dict(sizes, model_type="mistral"), vision_config=make_gemma.VISION | dict(head_dim=8), tie_word_embeddings=False, attn_implementation="eager")
        torch.manual_seed(seed)  # of what images need
        m = transformers.Mistral3ForConditionalGeneration(config).float().eval()
        for p in m.parameters():  # not the buffers
            p.data = p.data.bfloat16().float()
        families.randomise(m.model.language_model, seed)
        m.lm_head.weight.data = (m.lm_head.weight.data * 8).bfloat16().float()
        return config, m
    config = getattr(transformers, kind + "Config")(**sizes, attn_implementation="eager")
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    families.randomise(m, seed)
    return config, m


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "more_families"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    models = families.logits(out, MODELS, build)
    make_gemma.as_saved(models["mistral3"][1], out / "mistral3.safetensors")
    for name in ("mistral3", "olmo3", "seed_oss"):
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=2, lora_alpha=3, target_modules=make_gemma.TEXT if name == "mistral3" else EVERYTHING))
        runs["bf16"] = make_gemma.bf16_errors(m, out / (name + ".lora")) if name == "mistral3" else bf16_errors(m, out / (name + ".lora"))
        runs["curve"] = (make_gemma.curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2) if name == "mistral3" else
                         curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2))
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
