#!/usr/bin/env python3
"""DPO by this program and by TRL from the same adapter, on the same pairs in the same order: curves side by side.

  compare_dpo.py --trainer ./trainer --model DIR --pairs FILE.json --out DIR [--device cpu|cuda] [--steps 50]

FILE.json is a list of {question, response_j, response_k}, such as torchtune's stack_exchange_paired_tiny.json. The last
--held pairs are held out. Needs transformers, PEFT and TRL 1.15. On a CPU TRL's Triton kernel of log-probabilities is
replaced by the same formula in torch.
"""
import argparse
import json
import os
import subprocess
import sys

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NAMES = ["loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen",
         "logps/rejected"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trainer", "model", "pairs", "out"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--batch", type=int, default=1, help="pairs of a micro-batch; there is one a step")
    p.add_argument("--length", type=int, default=80)
    p.add_argument("--held", type=int, default=7)
    p.add_argument("--rate", type=float, default=5e-5)
    p.add_argument("--only", choices=["ours", "trl", "table"])
    return p.parse_args()


def write_rows(a):
    """Pairs as conversations, whose answers differ within the length."""
    def talk(role, text):
        return [{"role": role, "content": text}]
    rows = [{"prompt": talk("user", r["question"][:80]), "chosen": talk("assistant", r["response_j"]),
             "rejected": talk("assistant", r["response_k"])} for r in json.load(open(a.pairs))]
    for name, part in (("train", rows[:-a.held]), ("held", rows[-a.held:])):
        with open(f"{a.out}/{name}.jsonl", "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in part)


def write_adapter(a):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
    config = LoraConfig(r=8, lora_alpha=16, target_modules=TARGETS, lora_dropout=0.0, task_type="CAUSAL_LM")
    get_peft_model(model, config).save_pretrained(f"{a.out}/start")


def ours(a):
    config = {
        "base_model": a.model, "output_dir": f"{a.out}/ours", "device": a.device, "seed": 0,
        "lora": {"r": 8, "alpha": 16, "target_modules": TARGETS, "init_from": f"{a.out}/start"},
        "dataset": {"path": f"{a.out}/train.jsonl", "val_path": f"{a.out}/held.jsonl", "max_length": a.length,
                    "shuffle": False},
        "training": {"objective": "dpo", "max_steps": a.steps, "batch_size": a.batch, "learning_rate": a.rate,
                     "lr_scheduler": "constant", "warmup_ratio": 0, "weight_decay": 0, "logging_steps": 1,
                     "precision": a.dtype, "eval_steps": max(a.steps // 2, 1), "eval_on_start": True},
    }
    with open(f"{a.out}/run.json", "w") as f:
        json.dump(config, f, indent=1)
    os.rename(f"{a.out}/run.json", f"{a.out}/run.yaml")
    subprocess.run([a.trainer, "train", f"{a.out}/run.yaml", "--quiet"], check=True)


def torch_log_probs():
    import torch
    import trl.trainer.utils

    class LogProbs:
        @staticmethod
        def apply(hidden, weight, bias, targets, temperature, chunk_size, softcap=None, logit_scale=1.0,
                  outputs=("entropy", "log_sum_sq_probs", "mean_logits", "is_top1")):
            z = hidden @ weight.t() * logit_scale / temperature
            logp = torch.log_softmax(z.float(), -1)
            with torch.no_grad():
                extra = (-(logp.exp() * logp).sum(-1), torch.logsumexp(2 * logp, -1), z.mean(-1), z.argmax(-1) == targets)
            return (logp.gather(1, targets[:, None])[:, 0], *extra)
    trl.trainer.utils._ChunkedLogProbFunction = LogProbs


def theirs(a):
    import torch
    from datasets import load_dataset
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer
    if a.device == "cpu":
        torch_log_probs()
    base = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, f"{a.out}/start", is_trainable=True)
    rows = load_dataset("json", data_files={n: f"{a.out}/{n}.jsonl" for n in ("train", "held")})
    args = DPOConfig(
        output_dir=f"{a.out}/trl", use_cpu=a.device == "cpu", bf16=a.dtype == "bf16", report_to=[], save_strategy="no",
        gradient_checkpointing=False, logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False, seed=0,
        max_length=a.length, max_steps=a.steps, per_device_train_batch_size=a.batch,
        per_device_eval_batch_size=a.held, learning_rate=a.rate, lr_scheduler_type="constant", weight_decay=0.0,
        train_sampling_strategy="sequential", eval_strategy="steps", eval_steps=max(a.steps // 2, 1), eval_on_start=True)
    trainer = DPOTrainer(model, args=args, train_dataset=rows["train"], eval_dataset=rows["held"],
                         processing_class=AutoTokenizer.from_pretrained(a.model))
    trainer.train()
    with open(f"{a.out}/trl.jsonl", "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in trainer.state.log_history)


def lines(path, prefix):
    """The numbers of a log by step."""
    found = {}
    for text in open(path):
        line = json.loads(text)
        if prefix + "loss" in line and line.get(prefix + "rewards/margins") is not None:
            found[line["step"]] = [line[prefix + n] for n in NAMES]
    return found


def table(a):
    for prefix in ("", "eval_"):
        left, right = lines(f"{a.out}/ours/metrics.jsonl", prefix), lines(f"{a.out}/trl.jsonl", prefix)
        steps = sorted(set(left) & set(right))
        print(f"\n{'held out' if prefix else 'training'}: {len(steps)} lines")
        print("| step | " + " | ".join(n + s for n in NAMES for s in ("", " (TRL)")) + " |")
        print("|---|" + "---|" * (2 * len(NAMES)))
        for s in steps:
            if prefix or s == 1 or s % 10 == 0:
                print(f"| {s} | " + " | ".join(f"{v:.5g}" for pair in zip(left[s], right[s]) for v in pair) + " |")
        for i, name in enumerate(NAMES):
            worst = max(abs(left[s][i] - right[s][i]) for s in steps)
            print(f"largest difference of {name}: {worst:.3g}")


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    if a.only in (None, "ours"):
        write_rows(a)
        if not os.path.exists(f"{a.out}/start"):
            write_adapter(a)
        ours(a)
    if a.only in (None, "trl"):
        theirs(a)
    if a.only in (None, "table"):
        table(a)


if __name__ == "__main__":
    sys.exit(main())
