#!/usr/bin/env python3
"""Makes testdata/adamw_8bit: ten updates of two tensors by the rule of bitsandbytes' AdamW8bit.

    python internal/golden/make_adamw_8bit.py [OUT]
    python internal/golden/make_adamw_8bit.py --cuda     needs an NVIDIA GPU: the rule against bitsandbytes itself

Made with torch 2.11.0, bitsandbytes 0.49.2 on a CPU. That optimizer has no CPU code, so the numbers are a transcription of
its CUDA kernel's rule in float32, each operation rounded by itself. The maps of codes are bitsandbytes' create_dynamic_map and
values come of its dequantize_blockwise; codes are held against its quantize_blockwise, which on a CPU writes -1 into the
map's lowest entry before it searches, as the CUDA kernel does not: so the lowest code is where the two may differ, and nowhere
else. What --cuda measures is how far the rule and bitsandbytes itself are apart.
"""
import json
import math
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import bitsandbytes
import bitsandbytes.functional as bnb
import torch

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"a": 4115, "b": 700}  # 16 blocks of 256 and one of 19; fewer than 4096 numbers keep their moments in 32 bits
STEPS, BLOCK, LEAST = 10, 256, 4096
SETTINGS = {"lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
KEPT = (1, 10)  # the steps whose moments are in the file


def numbers(count, seed):
    """Numbers of 25 binades, exact in float32, which a test makes by the same recurrence."""
    x, out = seed, []
    for _ in range(count):
        x = (x * 1664525 + 1013904223) % 2**32
        y = (x >> 8) - 2**23
        x = (x * 1664525 + 1013904223) % 2**32
        out.append(math.ldexp(y, -23 - (x >> 24) % 25))
    return torch.tensor(out, dtype=torch.float32)


def start(name):
    return numbers(SIZES[name], ord(name))


def gradient(name, step):
    g = numbers(SIZES[name], 1000 * step + ord(name))
    g[512:768] = 0  # a block that never learns
    if step % 3 == 0:
        g[:256] = 0
    return g


def maps():
    return bnb.create_dynamic_map(signed=True), bnb.create_dynamic_map(signed=False)


def quantised(x, code, check=True):
    """Codes and scales of blocks: of a value between two codes the nearer one, in the middle the even one, on which the kernel's
    search ends. check: they are held against quantize_blockwise on the CPU of the version that the goldens are made with."""
    blocks = torch.nn.functional.pad(x, (0, -x.numel() % BLOCK)).view(-1, BLOCK)
    absmax = blocks.abs().amax(1)
    y = (blocks * torch.where(absmax > 0, 1 / absmax, 0).unsqueeze(1)).flatten()[: x.numel()]
    middles = (code[:-1] + code[1:]) * 0.5
    codes = torch.searchsorted(middles, y)
    odd_tie = (codes % 2 == 1) & (y == middles[codes.clamp_max(254)])
    codes += odd_tie
    if not check:
        return codes, absmax
    theirs, state = bnb.quantize_blockwise(x, code=code.clone(), blocksize=BLOCK)
    live = (absmax > 0).repeat_interleave(BLOCK)[: x.numel()]
    other = live & (codes != theirs.flatten()) & (codes > 0)
    assert torch.equal(state.absmax, absmax) and not other.any(), x[other]
    return codes, absmax


def dequantised(codes, absmax, code):
    return bnb.dequantize_blockwise(codes, absmax=absmax, code=code.clone(), blocksize=BLOCK)


class Rule:
    """One tensor's update, float32 throughout, scalars as the kernel's floats."""

    def __init__(self, p, check=True):
        self.p, self.t, self.small, self.check = p.clone(), 0, p.numel() < LEAST, check
        self.signed, self.unsigned = maps()
        blocks = -(-p.numel() // BLOCK)
        self.codes = [torch.full_like(p, c, dtype=torch.uint8) for c in (127, 0)]
        self.absmax = [torch.zeros(blocks), torch.zeros(blocks)]
        self.moments = [torch.zeros_like(p), torch.zeros_like(p)]

    def update(self, g):
        self.t += 1
        b1, b2 = (float(torch.tensor(b, dtype=torch.float32)) for b in SETTINGS["betas"])
        to1, to2 = 1 - b1, 1 - b2  # exact in float32 too
        lr = float(torch.tensor(SETTINGS["lr"], dtype=torch.float32))
        f = lambda x: torch.tensor(x, dtype=torch.float32)
        correct1, root = float(f(1 - b1**self.t)), math.sqrt(float(f(1 - b2**self.t)))
        size, eps = f(-lr * root / correct1), f(float(f(SETTINGS["eps"])) * root)
        keep = f(1 - lr * float(f(SETTINGS["weight_decay"])))
        m, v = self.moments
        if not self.small:
            m, v = (dequantised(c, a, code) for c, a, code in zip(self.codes, self.absmax, (self.signed, self.unsigned)))
        m = m * f(b1) + f(to1) * g
        v = v * f(b2) + (f(to2) * g) * g
        self.p = (self.p + size * (m / (v.double().sqrt().float() + eps))) * keep  # torch's own float32 root is not rounded to nearest
        if self.small:
            self.moments = [m, v]
            return
        (c1, a1), (c2, a2) = quantised(m, self.signed, self.check), quantised(v, self.unsigned, self.check)
        c1 = torch.where(torch.signbit(m) & (c1 == 127), 126, c1)  # a negative number stays one
        zero = (a1 == 0).repeat_interleave(BLOCK)[: g.numel()]  # any code of theirs stands for 0
        self.codes = [torch.where(zero, 127, c1).to(torch.uint8), torch.where(zero, 0, c2).to(torch.uint8)]
        self.absmax = [a1, a2]


def make(out):
    rules = {n: Rule(start(n)) for n in SIZES}
    signed, unsigned = maps()
    tensors = {"map.signed": signed, "map.unsigned": unsigned}
    for step in range(1, STEPS + 1):
        for n, r in rules.items():
            r.update(gradient(n, step))
            if step not in KEPT:
                continue
            tensors[f"{step}.p.{n}"] = r.p
            if r.small:
                continue
            for i, which in enumerate(("m", "v")):
                tensors |= {f"{step}.{which}.{n}": r.codes[i], f"{step}.absmax.{which}.{n}": r.absmax[i]}
    from safetensors.torch import save_file
    out.mkdir(parents=True, exist_ok=True)
    save_file({k: t.contiguous() for k, t in tensors.items()}, str(out / "adamw_8bit.safetensors"))
    (out / "adamw_8bit.safetensors").chmod(0o644)
    about = {**SETTINGS, "sizes": SIZES, "steps": STEPS, "notice": "transcribed from the rule of bitsandbytes' CUDA kernel, whose optimizer has no CPU code "
             "(make_adamw_8bit.py says what of it is bitsandbytes' own)", "torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__}
    (out / "adamw_8bit.json").write_text(json.dumps(about, indent=1) + "\n")


def compare():
    """Ten updates by bitsandbytes on a GPU beside the rule, whose moments are set to theirs after each step, so that what is
    compared is one step. Codes differ where the last bits of a quotient decide between two of them, and no further than to the
    neighbour: theirs are of fused multiplications and an approximate division. Their bias corrections are of an approximate power,
    with an error of 2^-22 t in the exponent and 2^-22 besides: up to 4e-4 of 1 - beta2^t, of which the root has half; the
    tolerance of an update is 5e-4, and two roundings of the parameter."""
    rules = {n: Rule(start(n), check=False) for n in SIZES}
    theirs = {n: torch.nn.Parameter(start(n).cuda()) for n in SIZES}
    opt = bitsandbytes.optim.AdamW8bit(list(theirs.values()), **{**SETTINGS, "betas": tuple(SETTINGS["betas"])})
    failed = False
    for step in range(1, STEPS + 1):
        for n, p in theirs.items():
            p.grad = gradient(n, step).cuda()
        before = {n: p.detach().cpu().clone() for n, p in theirs.items()}
        opt.step()
        for n, r in rules.items():
            r.p = before[n]
            r.update(gradient(n, step))
            s = opt.state[theirs[n]]
            got = theirs[n].detach().cpu()
            moved = (r.p - before[n]).abs()
            allowed = moved * 5e-4 + 2.4e-7 * before[n].abs()
            worst = ((got - r.p).abs() / allowed.clamp_min(1e-30)).max().item()
            line = f"step {step} {n}: parameters within {worst:.3f} of what is allowed"
            failed |= not worst <= 1
            for i, which in enumerate(("m", "v")):
                state = s[f"state{i + 1}"].cpu().flatten()
                if r.small:
                    off = ((state - r.moments[i]).abs() / r.moments[i].abs().clamp_min(1e-30)).max().item()
                    line += f", {which} within {off:.1e}"
                    failed |= not off <= 1e-5
                    r.moments[i] = state
                    continue
                absmax = s[f"absmax{i + 1}"].cpu()
                live = (absmax != 0).repeat_interleave(BLOCK)[: state.numel()]
                d = (state.int() - r.codes[i].int()).abs() * live
                scales = ((absmax - r.absmax[i]).abs() / absmax.clamp_min(1e-30)).max().item()
                line += f", {which}: {int((d > 0).sum())} of {state.numel()} codes differ by up to {int(d.max())}, scales within {scales:.1e}"
                failed |= int(d.max()) > 1 or int((d > 0).sum()) > 4 or not scales <= 1e-6
                r.codes[i], r.absmax[i] = torch.where(live, state, r.codes[i]), absmax
            print(line)
    print("bitsandbytes", bitsandbytes.__version__, "torch", torch.__version__, "FAILED" if failed else "passed")
    return 1 if failed else 0


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if "--cuda" in sys.argv[1:]:
        sys.exit(compare())
    make(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "testdata" / "adamw_8bit")


if __name__ == "__main__":
    main()
