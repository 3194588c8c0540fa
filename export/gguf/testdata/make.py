"""Writes quants.json.gz beside it: numbers, and what ggml's reference quantisers make of them (package xllamacpp).

    python3 export/gguf/testdata/make.py
"""
import base64
import ctypes
import gzip
import hashlib
import json
import os
import sys

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "..", "scripts"))
import llamacpp

TYPES = {"Q4_0": 2, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
lib = llamacpp.library()
lib.ggml_quantize_chunk.restype = ctypes.c_size_t
lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
r = np.random.default_rng(5)
x = np.concatenate([r.normal(0, 0.02, 256), r.normal(0.5, 0.1, 256), r.standard_t(2, 256), np.zeros(256), np.abs(r.normal(0, 1e-6, 256)),
                    np.where(np.arange(256) % 64 == 0, 3.0, 0), r.normal(0, 1, 256) * (np.arange(256) // 32), np.full(256, -0.25)]).astype(np.float32)
out = {"numbers": base64.b64encode(x.tobytes()).decode(), "types": {}}
for name, number in TYPES.items():
    y = np.zeros(x.size * 4, np.uint8)
    n = lib.ggml_quantize_chunk(number, x.ctypes.data, y.ctypes.data, 0, 1, x.size, None)
    y = y[:n].copy()
    back = np.zeros_like(x)
    f = getattr(lib, "dequantize_row_" + name.replace("Q", "q"))
    f.restype, f.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    f(y.ctypes.data, back.ctypes.data, x.size)
    out["types"][name] = {"bytes": base64.b64encode(y.tobytes()).decode(), "back_sha256": hashlib.sha256((back + 0.0).tobytes()).hexdigest()}
with open(os.path.join(here, "quants.json.gz"), "wb") as f:
    f.write(gzip.compress(json.dumps(out, indent=1).encode(), 9, mtime=0))
