#!/usr/bin/env python3
"""Makes testdata/fused_files: folders of tiny random mixtures of experts as transformers 5 saves them with
save_original_format=False, an expert's matrices in one tensor a layer, and the same in transformers 4's spelling as SHA-256 of
each tensor.

    python internal/golden/make_fused_files.py [OUT]

Made with torch 2.11.0, transformers 5.17.0 on a CPU; needs neither network nor GPU.
"""
import hashlib
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

SIZES = dict(vocab_size=8, hidden_size=8, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2,
             max_position_embeddings=16, num_experts_per_tok=2, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True)
QWEN = dict(num_experts=3, moe_intermediate_size=6, mlp_only_layers=[0], head_dim=4)
MODELS = {"mixtral": ("Mixtral", dict(num_local_experts=3)), "qwen2_moe": ("Qwen2Moe", QWEN | dict(shared_expert_intermediate_size=4)), "qwen3_moe": ("Qwen3Moe", QWEN)}


def digest(t):
    return [list(t.shape), hashlib.sha256(t.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()]


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "testdata" / "fused_files")
    for family, (name, more) in MODELS.items():
        torch.manual_seed(1)
        m = getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**SIZES | more))
        with torch.no_grad():
            for p in m.parameters():
                p.normal_(0, 0.5)
        m = m.to(torch.bfloat16)
        m.save_pretrained(out / family, save_original_format=False)
        (out / family / "generation_config.json").unlink()
        with tempfile.TemporaryDirectory() as d:
            m.save_pretrained(d)
            want = {k: digest(v) for k, v in sorted(load_file(d + "/model.safetensors").items())}
        (out / family / "separate.json").write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in want.items()) + "\n}\n")


main()
