#!/usr/bin/env python3
"""A base model of a real shape that has learnt something, made where no hub can be reached: for the tiers, whose losses fall
only from a model that models text. It is no release and answers nothing; its folder says so.

    standin.py --shape tinyllama-1.1b --tokenizer FOLDER --seconds 120 --out DIR [--device cuda] [--data FILE ...]

Needs torch, transformers and tokenizers. DIR gets what a download has: config.json, the tokenizer, bf16 weights in SafeTensors
of at most 5 GB with their index; and standin.json, which says how it was made. What is trained:

- Next tokens of packed text, 512 at a time, AdamW, weights in float32 under bf16 autocast (float32 on a CPU).
- The layers of --layers alone (all of the small shapes, 6 of the 7B's 32, spread over its depth). The other layers keep random
  weights, with o_proj and down_proj 10,000 times smaller than usual, so that they add next to nothing; every matrix is a full
  one, so bytes, time and quantisation are a real model's. The losses that are printed are of all layers, as written.
- The text of --data (JSONL rows or plain text, files or folders); by default this repository's documents and the sources of
  Python's library, up to --megabytes. The rows that tiers are trained on are not among it.

The time sets the number of steps, from the speed of the first ones; --steps N repeats a run of N. On a CPU the same steps give
the same bytes; on a GPU the same kind of GPU and the same libraries give them wherever torch's kernels are deterministic.
"""
import argparse
import hashlib
import json
import math
import os
import shutil
import sys
import sysconfig
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with it; read when torch starts
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "bench"))
from gpu_peers import SHAPES, shape  # noqa: E402
from make_model import tensors, write_shards  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
LENGTH = 512  # tokens of a sequence
WARM = 20  # steps to the full rate, before the number of steps is known
HELD_OUT = 25  # every 25th document is not trained on
CHOICES = {  # rate, trained layers (0 = all), (beginning, end) of a text
    "tiny": dict(shape=shape(64, 128, 3, 4, 2, 512, 512, 10000.0), rate=4e-3, layers=2, ids=(1, 2)),
    "smollm2-135m": dict(shape=SHAPES["smollm2-135m"], rate=2e-3, layers=0, ids=(0, 0)),
    "tinyllama-1.1b": dict(shape=SHAPES["tinyllama-1.1b"], rate=8e-4, layers=0, ids=(1, 2)),
    "llama-2-7b": dict(shape=SHAPES["llama-2-7b"], rate=5e-4, layers=6, ids=(1, 2)),
}
FAINT = 1e-4  # of the usual deviation, for what untrained layers add


def documents(paths, most):
    """Texts in a fixed order, at most so many bytes in all."""
    files = []
    if not paths:
        files += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
        library = Path(sysconfig.get_paths()["stdlib"])
        files += [f for f in sorted(library.rglob("*.py")) if not {"test", "tests", "idlelib", "site-packages", "dist-packages"} & set(f.relative_to(library).parts)]
    for p in paths:
        files += sorted(f for f in p.rglob("*") if f.suffix in (".txt", ".md", ".jsonl", ".json")) if p.is_dir() else [p]
    for file in files:
        whole = file.read_bytes().decode("utf-8", "replace")
        parts = [words(json.loads(line)) for line in whole.splitlines() if line.strip()] if file.suffix == ".jsonl" else pieces(whole)
        for text in parts:
            if most <= 0:
                return
            most -= len(text.encode())
            yield text


def words(value):
    """All text of a row, whatever its keys are."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return "\n".join(filter(None, map(words, value)))
    return value if isinstance(value, str) else ""


def pieces(text, most=20000):
    """A long file in parts that end at a line's end, so that some of it can be held out."""
    part, length = [], 0
    for line in text.splitlines(keepends=True):
        part.append(line)
        length += len(line)
        if length >= most:
            yield "".join(part)
            part, length = [], 0
    if part:
        yield "".join(part)


def sequences(texts, tokenizer, ids, torch):
    """Texts end to end, cut into rows of LENGTH tokens; the rest of the last row goes."""
    flat = []
    for at in range(0, len(texts), 256):
        for e in tokenizer.encode_batch(texts[at:at + 256], add_special_tokens=False):
            flat += [ids[0], *e.ids] if ids[0] != ids[1] else e.ids
            flat.append(ids[1])
    rows = len(flat) // LENGTH
    return torch.tensor(flat[:rows * LENGTH], dtype=torch.int64).view(rows, LENGTH)


def make(kind, s, transformers, ids):
    config = transformers.LlamaConfig(**{k: v for k, v in s.items() if k != "kind"}, rms_norm_eps=1e-5, bos_token_id=ids[0], eos_token_id=ids[1], initializer_range=0.02)
    config._attn_implementation = "sdpa"
    return kind(config)


