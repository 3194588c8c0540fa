#!/usr/bin/env python3
"""Makes testdata/peft_keys: adapters with biases, and with LoRA on embeddings and head, as PEFT writes them, with their losses and gradients.

    PYTHONPATH=goldens/methods/make python3 internal/golden/make_peft_keys.py [OUT]     # peft 0.21, transformers 5; then pack.py

Losses and gradients are float64's (common.py keeps transformers' casts in float64). The models are families/llama_biases, whose linear layers
have biases, and stories260K-hf (STORIES), which ties its head. The frozen tables that PEFT saves beside updates of theirs are left out.
"""
import json
import os
import pathlib
import sys
import warnings

import common as C
import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

CASES = {
    "bias_all": ("llama_biases", dict(target_modules=["q_proj", "down_proj"], bias="all", layers_to_transform=[0])),
    "bias_lora_only": ("llama_biases", dict(target_modules=["v_proj", "up_proj"], bias="lora_only", layers_to_transform=[1])),
    "lora_bias": ("llama_biases", dict(target_modules=["k_proj", "o_proj"], lora_bias=True, r=2, use_rslora=True, layers_to_transform=[1])),
    "embeddings_and_head": ("llama_biases", dict(target_modules=["embed_tokens", "lm_head", "q_proj"])),
    "tied_head": ("stories", dict(target_modules=["lm_head"], r=1)),
}


def model_of(name, dtype, here):
    if name == "stories":
        return LlamaForCausalLM.from_pretrained(os.environ["STORIES"], dtype=dtype, attn_implementation="eager")
    families = here / "testdata" / "families"
    config = LlamaConfig(**json.loads((families / f"{name}.config.json").read_text()))
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config)
    missing = model.load_state_dict(load_file(families / f"{name}.safetensors"), strict=False)
    assert not missing.unexpected_keys, missing
    model.tie_weights()
    return model.to(dtype)


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "peft_keys"
    torch.set_num_threads(1)
    C.keep_float64()
    warnings.simplefilter("ignore")
    for name, (base, how) in CASES.items():
        torch.manual_seed(7)
        rng = np.random.default_rng(len(name))
        config = LoraConfig(**dict(dict(task_type="CAUSAL_LM", r=1, lora_alpha=6, lora_dropout=0.0), **how))
        model = get_peft_model(model_of(base, torch.float32, here), config)
        with torch.no_grad():
            for n, p in model.named_parameters():
                if p.requires_grad:
                    x = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32))
                    p.copy_(x * 0.1 if "lora_" in n and not n.endswith("bias") else p + x * 0.05)
        model.peft_config["default"].base_model_name_or_path = base
        dst = out / name
        dst.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(dst, save_embedding_layers=False)
        saved = get_peft_model_state_dict(model, save_embedding_layers=False)
        files = load_file(dst / "adapter_model.safetensors")
        assert files.keys() == saved.keys()
        vocab = model.config.vocab_size
        ids = torch.from_numpy(rng.integers(3, vocab, (2, 11)))
        ids[1, 8:] = 0
        labels = ids.clone()
        labels[:, :2] = -100
        labels[1, 8:] = -100
        with C.Float64():
            model = model.to(torch.float64)
            logits = model(input_ids=ids, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, vocab), labels[:, 1:].reshape(-1))
            loss.backward()
        grads, norms = {}, {}
        for n, p in model.named_parameters():
            if p.requires_grad:
                grads[n.replace(".default", "")] = p.grad.float().contiguous()
                norms[n.replace(".default", "")] = p.grad.norm().item()
        assert grads.keys() == files.keys(), (grads.keys() ^ files.keys())
        save_file(grads, dst / "grads.safetensors")
        save_file({"input_ids": ids.int(), "labels": labels.int()}, dst / "batch.safetensors")
        (dst / "grads.json").write_text(json.dumps({"loss_f64": loss.item(), "norm_f64": dict(sorted(norms.items()))}, indent=1) + "\n")
        for unneeded in ("README.md",):
            (dst / unneeded).unlink(missing_ok=True)
        print(name, base, loss.item(), len(files), sum(f.stat().st_size for f in dst.iterdir()))
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
