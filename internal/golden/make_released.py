#!/usr/bin/env python3
"""Writes small linear layers as quantised checkpoints store them, with the numbers that the packages which wrote them make of them.

    make_released.py OUT --compressed-tensors DIR --gptqmodel SOURCE --autoawq SOURCE

DIR has the package compressed_tensors 0.20.0 (with loguru), SOURCE the unpacked sources of gptqmodel 7.7.0 and autoawq 0.2.9, whose
functions are run without the rest of the packages. transformers 5.17 gives FP8 in blocks. OUT gets NAME.safetensors for each format:
a layer's tensors under "x." and the dequantised weight as "want", and configs.json with each quantization_config. ModelOpt's two
formats are by hand from its documented formulas, as the package needs a GPU build.
"""
import argparse
import ast
import json
import sys
import types
from pathlib import Path

import torch
from safetensors.torch import save_file

N, K = 32, 128


def function(path, name, namespace, cls=None):
    """A function of a source file, compiled alone."""
    tree = ast.parse(Path(path).read_text())
    body = tree.body if cls is None else next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == cls).body
    node = next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == name)
    node.decorator_list = []
    exec(compile(ast.Module([node], []), str(path), "exec"), namespace)
    return namespace[name]


def compressed(save):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    def one(name, fmt, args, dtype=torch.bfloat16, scale=None, zero=None, rows=N, **extra):
        torch.manual_seed(len(name))
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args), format=fmt)
        compressor = BaseCompressor.get_value_from_registry(fmt)
        weight = torch.randn(rows, K).to(dtype)
        state = dict(weight=weight, weight_scale=scale(weight), **extra)
        if zero is not None:
            state["weight_zero_point"] = zero(state["weight_scale"])
        packed = compressor.compress(state, scheme)
        want = compressor.decompress(packed, scheme)["weight"]
        config = dict(quant_method="compressed-tensors", format=fmt, ignore=["lm_head"], quantization_status="compressed", kv_cache_scheme=None,
                      config_groups=dict(group_0=json.loads(scheme.model_dump_json())))
        save(name, {"x." + k: v for k, v in packed.items() if v is not None}, want, config)

    groups = lambda w, g, top: (w.float().reshape(w.shape[0], -1, g).abs().amax(-1) / top).to(w.dtype)
    ints = dict(type="int", strategy="group", group_size=32)
    one("pack4", "pack-quantized", dict(ints, num_bits=4, symmetric=True), scale=lambda w: groups(w, 32, 7.5))
    one("pack4_asymmetric", "pack-quantized", dict(ints, num_bits=4, symmetric=False), dtype=torch.float16, scale=lambda w: groups(w, 32, 7.5),
        zero=lambda s: torch.randint(-4, 4, s.shape, dtype=torch.int8))
    one("pack3", "pack-quantized", dict(ints, num_bits=3, symmetric=True), scale=lambda w: groups(w, 32, 3.5))
    one("pack8_channel", "pack-quantized", dict(type="int", strategy="channel", num_bits=8, symmetric=True), scale=lambda w: groups(w, K, 127))
    one("int8", "int-quantized", dict(type="int", strategy="channel", num_bits=8, symmetric=True), scale=lambda w: groups(w, K, 127))
    one("float8_channel", "float-quantized", dict(type="float", strategy="channel", num_bits=8, symmetric=True), scale=lambda w: groups(w, K, 448))
    one("float8_tensor", "float-quantized", dict(type="float", strategy="tensor", num_bits=8, symmetric=True),
        scale=lambda w: (w.float().abs().amax() / 448).reshape(1).to(w.dtype))
    one("float8_block", "float-quantized", dict(type="float", strategy="block", block_structure=[16, 32], num_bits=8, symmetric=True), rows=32,
        scale=lambda w: (w.float().reshape(2, 16, 4, 32).abs().amax((1, 3)) / 448).to(w.dtype))
    one("nvfp4", "nvfp4-pack-quantized", dict(type="float", strategy="tensor_group", group_size=16, num_bits=4, symmetric=True),
        scale=lambda w: (groups(w, 16, 6).float() * 300).to(torch.float8_e4m3fn).to(w.dtype), weight_global_scale=torch.tensor([300.0]))
    one("mxfp4", "mxfp4-pack-quantized", dict(type="float", strategy="group", group_size=32, num_bits=4, symmetric=True),
        scale=lambda w: torch.exp2(torch.floor(torch.log2(groups(w, 32, 6).float()))).to(w.dtype))


