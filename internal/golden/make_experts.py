#!/usr/bin/env python3
"""Makes testdata/experts: tiny random mixtures of experts and what transformers and PEFT compute with them: logits, mean
NLL, greedy text, LoRA gradients with and without the router's balance loss, and 20 steps of QLoRA.

    python internal/golden/make_experts.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1 on a CPU; needs neither network nor GPU. NF4 is written here from
bitsandbytes' rule: blocks of 64, code = number of midpoints strictly below x/absmax. A step in which an expert has no
token would leave torch's optimizer without a gradient for it, which it then passes over: it is asserted that there is none.
"""
import copy
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
    "gpt_oss": ("gpt_oss", "gpt_oss", dict(intermediate_size=8, num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=5,
                                           num_attention_heads=6, rope_scaling=dict(
                                               rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                               original_max_position_embeddings=16))),
    "gpt_oss_full": ("gpt_oss", "gpt_oss", dict(intermediate_size=8, num_local_experts=4, num_experts_per_tok=1, head_dim=8, sliding_window=7,
                                                num_attention_heads=6, layer_types=["full_attention", "full_attention"], rope_scaling=None)),
    "gpt_oss_balanced": ("gpt_oss", "gpt_oss", dict(intermediate_size=8, num_local_experts=4, num_experts_per_tok=3, head_dim=8, sliding_window=6,
                                                    num_attention_heads=6, rope_scaling=None, output_router_logits=True, router_aux_loss_coef=0.5)),
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


def build(kind, extra, seed):
    from transformers import GptOssConfig, GptOssForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
    config, model = {"gpt_oss": (GptOssConfig, GptOssForCausalLM), "mixtral": (MixtralConfig, MixtralForCausalLM),
                     "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM)}[kind]
    config = config(**{**SIZES, **extra}, attn_implementation="eager")
    m = model(config).float().eval()
    make_families.randomise(m, seed)
    return config, m


def rows(add=0):
    """Eight rows that a model can learn, in steps of two or three; the first tokens are not trained, two rows are shorter. add: to
    every id, for another draw."""
    ids = torch.tensor([[(5 + 11 * r + t * (2 + r % 2) + add) % VOCAB for t in range(T)] for r in range(8)])
    labels = ids.clone()
    for r in range(8):
        labels[r, :1 + r % 3] = -100
    return ids, labels, [T, 7, T, T, T, 15, T, T]


def nll(m):
    """The NLL of each row by itself, and the mean over all trained tokens."""
    ids, labels, lengths = rows()
    out, total, count = [], 0.0, 0
    for x, y, n in zip(ids, labels, lengths):
        with torch.no_grad():
            logits = m(input_ids=x[None, :n]).logits[0, :-1].double()
        each = float(torch.nn.functional.cross_entropy(logits, y[1:n], ignore_index=-100, reduction="sum"))
        out.append({"input_ids": x[:n].tolist(), "labels": y[:n].tolist(), "nll": each})
        total, count = total + each, count + int((y[1:n] != -100).sum())
    return {"rows": out, "mean_nll": total / count}


def greedy(m, prompts, new=20):
    """Greedy texts by generate, and the least lead of a best logit over the next."""
    texts, lead = [], float("inf")
    for p in prompts:
        ids = torch.tensor([p])
        out = m.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, eos_token_id=None,
                         pad_token_id=0, output_router_logits=False)
        with torch.no_grad():
            best = m(input_ids=out).logits[0, len(p) - 1:-1].topk(2).values
        lead = min(lead, float((best[:, 0] - best[:, 1]).min()))
        texts.append({"prompt_ids": p, "new_ids": out[0, len(p):].tolist()})
    return {"texts": texts, "lead": lead}


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


def lead_of(logits, k):
    best = logits.topk(k + 1).values
    return float((best[:, k - 1] - best[:, k]).min())


def in_bf16(m):
    """A copy with weights in bf16, as from_pretrained makes it: rotary frequencies stay fp32."""
    low = copy.deepcopy(m)
    for p in low.parameters():
        p.data = p.data.bfloat16()
    return low


