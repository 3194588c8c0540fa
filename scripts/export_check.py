#!/usr/bin/env python3
"""Exports are loaded by llama.cpp itself and compared: ids of texts, greedy texts, perplexity, bytes of quantised tensors, an adapter,
and small models of every family against transformers.

    python3 scripts/export_check.py --trainer ./trainer --model DIR --adapter DIR --text FILE

DIR is SmolLM2-135M-Instruct, the adapter one of it. It needs the packages xllamacpp, gguf, tokenizers, transformers and torch. With
TRAINER_LLAMACPP_QUANTIZE=libllama.so (built with its ggml libraries beside it) files are compared with llama.cpp's own quantiser too.
"""
import argparse
import ctypes
import glob
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import llamacpp

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
failed = []


def check(ok, text):
    print(("ok    " if ok else "FAIL  ") + text, flush=True)
    if not ok:
        failed.append(text)


def trainer(*args):
    r = subprocess.run([options.trainer, *args], capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr.strip())
    return r.stdout


def export(out, model, dtype, adapter=None, format="gguf"):
    args = ["export", "--format", format, "--model", model, "--out", out, "--dtype", dtype, "--json"]
    return json.loads(trainer(*args, *(["--adapter", adapter] if adapter else [])))


def texts():
    """200 texts: languages, code, emoji, spaces, digits, special tokens, bytes of every kind of character."""
    words = ["hello", "Hello World", " leading", "trailing ", "two  spaces", "a\tb", "a\nb", "\n\n\n", " ", "  ", "\r\n", "I'm you're WE'LL", "3.14159", "1234567890",
             "naïve café", "Ελληνικά", "русский текст", "日本語のテキスト", "한국어 문장", "العربية", "עברית", "हिन्दी", "ไทย", "中文字符，标点。", "🚀", "👩‍👩‍👧‍👦 family", "🏳️‍🌈🇩🇪", "e\u0301",
             "\u200b\u200d", "\ufeffbom", "ﬁ ligature", "½ ⅓ ²", "x = [i**2 for i in range(10)]", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }", "SELECT * FROM t WHERE x <> 'y';",
             "<div class=\"a\">b</div>", "{\"k\": [1, 2.5, null]}", "http://example.org/a?b=c&d=%20", "#include <stdio.h>", "\\frac{a}{b} \\alpha", "$100.00 €5 £3 ¥7", "a_b-c.d/e\\f",
             "<|im_start|>user\nHi<|im_end|>\n", "<|endoftext|>", "a<|im_end|>b", "<|im_start|><|im_start|>", "<s>x</s>", "AaBbCc", "ALLCAPS", "ßẞ", "İı", "\U0001F600" * 5, "😀 😀", "---===***", "!!!???...",
             "\u0001\u0002", "\u00a0nbsp", "tab\t\ttab", "\u2028line", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "𐍈", "a" * 100, "ab " * 40, "9" * 50, "The quick brown fox jumps over the lazy dog."]
    rng = np.random.default_rng(7)
    out = list(words)
    while len(out) < 200:
        out.append("".join(str(words[i]) + [" ", "\n", "", "  "][j] for i, j in zip(rng.integers(0, len(words), 6), rng.integers(0, 4, 6))))
    return out[:200]


def tokens(path, folder):
    from tokenizers import Tokenizer
    own, m, wrong = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), llamacpp.Llama(path), []
    own.no_truncation()
    for t in texts():
        for special in (False, True):
            if m.tokenize(t, special) != own.encode(t, add_special_tokens=special).ids:
                wrong.append(t)
    m.close()
    check(not wrong, "%s: ids of 200 texts, with and without special tokens: %d differ %s" % (os.path.basename(folder), len(wrong), wrong[:3]))


def perplexity(m, rows):
    total = sum(llamacpp.nll(m.logits(r), np.array(r)) for r in rows)
    return math.exp(total / sum(len(r) - 1 for r in rows))


