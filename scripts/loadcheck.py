#!/usr/bin/env python3
"""Loads what trainer merge and trainer export wrote with the programs it is for, and compares their logits with PEFT's.

    python scripts/loadcheck.py JOBS.json

JOBS.json is a list of {"what": merged|nf4|peft|mlx, "base": DIR, "adapter": DIR or null, "out": DIR, "weights": DIR or null}: base and adapter
are what PEFT computes with in float32, out is what was written; of an adapter's folder, weights is the model it is loaded over. One
line of JSON comes out: for each job the largest difference and the largest logit, or why it was skipped. Needs torch, transformers and
PEFT; bitsandbytes for nf4, mlx and mlx-lm for mlx. No network.
"""
import functools
import json
import os
import sys

sys.path.pop(0)  # this folder has a kernels.py, which is not the package of that name
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def ids(vocab):
    return [[(7 * i * i + 3 * i + 1) % vocab for i in range(40)]]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def scores(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor(ids(model.config.get_text_config().vocab_size))).logits[0].float()


@functools.cache
def reference(base, adapter):
    model = load(base)
    return scores(PeftModel.from_pretrained(model, adapter).eval() if adapter else model)


@functools.cache
def merged_by_peft(base, adapter):
    return PeftModel.from_pretrained(load(base), adapter).merge_and_unload().state_dict()


def merged(job):
    ours, theirs = load(job["out"]), merged_by_peft(job["base"], job["adapter"])
    state = ours.state_dict()
    if state.keys() != theirs.keys():
        raise ValueError(f"other tensors than merge_and_unload gives: {sorted(state.keys() ^ theirs.keys())[:5]}")
    weights = max(float((state[k].float() - theirs[k].float()).abs().max()) for k in state)
    return scores(ours), {"weights": weights}


def nf4(job):
    import bitsandbytes
    model = AutoModelForCausalLM.from_pretrained(job["out"], device_map={"": "cpu"})
    state = {}  # bitsandbytes' GEMMs on a CPU take some widths alone, so its dequantised weights go into a plain model
    for name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            q = module.weight.quant_state
            shape, q.dtype, q.shape = q.shape, torch.float32, torch.Size((1, q.shape.numel()))
            state[name + ".weight"] = bitsandbytes.functional.dequantize_4bit(module.weight.data, q).reshape(shape)
    if not state:
        raise ValueError("no layer is in 4 bits")
    config = model.config
    del config.quantization_config
    plain = type(model)(config).float().eval()
    plain.load_state_dict({k: v.float() for k, v in model.state_dict().items() if k in plain.state_dict() and v.is_floating_point()} | state)
    return scores(plain), {"layers": len(state)}


def peft(job):
    return scores(PeftModel.from_pretrained(load(job["weights"] or job["base"]), job["out"]).eval()), {}


def mlx(job):
    import mlx.core as mx
    from pathlib import Path
    from mlx_lm.tuner.utils import load_adapters
    from mlx_lm.utils import load_model
    mx.set_default_device(mx.cpu)
    model, config = load_model(Path(job["weights"] or job["base"]))
    model = load_adapters(model, job["out"])
    model.eval()
    return torch.tensor(memoryview(model(mx.array(ids(config["vocab_size"])))[0].astype(mx.float32)).tolist()), {}


def main():
    results = []
    for job in json.load(open(sys.argv[1])):
        want = reference(job["base"], job["adapter"])
        try:
            got, more = {"merged": merged, "nf4": nf4, "peft": peft, "mlx": mlx}[job["what"]](job)
        except ImportError as e:
            results.append({"skipped": str(e)})
            continue
        results.append({"difference": float((got - want).abs().max()), "largest": float(want.abs().max()), **more})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