def in_nf4(m):
    """A copy whose linear layers have the numbers of NF4."""
    m = copy.deepcopy(m)
    for n, module in m.named_modules():
        if isinstance(module, torch.nn.Linear) and n != "lm_head":
            module.weight.data = nf4(module.weight.data.clone())
    return m


def bf16_errors(model, adapter, adds=(0,)):
    """The error of PEFT's own bf16 (base in bf16, adapter in fp32, autocast) against fp32, as norms over the rows' logits and
    gradients, each row a batch of its own, with each of adds added to every id. An expert without a token has no gradient."""
    from peft import PeftModel
    ids, labels = (torch.cat([rows(a)[i] for a in adds]) for i in (0, 1))

    def run(m, autocast):
        peft = PeftModel.from_pretrained(m, str(adapter), is_trainable=True).eval()
        all_logits, grads = [], []
        for x, y in zip(ids, labels):
            peft.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                logits = peft(input_ids=x[None], use_cache=False).logits[0].float()
            torch.nn.functional.cross_entropy(logits[:-1], y[1:], ignore_index=-100).backward()
            all_logits.append(logits.detach().double())
            grads.append(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).double().flatten()
                                    for n, p in sorted(peft.named_parameters()) if p.requires_grad]))
        return torch.stack(all_logits), torch.stack(grads)

    ref, got = run(copy.deepcopy(model), False), run(in_bf16(model), True)
    return {k: float((g - r).norm() / r.norm()) for k, r, g in zip(("logits", "gradient"), ref, got)} | ({"add": list(adds)} if len(adds) > 1 else {})


def watch_leads(peft):
    """A list that gets, of each router's next calls, the least lead of a token's last expert over the next: where one is within
    rounding, another program may choose another expert."""
    leads = []
    for n, module in peft.named_modules():
        if n.endswith(".gate"):
            module.register_forward_hook(lambda _m, _x, y: leads.append(lead_of(y.detach(), peft.config.num_experts_per_tok)))
        elif n.endswith(".router"):
            module.register_forward_hook(lambda m, x, _y: leads.append(lead_of(torch.nn.functional.linear(
                x[0].detach().reshape(-1, m.weight.shape[1]), m.weight, m.bias), peft.config.num_experts_per_tok)))
    return leads


def clear(m, adapter):
    """Of all numbers that can be added to a row's ids, for each row the one with the largest least lead of an expert, over the weights
    as they are and in NF4: rows on which a precision finer than bf16 gives every token the experts that fp32 does."""
    from peft import PeftModel
    found = {}
    for what, base in (("floats", copy.deepcopy(m)), ("nf4", in_nf4(m))):
        peft = PeftModel.from_pretrained(base, str(adapter)).eval()
        leads, best = watch_leads(peft), [(-1.0, 0)] * len(rows()[0])
        for add in range(VOCAB):
            for r, x in enumerate(rows(add)[0]):
                leads.clear()
                with torch.no_grad():
                    peft(input_ids=x[None], use_cache=False)
                if min(leads) > best[r][0]:
                    best[r] = min(leads), add
        found[what] = {"add": [add for _, add in best], "lead": min(lead for lead, _ in best)}
    return found


def curve(m, adapter, lr, steps=20, batch=4, low=False, wide=False, add=0, packed=True):
    """AdamW with a rate that falls linearly, and clipping, from PEFT's adapter in a folder, over weights in NF4 where packed; low: in
    bf16, wide: in float64."""
    from peft import PeftModel
    m = in_nf4(m) if packed else m
    m = in_bf16(m) if low else m
    peft = PeftModel.from_pretrained(m, str(adapter), is_trainable=True).eval()  # no dropout
    peft = peft.double() if wide else peft
    params = [p for _, p in sorted(peft.named_parameters()) if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, foreach=False)
    ids, labels, _ = rows(add)
    c = {"loss": [], "grad_norm": [], "lr": [], "trained_tokens": [], "rows": ids.tolist(), "labels": labels.tolist(), "batch": batch}
    leads = watch_leads(peft)
    for step in range(steps):
        which = [(batch * step + k) % len(ids) for k in range(batch)]
        opt.param_groups[0]["lr"] = lr * (1 - step / steps)
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            loss = peft(input_ids=ids[which], labels=labels[which], use_cache=False).loss
        loss.backward()
        assert low or all(p.grad is not None for p in params), f"an expert has no token in step {step}"
        c["loss"].append(loss.item())
        c["grad_norm"].append(float(torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=False)))
        c["lr"].append(float(opt.param_groups[0]["lr"]))
        c["trained_tokens"].append(int((labels[which][:, 1:] != -100).sum()))
        opt.step()
    c["lead"] = min(leads)
    return c


