#!/usr/bin/env python3
"""Makes testdata/hybrids: tiny random models of Bamba, whose layers have a Mamba-2 layer or attention, and of Falcon-H1, whose layers have both side by side, as make_dialects.py
makes its models: logits by transformers, LoRA gradients of all linear layers by PEFT, greedy texts, mean NLL, and 20 steps of QLoRA.

    python internal/golden/make_hybrids.py [OUT]

Made with torch 2.11.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU. PEFT's refusal of out_proj is left out, as in make_nemotron.py.
"""
import pathlib
import sys

import peft.tuners.tuners_utils as tuners
import torch

import make_dialects
import make_experts
import make_families

MAMBA = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
             vocab_size=make_families.VOCAB, bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5, tie_word_embeddings=True, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=8, mamba_chunk_size=8)
FALCON = dict(MAMBA, head_dim=12, mamba_d_ssm=24, embedding_multiplier=1.5, lm_head_multiplier=0.6, key_multiplier=0.7, attention_in_multiplier=1.2, attention_out_multiplier=0.8,
              ssm_in_multiplier=0.9, ssm_out_multiplier=1.1, mlp_multipliers=[0.8, 1.3], ssm_multipliers=[0.9, 1.2, 0.8, 1.1, 0.7])
MODELS = {
    "bamba": ("Bamba", "bamba", dict(MAMBA, attn_layer_indices=[1])),
    "falcon_h1": ("FalconH1", "falcon_h1", FALCON),
}
make_dialects.RATES = {"bamba": 1e-2, "falcon_h1": 1e-2}
make_dialects.SEEDS = {"bamba": 1, "falcon_h1": 1}


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "hybrids"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    make_families.T = 12  # small files
    make_experts.watch_leads = lambda _: [0.0]
    tuners._check_lora_target_modules_mamba = lambda *_: None
    made = make_families.logits(out, MODELS, make_dialects.build)
    make_dialects.runs_of(out, made, False)
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.glob("*.config.json"):  # as save_pretrained writes what JSON has no number for
        f.write_text(f.read_text().replace("Infinity", '{"__float__": "Infinity"}'))
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
