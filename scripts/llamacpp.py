"""llama.cpp's library as the Python package xllamacpp carries it, by its C interface (ctypes): what the checks of exports ask of it.

TRAINER_LLAMACPP may name another library (libllama.so with its ggml libraries beside it).
"""
import ctypes
import os
import struct

import numpy as np


def library():
    path = os.environ.get("TRAINER_LLAMACPP")
    if path:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    import xllamacpp
    return ctypes.CDLL(xllamacpp.xllamacpp.__file__, mode=ctypes.RTLD_GLOBAL)


class Opaque(ctypes.Structure):
    """Parameters by value. Larger than the library's, which reads the beginning."""
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]

    def u32(self, at):
        return struct.unpack_from("<i", bytes(self.bytes), at)[0]

    def put(self, at, value):
        struct.pack_into("<i", self.bytes, at, value)


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p), ("pos", ctypes.POINTER(ctypes.c_int32)),
                ("n_seq_id", ctypes.POINTER(ctypes.c_int32)), ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class Llama:
    """A model and a context in float32 without flash attention: the closest to what float32 says elsewhere."""

    def __init__(self, path, n_ctx=512, lora=None, exact=True, threads=1):
        self.lib = lib = library()
        self.log = []
        self._log = LOG(lambda level, text, _: self.log.append(text.decode("utf-8", "replace")))
        lib.llama_log_set.argtypes = [LOG, ctypes.c_void_p]
        lib.llama_log_set(self._log, None)
        for name, result, args in [
            ("llama_backend_init", None, []),
            ("llama_model_default_params", Opaque, []), ("llama_context_default_params", Opaque, []),
            ("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Opaque]),
            ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Opaque]),
            ("llama_model_get_vocab", ctypes.c_void_p, [ctypes.c_void_p]), ("llama_vocab_n_tokens", ctypes.c_int32, [ctypes.c_void_p]),
            ("llama_tokenize", ctypes.c_int32, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]),
            ("llama_detokenize", ctypes.c_int32, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_char_p, ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]),
            ("llama_batch_init", Batch, [ctypes.c_int32] * 3), ("llama_decode", ctypes.c_int32, [ctypes.c_void_p, Batch]), ("llama_batch_free", None, [Batch]),
            ("llama_get_logits", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p]), ("llama_get_memory", ctypes.c_void_p, [ctypes.c_void_p]),
            ("llama_memory_clear", None, [ctypes.c_void_p, ctypes.c_bool]), ("llama_free", None, [ctypes.c_void_p]), ("llama_model_free", None, [ctypes.c_void_p]),
            ("llama_adapter_lora_init", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
            ("llama_set_adapters_lora", ctypes.c_int32, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.POINTER(ctypes.c_float)]),
            ("llama_vocab_is_eog", ctypes.c_bool, [ctypes.c_void_p, ctypes.c_int32]),
        ]:
            f = getattr(lib, name)
            f.restype, f.argtypes = result, args
        lib.llama_backend_init()
        p = lib.llama_model_default_params()
        self.model = lib.llama_model_load_from_file(os.fsencode(path), p)
        if not self.model:
            raise RuntimeError("llama.cpp does not load %s: %s" % (path, "".join(self.log)[-2000:]))
        self.vocab = lib.llama_model_get_vocab(self.model)
        p = lib.llama_context_default_params()
        if [p.u32(i) for i in (0, 4, 8, 12, 104, 108)] != [512, 2048, 512, 1, 1, 1]:
            raise RuntimeError("the layout of llama_context_params changed: adapt scripts/llamacpp.py")
        for at, value in [(0, n_ctx), (4, n_ctx), (8, n_ctx), (20, 0), (24, 0), (28, threads), (32, threads)]:
            p.put(at, value)
        if exact:
            for at, value in [(52, 0), (104, 0), (108, 0)]:  # no flash attention, keys and values in F32
                p.put(at, value)
        self.n_ctx = n_ctx
        self.ctx = lib.llama_init_from_model(self.model, p)
        if not self.ctx:
            raise RuntimeError("no context: " + "".join(self.log)[-2000:])
        if lora:
            a = lib.llama_adapter_lora_init(self.model, os.fsencode(lora))
            if not a:
                raise RuntimeError("llama.cpp does not load the adapter %s: %s" % (lora, "".join(self.log)[-2000:]))
            if lib.llama_set_adapters_lora(self.ctx, (ctypes.c_void_p * 1)(a), 1, (ctypes.c_float * 1)(1.0)) != 0:
                raise RuntimeError("the adapter is not taken")

    def close(self):
        self.lib.llama_free(self.ctx)
        self.lib.llama_model_free(self.model)

    def n_vocab(self):
        return self.lib.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text, special=False, parse=True):
        raw = text.encode()
        out = (ctypes.c_int32 * (len(raw) + 16))()
        n = self.lib.llama_tokenize(self.vocab, raw, len(raw), out, len(out), special, parse)
        return list(out[:n])

    def detokenize(self, ids, special=True):
        out = ctypes.create_string_buffer(64 * len(ids) + 64)
        n = self.lib.llama_detokenize(self.vocab, (ctypes.c_int32 * len(ids))(*ids), len(ids), out, len(out), False, special)
        return out.raw[:max(n, 0)].decode("utf-8", "replace")

    def decode(self, ids, at=0):
        """Logits of every id, which stand behind `at` ids that were given before."""
        b = self.lib.llama_batch_init(len(ids), 0, 1)
        b.n_tokens = len(ids)
        for i, t in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = t, at + i, 1, 1
            b.seq_id[i][0] = 0
        if self.lib.llama_decode(self.ctx, b) != 0:
            raise RuntimeError("llama_decode fails: " + "".join(self.log)[-500:])
        self.lib.llama_batch_free(b)
        return np.ctypeslib.as_array(self.lib.llama_get_logits(self.ctx), (len(ids), self.n_vocab())).copy()

    def logits(self, ids):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.ctx), True)
        return self.decode(list(ids))

    def greedy(self, ids, n):
        """The next n ids, and how far the best logit led at each."""
        row, new, leads = self.logits(ids)[-1], [], []
        for k in range(n):
            top = np.partition(row, -2)[-2:]
            new.append(int(row.argmax()))
            leads.append(float(top[1] - top[0]))
            if k + 1 < n:
                row = self.decode([new[-1]], len(ids) + k)[0]
        return new, leads


def nll(logits, ids):
    """The sum of the negative log-likelihoods of ids[1:]."""
    x = logits[:-1].astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return float((np.log(np.exp(x).sum(-1)) - x[np.arange(len(ids) - 1), ids[1:]]).sum())
