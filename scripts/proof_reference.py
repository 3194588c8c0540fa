#!/usr/bin/env python3
"""Reference numbers for the proof on a device: a Llama model with a PEFT adapter, once in float64 and as PEFT trains it in bf16.

    python proof_reference.py OUT --model DIR [--rows 2 --tokens 256 --draws 8]       a checkpoint folder
    python proof_reference.py OUT --shape tinyllama-1.1b [--layers 22]                random weights, written to OUT/model
    python proof_reference.py OUT --family qwen3                                      random weights of a family, width 1024 and 6 layers
    ... --nf4 quant/testdata/nf4.safetensors.gz                                          QLoRA: linear layers after the round trip through NF4

Writes to OUT what train's TestGPUErrorAgainstPEFT reads (TRAINER_PROOF=parent of OUT):

    case.json               model folder, versions, losses, and the error norms of each peer against float64
    adapter/                the PEFT adapter: r 8, alpha 16, all seven linear layers, A and B not zero
    reference.safetensors   logit_rows [n], and for draw I of the batch, all of the float64 run:
                            "I input_ids", "I labels" [B,T]; of the first --draws "I logits" [n,V]; "I nll" [M]; "I grad NAME"

Rounding errors of one batch are one draw: a tensor's error is summed up over several batches (root of the sum of squares).
Of a batch's mean loss, one number, --losses batches are taken: forward alone but for the first --draws.

Peers, both with an adapter in float32 under torch.autocast(bf16) and scaled dot product attention:
    bf16 base       the model loaded in bf16, as QLoRA and the Trainer's bf16 runs have it
    fp32 base       the model loaded in float32: the residual stream stays float32
"float32" is the float32 model without autocast or TF32: it says how far the float64 run itself can be trusted.
The float64 model keeps transformers' own float32 parts (norm statistics, softmax, rotary angles).

Needs torch with a GPU, transformers, peft, safetensors, numpy. No network.
"""
import argparse, gzip, json, pathlib, time

import numpy as np
import peft
import torch
import torch.nn.functional as F
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load, load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

SHAPES = {  # vocab, width, mlp, layers, heads, kv heads
    "tinyllama-1.1b": (32000, 2048, 5632, 22, 32, 4),
    "llama-2-7b": (32000, 4096, 11008, 32, 32, 32),
}
# What a family's configuration has besides FAMILY: every feature that a kernel takes another path for.
FAMILY = dict(vocab_size=8192, hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=2048,
              bos_token_id=1, eos_token_id=2, pad_token_id=0)
FAMILIES = {
    "qwen3": ("Qwen3", dict(head_dim=128, tie_word_embeddings=True)),
    "smollm3": ("SmolLM3", dict(no_rope_layers=[1, 1, 1, 0, 1, 1], tie_word_embeddings=True)),
    "granite": ("Granite", dict(embedding_multiplier=12.0, attention_multiplier=0.0156, residual_multiplier=0.22, logits_scaling=4.0)),
    "olmo2": ("Olmo2", dict(num_key_value_heads=16)),
    "mistral": ("Mistral", dict(head_dim=128, sliding_window=96)),
    "gemma2": ("Gemma2", dict(head_dim=256, num_attention_heads=8, query_pre_attn_scalar=256, sliding_window=96, attn_logit_softcapping=50.0, final_logit_softcapping=30.0)),
    "gemma3": ("Gemma3", dict(head_dim=256, num_attention_heads=4, num_key_value_heads=1, query_pre_attn_scalar=256, sliding_window=96,
                              layer_types=["sliding_attention"] * 5 + ["full_attention"])),
    "phi3": ("Phi3", dict(num_attention_heads=8, partial_rotary_factor=0.75)),
    "phi3_head_96": ("Phi3", dict(hidden_size=768, num_attention_heads=8, num_key_value_heads=8, sliding_window=96)),
}
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"]
IGNORE = -100
LOGIT_ROWS = 64


