#!/usr/bin/env python3
"""Saves the language model of a folder with images as a folder of its own, of a family that is trained here.

    python scripts/language_model.py DIR FAMILY OUT      # Qwen3-VL's is qwen3, Qwen2.5-VL's qwen2, LLaVA's llama

For text alone both compute the same, which is checked on a row of random tokens. transformers 5; the whole model must fit in memory.
"""
import shutil
import pathlib
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText


def main(folder, family, out):
    whole = AutoModelForImageTextToText.from_pretrained(folder, dtype="auto").eval()
    text = whole.config.get_text_config().to_dict()
    text.update(model_type=family, architectures=None, tie_word_embeddings=whole.lm_head.weight is whole.get_input_embeddings().weight)
    if family == "qwen3_moe":
        text["norm_topk_prob"] = True  # which Qwen3-VL's mixture always does
    text["rope_parameters"] = {k: v for k, v in (text.get("rope_parameters") or {}).items() if not k.startswith("mrope_")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**text), dtype=whole.dtype).eval()
    language = whole.model.language_model if hasattr(whole.model, "language_model") else whole.model.text_model
    model.model.load_state_dict(language.state_dict())
    model.lm_head.load_state_dict(whole.lm_head.state_dict())
    ids = torch.randint(3, min(1000, text["vocab_size"] - 16), (1, 32))
    with torch.no_grad():
        want, got = (m(input_ids=ids).logits.float() for m in (whole, model))
    if not torch.allclose(want, got, rtol=1e-2, atol=1e-2):
        sys.exit(f"{family} computes other logits, by up to {float((want - got).abs().max()):g}: the language model is another family's, nothing is saved")
    model.save_pretrained(out)
    for f in pathlib.Path(folder).iterdir():
        if f.name.startswith(("tokenizer", "vocab", "merges", "special_tokens", "added_tokens", "chat_template", "generation_config")):
            shutil.copy(f, out)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
