#!/usr/bin/env python3
"""PEFT's learning curve of a configuration with its spread over seeds: what expect.reference compares a run with.

    scripts/reference_curve.py OUT.json --config cpu_smollm2_convergence [--set KEY=VALUE ...] [--seeds 6] [--device cuda]

    scripts/reference_curve.py tinyllama.json --config gpu_tinyllama_extended --set base_model=/data/standin --device cuda --seeds 4
    trainer train gpu_tinyllama_extended --set base_model=/data/standin --set expect.reference=tinyllama.json

`trainer inspect steps --json` gives the rows of every step, the learning rates, the configuration and the base's hash, so that PEFT trains what
a run trains. The base takes the round trip through NF4 with nested scales, as bitsandbytes does it; all is computed in float32. A seed decides
PEFT's start of the adapter alone. Each seed is written to OUT.json.parts/ when it is done and is not trained again; --seeds may be raised later.
docs/internals/NUMERICS.md has the file's format and the rule. Needs torch, transformers, peft, safetensors; TRAINER names the program.
"""
import argparse, json, math, os, pathlib, shutil, statistics, subprocess, sys, time

import peft
import torch
import torch.nn.functional as F
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from proof_reference import IGNORE, quantise

ROOT = pathlib.Path(__file__).resolve().parent.parent
NF4 = ROOT / "quant" / "testdata" / "nf4.safetensors.gz"
FORMAT = 1
DIGITS = 7  # of a number in the file: float32 has no more
UNSUPPORTED = {"training.optimizer": "adamw", "training.objective": "cross_entropy", "lora.loraplus_lr_ratio": "0", "lora.target_parameters": "",
               "lora.rank_pattern": "", "lora.alpha_pattern": "", "lora.init_from": ""}


