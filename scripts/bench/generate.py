#!/usr/bin/env python3
"""Greedy generation on a CPU, ours beside transformers', in alternation: seconds a token, without loading and prompt.

  TRAINER=build/trainer python3 scripts/bench/generate.py MODEL [--threads 2] [--rounds 3] [--tokens 200]

What a token takes is the difference of two runs, of --tokens + 20 and of 20 tokens. Both compute in fp32; transformers
with its cache, once in fp32 and once in bf16. The texts of both in fp32 have to be equal, and of that many tokens.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

PROMPT = "Once upon a time"
FEW = 20


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--tokens", type=int, default=200)
    a = p.parse_args()
    import torch
    import transformers
    torch.set_num_threads(a.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(a.model)
    ids = tokenizer(PROMPT, return_tensors="pt")
    models = {d: transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=getattr(torch, d)).eval() for d in ("float32", "bfloat16")}

    def theirs(dtype, n):
        began = time.perf_counter()
        with torch.inference_mode():
            out = models[dtype].generate(**ids, max_new_tokens=n, do_sample=False)
        if out.shape[1] - ids["input_ids"].shape[1] != n:
            sys.exit(f"the text ends before {n} tokens: ask for fewer by --tokens")
        return time.perf_counter() - began, tokenizer.decode(out[0, ids["input_ids"].shape[1]:], skip_special_tokens=True)

    def ours(n):
        began = time.perf_counter()
        r = subprocess.run([os.environ.get("TRAINER", "build/trainer"), "generate", "--model", a.model, "--prompt", PROMPT, "--max-tokens", str(n),
                            "--temperature", "0", "--device", "cpu", "--workers", str(a.threads)], capture_output=True, text=True, check=True)
        return time.perf_counter() - began, r.stdout

    runs = {"ours, fp32": ours, "transformers, fp32": lambda n: theirs("float32", n), "transformers, bf16": lambda n: theirs("bfloat16", n)}
    each = {name: [] for name in runs}
    texts = {}
    for _ in range(a.rounds):
        for name, run in runs.items():
            few, _ = run(FEW)
            many, texts[name] = run(FEW + a.tokens)
            each[name].append((many - few) / a.tokens)
    equal = texts["ours, fp32"].strip() == texts["transformers, fp32"].strip()
    mine = statistics.median(each["ours, fp32"])
    for name, times in each.items():
        ms = sorted(1000 * t for t in times)
        print(json.dumps({"who": name, "ms_a_token": [round(t, 2) for t in ms], "tokens_per_s": round(1000 / statistics.median(ms), 1),
                          "against_ours": round(statistics.median(times) / mine, 2)}))
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {a.threads} threads; equal texts: {equal}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
