#!/usr/bin/env python3
"""Log-likelihoods of choices and lm-eval's acc, acc_norm and acc_bytes over them, by transformers in float32 on the CPU.

    choices_reference.py MODEL_DIR QUESTIONS.jsonl OUT.json

Needs torch and transformers. The tokens of a choice are those that prompt and choice together have beyond the prompt.
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def log_likelihood(model, tokenizer, prompt, choice):
    before = tokenizer(prompt).input_ids
    both = tokenizer(prompt + " " + choice).input_ids
    with torch.no_grad():
        logits = torch.log_softmax(model(torch.tensor([both])).logits[0].float(), dim=-1)
    return sum(logits[i - 1, both[i]].item() for i in range(len(before), len(both)))


def main(folder, questions, out):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    rows, acc, norm, by_bytes = [], 0, 0, 0
    for line in open(questions, encoding="utf-8"):
        row = json.loads(line)
        sums = [log_likelihood(model, tokenizer, row["prompt"], c) for c in row["choices"]]
        characters = [s / len(c) for s, c in zip(sums, row["choices"])]
        octets = [s / len(c.encode()) for s, c in zip(sums, row["choices"])]
        acc += sums.index(max(sums)) == row["gold"]
        norm += characters.index(max(characters)) == row["gold"]
        by_bytes += octets.index(max(octets)) == row["gold"]
        rows.append(sums)
    n = len(rows)
    with open(out, "w", encoding="utf-8") as f:
        json.dump({"log_likelihoods": rows, "acc": acc / n, "acc_norm": norm / n, "acc_bytes": by_bytes / n}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
