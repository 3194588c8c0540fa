#!/usr/bin/env python3
"""Makes tiny random models of every family by transformers, with options drawn at random, and compares the program with transformers and PEFT.

    python scripts/families_check.py TRAINER [--seeds 3] [--first 0] [--families qwen3,gemma2] [--keep DIR]

For each model: `trainer eval` on tokenized rows against transformers' mean negative log-likelihood (1e-4 relative); a LoRA run on all linear layers
whose adapter PEFT reads, with the names that PEFT itself would give it, and whose evaluation PEFT repeats (1e-4 relative); a QLoRA run whose loss falls. gpt_oss also has adapters on parameters of experts, and an adapter that PEFT saved is
evaluated, started from and merged.
Needs torch, transformers 4.57, PEFT and safetensors on a CPU. Exit code 1: something differs.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import tokenizers
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "internal" / "golden"))

BOUND = 1e-4


def common(r):
    heads = r.choice([2, 4, 6, 8])
    kv = r.choice([k for k in range(1, heads + 1) if heads % k == 0])
    head = r.choice([8, 12, 16, 24])
    c = dict(vocab_size=r.choice([64, 97, 128, 300]), hidden_size=r.choice([heads * head, heads * 8, 40, 64]), intermediate_size=r.choice([48, 72, 88, 130]),
             num_hidden_layers=r.choice([2, 3, 4]), num_attention_heads=heads, num_key_value_heads=kv, head_dim=head, max_position_embeddings=r.choice([64, 128, 256]),
             rms_norm_eps=r.choice([1e-5, 1e-6]), rope_theta=r.choice([10000.0, 500000.0, 1e6]), tie_word_embeddings=r.random() < 0.5,
             bos_token_id=1, eos_token_id=2, pad_token_id=0, attention_dropout=0.0)
    return c


def scaling(r, c):
    kind = r.choice([None, None, "linear", "llama3", "yarn"])
    if kind == "linear":
        c["rope_scaling"] = dict(rope_type="linear", factor=r.choice([2.0, 4.0]))
    elif kind == "llama3":
        c["rope_scaling"] = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    elif kind == "yarn":
        c["rope_scaling"] = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)


def kinds(r, layers):
    return [r.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]


def llama(r, c):
    scaling(r, c)
    c.update(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)


def mistral(r, c):
    scaling(r, c)
    c.update(sliding_window=r.choice([None, 5, 9]))


def qwen2(r, c):
    scaling(r, c)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    if r.random() < 0.5:
        c.update(use_sliding_window=True, sliding_window=r.choice([5, 9]), max_window_layers=r.choice([0, 1, 2]))


def qwen3(r, c):
    scaling(r, c)
    c.update(attention_bias=r.random() < 0.3)
    if r.random() < 0.4:
        c.update(use_sliding_window=True, sliding_window=r.choice([5, 9]), max_window_layers=r.choice([0, 1, 2]))


def smollm3(r, c):
    scaling(r, c)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)
    if r.random() < 0.5:
        c["no_rope_layers"] = [r.choice([0, 1]) for _ in range(c["num_hidden_layers"])]
    else:
        c["no_rope_layer_interval"] = r.choice([2, 3, 4])
    if r.random() < 0.5:
        c.update(use_sliding_window=True, sliding_window=r.choice([5, 9]))


def granite(r, c):
    scaling(r, c)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, embedding_multiplier=r.choice([1.0, 6.0, 12.0]), attention_multiplier=r.choice([1.0, 0.25, 0.0625]),
             residual_multiplier=r.choice([1.0, 0.22]), logits_scaling=r.choice([1.0, 3.0, 8.0]))


def olmo2(r, c):
    if r.random() < 0.5:
        c["rope_scaling"] = dict(type=r.choice(["linear", "dynamic"]), factor=2.0)
    del c["head_dim"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(attention_bias=r.random() < 0.3)


def ministral(r, c):
    scaling(r, c)
    c.update(sliding_window=r.choice([5, 9]), layer_types=kinds(r, c["num_hidden_layers"]))


def gemma2(r, c):
    c.update(query_pre_attn_scalar=r.choice([c["head_dim"], 7, 144]), sliding_window=r.choice([5, 9]), attn_logit_softcapping=r.choice([None, 5.0, 50.0]),
             final_logit_softcapping=r.choice([None, 3.0, 30.0]), attention_bias=r.random() < 0.3)
    if r.random() < 0.5:
        c["layer_types"] = kinds(r, c["num_hidden_layers"])


def gemma3(r, c):
    c.update(query_pre_attn_scalar=r.choice([c["head_dim"], 7, 144]), sliding_window=r.choice([5, 9]), rope_local_base_freq=r.choice([10000.0, 5000.0]), attention_bias=r.random() < 0.3)
    if r.random() < 0.5:
        c["layer_types"] = kinds(r, c["num_hidden_layers"])
    if r.random() < 0.5:
        c["rope_scaling"] = dict(rope_type="linear", factor=8.0)


def phi3(r, c):
    del c["head_dim"]
    head = r.choice([8, 16, 32])
    c["hidden_size"] = c["num_attention_heads"] * head
    c.update(sliding_window=r.choice([None, 5, 9]), resid_pdrop=0.0, embd_pdrop=0.0)
    part = r.choice([1.0, 0.5, 0.75])
    if part != 1.0:
        c["partial_rotary_factor"] = part
    turned = int(head * part)
    if r.random() < 0.5:
        c.update(original_max_position_embeddings=32, rope_scaling=dict(type="longrope", short_factor=[1 + r.random() for _ in range(turned // 2)], long_factor=[1 + 3 * r.random() for _ in range(turned // 2)]))


def mixtral(r, c):
    scaling(r, c)
    experts = r.choice([2, 4, 5])
    c.update(num_local_experts=experts, num_experts_per_tok=r.choice(range(1, experts + 1)), sliding_window=r.choice([None, 9]), output_router_logits=False)


def gpt_oss(r, c):
    experts = r.choice([3, 4, 6])
    c.update(num_local_experts=experts, num_experts_per_tok=r.choice([1, 2, 3]), sliding_window=r.choice([5, 9]), attention_bias=True,
             layer_types=kinds(r, c["num_hidden_layers"]), output_router_logits=r.random() < 0.5, router_aux_loss_coef=r.choice([0.02, 0.9]), tie_word_embeddings=False)


def parameters(r, family, layers):
    """Target parameters for gpt-oss, with ranks and scales of their own: some of the experts' projections, in some of the layers."""
    if not family.startswith("gpt_oss"):
        return {}
    names = [name for name in ("mlp.experts.gate_up_proj", "mlp.experts.down_proj") if r.random() < 0.8]
    names = [f"layers.{r.randrange(layers)}.{name}" if r.random() < 0.3 else name for name in names]
    if not names:
        return {}
    return dict(target_parameters=names, rank_pattern={names[0]: 3}, alpha_pattern={r"layers\.1\.mlp\.experts\..*": 5}, use_rslora=r.random() < 0.5)