def ours(model, rows, work):
    data, config = os.path.join(work, "rows.jsonl"), os.path.join(work, "eval.yaml")
    with open(data, "w") as f:
        for r in rows:
            f.write(json.dumps({"input_ids": r, "labels": r}) + "\n")
    with open(config, "w") as f:
        f.write("base_model: %s\nadapter: lora\nlora: {r: 8, alpha: 16}\ndataset: {path: %s, format: tokenized, max_length: 512}\noutput_dir: %s/run\ndevice: cpu\n" % (model, data, work))
    return json.loads(trainer("eval", config, "--json"))["perplexity"]


def real(work):
    model, files = options.model, {}
    for dtype in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m"):
        files[dtype] = os.path.join(work, dtype + ".gguf")
        r = export(files[dtype], model, dtype)
        print("      %-6s %d bytes, %s" % (dtype, r["bytes"], "; ".join("%s %d tensors, error %.3g %%" % (t["type"], t["tensors"], 100 * t["error"]) for t in r["types"])))
    tokens(files["f16"], model)
    prompts = ["The capital of France is", "def fibonacci(n):\n", "Once upon a time there was", "Water boils at", "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"]
    m = llamacpp.Llama(files["f16"])
    for p in prompts:
        want = json.loads(trainer("generate", "--model", model, "--prompt", p, "--max-tokens", "64", "--device", "cpu", "--json"))["ids"]
        got, leads = m.greedy(m.tokenize(p, True), 64)
        n = next((i for i in range(len(want)) if got[i] != want[i]), None)
        where = "equal" if n is None else "differs at token %d, where the best logit leads by %.2g" % (n, leads[n])
        check(n is None or leads[n] < 5e-3, "F16, greedy %d ids after %r: %s (least lead %.3g)" % (len(want), p[:24], where, min(leads)))
    ids = m.tokenize(open(options.text).read()[:40000], False)
    rows = [ids[i:i + 512] for i in range(0, 512 * 8, 512)]
    base = ours(model, rows, work)
    print("      perplexity of trainer eval, float32, %d tokens: %.5f" % (sum(len(r) - 1 for r in rows), base))
    m.close()
    values = {}
    for dtype, path in files.items():
        m = llamacpp.Llama(path)
        values[dtype] = perplexity(m, rows)
        print("      perplexity %-6s %.5f, %+.4f %%" % (dtype, values[dtype], 100 * (values[dtype] / base - 1)))
        m.close()
    check(abs(values["f32"] / base - 1) < 1e-4, "perplexity in F32 is trainer's")
    check(abs(values["f16"] / base - 1) < 1e-3, "perplexity in F16 is trainer's")
    check(abs(values["q8_0"] / base - 1) < 5e-3, "perplexity in Q8_0 within 0.5 %")
    same_bytes(files)
    own_quantiser(files, rows, work)
    lora(work)
    for path in files.values():
        os.remove(path)