def random_model(folder, shape, layers, device):
    vocab, width, inner, depth, heads, kv = SHAPES[shape]
    cfg = LlamaConfig(vocab_size=vocab, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers or depth, num_attention_heads=heads,
                      num_key_value_heads=kv, max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
    torch.manual_seed(5)
    with torch.device(device):
        m = LlamaForCausalLM(cfg).to(torch.bfloat16)
    with torch.no_grad():
        for p in m.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.02)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in m.state_dict().items()}, folder / "model.safetensors", metadata={"format": "pt"})
    old = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": vocab, "hidden_size": width,
           "intermediate_size": inner, "num_hidden_layers": layers or depth, "num_attention_heads": heads, "num_key_value_heads": kv,
           "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False,
           "mlp_bias": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(old, indent=1) + "\n")


def random_family(folder, family, device):
    """A model of the family, of whatever transformers is installed, saved as that saves it."""
    kind, more = FAMILIES[family]
    config = (getattr(transformers, f"{kind}TextConfig", None) or getattr(transformers, f"{kind}Config"))(**FAMILY | more)
    build = getattr(transformers, f"{kind}ForCausalLM")
    torch.manual_seed(5)
    m = build(config).to(torch.bfloat16)
    with torch.no_grad():
        for n, p in m.named_parameters():
            if p.dim() > 1:
                p.normal_(0, 0.02)
            else:  # norms: near 1, or near 0 where 1 is added to them
                p.add_(0.1 * torch.randn(p.shape))
    m.save_pretrained(folder)


def linears(m):
    """The linear layers that are adapted, by name."""
    return sorted({n.split(".")[-1] for n, mod in m.named_modules() if isinstance(mod, torch.nn.Linear)} & set(LINEAR))


def masked(ids):
    """A masked prompt of another length in each row."""
    labels = ids.clone()
    for r in range(len(ids)):
        labels[r, : 5 + 7 * r] = IGNORE
    return ids, labels


