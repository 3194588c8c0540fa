"""Packs the reference files under testdata, as the repository holds them; --unpack lays them plain for a script that reads them again.

    python3 internal/golden/pack.py             # after any make_*.py here
    python3 internal/golden/pack.py --unpack    # before one that starts from files of an earlier run

SafeTensors and JSON files of LEAST bytes, and all runs, become NAME.gz, without a time in them, or, where that is WORTH bytes smaller, NAME.gz2
or NAME.gz4, in which the bytes at every second or fourth place come together: exponents of numbers are alike. Where the package zopfli
0.4.3 is installed they are 4 % smaller, in the same format. golden.Path unpacks them for the tests. Files that repeat themselves far apart are packed by zstd's command (ZSTD) under the same rule. A copy of
another packed file becomes NAME.same, a line with that file's place. A file of NEAR becomes NAME.near: a line with the place of a packed
file of the same size that it resembles, and its difference from that file (exclusive or), packed as in NAME.gz4. A file of FIXED, an adapter
that a test compares within a tolerance, becomes NAME.fixed: its values as multiples of 2^-14 (STEP), packed as in NAME.gz2. The test lowers its
tolerance by half of that, so it proves at least as much. --unpack leaves these: what they were lies in the set that made them.
A tokenizer.json of BPE becomes NAME.bpe: its text without the tokens of the vocabulary that its merges make, packed by zstd.
"""
import gzip
import json
import pathlib
import struct
import subprocess
import sys

try:
    import zopfli.gzip
except ImportError:
    zopfli = None

HERE = pathlib.Path(__file__).parent / "testdata"
LEAST = {".safetensors": 4096, ".json": 1000}  # bytes; another file is left as it is
WORTH = 400
# Read by tests of packages that import nothing of the module, in the order of their bytes.
PLAIN = ("prequantised/functions.safetensors", "prequantised/mxfp4.safetensors", "/base_nf4.safetensors")
NEAR = {
    "train/lora_accumulate/final/adapter_model.safetensors": "train/lora/final/adapter_model.safetensors.gz4",
    "ministral3/ministral3.safetensors": "families/llama.safetensors.gz2",
}
FIXED = [f"train/{run}/final/adapter_model.safetensors" for run in ("rslora", "loraplus", "qlora_nf4", "qlora_nf4_double")]
STEP = 2.0 ** -14
PLANES = {".gz": 1, ".gz2": 2, ".gz4": 4}
ZSTD = ["preferences/curve_rows.json", "tokenizers/pipelines.json", "tokenizers/releases.json"]
BPE = ["tokenizers/smollm/tokenizer.json"]


def wanted(path):
    if path.name.endswith(".runs.json"):
        return True
    return path.suffix in LEAST and path.stat().st_size >= LEAST[path.suffix]


def gzipped(raw, planes):
    raw = b"".join(raw[i::planes] for i in range(planes))
    return zopfli.gzip.compress(raw) if zopfli else gzip.compress(raw, 9, mtime=0)


def fixed(raw):
    """The header of a SafeTensors file of float32 tensors, and their values as int16 multiples of STEP."""
    head = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = [t for name, t in json.loads(raw[8:head]).items() if name != "__metadata__"]
    assert all(t["dtype"] == "F32" for t in tensors)
    values = struct.unpack(f"<{(len(raw) - head) // 4}f", raw[head:])
    return raw[:head] + struct.pack(f"<{len(values)}h", *(round(v / STEP) for v in values))


def zstd(raw):
    return subprocess.run(["zstd", "-19", "--ultra", "--long=23", "-c"], input=raw, capture_output=True, check=True).stdout


def vocabulary(lines):
    """Where the lines of the vocabulary begin and end in a tokenizer.json of two spaces a level, and the merges after it."""
    begin, merges = lines.index('    "vocab": {') + 1, lines.index('    "merges": [')
    return begin, merges - 1, [line.strip().removesuffix(",") for line in lines[merges + 1:lines.index("    ]", merges)]]


