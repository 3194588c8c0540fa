"""Writes smoothed_crossentropy.json: torch's cross_entropy with label_smoothing, and a z-loss, in float64.

python3 smoothed_crossentropy.py (torch; PyTorch 2)
"""
import json
import pathlib

import torch

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
rows, width, vocab, scale = 7, 5, 11, 0.25
x, w = torch.randn(rows, width).requires_grad_(), torch.randn(vocab, width)
labels = torch.tensor([2, -100, 10, 0, 1, -100, 10])
cases = []
for smoothing, z_loss in ((0.1, 0.0), (0.0, 1e-3), (0.25, 1e-2)):
    x.grad = None
    logits = x @ w.T
    real = labels != -100
    each = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
    z = torch.logsumexp(logits, -1) * real
    loss = scale * (each + z_loss * z * z).sum()
    loss.backward()
    cases.append({
        "label_smoothing": smoothing, "z_loss": z_loss, "loss": loss.item(), "gradient": x.grad.flatten().tolist(),
        "nll": torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item(), "squares": (z * z).sum().item(),
    })
out = {"torch": torch.__version__, "scale": scale, "x": x.detach().flatten().tolist(), "w": w.flatten().tolist(),
       "labels": labels.tolist(), "cases": cases}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(out) + "\n")
