#!/usr/bin/env python3
"""How far PEFT's own curves in bf16 lie from its float32 curves of 100 steps on SmolLM2 (goldens/smollm2).

    python proof_curve.py OUT/curve.json --model DIR --goldens goldens/smollm2 --nf4 quant/testdata/nf4.safetensors.gz

Each draw but the first starts from an adapter whose numbers are changed by up to 2^-9 of themselves, bf16's rounding: what becomes of that in
100 steps is chance, so distances are averaged over draws, and "float32" says how far chance alone leads.
bitsandbytes is not needed: the base takes the round trip through NF4 with nested scales here, and the float32 curve made this way says how
close that is to the stored one. train's TestGPUSmolLM2CurveAgainstPEFT reads the file (TRAINER_PROOF=OUT). Needs torch with a GPU, transformers, peft.
"""
import argparse, concurrent.futures, json, multiprocessing, pathlib, sys

import torch
import torch.nn.functional as F
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from proof_reference import quantise

RUNS = {"float32": (torch.float32, False, "eager"), "bf16 base": (torch.bfloat16, True, "sdpa"), "fp32 base": (torch.float32, True, "sdpa")}


def curve(a, name, dtype, autocast, attention, draw):
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        m = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32, attn_implementation=attention)
    except TypeError:
        m = AutoModelForCausalLM.from_pretrained(a.model, torch_dtype=torch.float32, attn_implementation=attention)
    m = m.to(a.device)
    if name != "lora":
        quantise(m, a.nf4, a.device)
    m = m.to(dtype)  # as bitsandbytes dequantises to the type of the computation
    m = PeftModel.from_pretrained(m, a.goldens / "init", is_trainable=True).train()
    params = [p for n, p in m.named_parameters() if p.requires_grad]
    assert all(p.dtype == torch.float32 for p in params)
    if draw > 0:
        g = torch.Generator().manual_seed(draw)
        with torch.no_grad():
            for p in params:
                p.mul_(1 + (torch.rand(p.shape, generator=g) * 2 - 1).to(p.device) / 512)
    want = json.loads((a.goldens / f"{name}.json").read_text())
    b = load_file(a.goldens / "batches.safetensors")
    opt = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses = []
    for step, lr in enumerate(want["lr"]):
        x, y = b["input_ids"][step: step + 1].long().to(a.device), b["labels"][step: step + 1].long().to(a.device)
        for g in opt.param_groups:
            g["lr"] = lr
        opt.zero_grad()
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=autocast):
            logits = m(input_ids=x, use_cache=False).logits
        loss = F.cross_entropy(logits.float()[:, :-1].reshape(-1, logits.shape[-1]), y[:, 1:].reshape(-1), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        losses.append(loss.detach())
    losses = torch.stack(losses).cpu().double()
    d = losses - torch.tensor(want["loss"], dtype=torch.float64)[: len(losses)]
    return {"mean": float(d.abs().mean()), "end": float(d[-10:].abs().mean()), "signed": float(d.mean()), "first": float(d[0]), "losses": losses.tolist()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=pathlib.Path)
    ap.add_argument("--model", type=pathlib.Path, required=True)
    ap.add_argument("--goldens", type=pathlib.Path, required=True)
    ap.add_argument("--nf4", type=pathlib.Path, required=True)
    ap.add_argument("--draws", type=int, default=4)
    ap.add_argument("--jobs", type=int, default=9)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    out = {}
    with concurrent.futures.ProcessPoolExecutor(a.jobs, multiprocessing.get_context("spawn")) as pool:  # a curve is bound by launches
        todo = {(name, run, d): pool.submit(curve, a, name, *k, d) for d in range(a.draws) for name in ("qlora_nf4_double", "lora") for run, k in RUNS.items()}
        for (name, run, d), c in todo.items():
            out.setdefault(name, {}).setdefault(run, []).append(c.result())
    for name, runs in out.items():
        for run, c in runs.items():
            print(f"{name:18} {run:18} mean {[round(x['mean'], 5) for x in c]}  last ten {[round(x['end'], 5) for x in c]}  "
                  f"signed {[round(x['signed'], 5) for x in c]}", flush=True)
    a.out.parent.mkdir(parents=True, exist_ok=True)
    a.out.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
