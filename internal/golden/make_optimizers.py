#!/usr/bin/env python3
"""Makes testdata/train/loraplus: 20 steps with PEFT's create_loraplus_optimizer from the data, start and settings of
testdata/train/lora, and testdata/lion: updates of two small tensors with lion-pytorch.

    python internal/golden/make_optimizers.py [OUT]

Made with torch 2.15.0, transformers 5.23.0, PEFT 0.21.2, lion-pytorch 0.2.5 on a CPU; needs neither
network nor GPU. First it repeats testdata/train/lora, so that what it calls the same settings are the same.
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from lion_pytorch import Lion
from peft import PeftModel
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM, get_cosine_schedule_with_warmup

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = HERE / "testdata" / "train"
IGNORE, STEPS, ROWS, LR, DECAY, WARMUP, CLIP, RATIO = -100, 20, 4, 2e-3, 0.01, 2, 1.0, 16


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_tensors(path, tensors):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, str(path))
    path.chmod(0o644)


def fresh(dtype):
    base = LlamaForCausalLM.from_pretrained(str(HERE.parents[1] / "configs" / "assets" / "stories260K"),
                                            attn_implementation="eager", dtype=torch.float32)
    model = PeftModel.from_pretrained(base, str(TRAIN / "init"), is_trainable=True).to(dtype).train()
    named = {n.replace(".default", ""): p for n, p in model.named_parameters() if p.requires_grad}
    return model, dict(sorted(named.items()))


def curve(dtype, optimizer):
    model, params = fresh(dtype)
    batch = load_file(str(TRAIN / "batches.safetensors"))
    ids, labels = batch["input_ids"].long(), batch["labels"].long()
    opt = optimizer(model, params)
    sched = get_cosine_schedule_with_warmup(opt, WARMUP, STEPS)
    c = {k: [] for k in ("loss", "grad_norm", "lr", "trained_tokens", "norm_A", "norm_B")}
    for step in range(STEPS):
        x, y = (t[step * ROWS:(step + 1) * ROWS] for t in (ids, labels))
        opt.zero_grad()
        logits = model(input_ids=x, use_cache=False).logits[:, :-1]
        total = int((y[:, 1:] != IGNORE).sum())
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y[:, 1:].reshape(-1), ignore_index=IGNORE, reduction="sum") / total
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(params.values()), CLIP, foreach=False)
        c["loss"].append(float(loss.detach()))
        c["grad_norm"].append(float(norm))
        c["lr"].append(float(opt.param_groups[0]["lr"]))
        c["trained_tokens"].append(total)
        opt.step()
        sched.step()
        for which in "AB":
            sq = sum((p.detach().double() ** 2).sum() for n, p in params.items() if f"lora_{which}" in n)
            c[f"norm_{which}"].append(float(torch.sqrt(sq)))
    return c, params


def adamw(_model, params):
    return torch.optim.AdamW(list(params.values()), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=DECAY, foreach=False)


def loraplus(model, _params):
    return create_loraplus_optimizer(model, torch.optim.AdamW, lr=LR, loraplus_lr_ratio=RATIO, loraplus_weight_decay=DECAY,
                                     betas=(0.9, 0.999), eps=1e-8, foreach=False)


def make_loraplus(out):
    lora, _ = curve(torch.float32, adamw)
    want = json.loads((TRAIN / "lora" / "curve.json").read_text())
    off = max(abs(a - b) / b for a, b in zip(lora["loss"], want["loss"]))
    print("testdata/train/lora again: losses within", off)
    assert off < 1e-5 and lora["trained_tokens"] == want["trained_tokens"]
    c, params = curve(torch.float32, loraplus)
    write_json(out / "train" / "loraplus" / "curve.json", {**c, "dtype": "float32", "rows_a_backward": ROWS, "loraplus_lr_ratio": RATIO})
    write_tensors(out / "train" / "loraplus" / "final" / "adapter_model.safetensors", params)
    print("first and last loss", c["loss"][0], c["loss"][-1], "without the ratio", lora["loss"][-1])


def make_lion(out):
    """Ten updates of a [3,5] and b [4]: clipping off, weight decay 0.01, a gradient given for each."""
    steps, settings = 10, dict(lr=1e-2, betas=(0.9, 0.99), weight_decay=0.01)
    g = torch.Generator().manual_seed(11)
    start = {"a": torch.randn(3, 5, generator=g, dtype=torch.float64), "b": torch.randn(4, generator=g, dtype=torch.float64)}
    grads = [{n: torch.randn(p.shape, generator=g, dtype=torch.float64).float().double() for n, p in start.items()} for _ in range(steps)]
    start = {n: p.float().double() for n, p in start.items()}
    for s in (2, 5):  # an element without a gradient: its update is the sign of its momentum alone, at first 0
        grads[s]["a"][0, 0] = 0
    for s in range(steps):
        grads[s]["b"][3] = 0
    tensors = {f"start.{n}": p for n, p in start.items()}
    for s in range(steps):
        tensors |= {f"grad.{s}.{n}": v for n, v in grads[s].items()}
    for tag, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        params = {n: torch.nn.Parameter(p.to(dtype).clone()) for n, p in start.items()}
        opt = Lion(list(params.values()), decoupled_weight_decay=False, **settings)
        for s in range(steps):
            for n, p in params.items():
                p.grad = grads[s][n].to(dtype)
            opt.step()
            for n, p in params.items():
                tensors[f"{tag}.{s}.{n}"] = p.detach().clone()
                tensors[f"{tag}.{s}.momentum.{n}"] = opt.state[p]["exp_avg"].clone()
    write_tensors(out / "lion" / "lion.safetensors", tensors)
    write_json(out / "lion" / "lion.json", {**settings, "steps": steps, "decoupled_weight_decay": False})


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "testdata"
    make_lion(out)
    make_loraplus(out)


if __name__ == "__main__":
    main()
