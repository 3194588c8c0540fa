#!/usr/bin/env python3
"""Makes testdata/train/NAME for adapters that start as a part of the base weight: 20 steps from the data and settings of
testdata/train/lora, with PEFT's init_lora_weights pissa, pissa_niter_4 and olora, and pissa over a base in NF4.

    python internal/golden/make_pissa.py [OUT]

Made with torch 2.15.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU. First it repeats
testdata/train/lora, so that what it calls the same settings are the same.

`start` holds A and B of two layers as PEFT starts them and `base_after.MODULE`, the weight of the first that remains; `final` is PEFT's
conversion to an ordinary adapter of twice the rank on the original base, of the same layers. The random numbers of
pissa_niter_4 are Go's (rand.PCG of the seed and the name's hash), so that both decompose alike. Over NF4, PiSSA
starts from a decomposition in float64 (see exact_start). NF4 is written here after
bitsandbytes' description (blocks of 64, no double quantisation).
"""
import hashlib
import json
import math
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM, get_cosine_schedule_with_warmup

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = HERE / "testdata" / "train"
IGNORE, STEPS, ROWS, LR, DECAY, WARMUP, CLIP, SEED = -100, 20, 4, 2e-3, 0.01, 2, 1.0, 42
KEPT = ("model.layers.2.self_attn.q_proj", "model.layers.4.mlp.down_proj")
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def go_uniform(name, seed=SEED):
    """rand.NewPCG(seed, first 8 bytes of the name's SHA-256): numbers in [0,1)."""
    m64, m128 = (1 << 64) - 1, (1 << 128) - 1
    state = seed << 64 | int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    while True:
        state = (state * 0x2360ed051fc65da44385df649fccf645 + 0x5851f42d4c957f2d14057b7ef767814f) & m128
        hi, lo = state >> 64, state & m64
        hi ^= hi >> 32
        hi = hi * 0xda942042e4dd58b5 & m64
        hi ^= hi >> 48
        hi = hi * (lo | 1) & m64
        yield (hi >> 11) / (1 << 53)


def go_normal(name, rows, cols):
    u = go_uniform(name)
    values = []
    for _ in range(rows * cols):
        r = math.sqrt(-2 * math.log(1 - next(u)))
        values.append(r * math.cos(2 * math.pi * next(u)))
    return torch.tensor(values, dtype=torch.float64).reshape(rows, cols)


def nf4(w):
    table = torch.tensor(NF4)
    blocks = w.float().reshape(-1, 64)
    absmax = blocks.abs().amax(1, keepdim=True)
    middles = (table[1:] + table[:-1]) / 2
    return (table[torch.bucketize(blocks / absmax, middles)] * absmax).reshape(w.shape)


def model_of(init):
    base = LlamaForCausalLM.from_pretrained(str(HERE.parents[1] / "configs" / "assets" / "stories260K"),
                                            attn_implementation="eager", dtype=torch.float32)
    if init is None:
        return PeftModel.from_pretrained(base, str(TRAIN / "init"), is_trainable=True)
    own = json.loads((TRAIN / "init" / "adapter_config.json").read_text())
    config = LoraConfig(r=own["r"], lora_alpha=own["lora_alpha"], target_modules=own["target_modules"], init_lora_weights=init, task_type="CAUSAL_LM")
    if "niter" not in init:
        return get_peft_model(base, config)
    import peft.tuners.lora.layer as layer
    names = iter([n for n, m in base.named_modules() if n.split(".")[-1] in own["target_modules"]])
    keep = layer.svd_lowrank

    def svd_lowrank(a, q, niter):
        draw = go_normal(next(names) + ".lora_A.weight", min(a.shape), q).to(a.dtype)
        randn, torch.randn = torch.randn, lambda *_, **__: draw
        try:
            return keep(a, q, niter=niter)
        finally:
            torch.randn = randn
    layer.svd_lowrank = svd_lowrank
    try:
        return get_peft_model(base, config)
    finally:
        layer.svd_lowrank = keep


