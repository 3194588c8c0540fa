#!/usr/bin/env python3
"""Makes testdata/experts/balance.json: the balance of experts as transformers computes it over packed rows with padding
between them, in float64, and its gradient for the routers' logits.

    python internal/golden/make_balance.py [OUT]

Made with torch 2.11.0, transformers 4.57.6 on a CPU; needs neither network nor GPU. of_logits is mixtral's, of_scores
gpt-oss', whose routers return the weights of a token's experts and zeros.
"""
import json
import pathlib
import sys

import torch
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.mixtral import modeling_mixtral

EXPERTS, K, LAYERS = 4, 2, 2
# Two sequences of four, with padding behind the rows of each. The layers have eight rows: transformers' shares of them, in
# float32, are exact.
MASK = [[1, 1, 1, 0], [1, 0, 0, 0]]


def scores_of(logits):
    """What GptOssTopKRouter makes of its logits."""
    top, experts = torch.topk(logits, K, dim=-1)
    return torch.zeros_like(logits).scatter(1, experts, torch.softmax(top, dim=-1))


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "testdata")
    random = torch.Generator().manual_seed(7)
    mask = torch.tensor(MASK)
    values = [(torch.randn(mask.numel(), EXPERTS, generator=random) * 1000).round().double() / 1000 for _ in range(LAYERS)]
    made = {"mask": mask.flatten().tolist(), "top_k": K, "logits": [v.flatten().tolist() for v in values]}
    for name, module, through in (("of_logits", modeling_mixtral, lambda x: x), ("of_scores", modeling_gpt_oss, scores_of)):
        logits = [v.clone().requires_grad_() for v in values]
        loss = module.load_balancing_loss_func(tuple(through(x) for x in logits), EXPERTS, K, mask)
        loss.backward()
        made[name] = {"loss": loss.item(), "gradients": [x.grad.flatten().tolist() for x in logits]}
    (out / "experts" / "balance.json").write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
