#!/usr/bin/env python3
"""A model folder of a real shape and random bf16 weights, as a download would leave it: for runs that are about memory and time.

    make_model.py NAME FOLDER --tokenizer TOKENIZER [--empty]

NAME is a Llama shape of scripts/bench/gpu_peers.py; TOKENIZER a folder with tokenizer.json (and its neighbours). FOLDER gets config.json, the
tokenizer and shards of at most 5 GB with their index. Matrices are normal with deviation 0.02, norms are 1. The numbers come from one
pool of a prime number of draws, so 13.5 GB take as long as writing them. With --empty the shards are holes that take no disk: enough to plan.
"""
import argparse
import array
import json
import random
import shutil
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "bench"))
from gpu_peers import SHAPES  # noqa: E402

SHARD = 5_000_000_000
POOL = 4_194_301  # a prime: rows of no width repeat
ONE = b"\x80\x3f"


def tensors(s):
    """Names and shapes in the checkpoint's order."""
    C, F, D = s["hidden_size"], s["intermediate_size"], s["hidden_size"] // s["num_attention_heads"]
    kv = s["num_key_value_heads"] * D
    yield "model.embed_tokens.weight", (s["vocab_size"], C)
    for i in range(s["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (C,)
        for name, shape in (("q_proj", (C, C)), ("k_proj", (kv, C)), ("v_proj", (kv, C)), ("o_proj", (C, C))):
            yield f"{layer}self_attn.{name}.weight", shape
        yield layer + "post_attention_layernorm.weight", (C,)
        for name, shape in (("gate_proj", (F, C)), ("up_proj", (F, C)), ("down_proj", (C, F))):
            yield f"{layer}mlp.{name}.weight", shape
    yield "model.norm.weight", (C,)
    if not s["tie_word_embeddings"]:
        yield "lm_head.weight", (s["vocab_size"], C)


def size(shape):
    n = 2
    for d in shape:
        n *= d
    return n


def shards(s):
    out, held = [[]], 0
    for name, shape in tensors(s):
        if held + size(shape) > SHARD:
            out.append([])
            held = 0
        out[-1].append((name, shape))
        held += size(shape)
    return out


def pool():
    rng = random.Random(0)
    f32 = array.array("f", (rng.gauss(0, 0.02) for _ in range(POOL))).tobytes()
    bf16 = bytearray(2 * POOL)
    bf16[0::2], bf16[1::2] = f32[2::4], f32[3::4]  # the upper half of each number
    return memoryview(bytes(bf16))


def fill(f, name, shape, numbers):
    if len(shape) == 1:
        f.write(ONE * shape[0])
        return
    left, at = size(shape), 2 * (zlib.crc32(name.encode()) % POOL)
    while left > 0:
        part = numbers[at:at + left]
        f.write(part)
        left, at = left - len(part), 0


def write_shards(folder, s, put):
    """The SafeTensors files of a shape and their index; put(f, part, bytes) writes the data of one. Returns the numbers of tensors,
    of bytes and of files."""
    parts, index, total = shards(s), {}, 0
    for i, part in enumerate(parts):
        file = f"model-{i + 1:05}-of-{len(parts):05}.safetensors" if len(parts) > 1 else "model.safetensors"
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, shape in part:
            header[name] = dict(dtype="BF16", shape=shape, data_offsets=[at, at + size(shape)])
            at += size(shape)
            index[name] = file
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            put(f, part, at)
        total += at
    if len(parts) > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps(dict(metadata=dict(total_size=total), weight_map=index)))
    return len(index), total, len(parts)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("name", choices=sorted(name for name, s in SHAPES.items() if s["kind"] == "Llama"))
    ap.add_argument("folder", type=Path)
    ap.add_argument("--tokenizer", type=Path, required=True)
    ap.add_argument("--empty", action="store_true")
    a = ap.parse_args()
    s = dict(SHAPES[a.name])
    del s["kind"]  # of the bench; no key of a config.json
    a.folder.mkdir(parents=True, exist_ok=True)
    for f in a.tokenizer.glob("*.json"):
        if f.name.startswith(("tokenizer", "special_tokens", "added_tokens")):
            shutil.copyfile(f, a.folder / f.name)
    numbers = None if a.empty else pool()

    def put(f, part, count):
        if a.empty:
            f.truncate(f.tell() + count)
        else:
            for name, shape in part:
                fill(f, name, shape, numbers)

    count, total, files = write_shards(a.folder, s, put)
    config = dict(s, architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
                  attention_bias=False, rope_scaling=None, torch_dtype="bfloat16")
    (a.folder / "config.json").write_text(json.dumps(config, indent=1))  # last: with it the folder is a model
    print(f"{a.folder}: {a.name}, {count} tensors, {total:,} bytes in {files} files")


if __name__ == "__main__":
    main()
