#!/usr/bin/env python3
"""Makes testdata/ours/logits.safetensors: what PEFT makes of an adapter that this program trained.

    trainer train --config internal/golden/testdata/ours/config.yaml --set output_dir=RUN
    cp RUN/adapter_config.json RUN/adapter_model.safetensors internal/golden/testdata/ours/
    python internal/golden/make_ours.py

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1 on a CPU; needs neither network nor GPU.
"""
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM


def main():
    here = pathlib.Path(__file__).resolve().parent
    ours = here / "testdata" / "ours"
    model = LlamaForCausalLM.from_pretrained(str(here.parents[1] / "configs" / "assets" / "stories260K"),
                                             attn_implementation="eager", dtype=torch.float32).eval()
    ids = torch.randint(3, 512, (1, 40), generator=torch.Generator().manual_seed(3))
    ids[0, 0] = 1
    with torch.no_grad():
        base = model(input_ids=ids).logits[0]
        peft = PeftModel.from_pretrained(model, str(ours)).eval()
        logits = peft(input_ids=ids).logits[0].contiguous()
    loaded = {n.replace(".default", ""): p for n, p in peft.named_parameters() if "lora_" in n}
    saved = load_file(str(ours / "adapter_model.safetensors"))
    assert loaded.keys() == saved.keys() and all(torch.equal(loaded[n], saved[n]) for n in saved), "PEFT read something else"
    c = peft.peft_config["default"]
    print(len(saved), "tensors; r", c.r, "alpha", c.lora_alpha, "rank_pattern", c.rank_pattern, "alpha_pattern", c.alpha_pattern)
    print("logits within", float(logits.abs().max()), "changed by up to", float((logits - base).abs().max()))
    path = ours / "logits.safetensors"
    save_file({"ids": ids[0].to(torch.int32), "logits": logits}, str(path))
    path.chmod(0o644)


if __name__ == "__main__":
    main()
