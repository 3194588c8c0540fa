"""The Hugging Face side of tokenizer.sh and its table. Rates are MB (10^6 bytes of UTF-8) a second, best of all rounds."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

import tokenizers
from tokenizers import AddedToken, Tokenizer, models

SHARED = pathlib.Path(os.environ["TRAINER_DATA"])
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
PARTS = ["tinystories/tinystories_sample.txt", "gsm8k/train.jsonl", "fastchat/dummy_conversation.json", "mlx-wikisql/train.jsonl",
         "tinyshakespeare/input.txt", "llamafactory/v1_sft_demo.jsonl"]
STYLES = {"llama": "tinyllama-1.1b-chat", "mistral": "mistral-7b-instruct-v0.3", "gpt2": "smollm-135m", "qwen2": "qwen2.5"}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def qwen(folder, pipeline):
    tok = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    parts = {**json.loads(tok.to_str()), **{k: pipeline[k] for k in ("normalizer", "pre_tokenizer", "post_processor", "decoder")}}
    tok = Tokenizer.from_str(json.dumps(parts))
    for t in pipeline["added_tokens"]:
        flags = {k: t[k] for k in ("single_word", "lstrip", "rstrip", "normalized")}
        (tok.add_special_tokens if t["special"] else tok.add_tokens)([AddedToken(t["content"], special=t["special"], **flags)])
    return tok


def prepare(work):
    """Writes a folder with tokenizer.json for each style, and the text; returns the text and its documents."""
    text = "".join((SHARED / "data/datasets" / p).read_bytes()[:180_000].decode("utf-8", "ignore") for p in PARTS)
    (work / "text").write_text(text, encoding="utf-8", newline="")
    documents = text.splitlines(keepends=True)
    for style, folder in STYLES.items():
        src = SHARED / "data/tokenizers" / folder
        if (src / "tokenizer.json").exists():
            tok = Tokenizer.from_file(str(src / "tokenizer.json"))
            tok.no_truncation()
            tok.no_padding()
        else:
            tok = qwen(src, json.loads((SHARED / "goldens/tokenizers/qwen2.5.pipeline.json").read_text()))
        save(tok.to_str(), style, work)
    file = json.loads((work / "qwen2" / "tokenizer.json").read_text())
    file["normalizer"] = None
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA3
    save(json.dumps(file), "llama3", work)
    return text, documents


def save(text, style, work):
    (work / style).mkdir()
    (work / style / "tokenizer.json").write_text(text, encoding="utf-8")


def timed(f, *args, **kw):
    begin = time.perf_counter()
    out = f(*args, **kw)
    return time.perf_counter() - begin, out


def peer(work, text, documents):
    """Seconds of one pass for each style: cold and warm on the whole text, warm on documents."""
    out = {}
    for style in [*STYLES, "llama3"]:
        tok = Tokenizer.from_file(str(work / style / "tokenizer.json"))
        cold, e = timed(tok.encode, text, add_special_tokens=False)
        ids = e.ids
        (work / f"{style}.ids").write_bytes(struct.pack(f"<{len(ids)}i", *ids))
        warm = min(timed(tok.encode_batch_fast, [text], add_special_tokens=False)[0] for _ in range(3))
        docs = min(timed(tok.encode_batch_fast, documents, add_special_tokens=False)[0] for _ in range(3))
        out[style] = {"cold": cold, "warm": warm, "documents": docs}
    return out


def ours(work):
    env = {**os.environ, "TRAINER_BENCH": str(work)}
    lines = subprocess.run(["go", "test", "-count=1", "-run", "TestBenchAgainstReference", "-v", "./text/tokenizer"], env=env, check=False,
                           capture_output=True, text=True)
    if lines.returncode:
        sys.exit(lines.stdout + lines.stderr)
    return json.loads(next(l for l in lines.stdout.splitlines() if l.strip().startswith("{")))


def main():
    with tempfile.TemporaryDirectory() as tmp:
        work = pathlib.Path(tmp)
        text, documents = prepare(work)
        size = len(text.encode()) / 1e6
        best = {"tokenizers": {}, "ours": {}}
        for _ in range(ROUNDS):
            for who, result in (("tokenizers", peer(work, text, documents)), ("ours", ours(work))):
                for style, times in result.items():
                    old = best[who].setdefault(style, dict(times))
                    best[who][style] = {k: min(old[k], v) for k, v in times.items()}
    print(f"{size:.2f} MB, {len(documents)} documents; tokenizers {tokenizers.__version__}; best of {ROUNDS} rounds; ids equal")
    print(f"{'MB/s':10s}{'first pass':>24s}{'warm':>24s}{'documents':>24s}")
    print(f"{'':10s}" + f"{'peer':>8s}{'ours':>8s}{'ratio':>8s}" * 3)
    for style in best["ours"]:
        row = f"{style:10s}"
        for k in ("cold", "warm", "documents"):
            p, o = best["tokenizers"][style][k], best["ours"][style][k]
            row += f"{size / p:8.1f}{size / o:8.1f}{p / o:8.1f}"
        print(row)


main()