def loss_of(model, rows, device, torch, batch):
    total, seen = 0.0, 0
    model.eval()
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        for at in range(0, len(rows), batch):
            part = rows[at:at + batch].to(device)
            logits = model(input_ids=part).logits[:, :-1].float()
            total += torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), part[:, 1:].reshape(-1), reduction="sum").item()
            seen += part[:, 1:].numel()
    model.train()
    return total / seen


def learn(model, rows, a, device, torch, rate):
    """Steps until the time is over; returns their number. The rate falls to a tenth by a cosine."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)], lr=rate, betas=(0.9, 0.95), fused=device.type == "cuda")
    order, at, steps, n, began, warm = torch.Generator().manual_seed(a.seed), len(rows), a.steps, 0, time.monotonic(), 0.0
    while n < (steps or WARM + 1):
        r = rate * (n + 1) / WARM if n < WARM else rate * (0.1 + 0.45 * (1 + math.cos(math.pi * (n - WARM) / max((steps or n + 1) - WARM, 1))))
        for group in optimizer.param_groups:
            group["lr"] = r
        total = 0.0
        for _ in range(a.accumulate):
            if at + a.batch > len(rows):
                shuffled, at = rows[torch.randperm(len(rows), generator=order)], 0
            part = shuffled[at:at + a.batch].to(device, non_blocking=True)
            at += a.batch
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = model(input_ids=part, labels=part).loss / a.accumulate
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        n += 1
        if n == WARM // 2:
            total.item()  # waits for the device
            warm = time.monotonic()
        if n == WARM:
            total.item()
            now = time.monotonic()
            steps = steps or WARM + max(1, int((a.seconds - (now - began)) / ((now - warm) / (WARM - WARM // 2))))
        if n % 50 == 0 or n == steps:
            value = total.item()
            if not math.isfinite(value):
                raise SystemExit(f"standin.py: the loss of step {n} is {value}: lower --rate")
            print(f"step {n} of {steps}: loss {value:.4f}, {time.monotonic() - began:.0f} s", flush=True)
    return n


def fill(s, chosen, trained, seed, device, torch):
    """Yields name and bf16 tensor of the whole model, in the checkpoint's order."""
    state = trained.state_dict()
    place = {layer: i for i, layer in enumerate(chosen)}
    for i, (name, dims) in enumerate(tensors(s)):
        parts = name.split(".")
        if parts[1] == "layers" and int(parts[2]) not in place:
            if len(dims) == 1:
                yield name, torch.ones(dims, dtype=torch.bfloat16)
                continue
            g = torch.Generator(device).manual_seed(seed * 1_000_003 + i)
            deviation = 0.02 * (FAINT if parts[-2] in ("o_proj", "down_proj") else 1.0)
            yield name, (torch.randn(dims, generator=g, device=device) * deviation).to(torch.bfloat16).cpu()
            continue
        if parts[1] == "layers":
            parts[2] = str(place[int(parts[2])])
        yield name, state[".".join(parts)].detach().to(torch.bfloat16).cpu()


