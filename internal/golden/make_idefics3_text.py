#!/usr/bin/env python3
"""Makes testdata/idefics3_text: the language models of folders of Idefics 3 and SmolVLM 2, as make_more_families.py makes
Mistral 3's: logits by transformers, LoRA gradients by PEFT, and in NAME.runs.json greedy texts, the NLL of rows, and 20
training steps with the weights that bitsandbytes' NF4 stands for. Both models have the same weights.

    python internal/golden/make_idefics3_text.py [OUT]

Made with torch 2.15.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_families as families
import make_gemma
import torch
import transformers
from make_llama_like import SIZES, T, greedy, nll, tokenizer

SMALL = dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             tie_word_embeddings=False)
MODELS = {"idefics3": ("Idefics3", "idefics3", SMALL), "smolvlm": ("SmolVLM", "idefics3", dict(
    SMALL, rope_parameters=dict(rope_type="default", rope_theta=50.0)))}
TEXT = r".*text_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"  # the image tower has such names too


def build(kind, extra, seed):
    seed += 1  # of weights with which 12 steps learn
    config = getattr(transformers, kind + "Config")(
        text_config=dict({**SIZES, **extra}, model_type="llama"), scale_factor=2, image_token_id=3, pad_token_id=0,
        vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=8,
                           patch_size=4), tie_word_embeddings=False, attn_implementation="eager")
    m = getattr(transformers, kind + "ForConditionalGeneration")(config).float().eval()
    families.randomise(m.model.vision_model, seed)
    families.randomise(m.model.connector, seed)
    families.randomise(m.model.text_model, seed)
    g = torch.Generator().manual_seed(seed)
    m.lm_head.weight.data = (torch.randn(m.lm_head.weight.shape, generator=g) * 1.3 / 32 ** 0.5).bfloat16().float()
    return config, m


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "idefics3_text"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    models = families.logits(out, MODELS, build)
    for name in MODELS:
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=2, lora_alpha=3, target_modules=TEXT))
        runs["bf16"] = make_gemma.bf16_errors(m, out / (name + ".lora"))
        runs["curve"] = make_gemma.curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