def same_bytes(files):
    """Each quantised tensor against ggml's reference quantisation of the F32 file's."""
    from gguf import GGUFReader
    f = llamacpp.library().ggml_quantize_chunk
    f.restype, f.argtypes = ctypes.c_size_t, [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    source = {t.name: t for t in GGUFReader(files["f32"]).tensors}
    for dtype in ("q8_0", "q4_0", "q4_k_m"):
        wrong = total = 0
        for t in GGUFReader(files[dtype]).tensors:
            x = np.ascontiguousarray(source[t.name].data, dtype=np.float32)
            out = np.zeros(t.data.nbytes, np.uint8)
            if t.tensor_type.name == "F32":
                out = x.view(np.uint8).ravel()
            else:
                f(int(t.tensor_type), x.ctypes.data, out.ctypes.data, 0, x.size // int(t.shape[0]), int(t.shape[0]), None)
            total += out.size
            wrong += int((np.asarray(t.data).view(np.uint8).ravel() != out).sum())
        check(wrong == 0, "%s: %d of %d bytes differ from ggml_quantize_chunk" % (dtype, wrong, total))


def own_quantiser(files, rows, work):
    path = os.environ.get("TRAINER_LLAMACPP_QUANTIZE")
    if not path:
        print("      TRAINER_LLAMACPP_QUANTIZE is not set: not compared with llama_model_quantize")
        return
    program = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from llamacpp import Opaque
for l in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
    ctypes.CDLL(os.path.join(os.path.dirname(sys.argv[2]), l), mode=ctypes.RTLD_GLOBAL)
lib = ctypes.CDLL(sys.argv[2])
lib.llama_model_quantize_default_params.restype = Opaque
p = lib.llama_model_quantize_default_params()
p.put(0, 2); p.put(4, int(sys.argv[5]))
sys.exit(lib.llama_model_quantize(sys.argv[3].encode(), sys.argv[4].encode(), ctypes.byref(p)))
"""
    from gguf import GGUFReader
    out = os.path.join(work, "reference.gguf")
    for dtype, number in (("q8_0", 7), ("q4_0", 2), ("q4_k_m", 15)):
        if dtype not in files:
            continue
        subprocess.run([sys.executable, "-c", program, os.path.dirname(os.path.abspath(__file__)), path, files["f32"], out, str(number)], check=True, capture_output=True)
        a, b = ({t.name: t for t in GGUFReader(p).tensors} for p in (files[dtype], out))
        types = [n for n in a if n not in b or a[n].tensor_type != b[n].tensor_type]
        other = [n for n in a if n not in types and not np.array_equal(np.asarray(a[n].data), np.asarray(b[n].data))]
        check(a.keys() == b.keys() and not types and not other, "%s: against llama.cpp's own file: %d tensors, %d of another type %s, %d with other bytes %s"
              % (dtype, len(a), len(types), types[:3], len(other), other[:3]))
        if dtype == "q4_k_m" and rows:
            m = llamacpp.Llama(out)
            print("      perplexity of llama.cpp's own Q4_K_M: %.5f" % perplexity(m, rows))
            m.close()
        os.remove(out)


def lora(work):
    base, adapter, merged = (os.path.join(work, n + ".gguf") for n in ("base", "adapter", "merged"))
    export(base, options.model, "f16")
    export(adapter, options.model, "f32", options.adapter, "gguf-lora")
    export(merged, options.model, "f16", options.adapter)
    a, b, plain = llamacpp.Llama(base, lora=adapter), llamacpp.Llama(merged), llamacpp.Llama(base)
    for p in ("How many rows have a value above 3?", "The capital of France is"):
        ids = a.tokenize(p, True)
        (x, leads), (y, _), (z, _) = a.greedy(ids, 48), b.greedy(ids, 48), plain.greedy(ids, 48)
        n = next((i for i in range(48) if x[i] != y[i]), None)
        check(n is None or leads[n] < 2e-2, "adapter as GGUF against the merged model after %r: %s; the base alone %s; logits differ by %.2g of %.2g" % (
            p[:20], "48 ids equal" if n is None else "differs at %d, lead %.2g" % (n, leads[n]), "differs" if z != x else "says the same",
            np.abs(a.logits(ids) - b.logits(ids)).max(), np.abs(b.logits(ids)).max()))
    for m in (a, b, plain):
        m.close()
    for p in (base, adapter, merged):
        os.remove(p)


# What makes some of the repository's small models ones that llama.cpp computes; others must be refused, or noted.
EDITS = {"gemma2": lambda c: c.update(query_pre_attn_scalar=c["head_dim"]), "gemma3_text": lambda c: c.update(query_pre_attn_scalar=c["head_dim"]),
         "mistral": lambda c: c.update(sliding_window=None),
         "smollm3": lambda c: c.update(no_rope_layers=[int((i + 1) % 4 != 0) for i in range(c["num_hidden_layers"])])}


def as_ggml(hf):
    """ggml looks GELU up in a table of float16: it is rounded before and after, but for what is beyond 10."""
    import torch

    class Table(torch.nn.Module):
        def forward(self, x):
            y = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
            return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, y))

    for m in hf.modules():
        if hasattr(m, "act_fn"):
            m.act_fn = Table()
    return hf


def small(config):
    """Compares one of the repository's small models."""
    folder, name = os.path.dirname(config), os.path.basename(config)[:-len(".config.json")]
    weights = os.path.join(folder, json.load(open(os.path.join(folder, "models.json"))).get(name, name) + ".safetensors")
    with tempfile.TemporaryDirectory() as d:
        c = json.load(open(config))
        text = c.get("text_config", c)
        EDITS.get(text["model_type"], lambda c: None)(text)
        json.dump(c, open(os.path.join(d, "config.json"), "w"))
        shutil.copy(weights, os.path.join(d, "model.safetensors"))
        compare(d, name, text)


def compare(d, name, text):
    import torch
    import transformers
    out = os.path.join(d, "m.gguf")
    try:
        r = export(out, d, "f32")
    except RuntimeError as e:
        print("      %-20s refused: %s" % (name, str(e).split("gguf: ")[-1][:160]))
        return
    notes = [n for n in r["notes"] if "no tokenizer" not in n]
    original = (text.get("rope_scaling") or {}).get("original_max_position_embeddings") or text.get("original_max_position_embeddings")
    length = 40
    if any("longrope" in n for n in notes) and original >= length:
        length = 32  # a context no longer than the original, so that llama.cpp takes the short factors as transformers does
    m = llamacpp.Llama(out, n_ctx=32 if length < 40 else 128)
    ids = np.random.default_rng(1).integers(0, min(text.get("vocab_size", 512), m.n_vocab()), length)
    kind = json.load(open(os.path.join(d, "config.json")))["architectures"][0]
    hf = getattr(transformers, kind).from_pretrained(d, dtype=torch.float32, attn_implementation="eager").float().eval()
    if "gemma" in text["model_type"]:
        as_ggml(hf)
    with torch.no_grad():
        want = hf(torch.tensor(ids)[None]).logits[0].numpy()
    got = m.logits(ids.tolist())[:, :want.shape[1]]
    off = float(np.abs(got - want).max())
    limit = 1e-3 if "gemma" in text["model_type"] else 1e-4  # float32's errors choose another row of that table
    differs = [n for n in notes if "window" in n or "dynamic" in n or "longrope" in n]
    check(off < limit or bool(differs), "%-20s logits off by %.2g of %.3g%s" % (name, off, np.abs(want).max(), "; noted: " + differs[0] if differs and off >= limit else ""))


def families():
    for config in sorted(glob.glob(os.path.join(ROOT, "internal/golden/testdata/*/*.config.json"))):
        if not os.path.exists(os.path.join(os.path.dirname(config), "models.json")) or "mxfp4" in config:
            continue
        small(config)
    for kind in ("olmo2", "mixtral8", "wide", "ernie4_5"):
        made(kind)
    for kind in ("Llama", "Mistral", "Mixtral", "Granite"):
        longrope(kind)
    for kind in ("Qwen3_5", "Qwen3_5Moe"):
        linear_attention(kind)
    for kind in ("Gemma4", "Gemma4Unified"):
        gemma4(kind)


def exported(model):
    """By how much llama.cpp's logits of a model's file are off over 200 tokens, the last 50 one by one, and the largest logit."""
    import torch
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        out = os.path.join(d, "m.gguf")
        export(out, d, "f32")
        ids = np.random.default_rng(1).integers(3, 128, 200)
        with torch.no_grad():
            want = model(torch.tensor(ids)[None], use_cache=False).logits[0].numpy()
        m = llamacpp.Llama(out)
        got = m.logits(ids[:150].tolist())
        got = np.concatenate([got] + [m.decode([int(ids[i])], i) for i in range(150, 200)])[:, :128]
        m.close()
        return np.abs(got - want), float(np.abs(want).max())


def linear_attention(kind):
    """Two key heads for six value heads, with attention in the third layer alone, and tokens one by one behind a text."""
    import torch
    import transformers
    if not hasattr(transformers, kind + "TextConfig"):
        print("      %-20s transformers %s does not know it" % (kind, transformers.__version__))
        return
    torch.manual_seed(5)
    more = dict(moe_intermediate_size=48, shared_expert_intermediate_size=32, num_experts=6, num_experts_per_tok=2) if "Moe" in kind else {}
    config = getattr(transformers, kind + "TextConfig")(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=5, full_attention_interval=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=32, linear_value_head_dim=32, max_position_embeddings=512, **more)
    model = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) * (0.25 if p.dim() == 2 else 0.6))
    off, largest = exported(model)
    check(off.max() < 5e-4, "%-20s logits off by %.2g of %.3g" % (kind, off.max(), largest))


