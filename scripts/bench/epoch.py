#!/usr/bin/env python3
"""Times an epoch over short rows from the command to the saved adapter: packed, unpacked (rows end to end), padded, and a peer's.

    epoch.py run --trainer TRAINER --model FOLDER --data ROWS.jsonl --out OUT [--rounds 2] [--eval ROWS.jsonl] [--peers padding_free,packed] [--limit 500]
    epoch.py peer KIND FOLDER ROWS.jsonl OUT        one process of the peer (Unsloth): padding_free or packed; `run` starts it

FOLDER is a model (scripts/make_model.py makes one of random weights); the rows are {"question", "answer"}. Variants alternate, each a new
process with a warm page cache; the peer comes last, once a kind. What does not begin within the limit is left out, and said so. OUT gets
epoch.json, epoch.md and every process's output. The peer's packages: gpu_site.sh.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

LENGTH, ROWS = 512, 32  # max_length and batch_size
VARIANTS = {  # name: batch_size, keys of dataset
    "unpacked": (ROWS, {}),
    "packed, tokens a step as unpacked": (12, {"packing": True}),
    "packed": (ROWS, {"packing": True}),
    "padded": (ROWS, {"pad_to": "max_length"}),
}


def config(a, name, home):
    batch, keys = VARIANTS[name]
    return {
        "base_model": a.model, "adapter": "qlora", "lora": {"r": 16, "alpha": 32, "dropout": 0.0, "target_modules": ["all-linear"]},
        "quantization": {"bits": 4, "type": "nf4", "block_size": 64, "double_quant": True},
        "dataset": {"path": a.data, "format": "completion", "fields": {"prompt": "question", "completion": "answer"}, "max_length": LENGTH, **keys},
        "training": {"epochs": a.epochs, "batch_size": batch, "learning_rate": 2e-4, "logging_steps": 20},
        "output_dir": str(home / "run"), "device": a.device,
    }


def timed(command, log, **env):
    began = time.time()
    with open(log, "w") as sink:
        code = subprocess.run(command, stdout=sink, stderr=subprocess.STDOUT, env=dict(os.environ, **env)).returncode
    return time.time() - began, code


def last_json(path):
    """The last line that is an object."""
    for line in reversed(Path(path).read_text(errors="replace").splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {}


def ours(a, name, i):
    home = Path(a.out) / f"{name.replace(', ', ' ').replace(' ', '-')}-{i}"
    home.mkdir(parents=True)
    (home / "c.yaml").write_text(json.dumps(config(a, name, home)))  # JSON is YAML
    wall, code = timed([a.trainer, "--config", str(home / "c.yaml")], home / "log")
    result = dict(variant=name, round=i, wall_s=wall, exit=code, log=(home / "log").read_text(errors="replace")[-1500:])
    metrics = home / "run" / "metrics.jsonl"
    if code == 0:
        result["end"] = last_json(metrics)
        result["budgets"] = [x.strip() for x in (home / "log").read_text().splitlines() if "token budgets" in x]
    return result


def evaluated(a, name):
    home = Path(a.out) / f"eval-{name.split(',')[0]}"
    home.mkdir(parents=True)
    spec = config(a, name, home)
    spec["dataset"]["path"] = a.eval
    (home / "c.yaml").write_text(json.dumps(spec))
    wall, code = timed([a.trainer, "eval", "--config", str(home / "c.yaml"), "--json"], home / "log")
    text = (home / "log").read_text(errors="replace")
    try:
        report = json.loads(text[text.index("{"):])
    except ValueError:
        report = {}
    return dict(variant=name, wall_s=wall, exit=code, loss=report.get("eval_loss"), seconds=report.get("duration_ns", 0) / 1e9, tokens=report.get("tokens"), log=text[-800:])


def table(results):
    lines = ["| epoch | runs | seconds, command to adapter | loss |", "|---|---|---|---|"]
    for name in dict.fromkeys(r["variant"] for r in results["runs"]):
        of = [r for r in results["runs"] if r["variant"] == name and r["exit"] == 0]
        if not of:
            lines.append(f"| {name} | failed | | |")
            continue
        walls = [r["wall_s"] for r in of]
        lines.append(f"| {name} | {len(of)} | {statistics.median(walls):.2f} ({min(walls):.2f}-{max(walls):.2f}) | {of[-1].get('end', {}).get('train_loss', '')} |")
    lines += [f"\n{b}" for r in results["runs"] if r["round"] == 0 for b in r.get("budgets", [])]
    for e in results["eval"]:
        lines.append(f"\nevaluation, {e['variant']}: {e['wall_s']:.2f} s, {e['seconds']:.2f} s of it with the model open, loss {e['loss']}, {e['tokens']} tokens")
    return "\n".join(lines + [f"\nleft out: {x}" for x in results["left_out"]]) + "\n"


def run(a):
    Path(a.out).mkdir(parents=True, exist_ok=True)
    a.model, a.data = str(Path(a.model).resolve()), str(Path(a.data).resolve())
    began, results = time.time(), dict(runs=[], eval=[], left_out=[])

    def keep():
        (Path(a.out) / "epoch.json").write_text(json.dumps(results, indent=1))
        (Path(a.out) / "epoch.md").write_text(table(results))

    def late(what):
        if time.time() - began > a.limit:
            results["left_out"].append(what)
            return True
        return False

    timed(["cat", *map(str, Path(a.model).glob("*.safetensors"))], "/dev/null")  # into the page cache
    for i in range(a.rounds):
        for name in a.variants.split(";") if a.variants else VARIANTS:
            if (i == 0 or name != "padded") and not late(f"{name}, round {i}"):
                results["runs"].append(ours(a, name, i))
                print(f"{name}, round {i}: {results['runs'][-1]['wall_s']:.2f} s, exit {results['runs'][-1]['exit']}", flush=True)
                keep()
    if a.eval:
        a.eval = str(Path(a.eval).resolve())
        for name in ("unpacked", "packed", "padded"):
            if not late(f"evaluation, {name}"):
                results["eval"].append(evaluated(a, name))
                keep()
    for kind in filter(None, a.peers.split(",")):
        if late(kind):
            continue
        wall, code = timed([sys.executable, __file__, "peer", kind, a.model, a.data, a.out], Path(a.out) / f"peer-{kind}.log", PYTHONUNBUFFERED="1")
        results["runs"].append(dict(variant=f"Unsloth, {kind}", round=0, wall_s=wall, exit=code, end=last_json(Path(a.out) / f"peer-{kind}.log")))
        keep()
    keep()
    print((Path(a.out) / "epoch.md").read_text())


def peer(kind, model, data, out):
    """Unsloth on the same rows, all tokens trained, in its own SFTTrainer."""
    began = time.time()
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", UNSLOTH_DISABLE_STATISTICS="1")
    from unsloth import FastLanguageModel  # before transformers, which it patches
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    model, tokenizer = FastLanguageModel.from_pretrained(model, max_seq_length=2048, load_in_4bit=True, use_gradient_checkpointing=False)
    model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=32, lora_dropout=0.0, use_gradient_checkpointing=False,
                                             target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    rows = [json.loads(line) for line in open(data)]
    ids = [tokenizer(r["question"] + "\n" + r["answer"])["input_ids"][: LENGTH - 1] + [tokenizer.eos_token_id] for r in rows]
    args = SFTConfig(output_dir=f"{out}/peer-{kind}", max_length=LENGTH, per_device_train_batch_size=ROWS, gradient_accumulation_steps=1, num_train_epochs=1,
                     learning_rate=2e-4, logging_steps=20, bf16=True, optim="adamw_torch_fused", report_to="none", save_strategy="no",
                     packing=kind == "packed", padding_free=kind == "padding_free")
    trainer = SFTTrainer(model=model, args=args, train_dataset=Dataset.from_dict({"input_ids": ids}), processing_class=tokenizer)
    loaded = time.time()
    stats = trainer.train()
    trained = time.time()
    model.save_pretrained(f"{out}/peer-{kind}/adapter")
    print("\n" + json.dumps(dict(train_loss=stats.training_loss, steps=stats.global_step, tokens=sum(map(len, ids)), load_s=loaded - began, train_s=trained - loaded)))


def main():
    if sys.argv[1:2] == ["peer"]:
        return peer(*sys.argv[2:])
    ap = argparse.ArgumentParser()
    ap.add_argument("verb", choices=["run"])
    ap.add_argument("--trainer", required=True)
    ap.add_argument("--model", required=True)
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--eval", default="")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--epochs", type=float, default=1)
    ap.add_argument("--variants", default="", help="separated by semicolons; all of them without")
    ap.add_argument("--peers", default="")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--limit", type=float, default=500, help="seconds after which nothing more is begun")
    run(ap.parse_args())


main()