def gpt_oss_mxfp4(r, c):
    gpt_oss(r, c)
    c.update(hidden_size=r.choice([32, 64, 96]), intermediate_size=r.choice([32, 64, 96]), head_dim=r.choice([8, 16]))


def to_mxfp4(folder):
    """Stores the experts of a folder as gpt-oss' releases do."""
    import make_mxfp4
    state = {}
    for k, v in load_file(folder / "model.safetensors").items():
        if k.endswith(("gate_up_proj", "down_proj")):
            state[k + "_blocks"], state[k + "_scales"] = make_mxfp4.encode(v)
        else:
            state[k] = v
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | dict(quantization_config=make_mxfp4.QUANTIZATION)))


def load(folder):
    """In float32, what is stored otherwise dequantised; rotary tables are made in float32."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").float().eval()


def qwen3_moe(r, c):
    scaling(r, c)
    experts = r.choice([4, 6, 8])
    c.update(num_experts=experts, num_experts_per_tok=r.choice([1, 2, 3]), moe_intermediate_size=r.choice([24, 40]), norm_topk_prob=r.random() < 0.5, attention_bias=r.random() < 0.3,
             decoder_sparse_step=r.choice([1, 1, 2]), mlp_only_layers=r.choice([[], [0]]), output_router_logits=False)


def qwen2_moe(r, c):
    qwen3_moe(r, c)
    del c["head_dim"], c["attention_bias"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    c.update(shared_expert_intermediate_size=r.choice([24, 56]), qkv_bias=r.random() < 0.7, hidden_act=r.choice(["silu", "silu", "gelu"]))
    if r.random() < 0.4:
        c.update(use_sliding_window=True, sliding_window=r.choice([5, 9]), max_window_layers=r.choice([0, 1, 2]))


FAMILIES = {  # name: the first part of transformers' class names, what its configuration is drawn by
    "llama": ("Llama", llama), "mistral": ("Mistral", mistral), "qwen2": ("Qwen2", qwen2), "qwen3": ("Qwen3", qwen3), "smollm3": ("SmolLM3", smollm3), "granite": ("Granite", granite),
    "olmo2": ("Olmo2", olmo2), "ministral": ("Ministral", ministral), "gemma2": ("Gemma2", gemma2), "gemma3_text": ("Gemma3", gemma3), "phi3": ("Phi3", phi3), "mixtral": ("Mixtral", mixtral), "qwen2_moe": ("Qwen2Moe", qwen2_moe), "qwen3_moe": ("Qwen3Moe", qwen3_moe), "gpt_oss": ("GptOss", gpt_oss), "gpt_oss_mxfp4": ("GptOss", gpt_oss_mxfp4),
}


def make(family, seed, folder):
    r = random.Random(f"{family} {seed}")
    name, draw = FAMILIES[family]
    c = common(r)
    draw(r, c)
    config = (getattr(transformers, f"{name}TextConfig", None) or getattr(transformers, f"{name}Config"))(**c, attn_implementation="eager")
    m = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    g = torch.Generator().manual_seed(seed)
    plus = family.startswith("gemma")
    with torch.no_grad():
        for n, p in sorted(m.named_parameters()):
            if p.dim() == 1 and "norm" in n:
                p.copy_((0 if plus else 1) + 0.2 * torch.randn(p.shape, generator=g))
            elif p.dim() == 1:
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
            elif "embed_tokens" in n:
                p.copy_(0.3 * torch.randn(p.shape, generator=g) / getattr(config, "embedding_multiplier", 1.0))
            else:
                p.copy_(1.2 * torch.randn(p.shape, generator=g) / p.shape[-1] ** 0.5)
    stored = r.choice([torch.bfloat16, torch.float32, torch.float16])
    m.to(stored).save_pretrained(folder / "model")
    if family.endswith("mxfp4"):
        to_mxfp4(folder / "model")
    m = load(folder / "model")
    if seed % 2:  # rows of ids need no tokenizer
        words = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={f"t{i}": i for i in range(c["vocab_size"])}, merges=[]))
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="t1", eos_token="t2", pad_token="t0").save_pretrained(folder / "model")
    rows = []
    for _ in range(6):
        ids = [r.randrange(3, c["vocab_size"]) for _ in range(r.randrange(6, 49))]
        cut = r.randrange(0, len(ids) // 2)
        rows.append(dict(input_ids=ids, labels=[-100] * cut + ids[cut:]))
    (folder / "rows.jsonl").write_text("".join(json.dumps(x) + "\n" for x in rows))
    return m, rows, c, r


def nll(m, rows):
    total, n = 0.0, 0
    for row in rows:
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"][1:])
        with torch.no_grad():
            logits = m(input_ids=ids, use_cache=False).logits[0, :-1].double()
        keep = labels != -100
        total += float(torch.nn.functional.cross_entropy(logits[keep], labels[keep], reduction="sum"))
        n += int(keep.sum())
    return total / n


def run(*command):
    p = subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=300)
    if p.returncode:
        raise RuntimeError(f"exit code {p.returncode}: {(p.stderr or p.stdout).strip()[-700:]}")
    return p.stdout


def differs(what, ours, theirs):
    if not abs(ours - theirs) <= BOUND * abs(theirs):
        raise RuntimeError(f"{what}: {ours!r}, transformers {theirs!r}: {abs(ours - theirs) / abs(theirs):.2g} relative")


def back(trainer, folder, adapted, value, rows):
    """An adapter of PEFT's own with B that is not zero: evaluated, started from, and merged."""
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for n, p in sorted(adapted.named_parameters()):
            if "lora_" in n:
                p.copy_(0.2 * torch.randn(p.shape, generator=g))
    adapted.save_pretrained(folder / "peft")
    theirs = nll(adapted, rows)
    differs("mean NLL with PEFT's adapter", value("--adapter", folder / "peft"), theirs)
    run(trainer, "train", folder / "run.yaml", "--quiet", "--set", f"lora.init_from={folder}/peft", "--set", f"output_dir={folder}/again", "--set", "training.learning_rate=1e-30")
    ours, peft = load_file(folder / "again/adapter_model.safetensors"), load_file(folder / "peft/adapter_model.safetensors")
    if ours.keys() != peft.keys() or any(not torch.allclose(ours[k], peft[k], rtol=0, atol=1e-6) for k in ours):
        raise RuntimeError("an adapter started from PEFT's is another without training")
    run(trainer, "merge", "--model", folder / "model", "--adapter", folder / "peft", "--out", folder / "merged")
    merged = transformers.AutoModelForCausalLM.from_pretrained(folder / "merged", dtype=torch.float32, attn_implementation="eager").eval()
    wide = adapted.merge_and_unload().state_dict()
    for n, p in merged.state_dict().items():
        if not torch.allclose(p, wide[n], rtol=2 ** -8, atol=1e-6 * float(wide[n].abs().max())):  # as the base is stored
            raise RuntimeError(f"merged: {n} differs by {float((p - wide[n]).abs().max())}")


