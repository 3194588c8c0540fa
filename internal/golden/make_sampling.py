#!/usr/bin/env python3
"""What transformers' logits processors leave of logits, for the samplers of package infer: testdata/sampling/sampling.json.

Bias comes first, then the repetition penalty, the frequency and presence penalties as OpenAI's documentation has them (transformers has
none), temperature, top-k, top-p, min-p; the probabilities are the softmax of what is left. Run with transformers 4.57.6 and torch 2.8.0.
"""
import json, os
import torch
from transformers import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor, TemperatureLogitsWarper,
                          TopKLogitsWarper, TopPLogitsWarper)

torch.manual_seed(1)
VOCAB = 40
CASES = [
    {}, {"temperature": 0.3}, {"temperature": 2.5}, {"top_k": 1}, {"top_k": 7}, {"top_k": 40}, {"top_p": 0.1}, {"top_p": 0.5}, {"top_p": 0.95},
    {"min_p": 0.05}, {"min_p": 0.6}, {"min_p": 1.0}, {"repetition_penalty": 1.3}, {"repetition_penalty": 0.7}, {"frequency_penalty": 0.8},
    {"presence_penalty": -1.5}, {"frequency_penalty": -0.4, "presence_penalty": 0.9}, {"bias": {"3": 4.0, "17": -100.0, "5": 0.5}},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.02, "temperature": 0.7},
    {"top_k": 12, "top_p": 0.9, "min_p": 0.1, "temperature": 1.4, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2, "bias": {"9": 2.0}},
]


def after(logits, prompt, answer, o):
    ids, x = torch.tensor([prompt + answer]), logits.clone()[None]
    if "bias" in o:
        x = SequenceBiasLogitsProcessor([[[int(k)], v] for k, v in o["bias"].items()])(ids, x)
    if "repetition_penalty" in o:
        x = RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])(ids, x)
    for token in sorted(set(answer)):
        x[0, token] -= o.get("frequency_penalty", 0) * answer.count(token) + o.get("presence_penalty", 0)
    x = TemperatureLogitsWarper(o.get("temperature", 1.0))(ids, x)
    if "top_k" in o:
        x = TopKLogitsWarper(o["top_k"])(ids, x)
    if "top_p" in o:
        x = TopPLogitsWarper(o["top_p"])(ids, x)
    if "min_p" in o:
        x = MinPLogitsWarper(o["min_p"])(ids, x)
    return torch.softmax(x.double(), -1)[0]


out = []
for case in CASES:
    logits = (torch.randn(VOCAB) * 3).round(decimals=4)
    prompt, answer = torch.randint(0, VOCAB, (9,)).tolist(), torch.randint(0, VOCAB, (14,)).tolist()
    out.append({"options": case, "logits": [round(v, 4) for v in logits.tolist()], "prompt": prompt, "answer": answer,
                "probabilities": [float("%.6g" % v) for v in after(logits, prompt, answer, case).tolist()]})
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "testdata", "sampling")
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "sampling.json"), "w") as f:
    f.write("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in out) + "]\n")