def recipe(program, config, sets):
    """What the configuration trains, from the program itself."""
    command = [program, "inspect", "steps", "--config", config, "--json"] + [x for s in sets for x in ("--set", s)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    r = json.loads(done.stdout)
    c = r["configuration"]
    for key, only in UNSUPPORTED.items():
        if c.get(key, "") != only:
            sys.exit(f"{key} is {c[key]}: this script trains " + (f"{only} only" if only else "without it"))
    if c["adapter"] == "qlora" and (c["quantization.bits"], c["quantization.type"], c["quantization.double_quant"]) != ("4", "nf4", "true"):
        sys.exit("quantization: this script knows nf4 in 4 bits with double_quant only")
    return r


def folder(program, name):
    """The folder of a base model: itself, or where the Hugging Face cache has it."""
    if pathlib.Path(name).is_dir():
        return name
    if name.startswith("embedded:"):
        return str(ROOT / "configs" / "assets" / name.removeprefix("embedded:"))
    from huggingface_hub import snapshot_download
    return snapshot_download(name, local_files_only=True)


def load(model, device, quantised):
    try:
        m = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    except TypeError:
        m = AutoModelForCausalLM.from_pretrained(model, torch_dtype=torch.float32, attn_implementation="eager")
    m = m.to(device)
    if quantised:
        quantise(m, NF4, device)
    return m


def nll(m, row, device):
    """The summed loss of a row's trained tokens, and how many they are."""
    x, y = (torch.tensor([row[k]], device=device, dtype=torch.long) for k in ("ids", "labels"))
    logits = m(input_ids=x, use_cache=False).logits.float()
    return F.cross_entropy(logits[0, :-1], y[0, 1:], ignore_index=IGNORE, reduction="sum"), int((y[0, 1:] != IGNORE).sum())


def evaluate(m, rows, device):
    m.eval()
    with torch.no_grad():
        sums = [nll(m, r, device) for r in rows]
    m.train()
    return sum(float(s) for s, _ in sums) / max(1, sum(n for _, n in sums)) if rows else None


def train(m, r, seed, device, say):
    """Trains PEFT's LoRA on the base and takes it off again."""
    c = r["configuration"]
    torch.manual_seed(seed)
    targets = c["lora.target_modules"]
    m = get_peft_model(m, LoraConfig(r=int(c["lora.r"]), lora_alpha=float(c["lora.alpha"]), lora_dropout=float(c["lora.dropout"]), use_rslora=c["lora.use_rslora"] == "true",
                                     target_modules=targets if targets == "all-linear" else targets.split(","), bias="none", task_type="CAUSAL_LM")).train()
    params = [p for p in m.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=1.0, betas=(float(c["training.adam_beta1"]), float(c["training.adam_beta2"])), eps=float(c["training.adam_epsilon"]),
                            weight_decay=float(c["training.weight_decay"]))
    losses, clip = [], float(c["training.max_grad_norm"])
    for step in r["train"]:
        rows = [row for batch in step["batches"] for row in batch]
        trained = sum(sum(l != IGNORE for l in row["labels"][1:]) for row in rows)
        opt.zero_grad(set_to_none=True)
        total = 0.0
        for row in rows:
            loss, _ = nll(m, row, device)
            (loss / trained).backward()
            total += float(loss.detach())
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(params, clip)
        for g in opt.param_groups:
            g["lr"] = step["learning_rate"]
        opt.step()
        losses.append(total / trained)
        if not math.isfinite(losses[-1]):
            sys.exit(f"seed {seed}, step {len(losses)}: the loss is {losses[-1]}")
        say(len(losses), losses[-1])
    held = evaluate(m, r["validation"], device)
    return {"seed": seed, "losses": losses, "eval_loss": held}, m.unload()


def smooth(x, w):
    """The mean of the last w numbers, at the start of as many as there are."""
    return [statistics.fmean(x[max(0, i + 1 - w): i + 1]) for i in range(len(x))]


def band(values):
    """Mean and standard deviation over the seeds."""
    return {"mean": round(statistics.fmean(values), DIGITS), "spread": round(statistics.stdev(values), DIGITS)}


def assemble(r, before, runs, made, name, k, floor):
    steps = r["steps"]
    w = max(1, steps // 10)
    curves = [smooth(run["losses"], w) for run in runs]
    at = [band(x) for x in zip(*curves)]
    ref = {"format": FORMAT, "base_model": name, "made_by": made,
           "subject": {key: r[key] for key in ("base_weights_sha256", "rows_sha256", "validation_sha256", "steps", "configuration")},
           "seeds": [run["seed"] for run in runs], "window": w, "tolerance": {"k": k, "floor": floor},
           "loss": {"mean": [b["mean"] for b in at], "spread": [b["spread"] for b in at]}}
    if r["validation"]:
        ref |= {"eval_loss_before": round(before, DIGITS), "eval_loss": band([run["eval_loss"] for run in runs])}
    return ref


def lines(ref):
    """JSON with an array of numbers in one line."""
    text = json.dumps(ref, indent=1)
    out, depth = [], 0
    for line in text.split("\n"):
        if depth:
            out[-1] += (" " if out[-1][-1] == "," else "") + line.strip()
        else:
            out.append(line)
        depth += line.endswith("[") - (depth > 0 and line.strip().startswith("]"))
    return "\n".join(out) + "\n"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=pathlib.Path)
    ap.add_argument("--config", required=True)
    ap.add_argument("--set", action="append", default=[], help="KEY=VALUE, as the program takes it")
    ap.add_argument("--name", help="of the base model, as the file is to say it; the hash is what counts")
    ap.add_argument("--seeds", type=int, default=6)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--threads", type=int, default=0, help="of torch on a CPU; 0 = its choice")
    ap.add_argument("--k", type=float, default=5.0, help="spreads that a run may be away from the mean")
    ap.add_argument("--floor", type=float, default=0.02, help="and this much besides")
    ap.add_argument("--program", default=os.environ.get("TRAINER") or shutil.which("trainer") or str(ROOT / "trainer"))
    a = ap.parse_args()
    if a.seeds < 2:
        sys.exit("--seeds: a spread takes two at least")
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    r = recipe(a.program, a.config, a.set)
    parts = a.out.with_name(a.out.name + ".parts")
    parts.mkdir(parents=True, exist_ok=True)
    subject = {key: r[key] for key in ("base_weights_sha256", "rows_sha256", "validation_sha256", "steps", "configuration")}

    def part(name):
        """What an earlier call kept of the same subject, or None."""
        try:
            kept = json.loads((parts / name).read_text())
        except (OSError, ValueError):
            return None
        return kept if kept.get("subject") == subject else None

    def keep(name, data):
        data["subject"] = subject
        (parts / name).with_suffix(".tmp").write_text(json.dumps(data))
        (parts / name).with_suffix(".tmp").replace(parts / name)
        return data

    model, base, runs = folder(a.program, r["base_model"]), None, []

    def ready():
        nonlocal base
        if base is None:
            base = load(model, a.device, r["configuration"]["adapter"] == "qlora").requires_grad_(False)
        return base

    before = part("before.json") or keep("before.json", {"eval_loss": evaluate(ready(), r["validation"], a.device)})
    print("before the first step: held-out loss", before["eval_loss"], flush=True)
    for seed in range(1, a.seeds + 1):
        run = part(f"seed-{seed}.json")
        if run is None:
            began = time.time()

            def say(step, loss):
                if step % max(1, r["steps"] // 10) == 0:
                    print(f"seed {seed}: step {step} of {r['steps']}, loss {loss:.4f}, {time.time() - began:.0f} s", flush=True)
            run, base = train(ready(), r, seed, a.device, say)
            del base.peft_config
            run = keep(f"seed-{seed}.json", run)
        runs.append(run)
        print(f"seed {seed}: last loss {run['losses'][-1]:.5f}, held-out loss {run['eval_loss']}", flush=True)
        if len(runs) >= 2:
            device = torch.cuda.get_device_name() if a.device.startswith("cuda") else "cpu"
            made = {"peft": peft.__version__, "transformers": transformers.__version__, "torch": torch.__version__, "device": device, "precision": "float32"}
            ref = assemble(r, before["eval_loss"], runs, made, a.name or pathlib.Path(r["base_model"]).name, a.k, a.floor)
            a.out.write_text(lines(ref))
    print(f"{a.out}: {r['steps']} steps, {len(runs)} seeds, smoothed loss at the end {ref['loss']['mean'][-1]} +- {ref['loss']['spread'][-1]}, held-out loss {ref.get('eval_loss')}")


if __name__ == "__main__":
    main()
