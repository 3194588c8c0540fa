"""Writes quant/testdata/nf4.safetensors.gz, bitsandbytes' numbers for tests of NF4, from the whole set.

    python3 internal/golden/pack_nf4.py SET

SET is a folder with nf4/nf4.safetensors. A dequantised tensor NAME becomes NAME.sha256, the digest of its bytes: the tests compare every bit
of it, and a digest proves that as well in 32 bytes as in 120 KB. The int8 cases, which no test of this file reads, are left out.
So are inputs that a test makes again: weights of stories260K, and a float32 input rounded to bfloat16 or float16.
"""
import hashlib
import json
import pathlib
import struct
import sys

from pack import gzipped

STORIES = pathlib.Path(__file__).parents[2] / "configs" / "assets" / "stories260K" / "model.safetensors"
OUT = pathlib.Path(__file__).parents[2] / "quant" / "testdata" / "nf4.safetensors.gz"


def tensors(path):
    raw = path.read_bytes()
    n, = struct.unpack("<Q", raw[:8])
    for name, entry in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["dtype"], entry["shape"], raw[8 + n + begin:8 + n + end]


def made_again(name, data, given, stories):
    """Whether the tensor is an input that a test makes from a float32 input of given or from the stories' weights."""
    case, _, rest = name.rpartition(".input")
    if rest or not case:
        return False
    if case.startswith("model."):
        assert stories[name] == data, name
        return True
    case, _, dtype = case.rpartition(".")
    if dtype == "float32":
        return False
    first = given[case + ".float32.input"]
    if dtype == "float16":
        rounded = struct.pack(f"<{len(first) // 4}e", *struct.unpack(f"<{len(first) // 4}f", first))
    else:
        bits = struct.unpack(f"<{len(first) // 4}I", first)
        rounded = struct.pack(f"<{len(bits)}H", *((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits))
    assert rounded == data, name
    return True


def main(source):
    header, body = {}, b""
    whole = list(tensors(source / "nf4" / "nf4.safetensors"))
    given = {name: data for name, _, _, data in whole}
    stories = {name + ".float32.input": data for name, _, _, data in tensors(STORIES)}
    for name, dtype, shape, data in whole:
        if name.startswith("int8.") or made_again(name, data, given, stories):
            continue
        if name.endswith("dequantised"):
            name, dtype, shape, data = name + ".sha256", "U8", [32], hashlib.sha256(data).digest()
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[len(body), len(body) + len(data)])
        body += data
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    OUT.write_bytes(gzipped(struct.pack("<Q", len(head)) + head + body, 1))
    print(OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