def gemma4(kind):
    """Windows, heads of two sizes, and layers that share keys and values, with inputs of their own, or values that are keys."""
    import torch
    import transformers
    if not hasattr(transformers, kind + "TextConfig"):
        print("      %-20s transformers %s does not know it" % (kind, transformers.__version__))
        return
    window, full = "sliding_attention", "full_attention"
    torch.manual_seed(6)
    more = dict(layer_types=[window, window, full, window, full], num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=16, vocab_size_per_layer_input=160)
    if kind == "Gemma4Unified":
        more = dict(layer_types=[window] * 4 + [full], attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=30.0)
    config = getattr(transformers, kind + "TextConfig")(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2, head_dim=16, global_head_dim=32, sliding_window=24,
        max_position_embeddings=512, rope_parameters={window: dict(rope_type="default", rope_theta=1e4), full: dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1e6)}, **more)
    model = as_ggml(getattr(transformers, kind + "ForCausalLM")(config).float().eval())
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.25 + (p.dim() == 1) * (0.5 if "q_norm" in name else 1))
        for i, layer in enumerate(model.model.layers):
            layer.layer_scalar.fill_([0.75, 1.25][i % 2])
    off, largest = exported(model)
    check(off.max() < 1e-2 and np.median(off) < 5e-4, "%-20s logits off by %.2g, in the median by %.2g, of %.3g" % (kind, off.max(), np.median(off), largest))