def curve(model):
    model.train()
    params = dict(sorted((n.replace(".default", ""), p) for n, p in model.named_parameters() if p.requires_grad))
    batch = load_file(str(TRAIN / "batches.safetensors"))
    ids, labels = batch["input_ids"].long(), batch["labels"].long()
    opt = torch.optim.AdamW(list(params.values()), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=DECAY, foreach=False)
    sched = get_cosine_schedule_with_warmup(opt, WARMUP, STEPS)
    c = {k: [] for k in ("loss", "grad_norm", "lr", "trained_tokens")}
    for step in range(STEPS):
        x, y = (t[step * ROWS:(step + 1) * ROWS] for t in (ids, labels))
        opt.zero_grad()
        logits = model(input_ids=x, use_cache=False).logits[:, :-1]
        total = int((y[:, 1:] != IGNORE).sum())
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y[:, 1:].reshape(-1), ignore_index=IGNORE, reduction="sum") / total
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(params.values()), CLIP, foreach=False)
        for k, v in (("loss", float(loss.detach())), ("grad_norm", float(norm)), ("lr", float(opt.param_groups[0]["lr"])), ("trained_tokens", total)):
            c[k].append(v)
        opt.step()
        sched.step()
    return c


def write_tensors(path, tensors):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, str(path))
    path.chmod(0o644)


def modules(model):
    for n, m in model.named_modules():
        if hasattr(m, "lora_A") and "default" in m.lora_A:
            yield n.removeprefix("base_model.model."), m


def exact_start(model):
    """PiSSA from a decomposition in float64: that of float32 puts four of 226,560 numbers into a neighbouring NF4 bucket."""
    original = dict(model_of(None).base_model.model.named_parameters())
    with torch.no_grad():
        for n, m in modules(model):
            w, r, s = original[n + ".base_layer.weight"].double(), m.r["default"], m.scaling["default"]
            u, d, v = torch.linalg.svd(w, full_matrices=False)
            root = torch.diag(torch.sqrt(d[:r] / s))
            m.lora_A["default"].weight.copy_(root @ v[:r])
            m.lora_B["default"].weight.copy_(u[:, :r] @ root)
            m.get_base_layer().weight.copy_(w - s * m.lora_B["default"].weight.double() @ m.lora_A["default"].weight.double())


def make(out, name, init, quantised):
    torch.manual_seed(0)
    model = model_of(init)
    start = {}
    for n, m in modules(model):
        if n in KEPT:
            start |= {n + ".lora_A.weight": m.lora_A["default"].weight, n + ".lora_B.weight": m.lora_B["default"].weight,
                      **({"base_after." + n: m.get_base_layer().weight.clone()} if n == KEPT[0] and not quantised else {})}
    if quantised:
        exact_start(model)
        for _, m in modules(model):
            m.get_base_layer().weight.data = nf4(m.get_base_layer().weight.data)
    if not quantised:
        write_tensors(out / "train" / name / "start.safetensors", start)
    with tempfile.TemporaryDirectory() as t:
        model.peft_config["default"].init_lora_weights = True
        model.save_pretrained(t + "/first")
        model.peft_config["default"].init_lora_weights = init
        c = curve(model)
        model.save_pretrained(t + "/final", path_initial_model_for_weight_conversion=t + "/first")
        final = load_file(t + "/final/adapter_model.safetensors")
        config = json.loads(pathlib.Path(t + "/final/adapter_config.json").read_text())
    assert config["r"] == 16 and config["lora_alpha"] == 32 and config["init_lora_weights"] is True, config
    write_tensors(out / "train" / name / "final" / "adapter_model.safetensors", {k: v for k, v in final.items() if any(n in k for n in KEPT)})
    path = out / "train" / name / "curve.json"
    path.write_text(json.dumps({**c, "dtype": "float32", "rows_a_backward": ROWS, "init_lora_weights": init}, indent=1) + "\n")
    print(name, "first and last loss", c["loss"][0], c["loss"][-1])


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "testdata"
    lora = curve(model_of(None))
    want = json.loads((TRAIN / "lora" / "curve.json").read_text())
    off = max(abs(a - b) / b for a, b in zip(lora["loss"], want["loss"]))
    print("testdata/train/lora again: losses within", off)
    assert off < 1e-5 and lora["trained_tokens"] == want["trained_tokens"]
    for name, init, quantised in (("pissa", "pissa", False), ("pissa_niter_4", "pissa_niter_4", False), ("olora", "olora", False), ("pissa_nf4", "pissa", True)):
        make(out, name, init, quantised)


if __name__ == "__main__":
    main()
