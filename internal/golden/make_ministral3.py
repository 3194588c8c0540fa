#!/usr/bin/env python3
"""Makes testdata/ministral3: Ministral 3 by itself and in a folder with images, as make_more_families.py makes its models: logits by
transformers, LoRA gradients by PEFT, and in NAME.runs.json greedy texts, the NLL of rows, and 20 training steps with the weights that
bitsandbytes' NF4 stands for. The first two have an original length of 6 and 5 positions, so that rows are longer and queries are scaled.

    python internal/golden/make_ministral3.py [OUT]

Made with torch 2.8.0, transformers 5.17.0, PEFT 0.21.2, bitsandbytes 0.49.2, tokenizers 0.23.3 on a CPU; needs neither network nor GPU.
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

YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=6, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
            llama_4_scaling_beta=0.5)
FORMER = {k: v for k, v in YARN.items() if k != "rope_type"} | dict(type="yarn")

# name: (classes of transformers, name of its weights, what differs from SIZES)
MODELS = {
    "ministral3": ("Ministral3", "ministral3", dict(**HEADS, rope_parameters=YARN)),
    "ministral3_images": ("Mistral3", "ministral3_images", dict(**HEADS, tie_word_embeddings=True, rope_parameters=FORMER | dict(original_max_position_embeddings=5, max_position_embeddings=64))),
    # none of its rows is as long as the original length
    "ministral3_short": ("Ministral3", "ministral3", dict(**HEADS, sliding_window=5, rope_parameters=YARN | dict(original_max_position_embeddings=32, mscale_all_dim=0.5))),
    # without an original length, which is the model's then
    "ministral3_length": ("Ministral3", "ministral3", dict(**HEADS, max_position_embeddings=12, rope_parameters={k: v for k, v in YARN.items() if k != "original_max_position_embeddings"})),
    "ministral3_plain": ("Ministral3", "ministral3", dict(**HEADS, rope_parameters=dict(rope_type="default", rope_theta=1e3, original_max_position_embeddings=3, llama_4_scaling_beta=0.2))),
    "ministral3_defaults": ("Ministral3", "ministral3", HEADS),
}


def leave_out(path):
    """Takes from a config.json what transformers adds to what was given."""
    config, given = json.loads(path.read_text()), MODELS[path.name.removesuffix(".config.json")][2].get("rope_parameters")
    if given:
        config["rope_parameters"] = given
    else:
        del config["rope_parameters"]
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def build(kind, extra, seed):
    sizes = {**SIZES, **copy.deepcopy(extra)}
    if kind == "Mistral3":
        config = transformers.Mistral3Config(text_config=dict(sizes, model_type="ministral3"), vision_config=make_gemma.VISION | dict(head_dim=8), tie_word_embeddings=True, attn_implementation="eager")
        torch.manual_seed(seed)  # of what images need
        m = transformers.Mistral3ForConditionalGeneration(config).float().eval()
        for p in m.parameters():  # not the buffers
            p.data = p.data.bfloat16().float()
        families.randomise(m.model.language_model, seed)
        return config, m
    config = transformers.Ministral3Config(**sizes, attn_implementation="eager")
    m = transformers.Ministral3ForCausalLM(config).float().eval()
    families.randomise(m, seed)
    return config, m


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "ministral3"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    models = families.logits(out, MODELS, build)
    for name in ("ministral3_length", "ministral3_defaults"):
        leave_out(out / (name + ".config.json"))
    make_gemma.as_saved(models["ministral3_images"][1], out / "ministral3_images.safetensors")
    for name in ("ministral3", "ministral3_images"):
        m, images = models[name][1], name.endswith("images")
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=2, lora_alpha=3, target_modules=make_gemma.TEXT if images else EVERYTHING))
        # of one draw of ids PEFT's own gradients are off by 0.06 to 0.24 in the first
        runs["bf16"] = make_gemma.bf16_errors(m, out / (name + ".lora")) if images else bf16_errors(m, out / (name + ".lora"), range(0, 60, 5))
        # at 1e-2 the first one's curve is chaotic: weights that differ by 1e-7 change a step's gradient norm by 1e-2
        runs["curve"] = (make_gemma.curve if images else curve)(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2 if images else 5e-3)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
