#!/usr/bin/env python3
"""Makes testdata/phi: Phi-3 and its kin, as make_families.py does it for the first families: logits by transformers,
LoRA gradients of every linear layer by PEFT, and in NAME.runs.json greedy texts, the NLL of rows, and 20 training
steps with the weights that bitsandbytes' NF4 stands for (make_llama_like.py).

    python internal/golden/make_phi.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1, bitsandbytes 0.49.2 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_families as families
import make_llama_like as runs
import torch

SIZES = dict(vocab_size=families.VOCAB, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def longrope(original, pairs):
    """Factors that differ from pair to pair, as the releases' do."""
    return dict(original_max_position_embeddings=original, rope_scaling=dict(
        type="longrope", short_factor=[1.0 + 0.1 * i for i in range(pairs)], long_factor=[1.5 + 0.75 * i for i in range(pairs)]))


# name: (name of its weights, what differs from SIZES); the texts have 24 tokens
MODELS = {
    "phi3": ("phi3", dict()),
    "phi3_window": ("phi3", dict(sliding_window=5)),
    "phi3_partial": ("phi3", dict(partial_rotary_factor=0.5)),
    "phi3_odd": ("phi3", dict(partial_rotary_factor=0.7)),  # 5.6 of 8 columns: frequencies by fifths, six columns turn
    "phi3_short": ("phi3", longrope(32, 4)),
    "phi3_long": ("phi3", longrope(16, 4)),
    "phi3_never_long": ("phi3", dict(longrope(64, 4), rope_theta=500.0)),  # no longer than the original: no attention factor
    "phi3_head_dim": ("phi3_head_dim", dict(head_dim=12, num_key_value_heads=4)),
    "phi4_mini": ("phi4_mini", dict(longrope(12, 6), partial_rotary_factor=0.75, num_attention_heads=2, num_key_value_heads=1,
                                    tie_word_embeddings=True, sliding_window=262144)),
}


def build(_, extra, seed):
    from transformers import Phi3Config, Phi3ForCausalLM
    config = Phi3Config(**copy.deepcopy({**SIZES, **extra}), attn_implementation="eager")
    m = Phi3ForCausalLM(config).float().eval()
    families.randomise(m, seed)
    return config, m


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "phi"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    models = families.logits(out, {name: ("phi3", *rest) for name, rest in MODELS.items()}, build)
    # Of the second's rows some are longer than its original length and some are not; its texts all are, from the prompt on.
    for name, prompts in (("phi3", [[1, 5, 9, 30], [1, 40]]), ("phi4_mini", [[1, *range(5, 18)], [1, *range(60, 34, -2)]])):
        m = models[name][1]
        made = {**runs.nll(m)}
        made["texts"], made["lead"] = runs.greedy(m, prompts)
        families.gradients(out, name, copy.deepcopy(m), dict(r=6, lora_alpha=3, target_modules="all-linear"))
        made["curve"] = runs.curve(copy.deepcopy(m), out / (name + ".lora"), lr=8e-3)
        made["bf16"] = runs.bf16_errors(m, out / (name + ".lora"))
        print(name, "mean NLL", made["mean_nll"], "lead", made["lead"], "losses", made["curve"]["loss"][0], made["curve"]["loss"][-1])
        (out / (name + ".runs.json")).write_text(json.dumps(made) + "\n")
    runs.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
