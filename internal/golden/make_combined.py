#!/usr/bin/env python3
"""Makes testdata/combined: small adapters of stories260K and what PEFT's add_weighted_adapter makes of them.

    python internal/golden/make_combined.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1 on a CPU; needs neither network nor GPU.
"""
import json
import pathlib
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).parent
MODEL = ROOT.parent.parent / "configs" / "assets" / "stories260K"
LAYERS = r"model\.layers\.0\.self_attn\.(q|v)_proj"
ADAPTERS = {
    "one": dict(r=2, lora_alpha=4, target_modules=LAYERS),
    "two": dict(r=2, lora_alpha=3, use_rslora=True, target_modules=LAYERS),
    "three": dict(r=3, lora_alpha=6, target_modules=r"model\.layers\.0\.self_attn\.q_proj"),
}
COMBINED = {
    "linear": ("linear", {"one": 0.7, "two": 0.4}),
    "cat": ("cat", {"one": 0.7, "two": -0.4, "three": 1.5}),
}


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    for name, options in ADAPTERS.items():
        torch.manual_seed(len(name) + options["r"])
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32), LoraConfig(task_type="CAUSAL_LM", **options))
        for key, p in model.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(p, std=0.05)
        model.save_pretrained(out / name)
        (out / name / "README.md").unlink()
    numbers = {}
    for how, (kind, weights) in COMBINED.items():
        names = list(weights)
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32), out / names[0], adapter_name=names[0])
        for name in names[1:]:
            model.load_adapter(out / name, adapter_name=name)
        model.base_model.add_weighted_adapter(names, [weights[n] for n in names], "combined", combination_type=kind)
        for key, module in model.named_modules():
            if hasattr(module, "lora_A") and "combined" in module.lora_A and any(n in module.lora_A for n in names):
                update = (module.lora_B["combined"].weight.double() @ module.lora_A["combined"].weight.double()) * module.scaling["combined"]
                path = key.removeprefix("base_model.model.")
                numbers[f"{how}.{path}"] = update.float().contiguous()
    save_file(numbers, str(out / "combined.safetensors"))
    print(json.dumps({k: [list(v.shape), float(v.abs().max())] for k, v in numbers.items()}, indent=1))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "testdata" / "combined")
