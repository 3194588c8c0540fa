#!/usr/bin/env python3
"""Makes testdata/experts: tiny random mixtures of experts and what transformers and PEFT compute with them: logits, mean
NLL, greedy text, LoRA gradients with and without the router's balance loss, and 20 steps of QLoRA.

    python internal/golden/make_experts.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1 on a CPU; needs neither network nor GPU. NF4 is written here from
bitsandbytes' rule: blocks of 64, code = number of midpoints strictly below x/absmax. A step in which an expert has no
token would leave torch's optimizer without a gradient for it, which it then passes over: it is asserted that there is none.
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from safetensors.torch import save_file

import make_families
from make_families import SIZES, T, VOCAB

# name: (model type, name of its weights, what differs from SIZES)
MODELS = {
    "mixtral": ("mixtral", "mixtral", dict(intermediate_size=16, num_local_experts=4, num_experts_per_tok=2)),
    "mixtral_balanced": ("mixtral", "mixtral", dict(intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=6,
                                                    output_router_logits=True, router_aux_loss_coef=0.05)),
    "mixtral_tied": ("mixtral", "mixtral_tied", dict(intermediate_size=12, num_local_experts=3, num_experts_per_tok=1, head_dim=12,
                                                     num_key_value_heads=1, tie_word_embeddings=True, rope_theta=10000.0)),
    "qwen3_moe": ("qwen3_moe", "qwen3_moe", dict(moe_intermediate_size=12, num_experts=5, num_experts_per_tok=2, head_dim=16,
                                                 norm_topk_prob=True)),
    "qwen3_moe_mixed": ("qwen3_moe", "qwen3_moe_mixed", dict(
        intermediate_size=16, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=3, num_hidden_layers=4, num_key_value_heads=4, decoder_sparse_step=2,
        mlp_only_layers=[1], attention_bias=True, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5,
        output_router_logits=True, router_aux_loss_coef=0.02,
        rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16))),
}


def classes():
    from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
    return {"mixtral": (MixtralConfig, MixtralForCausalLM), "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM)}


def generate(model, ids):
    with torch.no_grad():
        return model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, min_new_tokens=16, do_sample=False,
                              pad_token_id=0, output_router_logits=False)[0].tolist()


def texts(out, models):
    """Greedy text, and the mean NLL of two rows."""
    g = torch.Generator().manual_seed(5)
    rows, result = torch.randint(3, VOCAB, (2, T), generator=g), {}
    for name, (config, m) in models.items():
        with torch.no_grad():
            logits = m(input_ids=rows).logits[:, :-1].double()
        nll = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), rows[:, 1:].reshape(-1))
        result[name] = {"nll": nll.item(), "greedy": generate(m, rows[:1, :6])}
    (out / "texts.json").write_text(json.dumps({"rows": rows.tolist(), "prompt": 6, "models": result}) + "\n")


NF4 = np.array([-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1], np.float32)
MIDPOINTS = ((NF4[1:].astype(np.float64) + NF4[:-1]) / 2).astype(np.float32)


def nf4(w):
    """The numbers that a weight has in NF4, scales in float32."""
    flat = w.numpy().astype(np.float32).reshape(-1)
    for i in range(0, len(flat), 64):
        x = flat[i:i + 64]
        absmax = np.abs(x).max()
        flat[i:i + 64] = NF4[np.searchsorted(MIDPOINTS, x * (np.float32(1) / absmax), side="left")] * absmax
    return torch.from_numpy(flat.reshape(w.shape))


STEPS, ROWS, LR, WARMUP, CLIP = 20, 4, 2e-3, 2, 1.0


def curve(out, name):
    """20 steps of QLoRA on every linear layer, the router and the experts among them."""
    from peft import LoraConfig, get_peft_model
    from transformers import get_linear_schedule_with_warmup
    kind, weights, extra = MODELS[name]
    _, m = make_families.build(kind, extra, seed_of(weights), classes())
    for n, module in m.named_modules():
        if isinstance(module, torch.nn.Linear) and n != "lm_head":
            module.weight.data = nf4(module.weight.data.clone())
    peft = get_peft_model(m, LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=4, target_modules="all-linear"))
    g = torch.Generator().manual_seed(3)
    for n, p in sorted(peft.named_parameters()):
        if "lora_A" in n:
            p.data = (torch.rand(p.shape, generator=g) * 2 - 1) / p.shape[1] ** 0.5
    make_families.save_adapter(peft, out / "curve", name)
    ids = torch.randint(0, VOCAB, (STEPS * ROWS, T), generator=g)
    ids[:, 1::2] = (ids[:, ::2] * 7 + 3) % VOCAB  # something to learn
    labels = ids.clone()
    labels[:, :3] = -100
    peft.train()
    params = [p for _, p in sorted(peft.named_parameters()) if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, foreach=False)
    sched = get_linear_schedule_with_warmup(opt, WARMUP, STEPS)
    c = {"loss": [], "grad_norm": [], "lr": [], "trained_tokens": []}
    for step in range(STEPS):
        x, y = ids[step * ROWS:(step + 1) * ROWS], labels[step * ROWS:(step + 1) * ROWS]
        opt.zero_grad()
        loss = peft(input_ids=x, labels=y).loss
        loss.backward()
        assert all(p.grad is not None for p in params), f"{name}: an expert has no token in step {step}"
        c["loss"].append(loss.item())
        c["grad_norm"].append(float(torch.nn.utils.clip_grad_norm_(params, CLIP, foreach=False)))
        c["lr"].append(float(opt.param_groups[0]["lr"]))
        c["trained_tokens"].append(int((y[:, 1:] != -100).sum()))
        opt.step()
        sched.step()
    (out / "curve" / "curve.json").write_text(json.dumps(c, indent=1) + "\n")
    save_file({"input_ids": ids.to(torch.int32), "labels": labels.to(torch.int32)}, str(out / "curve" / "batches.safetensors"))
    print(name, "curve", c["loss"][0], c["loss"][-1])


def seed_of(weights):
    return sorted({w for _, w, _ in MODELS.values()}).index(weights) + 1


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "experts"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    models = make_families.logits(out, MODELS, classes())
    texts(out, models)
    curve(out, "qwen3_moe")
    make_families.gradients(out, "mixtral_balanced", models["mixtral_balanced"][1], dict(r=2, lora_alpha=6, target_modules="all-linear"))
    make_families.gradients(out, "qwen3_moe", models["qwen3_moe"][1], dict(r=2, lora_alpha=6, lora_dropout=0.1, target_modules="all-linear"))
    make_families.gradients(out, "qwen3_moe_mixed", models["qwen3_moe_mixed"][1], dict(
        r=2, lora_alpha=5, use_rslora=True, target_modules=r".*\.(q_proj|experts\.[13]\.(up|down)_proj|layers\.0\.mlp\.gate_proj)"))
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