def float8_blocks(save):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    torch.manual_seed(3)
    weight = torch.randn(32, K)
    scale = weight.reshape(2, 16, 4, 32).abs().amax((1, 3)) / 448
    codes = (weight.reshape(2, 16, 4, 32) / scale[:, None, :, None]).reshape(32, K).to(torch.float8_e4m3fn)
    want = Fp8Dequantize(None)._dequantize_one(codes, scale, torch.bfloat16)
    save("fp8_block", {"x.weight": codes, "x.weight_scale_inv": scale}, want,
         dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[16, 32], modules_to_not_convert=["lm_head"]))
    scale = (weight.abs().amax() / 448).reshape(())
    codes = (weight / scale).to(torch.float8_e4m3fn)
    save("fp8_tensor", {"x.weight": codes, "x.weight_scale_inv": scale, "x.activation_scale": torch.tensor(0.5)},
         Fp8Dequantize(None)._dequantize_one(codes, scale, torch.bfloat16), dict(quant_method="fp8", activation_scheme="static", weight_block_size=None))
    scale = weight.abs().amax(1, keepdim=True) / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    save("fbgemm", {"x.weight": codes, "x.weight_scale": scale}, (codes.float() * scale).to(torch.bfloat16), dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0))


def gptq(save, source):
    path = Path(source) / "gptqmodel/nn_modules/qlinear/__init__.py"
    space = dict(t=torch, _torch_right_shift=torch.bitwise_right_shift, _torch_left_shift=torch.bitwise_left_shift)
    space["_from"] = function(path, "_dequantize_from_codes", space, next(n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)
                              and any(isinstance(f, ast.FunctionDef) and f.name == "_dequantize_from_codes" for f in n.body)))
    owner = next(n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)
                 and any(isinstance(f, ast.FunctionDef) and f.name == "dequantize_weight" and len(f.body) > 5 for f in n.body))
    whole = function(path, "dequantize_weight", space, owner)

    def one(name, bits, group, actorder, version):
        torch.manual_seed(bits + group)
        per, maxq = 32 // bits, 2 ** bits - 1
        qweight = torch.randint(-2**31, 2**31 - 1, (K * bits // 32, N), dtype=torch.int32)
        stored = torch.randint(0, maxq, (K // group, N), dtype=torch.int64)  # v1 files hold the zero point less one
        qzeros = torch.zeros(K // group, N // per, dtype=torch.int64)
        for i in range(per):
            qzeros |= stored[:, i::per] << (bits * i)
        qzeros = torch.where(qzeros >= 2**31, qzeros - 2**32, qzeros).to(torch.int32)
        scales = (torch.rand(K // group, N) / 50 + 0.001).half()
        g_idx = torch.arange(K, dtype=torch.int32) // group
        if actorder:
            g_idx = g_idx[torch.randperm(K)]
        layer = types.SimpleNamespace(planar=False, bits=bits, pack_factor=per, maxq=maxq, in_features=K, g_idx=g_idx, scales=scales, qweight=qweight, dequant_dtype=torch.int32 if bits > 4 else torch.int8,
                                      wf_unsqueeze_zero=torch.arange(0, 32, bits, dtype=torch.int32)[None, None], wf_unsqueeze_neg_one=torch.arange(0, 32, bits, dtype=torch.int32)[None, :, None],
                                      _init_wf_unsqueeze_buffers=lambda: None, qzeros=qzeros)
        layer.dequant_dtype = torch.int16 if bits == 8 else torch.int8
        if version == "gptq":  # what the package adds when it reads a v1 file
            one_each = sum(1 << (bits * i) for i in range(per))
            layer.qzeros = (qzeros.long() + one_each).to(torch.int64)
            layer.qzeros = torch.where((layer.qzeros & 0xffffffff) >= 2**31, (layer.qzeros & 0xffffffff) - 2**32, layer.qzeros & 0xffffffff).to(torch.int32)
        layer._dequantize_from_codes = types.MethodType(space["_from"], layer)
        want = whole(layer)
        save(name, {"x.qweight": qweight, "x.qzeros": qzeros, "x.scales": scales, "x.g_idx": g_idx}, want.T.contiguous(),
             dict(quant_method="gptq", bits=bits, group_size=group, desc_act=actorder, sym=False, checkpoint_format=version, damp_percent=0.1, true_sequential=True))

    one("gptq4", 4, 32, False, "gptq")
    one("gptq4_order", 4, 32, True, "gptq_v2")
    one("gptq8", 8, 64, False, "gptq")
    one("gptq2", 2, 32, False, "gptq")


def awq(save, source):
    path = Path(source) / "awq/utils/packing_utils.py"
    space = dict(torch=torch, AWQ_ORDER=[0, 2, 4, 6, 1, 3, 5, 7], AWQ_REVERSE_ORDER=[0, 4, 1, 5, 2, 6, 3, 7])
    for name in "unpack_awq", "reverse_awq_order", "dequantize_gemm":
        space[name] = function(path, name, space)
    torch.manual_seed(9)
    word = lambda *shape: torch.randint(-2**31, 2**31 - 1, shape, dtype=torch.int32)
    qweight, qzeros, scales = word(K, N // 8), word(K // 32, N // 8), (torch.rand(K // 32, N) / 50 + 0.001).half()
    want = space["dequantize_gemm"](qweight, qzeros, scales, 4, 32)
    save("awq", {"x.qweight": qweight, "x.qzeros": qzeros, "x.scales": scales}, want.T.contiguous(),
         dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm", modules_to_not_convert=None))


def modelopt(save):
    torch.manual_seed(11)
    codes, scale = torch.randn(N, K).to(torch.float8_e4m3fn), torch.tensor(0.0123)
    save("modelopt_fp8", {"x.weight": codes, "x.weight_scale": scale, "x.input_scale": torch.tensor(0.1)}, (codes.float() * scale).to(torch.bfloat16),
         dict(quant_method="modelopt", quant_algo="FP8", ignore=["lm_head"], producer=dict(name="modelopt", version="0.35.0")))
    packed, blocks, second = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8), (torch.rand(N, K // 16) * 400 + 1).to(torch.float8_e4m3fn), torch.tensor(0.000321)
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
    values = torch.stack([table[(packed & 15).long()], table[(packed >> 4).long()]], -1).reshape(N, K // 16, 16)
    want = (values * (blocks.float() * second)[..., None]).reshape(N, K).to(torch.bfloat16)
    save("modelopt_nvfp4", {"x.weight": packed, "x.weight_scale": blocks, "x.weight_scale_2": second}, want,
         dict(quant_method="modelopt", quant_algo="NVFP4", group_size=16, ignore=["lm_head"]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=Path)
    ap.add_argument("--compressed-tensors", required=True)
    ap.add_argument("--gptqmodel", required=True)
    ap.add_argument("--autoawq", required=True)
    a = ap.parse_args()
    sys.path.insert(0, a.compressed_tensors)
    a.out.mkdir(parents=True, exist_ok=True)
    configs = {}

    def save(name, tensors, want, config):
        assert torch.isfinite(want.float()).all(), name
        save_file({**{k: v.contiguous() for k, v in tensors.items()}, "want": want.contiguous()}, a.out / f"{name}.safetensors")
        configs[name] = config

    compressed(save)
    float8_blocks(save)
    gptq(save, a.gptqmodel)
    awq(save, a.autoawq)
    modelopt(save)
    (a.out / "configs.json").write_text(json.dumps(configs, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