def check(trainer, family, seed, folder):
    m, rows, c, r = make(family, seed, folder)
    more = parameters(r, family, c["num_hidden_layers"])
    config = dict(base_model=str(folder / "model"), adapter="lora", lora=dict(r=4, alpha=8, target_modules="all-linear") | more, device="cpu",
                  dataset=dict(path=str(folder / "rows.jsonl"), format="tokenized", max_length=64, packing=r.random() < 0.5),
                  training=dict(max_steps=12, batch_size=2, learning_rate=1e-2, logging_steps=1), output_dir=str(folder / "run"))
    (folder / "run.yaml").write_text(json.dumps(config))  # JSON is YAML
    value = lambda *more: json.loads(run(trainer, "eval", folder / "run.yaml", "--json", *more))["eval_loss"]
    ours, theirs = value(), nll(m, rows)
    differs("mean NLL", ours, theirs)

    run(trainer, "train", folder / "run.yaml", "--quiet")
    tensors = load_file(folder / "run/adapter_model.safetensors")
    saved = json.loads((folder / "run/adapter_config.json").read_text())
    fresh = get_peft_model(load(folder / "model"), LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM", **more))
    want = {k: tuple(v.shape) for k, v in get_peft_model_state_dict(fresh).items()}
    got = {k: tuple(v.shape) for k, v in tensors.items()}
    if got != want:
        raise RuntimeError(f"the adapter has not PEFT's names: more {sorted(set(got) - set(want))[:3]}, less {sorted(set(want) - set(got))[:3]} (target_modules {saved['target_modules']})")
    adapted = PeftModel.from_pretrained(load(folder / "model"), folder / "run").eval()
    differs("mean NLL with the adapter", value("--adapter", folder / "run"), nll(adapted, rows))
    if more:
        back(trainer, folder, adapted, value, rows)

    run(trainer, "train", folder / "run.yaml", "--quiet", "--set", "adapter=qlora", "--set", f"output_dir={folder}/qrun")
    losses = [json.loads(line) for line in (folder / "qrun/metrics.jsonl").read_text().splitlines()]
    losses = [x["loss"] for x in losses if "loss" in x]
    if len(losses) < 12 or not min(losses[-4:]) < losses[0]:
        raise RuntimeError(f"QLoRA's losses do not fall: {losses}")
    return f"mean NLL {ours:.6f}, off by {abs(ours - theirs) / theirs:.1g}; QLoRA {losses[0]:.3f} -> {losses[-1]:.3f}"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("trainer", type=pathlib.Path)
    ap.add_argument("--seeds", type=int, default=3)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--families", default=",".join(FAMILIES))
    ap.add_argument("--keep", type=pathlib.Path, help="folder for the models and runs")
    a = ap.parse_args()
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for family in a.families.split(","):
            for seed in range(a.first, a.first + a.seeds):
                folder = (a.keep or pathlib.Path(scratch)) / f"{family}-{seed}"
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    print(f"{family} {seed}: {check(a.trainer.resolve(), family, seed, folder)}", flush=True)
                except Exception as e:  # every model is tried
                    failed += 1
                    print(f"{family} {seed}: FAILED: {type(e).__name__}: {e}", flush=True)
    if failed:
        sys.exit(f"{failed} failed")


main()
