#!/usr/bin/env python3
"""Makes testdata/autumn_families: Qwen3-VL in a folder with images, EXAONE 4 and CWM, as make_more_families.py makes its models.

    python internal/golden/make_autumn_families.py [OUT]

Made with torch 2.15.0, transformers 5.17.0, PEFT 0.21.0, bitsandbytes 0.50.2 on a CPU; needs neither network nor GPU.
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
VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, temporal_patch_size=2, spatial_merge_size=2, out_hidden_size=SIZES["hidden_size"],
              num_position_embeddings=16, deepstack_visual_indexes=[0])

# name: (classes of transformers, name of its weights, what differs from SIZES)
MODELS = {
    "qwen3_vl": ("Qwen3VL", "qwen3_vl", dict(**HEADS, rope_theta=5e6, tie_word_embeddings=False,
                                            rope_scaling=dict(rope_type="default", mrope_section=[2, 2, 2], mrope_interleaved=True))),
    "exaone4": ("Exaone4", "exaone4", dict(**HEADS, sliding_window=5, sliding_window_pattern=2, layer_types=[SLIDING, FULL], tie_word_embeddings=False)),
    "exaone4_full": ("Exaone4", "exaone4", dict(**HEADS, sliding_window=None, sliding_window_pattern=None, layer_types=[FULL, FULL], tie_word_embeddings=False,
                                              rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "cwm": ("Cwm", "cwm", dict(head_dim=8, sliding_window=5, layer_types=[FULL, SLIDING], tie_word_embeddings=False,
                              rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
}
CURVES = "qwen3_vl", "exaone4", "cwm"


def build(kind, extra, seed):
    sizes = {**SIZES, **extra}
    if kind == "Qwen3VL":
        config = transformers.Qwen3VLConfig(text_config=sizes, vision_config=VISION, tie_word_embeddings=False, image_token_id=60, video_token_id=61, vision_start_token_id=62,
                                            vision_end_token_id=63, attn_implementation="eager")
        torch.manual_seed(seed)  # of what images need
        m = transformers.Qwen3VLForConditionalGeneration(config).float().eval()
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
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "autumn_families"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    models = families.logits(out, MODELS, build)
    for name in CURVES:
        m, images = models[name][1], name == "qwen3_vl"
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        targets = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)" if images else EVERYTHING
        families.gradients(out, name, copy.deepcopy(m), dict(r=2, lora_alpha=3, target_modules=targets))
        runs["bf16"] = make_gemma.bf16_errors(m, out / (name + ".lora")) if images else bf16_errors(m, out / (name + ".lora"))
        runs["curve"] = (make_gemma.curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2) if images else
                         curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2))
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