def write(out, s, values, torch):
    """The shards and their index. Returns the SHA-256 that run_manifest.json calls base_weights_sha256."""
    sums = {}

    def put(f, part, _count):
        for name, dims in part:
            got, tensor = next(values)
            if got != name or tuple(tensor.shape) != tuple(dims):
                raise SystemExit(f"standin.py: {got} {tuple(tensor.shape)} where {name} {tuple(dims)} belongs")
            data = memoryview(tensor.contiguous().view(torch.int16).numpy()).cast("B")
            f.write(data)
            sums[name] = (dims, hashlib.sha256(data).hexdigest())

    write_shards(out, s, put)
    h = hashlib.sha256()
    for name in sorted(sums):
        dims, digest = sums[name]
        h.update(f"{name} BF16 [{' '.join(map(str, dims))}] {digest}\n".encode())
    return h.hexdigest()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--shape", choices=sorted(CHOICES), required=True)
    ap.add_argument("--tokenizer", type=Path, required=True, help="folder with the shape's tokenizer.json")
    ap.add_argument("--out", type=Path, required=True, help="new folder")
    ap.add_argument("--seconds", type=float, default=120, help="of training; reading, writing and evaluation come on top")
    ap.add_argument("--steps", type=int, default=0, help="instead of --seconds, to repeat a run")
    ap.add_argument("--device", default="", help="cuda or cpu; default: cuda where there is one")
    ap.add_argument("--data", type=Path, action="append", default=[], help="text to learn from; may be repeated")
    ap.add_argument("--megabytes", type=float, default=24, help="of text, at most")
    ap.add_argument("--layers", type=int, default=0, help="how many are trained")
    ap.add_argument("--batch", type=int, default=0, help="sequences of a micro-batch")
    ap.add_argument("--accumulate", type=int, default=0, help="micro-batches of a step")
    ap.add_argument("--rate", type=float, default=0)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    try:
        import tokenizers
        import torch
        import transformers
    except ImportError as missing:
        print(f"standin.py: {missing}; it needs torch, transformers and tokenizers", file=sys.stderr)
        return 3
    if a.out.exists() and any(a.out.iterdir()):
        print(f"standin.py: {a.out} is not empty: name a new folder", file=sys.stderr)
        return 2
    if not (a.tokenizer / "tokenizer.json").is_file():
        print(f"standin.py: {a.tokenizer} has no tokenizer.json", file=sys.stderr)
        return 2
    device = torch.device(a.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    choice = CHOICES[a.shape]
    s, ids, rate = choice["shape"], choice["ids"], a.rate or choice["rate"]
    a.batch, a.accumulate = a.batch or (4 if device.type == "cpu" else 16), a.accumulate or (1 if device.type == "cpu" else 2)
    torch.manual_seed(a.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    transformers.logging.set_verbosity_error()

    tokenizer = tokenizers.Tokenizer.from_file(str(a.tokenizer / "tokenizer.json"))
    if tokenizer.get_vocab_size() > s["vocab_size"]:
        print(f"standin.py: the tokenizer has {tokenizer.get_vocab_size()} tokens, {a.shape} has {s['vocab_size']}: it is another model's", file=sys.stderr)
        return 2
    texts = [t for t in documents(a.data, int(a.megabytes * 1e6)) if t.strip()]
    data = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    rows = sequences([t for i, t in enumerate(texts) if i % HELD_OUT], tokenizer, ids, torch)
    held = sequences([t for i, t in enumerate(texts) if not i % HELD_OUT], tokenizer, ids, torch)[:64]
    if len(rows) < a.batch or not len(held):
        print(f"standin.py: {len(texts)} texts give {len(rows)} sequences of {LENGTH} tokens and {len(held)} held out: too few", file=sys.stderr)
        return 2

    count = s["num_hidden_layers"]
    layers = min(a.layers or choice["layers"] or count, count)
    chosen = sorted({round(i * (count - 1) / max(layers - 1, 1)) for i in range(layers)})
    print(f"{a.shape}: {len(texts)} texts, {rows.numel()} tokens to learn, {held.numel()} held out; layers {chosen} of {count} are trained, on {device}", flush=True)
    model = make(transformers.LlamaForCausalLM, dict(s, num_hidden_layers=len(chosen)), transformers, ids).to(device)
    with torch.no_grad():  # what the layers add up to doesn't grow with their number
        for layer in model.model.layers:
            for part in (layer.self_attn.o_proj, layer.mlp.down_proj):
                part.weight.mul_((2 * len(chosen)) ** -0.5)
    before = loss_of(model, held, device, torch, a.batch)
    steps = learn(model, rows, a, device, torch, rate)

    a.out.mkdir(parents=True, exist_ok=True)
    for f in sorted(a.tokenizer.iterdir()):
        if f.name.startswith(("tokenizer", "special_tokens", "added_tokens")) or f.name in ("vocab.json", "merges.txt"):
            shutil.copyfile(f, a.out / f.name)
    digest = write(a.out, s, fill(s, chosen, model, a.seed, device, torch), torch)
    config = dict({k: v for k, v in s.items() if k != "kind"}, architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rms_norm_eps=1e-5,
                  bos_token_id=ids[0], eos_token_id=ids[1], attention_bias=False, rope_scaling=None, torch_dtype="bfloat16")
    (a.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    del model
    if device.type == "cuda":
        torch.cuda.empty_cache()
    written = transformers.LlamaForCausalLM.from_pretrained(a.out, torch_dtype=torch.bfloat16 if device.type == "cuda" else torch.float32).to(device)
    after = loss_of(written, held, device, torch, a.batch)
    (a.out / "standin.json").write_text(json.dumps(dict(
        what="a stand-in made by scripts/standin.py: the shape of a release, not its weights", shape=a.shape, seed=a.seed, steps=steps, batch=a.batch,
        accumulate=a.accumulate, length=LENGTH, rate=rate, trained_layers=chosen, data_sha256=data, learnt_tokens=steps * a.batch * a.accumulate * LENGTH,
        held_out_loss_before=before, held_out_loss=after, base_weights_sha256=digest, torch=torch.__version__, device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    ), indent=1) + "\n")
    print(f"held-out loss {before:.4f} before, {after:.4f} after {steps} steps (--steps {steps} repeats them), all layers as written")
    print(f"base_weights_sha256 {digest}")
    print(a.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