def draws(m, adapter, lr, n=16):
    """n curves over other ids, and how far PEFT's own bf16 is from them in the mean: one curve in bf16 is one draw, because it
    depends on which tokens go to another expert. Left out are ids with which an expert has no token, and those with which fp32
    itself is no reference: a choice is within its rounding, or float64 gives other losses."""
    found, total, add = [], 0.0, -5
    run = lambda **how: curve(copy.deepcopy(m), adapter, lr, add=add, **how)
    off = lambda a, b: sum(abs(x - y) / y for x, y in zip(a, b)) / len(b)
    while len(found) < n:
        add += 5
        try:
            c = run()
        except AssertionError:
            continue
        if c["lead"] >= 5e-5 and off(c["loss"], run(wide=True)["loss"]) <= 1e-5:
            total += off(run(low=True)["loss"], c["loss"]) / n
            found.append({"add": add, "loss": c["loss"]})
    return found, total


def tokenizer(path):
    """A character for each id from 3 on."""
    from tokenizers import AddedToken, Tokenizer, models
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, **{chr(i - 3 + 0x40): i for i in range(3, VOCAB)}}
    t = Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    t.add_special_tokens([AddedToken(s, special=True) for s in ("<unk>", "<s>", "</s>")])
    t.save(str(path))


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "experts"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    models = make_families.logits(out, MODELS, build)
    for name, lr, lora in (("gpt_oss", 2e-2, dict(r=2, lora_alpha=4)),
                           ("gpt_oss_balanced", 1e-2, dict(r=3, lora_alpha=4, target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
                           ("mixtral_balanced", 1.1e-2, dict(r=2, lora_alpha=2)), ("qwen3_moe", 1.5e-2, dict(r=2, lora_alpha=4, lora_dropout=0.1))):
        m = models[name][1]
        runs = nll(m) | greedy(m, [[1, 5, 9, 30], [1, 40]])
        make_families.gradients(out, name, copy.deepcopy(m), dict(target_modules="all-linear", **lora))
        runs["curve"] = curve(copy.deepcopy(m), out / (name + ".lora"), lr)
        if "target_parameters" in lora:
            runs["curve_of_floats"] = curve(copy.deepcopy(m), out / (name + ".lora"), lr, packed=False)
        runs["draws"], off = draws(m, out / (name + ".lora"), lr)
        runs["clear"] = clear(m, out / (name + ".lora"))
        over = bf16_errors(in_nf4(m), out / (name + ".lora"))["gradient"]
        runs["bf16"] = bf16_errors(m, out / (name + ".lora")) | {"curve": off, "gradient_nf4": over}
        print(name, "bf16", runs["bf16"])
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1],
              "lead of the experts", runs["curve"]["lead"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    make_families.gradients(out, "qwen3_moe_mixed", models["qwen3_moe_mixed"][1], dict(
        r=2, lora_alpha=5, use_rslora=True, target_modules=r".*\.(q_proj|experts\.[13]\.(up|down)_proj|layers\.0\.mlp\.gate_proj)"))
    make_families.gradients(out, "gpt_oss_full", models["gpt_oss_full"][1], dict(
        r=2, lora_alpha=5, use_rslora=True, target_modules=[], target_parameters=["layers.1.mlp.experts.gate_up_proj", "experts.down_proj"],
        rank_pattern={r"layers\.1\.mlp\.experts\.down_proj": 4}, alpha_pattern={"experts.gate_up_proj": 3}))
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
