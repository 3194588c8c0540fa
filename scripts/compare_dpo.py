#!/usr/bin/env python3
"""DPO by this program and by TRL from the same adapter, on the same pairs in the same order: curves side by side.

  compare_dpo.py --trainer ./trainer --model DIR --pairs FILE --out DIR [--device cpu|cuda] [--steps 50]

FILE.json is a list of {question, response_j, response_k}, such as torchtune's stack_exchange_paired_tiny.json. FILE.jsonl
holds chats of one question and one answer, such as LLaMA-Factory's v1_sft_demo.jsonl: the chosen answer is the chat's own,
the rejected one belongs to another chat. --held pairs are held out: the last of a list, every seventh chat. Needs
transformers, PEFT and TRL 1.15. On a CPU TRL's Triton kernel of log-probabilities is replaced by the same formula in
torch.
"""
import argparse
import json
import os
import subprocess
import sys

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NAMES = ["loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen",
         "logps/rejected", "entropy", "logits/chosen", "logits/rejected", "mean_token_accuracy"]


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


def chats(path):
    """(question, its answer, another chat's answer) of chats with a short question and an answer that fits none else."""
    def text(message):
        return "".join(part["value"] for part in message["content"])
    all = [[text(m) for m in json.loads(line)["messages"]] for line in open(path)]
    answers = [c[1] for c in all]
    all = [c for c in all if len(c) == 2 and len(c[0]) < 120 and answers.count(c[1]) == 1 and "{{" not in c[1]]
    return [(c[0], c[1], all[(i + len(all) // 2) % len(all)][1]) for i, c in enumerate(all)]


def write_rows(a):
    """Pairs as conversations, whose answers differ within the length."""
    def talk(role, text):
        return [{"role": role, "content": text}]
    if a.pairs.endswith(".jsonl"):
        triples = chats(a.pairs)
        held = triples[::7][:a.held]
        parts = [t for t in triples if t not in held], held
    else:
        triples = [(r["question"][:80], r["response_j"], r["response_k"]) for r in json.load(open(a.pairs))]
        parts = triples[:-a.held], triples[-a.held:]
    for name, part in zip(("train", "held"), parts):
        rows = [{"prompt": talk("user", q), "chosen": talk("assistant", yes), "rejected": talk("assistant", no)}
                for q, yes, no in part]
        print(f"{name}: {len(rows)} pairs")
        with open(f"{a.out}/{name}.jsonl", "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)


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


def tokenizer(model):
    """The tokenizer of tokenizer.json: AutoTokenizer of transformers 5 builds some anew, with other ids."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    auto = AutoTokenizer.from_pretrained(model)
    return PreTrainedTokenizerFast(tokenizer_file=f"{model}/tokenizer.json", bos_token=auto.bos_token,
                                   eos_token=auto.eos_token, unk_token=auto.unk_token,
                                   pad_token=auto.pad_token or auto.eos_token, chat_template=auto.chat_template)


def theirs(a):
    import torch
    from datasets import load_dataset
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
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
                         processing_class=tokenizer(a.model))
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
