#!/usr/bin/env python3
"""Makes testdata/llama_like: the families that are Llama with other data, and OLMo 2, as make_families.py does it for
the first three: logits by transformers and LoRA gradients by PEFT. And for one model of each family, in NAME.runs.json:
greedy texts, the NLL of rows, and 20 training steps with the weights that bitsandbytes' NF4 stands for.

    python internal/golden/make_llama_like.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1, bitsandbytes 0.49.2, tokenizers 0.22.1 on a CPU; needs neither
network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_families as families
import torch
import transformers
from safetensors.torch import save_file

T = 16
SIZES = dict(vocab_size=families.VOCAB, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=0)
MULTIPLIERS = dict(embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4, logits_scaling=2.5)

HEADS = dict(head_dim=24, num_attention_heads=2, num_key_value_heads=1)  # not the width's share

# name: (model type, name of its weights, what differs from SIZES)
MODELS = {
    "granite": ("Granite", "granite", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True, **MULTIPLIERS)),
    "granite_plain": ("Granite", "granite", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "ministral": ("Ministral", "ministral", dict(**HEADS, sliding_window=5, layer_types=["sliding_attention", "full_attention"])),
    "ministral_alike": ("Ministral", "ministral", dict(**HEADS, sliding_window=3)),
    "mistral_head_dim": ("Mistral", "ministral", dict(**HEADS, sliding_window=None, rope_theta=1e6)),
    "olmo2": ("Olmo2", "olmo2", dict(attention_bias=True, num_key_value_heads=1, rms_norm_eps=1e-3)),
    "qwen3": ("Qwen3", "qwen3", dict(**HEADS, tie_word_embeddings=False)),
    "qwen3_window": ("Qwen3", "qwen3", dict(**HEADS, tie_word_embeddings=False, use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3_biases": ("Qwen3", "qwen3_biases", dict(head_dim=6, tie_word_embeddings=True, attention_bias=True, num_key_value_heads=4)),
    "smollm3": ("SmolLM3", "smollm3", dict(no_rope_layer_interval=2, num_hidden_layers=3, tie_word_embeddings=True)),
    "smollm3_window": ("SmolLM3", "smollm3", dict(no_rope_layers=[0, 1, 0], num_hidden_layers=3, tie_word_embeddings=True,
                                                  use_sliding_window=True, sliding_window=5)),
}
EVERYTHING = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def build(kind, extra, seed):
    config = getattr(transformers, kind + "Config")(**{**SIZES, **extra}, attn_implementation="eager")
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    families.randomise(m, seed)
    return config, m


def rows():
    """Eight rows that a model can learn: walks with a step of their own, the first tokens masked, two shorter."""
    ids = torch.tensor([[(3 + 7 * r + t * (r + 1)) % families.VOCAB for t in range(T)] for r in range(8)])
    labels = ids.clone()
    for r in range(8):
        labels[r, :1 + r % 4] = -100
    lengths = [T, T, 5, T, T, 11, T, T]
    return ids, labels, lengths


def nll(model):
    """Sum of NLL and trained tokens over the rows, each computed by itself."""
    ids, labels, lengths = rows()
    out, total, count = [], 0.0, 0
    for r, n in enumerate(lengths):
        x, y = ids[r:r + 1, :n], labels[r:r + 1, :n]
        with torch.no_grad():
            logits = model(input_ids=x).logits.double()
        each = torch.nn.functional.cross_entropy(logits[0, :-1], y[0, 1:], ignore_index=-100, reduction="sum")
        out.append({"input_ids": x[0].tolist(), "labels": y[0].tolist(), "nll": float(each)})
        total, count = total + float(each), count + int((y[0, 1:] != -100).sum())
    return {"rows": out, "mean_nll": total / count}


def greedy(model, prompts, new=20, never=None):
    """Greedy continuations without the tokens of never, a list, and the least lead of a best logit: ids must be equal where that is far above
    rounding."""
    texts, lead = [], float("inf")
    for p in prompts:
        ids = torch.tensor([p])
        for _ in range(new):
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, -1]
            logits[never or []] = float("-inf")
            best = logits.topk(2)
            lead = min(lead, float(best.values[0] - best.values[1]))
            ids = torch.cat([ids, best.indices[:1].reshape(1, 1)], 1)
        with torch.no_grad():
            made = model.generate(torch.tensor([p]), attention_mask=torch.ones(1, len(p)), max_new_tokens=new, do_sample=False, eos_token_id=None,
                                  suppress_tokens=never)
        assert ids[0].tolist() == made[0].tolist(), "greedy is not what generate does"
        texts.append({"prompt_ids": p, "new_ids": ids[0, len(p):].tolist()})
    return texts, lead


def quantised(model):
    """Replaces the weight of every linear layer but the head by what its NF4 form stands for, in blocks of 64."""
    import bitsandbytes.functional as BF
    with torch.no_grad():
        for n, mod in model.named_modules():
            if isinstance(mod, torch.nn.Linear) and not n.endswith("lm_head"):
                q, st = BF.quantize_4bit(mod.weight.data.contiguous(), blocksize=64, quant_type="nf4", compress_statistics=False)
                codes = torch.stack([q.view(-1) >> 4, q.view(-1) & 15], 1).reshape(-1).long()[:mod.weight.numel()]
                mod.weight.copy_((st.code[codes] * st.absmax.repeat_interleave(64)[:codes.numel()]).reshape(mod.weight.shape))
    return model


def curve(model, adapter, steps=20, batch=4, lr=5e-3):
    """AdamW with a rate that falls linearly and clipping, from PEFT's adapter in a folder."""
    from peft import PeftModel
    peft = PeftModel.from_pretrained(quantised(model), str(adapter), is_trainable=True).eval()  # no dropout
    params = {n.replace(".default", ""): p for n, p in sorted(peft.named_parameters()) if p.requires_grad}
    opt = torch.optim.AdamW(list(params.values()), lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, foreach=False)
    ids, labels, _ = rows()
    c = {k: [] for k in ("loss", "grad_norm", "lr", "trained_tokens")} | dict(rows=ids.tolist(), labels=labels.tolist(), batch=batch)
    for step in range(steps):
        which = [(batch * step + k) % len(ids) for k in range(batch)]
        x, y = ids[which], labels[which]
        opt.param_groups[0]["lr"] = lr * (1 - step / steps)
        opt.zero_grad()
        total = int((y[:, 1:] != -100).sum())
        logits = peft(input_ids=x, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y[:, 1:].reshape(-1), ignore_index=-100, reduction="sum") / total
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(params.values()), 1.0, foreach=False)
        for k, v in (("loss", loss), ("grad_norm", norm), ("lr", opt.param_groups[0]["lr"]), ("trained_tokens", total)):
            c[k].append(float(v) if k != "trained_tokens" else v)
        opt.step()
    return c


