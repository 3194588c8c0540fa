"""Loading a folder of SafeTensors: makes models of real shapes with random weights, and times the program from the command to its first step.

    load.py make FOLDER SHAPE [DTYPE [SHARDS]]       FOLDER/config.json, tokenizer.json, SafeTensors of torch's DTYPE (bfloat16) in SHARDS files (2)
    load.py time TRAINER FOLDER TIMES [KEY=VALUE ..] runs of one step of 1x512, q k v o, rank 8; the run is killed after the first step's line
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {  # hidden, mlp, layers, heads, kv heads, vocabulary, positions
    "tiny": (256, 512, 2, 4, 2, 512, 2048),
    "tinyllama-1.1b": (2048, 5632, 22, 32, 4, 32000, 2048),
    "llama-2-7b": (4096, 11008, 32, 32, 32, 32000, 4096),
}
NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def tensors(hidden, mlp, layers, heads, kv, vocab, positions):
    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(layers):
        p, k = f"model.layers.{i}.", hidden // heads * kv
        yield p + "input_layernorm.weight", (hidden,)
        for name, rows in (("q", hidden), ("k", k), ("v", k), ("o", hidden)):
            yield p + f"self_attn.{name}_proj.weight", (rows, hidden)
        yield p + "post_attention_layernorm.weight", (hidden,)
        yield p + "mlp.gate_proj.weight", (mlp, hidden)
        yield p + "mlp.up_proj.weight", (mlp, hidden)
        yield p + "mlp.down_proj.weight", (hidden, mlp)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocab, hidden)


def make(folder, shape, dtype="bfloat16", shards="2"):
    import torch

    place, sizes = Path(folder), SHAPES[shape]
    place.mkdir(parents=True, exist_ok=True)
    hidden, mlp, layers, heads, kv, vocab, positions = sizes
    (place / "config.json").write_text(json.dumps(dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_act="silu", hidden_size=hidden,
        intermediate_size=mlp, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv, vocab_size=vocab,
        max_position_embeddings=positions, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)))
    shutil.copy(ROOT / "configs/assets/stories260K/tokenizer.json", place)
    device, kind, n = "cuda" if torch.cuda.is_available() else "cpu", getattr(torch, dtype), int(shards)
    torch.manual_seed(0)
    todo, index = list(tensors(*sizes)), {}
    size = torch.empty(0, dtype=kind).element_size()
    total, part, parts = sum(size * prod(s) for _, s in todo), 0, [[] for _ in range(n)]
    for name, s in todo:
        parts[min(n - 1, part * n // total)].append((name, s))
        part += size * prod(s)
    for i, own in enumerate(parts):
        file, header, at = f"model-{i + 1:05d}-of-{n:05d}.safetensors", {}, 0
        for name, s in own:
            header[name] = dict(dtype=NAMES[dtype], shape=list(s), data_offsets=[at, at + size * prod(s)])
            at, index[name] = at + size * prod(s), file
        head = json.dumps(header).encode()
        head += b" " * (-len(head) % 8)
        with open(place / file, "wb") as f:
            f.write(len(head).to_bytes(8, "little") + head)
            for name, s in own:
                w = torch.ones(s, device=device) if name.endswith("norm.weight") else torch.randn(s, device=device) * 0.02
                f.write(w.to(kind).cpu().view(torch.uint8).numpy().data)
    (place / "model.safetensors.index.json").write_text(json.dumps(dict(metadata=dict(total_size=total), weight_map=index)))
    print(f"{folder}: {total / 1e9:.2f} GB in {n} files of {dtype}")


def prod(s):
    n = 1
    for x in s:
        n *= x
    return n


def measure(trainer, folder, times, *settings):
    with tempfile.TemporaryDirectory() as home:
        rows = Path(home, "rows.jsonl")
        ids = [[5 + (7 * i + j) % 500 for j in range(512)] for i in range(8)]
        rows.write_text("".join(json.dumps({"input_ids": x, "labels": x}) + "\n" for x in ids))
        config = {"base_model": folder, "adapter": "qlora", "lora": {"r": 8, "alpha": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
                  "quantization": {"bits": 4, "type": "nf4", "block_size": 64, "double_quant": True},
                  "dataset": {"path": str(rows), "format": "tokenized", "max_length": 512},
                  "training": {"max_steps": 1, "batch_size": 1, "logging_steps": 1}, "output_dir": f"{home}/run", "device": "cuda"}
        Path(home, "one.yaml").write_text(json.dumps(config))  # JSON is YAML
        out = []
        for _ in range(int(times)):
            command = [trainer, "--config", f"{home}/one.yaml"] + [x for s in settings for x in ("--set", s)]
            at = time.time()
            p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            lines, step = [], None
            for line in p.stdout:
                lines.append(line.rstrip())
                if line.startswith("step "):
                    step = time.time() - at
                    p.kill()
                    break
            p.wait()
            out.append(step)
            shutil.rmtree(f"{home}/run", ignore_errors=True)
            if step is None:
                print("\n".join(lines[-12:]))
        loss = lines[-1][:60] if lines else ""
        print(f"{os.path.basename(trainer)} {os.path.basename(folder)} {' '.join(settings)}: first step after " + ", ".join(f"{x:.3f}" if x else "never" for x in out) + f" s; {loss}", flush=True)


if __name__ == "__main__":
    {"make": make, "time": measure}[sys.argv[1]](*sys.argv[2:])