def random_batch(vocab, rows, tokens, draw):
    """Rows of random ids; the last one is padded."""
    ids, labels = masked(torch.tensor(np.random.default_rng(3 + draw).integers(3, vocab, (rows, tokens))))
    ids[-1, tokens - tokens // 5:], labels[-1, tokens - tokens // 5:] = 0, IGNORE
    return ids, labels


def text_batches(path, rows, tokens, draws):
    """Rows of tokens that somebody tokenized: JSON with rows[i].ids, joined end to end; each of draws, a first and a last number
    of them, begins where the last one ended; more than the first only while the text is new."""
    ids = [i for r in json.loads(pathlib.Path(path).read_text())["rows"] for i in r["ids"]]
    n = rows * tokens
    if len(ids) < n:
        raise SystemExit(f"{path}: {len(ids)} tokens, {n} needed")
    draws = max(draws[0], min(draws[1], len(ids) // n))
    ids = torch.tensor(ids + ids)
    return [masked(ids[d * n % (len(ids) // 2):][:n].view(rows, tokens)) for d in range(draws)]


def round_trip(w, t):
    """What a weight is after NF4 in blocks of 64 with 8-bit scales in blocks of 256, in float32. t: the tables of quant/testdata/nf4.safetensors.gz."""
    x = w.float().reshape(-1, 64)
    absmax = x.abs().amax(1)
    code = torch.bucketize((x * (1 / absmax)[:, None]).contiguous(), t["nf4.thresholds"], right=False)
    offset = absmax.mean()
    d = absmax - offset
    d = F.pad(d, (0, -len(d) % 256)).view(-1, 256)
    top = d.abs().amax(1, keepdim=True)
    nearest = ((d / top)[..., None] - t["dynamic.signed"]).abs().argmin(-1)
    scale = (t["dynamic.signed"][nearest] * top).reshape(-1)[: len(absmax)] + offset
    return (t["nf4.code"][code] * scale[:, None]).view(w.shape)


def quantise(m, nf4, device):
    """Gives every adapted layer the values its NF4 form stands for, rounded to the type of the computation as bitsandbytes does."""
    tables = {k: v.float().to(device) for k, v in load(gzip.open(nf4).read()).items() if k in ("nf4.code", "nf4.thresholds", "dynamic.signed")}
    with torch.no_grad():
        for n, mod in m.named_modules():
            if n.split(".")[-1] in LINEAR:
                mod.weight.copy_(round_trip(mod.weight, tables))


def adapted(folder, dtype, attention, device, nf4):
    try:
        m = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention, device_map=device)
    except TypeError:
        m = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=dtype, attn_implementation=attention, device_map=device)
    if nf4:
        quantise(m, nf4, device)
    m = get_peft_model(m, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=linears(m), task_type="CAUSAL_LM"))
    params = {n: p for n, p in m.named_parameters() if "lora_" in n}
    g = torch.Generator().manual_seed(17)
    with torch.no_grad():
        for n in sorted(params):
            p = params[n]
            fan = p.shape[1] if "lora_A" in n else 8
            p.copy_((torch.rand(p.shape, generator=g, dtype=torch.float32) * 2 - 1) / fan ** 0.5 * (1 if "lora_A" in n else 0.1))
    return m.train(), params


def measure(folder, dtype, autocast, attention, batches, rows, device, nf4, whole):
    """What a run makes of the batches: of the first, as many as whole says, with logits and gradients."""
    m, params = adapted(folder, dtype, attention, device, nf4)
    if dtype == torch.float64:
        for p in params.values():
            p.data = p.data.double()
    out = {"targets": sorted({n.split(".lora_")[0].split(".")[-1] for n in params}), "adapter_type": str(next(iter(params.values())).dtype), "params": {n.replace(".default", ""): p.detach().float().cpu() for n, p in params.items()}, "draws": []}
    for i, (ids, labels) in enumerate(batches):
        x, y = ids.to(device), labels.to(device)
        m.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(i < whole), torch.autocast(device.split(":")[0], dtype=torch.bfloat16, enabled=autocast):
            logits = m(input_ids=x, use_cache=False).logits
        wide = logits.double() if dtype == torch.float64 else logits.float()
        nll = F.cross_entropy(wide[:, :-1].reshape(-1, wide.shape[-1]), y[:, 1:].reshape(-1), ignore_index=IGNORE, reduction="none")
        trained = int((y[:, 1:] != IGNORE).sum())
        loss = nll.sum() / trained
        if i >= whole:
            out["draws"].append({"loss": float(loss), "trained": trained})
            continue
        loss.backward()
        full = torch.zeros(y.shape, dtype=torch.float64, device=device)
        full[:, :-1] = nll.detach().double().view(y.shape[0], -1)
        out["draws"].append({"loss": float(loss.detach()), "trained": trained, "logits": wide.detach().reshape(-1, wide.shape[-1])[rows.to(device)].double().cpu(),
                             "nll": full.reshape(-1).cpu(), "grads": {n.replace(".default", ""): p.grad.double().cpu() for n, p in params.items()}})
    del m, params, logits, wide, nll, loss, full, x, y
    if device != "cpu":
        torch.cuda.empty_cache()
    return out


def over(draws, refs, pick):
    """Root of the summed squares of what pick takes from each draw, over that of the reference."""
    whole = [(a, b) for a, b in zip(draws, refs) if "grads" in b]
    d = sum(float((pick(a) - pick(b)).square().sum()) for a, b in whole)
    return (d / sum(float(pick(b).square().sum()) for _, b in whole)) ** 0.5


def errors(got, ref):
    a, b = got["draws"], ref["draws"]
    names = list(b[0]["grads"])
    return {"losses": [x["loss"] for x in a], "logits": over(a, b, lambda x: x["logits"]), "nll": over(a, b, lambda x: x["nll"]),
            "gradient": over(a, b, lambda x: torch.cat([x["grads"][n].reshape(-1) for n in names])),
            "gradients": {n: over(a, b, lambda x: x["grads"][n]) for n in names}, "adapter_type": got["adapter_type"]}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=pathlib.Path)
    ap.add_argument("--model", type=pathlib.Path)
    ap.add_argument("--shape", choices=sorted(SHAPES))
    ap.add_argument("--family", choices=sorted(FAMILIES))
    ap.add_argument("--layers", type=int, default=0)
    ap.add_argument("--rows", type=int, default=2)
    ap.add_argument("--tokens", type=int, default=256)
    ap.add_argument("--draws", type=int, default=8, help="batches with logits and gradients")
    ap.add_argument("--losses", type=int, default=128, help="batches in all, the others with their loss alone")
    ap.add_argument("--ids", help="JSON with rows[i].ids to take the tokens from; random ones otherwise")
    ap.add_argument("--nf4", type=pathlib.Path, help="NF4's tables; without them the base is not quantised")
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    began = time.time()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    a.out.mkdir(parents=True, exist_ok=True)
    model = a.model.resolve() if a.model else a.out.resolve() / "model"
    if a.shape:
        random_model(model, a.shape, a.layers, a.device)
    if a.family:
        random_family(model, a.family, a.device)
    kernel = "eager" if json.loads((model / "config.json").read_text()).get("attn_logit_softcapping") else "sdpa"  # SDPA has no cap
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    draws = a.draws, max(a.draws, a.losses)
    batches = text_batches(a.ids, a.rows, a.tokens, draws) if a.ids else [random_batch(vocab, a.rows, a.tokens, d) for d in range(draws[1])]
    M = a.rows * a.tokens
    rows = torch.arange(min(LOGIT_ROWS, M)) * M // min(LOGIT_ROWS, M)
    run = lambda *k: measure(model, *k, rows, a.device, a.nf4, a.draws)
    ref = run(torch.float64, False, "eager", batches)
    peers = {"float32": run(torch.float32, False, "eager", batches), "bf16 base": run(torch.bfloat16, True, kernel, batches),
             "fp32 base": run(torch.float32, True, kernel, batches)}
    again = run(torch.bfloat16, True, kernel, batches[:1])["draws"][0]["grads"]
    case = {"model": str(model), "quantization": "nf4" if a.nf4 else "", "losses": [d["loss"] for d in ref["draws"]], "draws": a.draws, "trained": [d["trained"] for d in ref["draws"]],
            "peers": {k: errors(p, ref) for k, p in peers.items()},
            "peer_repeats": all(torch.equal(again[n], g) for n, g in peers["bf16 base"]["draws"][0]["grads"].items()),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
                         "device": torch.cuda.get_device_name() if a.device != "cpu" else "cpu"}}
    adapter = a.out / "adapter"
    adapter.mkdir(exist_ok=True)
    save_file({n: p.contiguous() for n, p in ref["params"].items()}, adapter / "adapter_model.safetensors", metadata={"format": "pt"})
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "lora_dropout": 0.0,
                                                             "target_modules": ref["targets"], "bias": "none", "base_model_name_or_path": str(model)}, indent=1) + "\n")
    tensors = {"logit_rows": rows.int()}
    for i, ((ids, labels), d) in enumerate(zip(batches, ref["draws"])):
        tensors |= {f"{i} input_ids": ids.int().contiguous(), f"{i} labels": labels.int().contiguous()}
        if "grads" in d:
            tensors |= {f"{i} logits": d["logits"].float(), f"{i} nll": d["nll"].float(), **{f"{i} grad {n}": g.float().contiguous() for n, g in d["grads"].items()}}
    save_file(tensors, a.out / "reference.safetensors")
    (a.out / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    rms = lambda p: (sum((x - y) ** 2 for x, y in zip(p["losses"], case["losses"])) / len(batches)) ** 0.5
    brief = {k: {x: f"{p[x]:.3g}" for x in ("logits", "nll", "gradient")} | {"loss, rms": f"{rms(p):.3g}"} for k, p in case["peers"].items()}
    print(a.out.name, f"{time.time() - began:.1f} s", f"{a.draws} of {len(batches)} draws whole, loss {case['losses'][0]:.5f}", json.dumps(brief), "repeats" if case["peer_repeats"] else "does not repeat", flush=True)


if __name__ == "__main__":
    main()
