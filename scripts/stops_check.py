#!/usr/bin/env python3
"""Counts how many tokens transformers generates behind a fixed prompt, for models and adapters that were written.

    python scripts/stops_check.py JOBS.json

JOBS.json is a list of {"model": DIR, "adapter": DIR or null, "config": DIR or null}: the adapter is loaded in PEFT over the
model; config is a folder whose generation_config.json is given to generate, null is what transformers takes by itself. One
line of JSON comes out: for each job {"tokens": N, "eos": the tokenizer's eos_token of the folder}. Needs torch, transformers
and PEFT. No network.
"""
import json
import os
import sys

sys.path.pop(0)  # this folder has a kernels.py, which is not the package of that name
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


def main():
    results = []
    for job in json.load(open(sys.argv[1])):
        model = AutoModelForCausalLM.from_pretrained(job["model"]).eval()
        ids = torch.tensor([[(7 * i * i + 3 * i + 1) % model.config.vocab_size for i in range(40)]])
        if job["adapter"]:
            model = PeftModel.from_pretrained(model, job["adapter"]).eval()
        more = {"generation_config": GenerationConfig.from_pretrained(job["config"])} if job["config"] else {}
        with torch.no_grad():
            out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False, **more)
        tokenizer = AutoTokenizer.from_pretrained(job["adapter"] or job["model"])
        results.append({"tokens": out.shape[1] - ids.shape[1], "eos": tokenizer.eos_token})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
