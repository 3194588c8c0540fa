#!/usr/bin/env python3
"""Makes testdata/prequantised: model folders that transformers and bitsandbytes saved with quantised weights, what they
compute, bytes of bitsandbytes' CPU functions for FP4 and int8, and MXFP4 blocks with what transformers makes of them.

    python internal/golden/make_prequantised.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, accelerate 1.12.0, bitsandbytes 0.49.2 on a CPU; needs neither network nor GPU.
"""
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

import make_families

# name: what BitsAndBytesConfig is given
FOLDERS = {
    "nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "nf4_nested": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype="bfloat16"),
    "fp4": dict(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "fp4_nested": dict(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=True),
    # as Unsloth's dynamic quantisations: some layers stay in 16 bits
    "nf4_dynamic": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                        llm_int8_skip_modules=["lm_head", "model.layers.0.mlp.up_proj", "model.layers.0.self_attn"]),
    "int8": dict(load_in_8bit=True),
}
# 258 blocks of 64 in the MLP: their scales fill more than one block of 256
EXTRA = dict(num_hidden_layers=1, intermediate_size=516, tie_word_embeddings=False)


def folders(out):
    """One llama in bf16, saved quantised in every way; logits of the dequantised weights in float32."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaForCausalLM
    config, m = make_families.build("llama", EXTRA, seed=3)
    config.dtype = torch.bfloat16
    m = m.bfloat16()
    ids = torch.randint(0, make_families.VOCAB, (1, make_families.T), generator=torch.Generator().manual_seed(7))
    result = {"ids": ids[0].to(torch.int32)}
    with tempfile.TemporaryDirectory() as tmp:
        m.save_pretrained(tmp)
        original = load_file(tmp + "/model.safetensors")
        keep(tmp, out / "original")
        for name, options in FOLDERS.items():
            dtype = torch.float16 if "load_in_8bit" in options else torch.bfloat16
            q = AutoModelForCausalLM.from_pretrained(tmp, quantization_config=BitsAndBytesConfig(**options), dtype=dtype, device_map={"": "cpu"})
            with tempfile.TemporaryDirectory() as saved:
                q.save_pretrained(saved)
                keep(saved, out / name)
            plain = LlamaForCausalLM(config).float().eval()
            state = {k: v.to(dtype).float() for k, v in original.items()} | dequantised(q)
            plain.load_state_dict(state)
            with torch.no_grad():
                result[name + ".logits"] = plain(input_ids=ids).logits[0].contiguous()
            print(name, "logits within", float(result[name + ".logits"].abs().max()))
    save_file(result, str(out / "logits.safetensors"))


def dequantised(model):
    """The weights that the model's quantised ones stand for, by bitsandbytes' own functions, in float32."""
    import bitsandbytes as bnb
    weights = {}
    for name, mod in model.named_modules():
        if isinstance(mod, bnb.nn.Linear4bit):
            weights[name + ".weight"] = dequantise_4bit(mod.weight.data, mod.weight.quant_state)
        elif isinstance(mod, bnb.nn.Linear8bitLt):
            scb = mod.weight.SCB if mod.weight.SCB is not None else mod.state.SCB
            weights[name + ".weight"] = bnb.functional.int8_vectorwise_dequant(mod.weight.data, scb)
    return weights


def dequantise_4bit(q, state):
    """In float32, as one row: bitsandbytes' CPU code takes the scales of other blocks where a row is no multiple of 64 long."""
    import bitsandbytes.functional as F
    shape, state.dtype, state.shape = state.shape, torch.float32, torch.Size((1, state.shape.numel()))
    return F.dequantize_4bit(q, state).reshape(shape)


def keep(src, dst):
    dst.mkdir(parents=True, exist_ok=True)
    raw = json.loads(pathlib.Path(src, "config.json").read_text())
    raw.pop("_name_or_path", None)
    for key in (raw.get("quantization_config") or {}).values():
        if isinstance(key, list):
            key.sort()
    (dst / "config.json").write_text(json.dumps(raw, indent=1, sort_keys=True) + "\n")
    shutil.copy(pathlib.Path(src, "model.safetensors"), dst / "model.safetensors")


def inputs():
    """Matrices for the functions: normal ones, blocks of zeros, single values, numbers between two codes, tiny ones."""
    g = torch.Generator().manual_seed(5)
    normal = torch.randn(6, 160, generator=g) * 0.05
    zeros = normal.clone()
    zeros[:2], zeros[4, :70] = 0, 0
    outlier = normal.clone()
    outlier[::3, 7] = 4.0
    ties = torch.cat([torch.tensor([1.0, -1.0]), torch.linspace(-1, 1, 766)]).reshape(6, 128)
    tiny = normal * 1e-6
    return {"normal": normal, "zeros": zeros, "outlier": outlier, "ties": ties, "tiny": tiny, "bf16": normal.bfloat16(), "f16": normal.half()}


def functions(out):
    import bitsandbytes.functional as F
    result = {"fp4.code": F.get_4bit_type("fp4", device="cpu")}
    for name, x in inputs().items():
        result[name + ".input"] = x.contiguous()
        q, s = F.quantize_4bit(x.clone(), blocksize=64, quant_type="fp4")
        result |= {name + ".fp4.packed": q.reshape(-1), name + ".fp4.absmax": s.absmax, name + ".fp4.dequantised": dequantise_4bit(q, s)}
        q, s = F.quantize_4bit(x.clone(), blocksize=64, quant_type="fp4", compress_statistics=True)
        result |= {name + ".fp4.nested.absmax_u8": s.absmax.clone(), name + ".fp4.nested.absmax2": s.state2.absmax, name + ".fp4.nested.offset": s.offset.reshape(1)}
        cb, scb, _ = F.int8_vectorwise_quant(x.half())
        result |= {name + ".int8.cb": cb, name + ".int8.scb": scb, name + ".int8.dequantised": F.int8_vectorwise_dequant(cb, scb)}
    save_file({k: v.contiguous() for k, v in result.items()}, str(out / "functions.safetensors"))


def mxfp4(out):
    """Every code with every scale but NaN, and experts as gpt-oss has them: [experts, rows, blocks, 16]."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    g = torch.Generator().manual_seed(9)
    blocks = torch.randint(0, 256, (2, 6, 3, 16), generator=g, dtype=torch.uint8)
    scales = torch.randint(110, 135, (2, 6, 3), generator=g, dtype=torch.uint8)
    codes = torch.arange(16, dtype=torch.uint8)
    every = (codes | codes.flip(0) << 4).repeat(1, 254, 1, 1).reshape(1, 254, 1, 16)
    powers = torch.arange(254, dtype=torch.uint8).reshape(1, 254, 1)
    save_file({"blocks": blocks, "scales": scales, "weights": convert_moe_packed_tensors(blocks, scales),
               "every.blocks": every, "every.scales": powers, "every.weights": convert_moe_packed_tensors(every, powers)},
              str(out / "mxfp4.safetensors"))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "testdata" / "prequantised"
    out.mkdir(parents=True, exist_ok=True)
    functions(out)
    mxfp4(out)
    folders(out)


if __name__ == "__main__":
    main()
