#!/usr/bin/env python3
"""GRPO by this program and by TRL (transformers generate) on the same prompts with the same reward: rewards and times.

  compare_grpo.py --trainer ./trainer --model DIR --out DIR [--device cpu|cuda] [--steps 60] [--seeds 3]

The reward counts the letter e. Each program trains once for each seed; the table has the reward of training by step as
mean and range over the seeds, and the median seconds of a step with those of sampling. --words N writes prompts of N
words, --prompts, --answers and --tokens give the size of a step. Needs transformers, PEFT and TRL 1.15.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NAMES = "Tom Lily Ben Mia Sam Anna Tim Sue Max Lucy Bob Amy Jack Ella Leo Zoe".split()
WORDS = "time year people way day man thing woman life child world school state family student group".split()


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trainer", "model", "out"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--rate", type=float, default=5e-3)
    p.add_argument("--words", type=int, default=0)
    for name, value in (("steps", 60), ("seeds", 3), ("prompts", 4), ("answers", 8), ("tokens", 16), ("length", 64)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--only", choices=["ours", "trl", "table"])
    return p.parse_args()


def write_prompts(a):
    draw = random.Random(3)
    text = (lambda n: " ".join(draw.choice(WORDS) for _ in range(a.words))) if a.words else (
        lambda n: "Once upon a time, " + n)
    with open(f"{a.out}/prompts.jsonl", "w") as f:
        f.writelines(json.dumps({"prompt": text(n)}) + "\n" for n in NAMES)


def ours(a, seed):
    out = f"{a.out}/ours-{seed}"
    config = {
        "base_model": a.model, "output_dir": out, "device": a.device, "seed": seed,
        "lora": {"r": 16, "alpha": 32, "target_modules": TARGETS},
        "dataset": {"path": f"{a.out}/prompts.jsonl", "max_length": a.length},
        "training": {"objective": "grpo", "max_steps": a.steps, "batch_size": 1, "learning_rate": a.rate,
                     "gradient_accumulation_steps": a.prompts, "lr_scheduler": "constant", "warmup_ratio": 0,
                     "weight_decay": 0, "logging_steps": 1, "precision": a.dtype, "save_steps": 0},
        "grpo": {"num_generations": a.answers, "max_completion_length": a.tokens,
                 "rewards": [{"name": "letter", "type": "count", "pattern": "e"}]},
    }
    with open(f"{out}.yaml", "w") as f:
        json.dump(config, f, indent=1)
    subprocess.run([a.trainer, "train", f"{out}.yaml", "--quiet"], check=True)


def letters(completions, **_):
    return [float(c.count("e")) for c in completions]


def theirs(a, seed):
    import torch
    from datasets import load_dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    if a.device == "cpu":
        from compare_dpo import torch_log_probs
        torch_log_probs()
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=dtype)
    tok = AutoTokenizer.from_pretrained(a.model)
    if tok.pad_token is None:
        tok.pad_token = tok.eos_token

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = time.time()

        def on_log(self, args, state, control, logs=None, **__):
            if logs is not None and "reward" in logs:
                logs["seconds"] = time.time() - self.began

    args = GRPOConfig(
        output_dir=f"{a.out}/trl", use_cpu=a.device == "cpu", bf16=a.dtype == "bf16", report_to=[], save_strategy="no",
        gradient_checkpointing=False, logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False, seed=seed,
        max_steps=a.steps, per_device_train_batch_size=a.answers, gradient_accumulation_steps=a.prompts,
        num_generations=a.answers, max_completion_length=a.tokens, learning_rate=a.rate, beta=0.0,
        lr_scheduler_type="constant", weight_decay=0.0, use_vllm=False)
    trainer = GRPOTrainer(model, reward_funcs=letters, args=args, processing_class=tok,
                          train_dataset=load_dataset("json", data_files=f"{a.out}/prompts.jsonl")["train"],
                          peft_config=LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, lora_dropout=0.0,
                                                 task_type="CAUSAL_LM"), callbacks=[Clock()])
    trainer.train()
    with open(f"{a.out}/trl-{seed}.jsonl", "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in trainer.state.log_history)
    if a.device == "cuda":
        print(f"TRL seed {seed}: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


def curve(path):
    """Rewards by step, and the seconds of each step after the second."""
    rewards, seconds, sampling, last = {}, [], [], 0.0
    for text in open(path):
        line = json.loads(text)
        if "reward" not in line:
            continue
        rewards[line["step"]] = line["reward"]
        now = line.get("train_seconds")
        took = line.get("seconds") if now is None else now - last
        last = now or 0.0
        if line["step"] > 2 and took is not None:
            seconds.append(took)
            sampling.append(line.get("sampling/seconds", float("nan")))
    return rewards, seconds, sampling


def table(a):
    found = {}
    for name, path in (("ours", f"{a.out}/ours-{{}}/metrics.jsonl"), ("TRL", f"{a.out}/trl-{{}}.jsonl")):
        runs = [curve(path.format(s)) for s in range(a.seeds) if os.path.exists(path.format(s))]
        if runs:
            found[name] = runs
    print("| steps | " + " | ".join(f"{n}: mean (least to most)" for n in found) + " |")
    print("|---|" + "---|" * len(found))
    for end in range(10, a.steps + 1, 10):
        cells = []
        for runs in found.values():
            means = [statistics.mean(r[s] for s in range(end - 9, end + 1) if s in r) for r, _, _ in runs]
            cells.append(f"{statistics.mean(means):.2f} ({min(means):.2f} to {max(means):.2f})")
        print(f"| {end - 9} to {end} | " + " | ".join(cells) + " |")
    for name, runs in found.items():
        seconds, sampling = [x for r in runs for x in r[1]], [x for r in runs for x in r[2]]
        if seconds:
            print(f"{name}: {statistics.median(seconds):.3f} s a step, of which sampling {statistics.median(sampling):.3f}")


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    write_prompts(a)
    for seed in range(a.seeds):
        if a.only in (None, "ours"):
            ours(a, seed)
        if a.only in (None, "trl"):
            theirs(a, seed)
    if a.only in (None, "table"):
        table(a)


if __name__ == "__main__":
    sys.exit(main())
