#!/usr/bin/env python3
"""Makes testdata/mxfp4: tiny gpt-oss folders whose experts are stored in MXFP4 as the releases have them, and what
transformers and PEFT compute with them: logits, mean NLL, greedy text, LoRA gradients, and 20 steps of QLoRA.

    python internal/golden/make_mxfp4.py [OUT]

A release stores each projection of the experts as NAME_blocks u8 [experts, out, in/32, 16] and NAME_scales u8
[experts, out, in/32]: blocks lie along the inputs, the parameter that transformers makes of them is [experts, in, out].
Transformers itself turns the folders into models in bf16 (Mxfp4Config(dequantize=True)); numbers are computed in float32.

Made with torch 2.8.0, transformers 4.57.6, accelerate 1.12.0, PEFT 0.18.1 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys
import tempfile

import make_experts
import make_families
import torch
from make_families import SIZES
from safetensors.torch import load_file, save_file

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])

# name: what differs from SIZES
MODELS = {
    "gpt_oss_mxfp4": dict(hidden_size=32, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=5,
                          num_attention_heads=6, tie_word_embeddings=False, rope_scaling=dict(
                              rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                              original_max_position_embeddings=16)),
    "gpt_oss_mxfp4_wide": dict(hidden_size=64, intermediate_size=32, num_local_experts=3, num_experts_per_tok=1, head_dim=16, sliding_window=7,
                               num_attention_heads=4, tie_word_embeddings=True, rope_scaling=None),
}
# the release's quantization_config
QUANTIZATION = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}


def encode(w):
    """[experts, in, out] -> blocks, scales: a scale is that of the largest magnitude less E2M1's largest exponent, 2."""
    x = w.float().transpose(1, 2)
    x = x.reshape(*x.shape[:2], -1, 32)
    exponent = torch.floor(torch.log2(x.abs().amax(-1))) - 2
    scaled = x / torch.exp2(exponent)[..., None]
    code = (scaled.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (scaled < 0)
    blocks = (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8)
    return blocks.contiguous(), (exponent + 127).to(torch.uint8).contiguous()


def main():
    from transformers import AutoModelForCausalLM, Mxfp4Config
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "mxfp4"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    ids = torch.randint(0, make_families.VOCAB, (1, make_families.T), generator=torch.Generator().manual_seed(7))
    result = {"ids": ids[0].to(torch.int32)}
    # with the first seed no token of the curve comes near a change of its experts
    for seed, (name, extra) in enumerate(MODELS.items(), 31):
        config, m = make_experts.build("gpt_oss", extra, seed)
        state = {}
        for k, v in m.state_dict().items():
            if k.endswith(("gate_up_proj", "down_proj")):
                state[k + "_blocks"], state[k + "_scales"] = encode(v)
            elif not (k == "lm_head.weight" and config.tie_word_embeddings):
                state[k] = v.bfloat16().contiguous()
        raw = config.to_dict() | dict(dtype="bfloat16", architectures=["GptOssForCausalLM"], quantization_config=QUANTIZATION)
        raw.pop("_name_or_path", None)
        raw.pop("attn_implementation", None)
        (out / (name + ".config.json")).write_text(json.dumps(raw, indent=1, sort_keys=True) + "\n")
        save_file(state, str(out / (name + ".safetensors")), metadata={"format": "pt"})
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text((out / (name + ".config.json")).read_text())
            pathlib.Path(folder, "model.safetensors").write_bytes((out / (name + ".safetensors")).read_bytes())
            m = AutoModelForCausalLM.from_pretrained(folder, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.bfloat16,
                                                     attn_implementation="eager").float().eval()
        assert type(m.model.layers[0].mlp.experts).__name__ == "GptOssExperts"
        for k, v in m.state_dict().items():
            if "experts" in k and "bias" not in k:
                assert torch.isfinite(v).all() and v.abs().max() > 0.1, k
        with torch.no_grad():
            result[name + ".logits"] = m(input_ids=ids).logits[0].contiguous()
        result[name + ".down_proj"] = m.model.layers[1].mlp.experts.down_proj.detach().contiguous()
        print(name, "logits within", float(result[name + ".logits"].abs().max()))
        if name == "gpt_oss_mxfp4":
            runs(out, name, m)
    save_file(result, str(out / "logits.safetensors"))
    (out / "models.json").write_text(json.dumps({n: n for n in MODELS}, indent=1) + "\n")
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


def runs(out, name, m):
    """As make_experts makes them; attention and router are in NF4, experts are what MXFP4 says."""
    lora = out / (name + ".lora")
    r = make_experts.nll(m) | make_experts.greedy(m, [[1, 5, 9, 30], [1, 40]])
    make_families.gradients(out, name, copy.deepcopy(m), dict(target_modules="all-linear", r=2, lora_alpha=4))
    r["curve"] = make_experts.curve(copy.deepcopy(m), lora, 1e-2)
    r["draws"], off = make_experts.draws(m, lora, 1e-2)
    r["clear"] = make_experts.clear(m, lora)
    r["bf16"] = make_experts.bf16_errors(m, lora) | {"curve": off,
                                                     "gradient_nf4": make_experts.bf16_errors(make_experts.in_nf4(m), lora)["gradient"]}
    print(name, "bf16", r["bf16"], "mean NLL", r["mean_nll"], "lead", r["lead"], "losses", r["curve"]["loss"][0], r["curve"]["loss"][-1],
          "lead of the experts", r["curve"]["lead"])
    (out / (name + ".runs.json")).write_text(json.dumps(r) + "\n")


if __name__ == "__main__":
    main()