def bf16_errors(model, adapter, adds=(0,)):
    """The error of PEFT's own bf16 (base in bf16, adapter in fp32, autocast) against fp32, as norms over the rows' logits and
    gradients, each row a batch of its own, with each of adds added to every id: where one draw's error is chance, several say how large it is."""
    from peft import PeftModel
    ids, labels, _ = rows()
    ids, labels = torch.cat([(ids + a) % families.VOCAB for a in adds]), torch.cat([torch.where(labels < 0, labels, (labels + a) % families.VOCAB) for a in adds])

    def run(m, autocast):
        peft = PeftModel.from_pretrained(m, str(adapter), is_trainable=True).eval()
        all_logits, grads = [], []
        for x, y in zip(ids, labels):
            peft.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                logits = peft(input_ids=x[None], use_cache=False).logits[0].float()
            torch.nn.functional.cross_entropy(logits[:-1], y[1:], ignore_index=-100).backward()
            all_logits.append(logits.detach().double())
            grads.append(torch.cat([p.grad.double().flatten() for n, p in sorted(peft.named_parameters()) if p.requires_grad]))
        return torch.stack(all_logits), torch.stack(grads)

    ref, got = run(copy.deepcopy(model), False), run(copy.deepcopy(model).bfloat16(), True)
    return {k: float((g - r).norm() / r.norm()) for k, r, g in zip(("logits", "gradient"), ref, got)} | ({"add": list(adds)} if len(adds) > 1 else {})


def tokenizer(path):
    """A character of ASCII for each id from 3 on."""
    from tokenizers import AddedToken, Tokenizer, models
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, **{chr(i - 3 + 0x40): i for i in range(3, families.VOCAB)}}
    t = Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    t.add_special_tokens([AddedToken(s, special=True) for s in ("<unk>", "<s>", "</s>")])
    t.save(str(path))


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "llama_like"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    models = families.logits(out, MODELS, build)
    for name in ("granite", "ministral", "olmo2", "qwen3", "smollm3"):
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        lora = dict(r=2, lora_alpha=3) if name == "qwen3" else dict(r=1, lora_alpha=1.5)
        families.gradients(out, name, copy.deepcopy(m), dict(lora, target_modules=EVERYTHING))
        runs["bf16"] = bf16_errors(m, out / (name + ".lora"))
        runs["curve"] = curve(copy.deepcopy(m), out / (name + ".lora"))
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
