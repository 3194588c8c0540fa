#!/usr/bin/env python3
"""GRPO by this program and by TRL (transformers generate) on the same prompts with the same reward: rewards and times.

  compare_grpo.py --trainer ./trainer --model DIR --out DIR [--device cpu|cuda] [--steps 60] [--seeds 3]

Each program trains once for each seed; the tables have the reward of training by step and that of held-out prompts
(--eval N: every N steps) as mean and range over the seeds, and the median seconds of a step with those of sampling.
--prompts, --answers and --tokens give the size of a step, --micro the prompts of a micro-batch of TRL's.

--task letters counts the letter e (--words N writes prompts of N words). --task sums asks a chat model to add two
numbers of up to two digits: 1 for the right last number of the answer, and 0.1 more if the answer is nothing but a
number. Both programs call the same Python function. Needs transformers, PEFT, TRL 1.15 and the package datasets, which
scripts/bench/gpu_site.sh carries to a machine without network.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NAMES = "Tom Lily Ben Mia Sam Anna Tim Sue Max Lucy Bob Amy Jack Ella Leo Zoe".split()
HELD = "Olga Nina Paul Rosa Finn Kate Hugo Vera".split()
WORDS = "time year people way day man thing woman life child world school state family student group".split()


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trainer", "model", "out"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--rate", type=float, default=5e-3)
    p.add_argument("--words", type=int, default=0)
    for name, value in (("steps", 60), ("seeds", 3), ("prompts", 4), ("answers", 8), ("tokens", 16), ("length", 64),
                        ("held", 64), ("micro", 1)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--task", default="letters", choices=["letters", "sums"])
    p.add_argument("--eval", type=int, default=0)
    p.add_argument("--only", choices=["ours", "trl", "table"])
    return p.parse_args()


def sum_rows(draw, n):
    """Questions for the sum of two numbers, with the answer in a column."""
    rows = []
    for _ in range(n):
        x, y = draw.randrange(1, 100), draw.randrange(1, 100)
        text = f"What is {x} + {y}? Reply with the number alone."
        rows.append({"prompt": [{"role": "user", "content": text}], "answer": str(x + y)})
    return rows


def write_rows(path, rows):
    with open(path, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)


def write_prompts(a):
    draw = random.Random(3)
    if a.task == "sums":
        write_rows(f"{a.out}/prompts.jsonl", sum_rows(draw, 512))
        write_rows(f"{a.out}/held.jsonl", sum_rows(draw, a.held))
        with open(f"{a.out}/reward.py", "w") as f:
            f.write(JUDGE.format(folder=os.path.dirname(os.path.abspath(__file__))))
        return
    text = (lambda n: " ".join(draw.choice(WORDS) for _ in range(a.words))) if a.words else (
        lambda n: "Once upon a time, " + n)
    write_rows(f"{a.out}/prompts.jsonl", [{"prompt": text(n)} for n in NAMES])
    write_rows(f"{a.out}/held.jsonl", [{"prompt": text(n)} for n in HELD])


# JUDGE is the program of the reward sums, which this program's trainer runs.
JUDGE = """import json, sys
sys.path.insert(0, {folder!r})
from compare_grpo import right
for line in sys.stdin:
    row = json.loads(line)
    print(right(row["completion"], row["columns"]["answer"]), flush=True)
"""


def right(text, answer):
    """The reward of the task sums: 1 for the right last number, 0.1 if there is nothing but a number."""
    found = re.findall(r"-?\d[\d,]*", text)
    value = 1.0 if found and found[-1].replace(",", "") == answer else 0.0
    return value + (0.1 if re.fullmatch(r"\s*\d+\.?\s*", text) else 0.0)


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
    if a.task == "sums":
        config["grpo"]["rewards"] = [{"name": "sums", "type": "command", "workers": 4,
                                      "command": [sys.executable, f"{os.path.abspath(a.out)}/reward.py"]}]
    if a.eval:
        config["dataset"]["val_path"] = f"{a.out}/held.jsonl"
        config["training"].update(eval_steps=a.eval, eval_on_start=True)
        config["grpo"].update(num_generations_eval=a.answers, eval_temperature=1)
    with open(f"{out}.yaml", "w") as f:
        json.dump(config, f, indent=1)
    subprocess.run([a.trainer, "train", f"{out}.yaml", "--quiet"], check=True)


def letters(completions, **_):
    return [float(c.count("e")) for c in completions]


def sums(completions, answer, **_):
    return [right(c[0]["content"], a) for c, a in zip(completions, answer)]


def rows(path):
    from datasets import Dataset
    return Dataset.from_list([json.loads(line) for line in open(path)])


def theirs(a, seed):
    import torch
    from compare_dpo import tokenizer, torch_log_probs
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    if a.device == "cpu":
        torch_log_probs()
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=dtype)

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = time.time()

        def on_log(self, args, state, control, logs=None, **__):
            if logs is not None and "reward" in logs:
                logs["seconds"] = time.time() - self.began

    args = GRPOConfig(
        output_dir=f"{a.out}/trl", use_cpu=a.device == "cpu", bf16=a.dtype == "bf16", report_to=[], save_strategy="no",
        gradient_checkpointing=False, logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False, seed=seed,
        max_steps=a.steps, per_device_train_batch_size=a.answers * a.micro,
        gradient_accumulation_steps=a.prompts // a.micro,
        num_generations=a.answers, max_completion_length=a.tokens, learning_rate=a.rate, beta=0.0,
        lr_scheduler_type="constant", weight_decay=0.0, use_vllm=False, per_device_eval_batch_size=a.answers * 8,
        eval_strategy="steps" if a.eval else "no", eval_steps=a.eval or None, eval_on_start=a.eval > 0)
    trainer = GRPOTrainer(model, reward_funcs=letters if a.task == "letters" else sums, args=args,
                          processing_class=tokenizer(a.model), train_dataset=rows(f"{a.out}/prompts.jsonl"),
                          eval_dataset=rows(f"{a.out}/held.jsonl") if a.eval else None,
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


def held_table(logs):
    """Rewards of held-out prompts by step."""
    found = {}
    for name, paths in logs.items():
        for path in paths:
            for text in open(path):
                line = json.loads(text)
                if line.get("eval_reward") is not None:
                    found.setdefault(line["step"], {}).setdefault(name, []).append(line["eval_reward"])
    if found:
        print("| held out, step | " + " | ".join(f"{n}: mean (least to most)" for n in logs) + " |")
        print("|---|" + "---|" * len(logs))
    for step in sorted(found):
        cells = [found[step].get(n, []) for n in logs]
        print(f"| {step} | " + " | ".join(
            f"{statistics.mean(c):.3f} ({min(c):.3f} to {max(c):.3f})" if c else "" for c in cells) + " |")


def table(a):
    found = {}
    logs = {"ours": f"{a.out}/ours-{{}}/metrics.jsonl", "TRL": f"{a.out}/trl-{{}}.jsonl"}
    held_table({n: [p.format(s) for s in range(a.seeds) if os.path.exists(p.format(s))] for n, p in logs.items()})
    for name, path in logs.items():
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
            print(f"{name}: {statistics.median(seconds):.3f} s a step, of which sampling "
                  f"{statistics.median(sampling):.3f}")


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