def without_merged(raw):
    """The text without the last tokens of the vocabulary, one for each merge."""
    lines = raw.decode().split("\n")
    _, end, merges = vocabulary(lines)
    return "\n".join(lines[:end - len(merges)] + lines[end:]).encode()


def with_merged(text):
    lines = text.decode().split("\n")
    begin, end, merges = vocabulary(lines)
    made = [f"      {merge.replace(' ', '')}: {end - begin + i}," for i, merge in enumerate(merges)]
    made[-1] = made[-1].removesuffix(",")
    return "\n".join(lines[:end] + made + lines[end:]).encode()


def pack(path, firsts):
    raw = path.read_bytes()
    place = str(path.relative_to(HERE))
    if raw in firsts:
        packed, ending = (firsts[raw] + "\n").encode(), ".same"
    elif place in NEAR:
        other = HERE / NEAR[place]
        first = gunzipped(other) if other.exists() else other.with_suffix("").read_bytes()
        packed, ending = f"{NEAR[place]}\n".encode() + gzipped(bytes(a ^ b for a, b in zip(raw, first, strict=True)), 4), ".near"
    elif place in FIXED:
        packed, ending = gzipped(fixed(raw), 2), ".fixed"
    elif place in ZSTD:
        packed, ending = zstd(raw), ".zst"
    elif place in BPE:
        packed, ending = zstd(without_merged(raw)), ".bpe"
        assert with_merged(without_merged(raw)) == raw, path
    else:
        packed, ending = gzipped(raw, 1), ".gz"
        for other in (".gz2", ".gz4") if path.suffix == ".safetensors" and not place.endswith(PLAIN) else ():
            smaller = gzipped(raw, PLANES[other])
            if len(smaller) <= len(packed) - (WORTH if ending == ".gz" else 1):
                packed, ending = smaller, other
        firsts[raw] = place + ending
    path.with_name(path.name + ending).write_bytes(packed)
    path.unlink()
    return len(raw), len(packed)


def gunzipped(path):
    return spread(PLANES[path.suffix], gzip.decompress(path.read_bytes()))


def spread(planes, raw):
    out, at = bytearray(len(raw)), 0
    for i in range(planes):
        n = len(range(i, len(raw), planes))
        out[i::planes] = raw[at:at + n]
        at += n
    return bytes(out)


def unpack(path):
    packed = path.stat().st_size
    if path.suffix == ".same":
        raw = gunzipped(HERE / path.read_text().strip())
    elif path.suffix == ".near":
        place, difference = path.read_bytes().split(b"\n", 1)
        raw = bytes(a ^ b for a, b in zip(spread(4, gzip.decompress(difference)), gunzipped(HERE / place.decode()), strict=True))
    elif path.suffix in (".zst", ".bpe"):
        raw = subprocess.run(["zstd", "-dc"], input=path.read_bytes(), capture_output=True, check=True).stdout
        raw = with_merged(raw) if path.suffix == ".bpe" else raw
    else:
        raw = gunzipped(path)
    path.with_suffix("").write_bytes(raw)
    return packed, len(raw)


def main():
    if sys.argv[1:] not in ([], ["--unpack"]):
        sys.exit(__doc__)
    if sys.argv[1:]:
        files = [p for p in sorted(HERE.rglob("*")) if p.suffix in (*PLANES, ".zst", ".bpe", ".same", ".near") and p.with_suffix("").suffix in LEAST]
        files = [p for p in files if "tokenizers" not in p.parts or str(p.relative_to(HERE).with_suffix("")) in ZSTD + BPE]
        done = [unpack(p) for p in files]  # all of them, before any is removed: a copy is read from the file that it names
        for p in files:
            p.unlink()
    else:
        firsts = {}
        done = [pack(p, firsts) for p in sorted(HERE.rglob("*")) if wanted(p)]
    print(len(done), "files:", sum(a for a, _ in done), "bytes before,", sum(b for _, b in done), "after")


if __name__ == "__main__":
    main()