def longrope(kind):
    """Factors of short and long texts, on both sides of the original length: llama.cpp chooses by its context, which is in steps of 256."""
    import torch
    import transformers
    torch.manual_seed(4)
    scaling = dict(rope_type="longrope", short_factor=[1 + i / 8 for i in range(8)], long_factor=[1 + i / 2 for i in range(8)], attention_factor=1.25)
    config = getattr(transformers, kind + "Config")(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                                                     max_position_embeddings=1024, original_max_position_embeddings=256, sliding_window=None, rope_scaling=scaling)
    if kind == "Granite":
        del config.head_dim, config.sliding_window
    model = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.1)
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        out = os.path.join(d, "m.gguf")
        export(out, d, "f32")
        for length, context in ((200, 256), (400, 512)):
            ids = np.random.default_rng(1).integers(3, 128, length)
            with torch.no_grad():
                want = model(torch.tensor(ids)[None], use_cache=False).logits[0].numpy()
            m = llamacpp.Llama(out, n_ctx=context)
            got = m.logits(ids.tolist())[:, :want.shape[1]]
            m.close()
            off = float(np.abs(got - want).max())
            check(off < 1e-4, "%-20s logits of %d tokens off by %.2g of %.3g" % (kind + " longrope", length, off, np.abs(want).max()))


def made(kind):
    """Small random models of kinds that the repository has none of: llama.cpp's OLMo 2, and rows of 256 for its mix of types."""
    import torch
    from transformers import Ernie4_5Config, Ernie4_5ForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM
    torch.manual_seed(3)
    size = dict(vocab_size=512, hidden_size=256, intermediate_size=512, num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=256)
    c, m = {"olmo2": (Olmo2Config, Olmo2ForCausalLM), "mixtral8": (MixtralConfig, MixtralForCausalLM), "wide": (LlamaConfig, LlamaForCausalLM),
            "ernie4_5": (Ernie4_5Config, Ernie4_5ForCausalLM)}[kind]
    more = {"mixtral8": dict(num_local_experts=8, num_experts_per_tok=2, sliding_window=None)}.get(kind, {})
    with tempfile.TemporaryDirectory() as d:
        config = c(num_hidden_layers=16 if kind == "wide" else 8, **size, **more)
        m(config).float().save_pretrained(d)
        compare(d, kind, json.load(open(os.path.join(d, "config.json"))))
        files = {t: os.path.join(d, t + ".gguf") for t in ("f32", "q4_0", "q4_k_m", "q8_0")}
        for t, path in files.items():
            export(path, d, t)
        same_bytes(files)
        own_quantiser(files, None, d)


parser = argparse.ArgumentParser()
parser.add_argument("--trainer", required=True)
parser.add_argument("--model")
parser.add_argument("--adapter")
parser.add_argument("--text")
options = parser.parse_args()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if options.model:
            real(folder)
    families()
    print("%d checks failed" % len(failed))
    sys.exit(1 if failed else 0)
