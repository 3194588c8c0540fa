#!/usr/bin/env python3
"""Makes testdata/linear_attention: Qwen3.5, whose layers are of linear attention (the gated delta rule) but for every few, alone and in
a folder with images, as make_llama_like.py makes its models: logits by transformers, LoRA gradients by PEFT, and in NAME.runs.json
greedy texts, the NLL of rows, and 20 training steps with the weights that bitsandbytes' NF4 stands for. And delta.safetensors:
transformers' own functions of the rule and of the convolution before it, with their gradients, in float64.

    python internal/golden/make_linear_attention.py [OUT]

Made with torch 2.8.0, transformers 5.17.0, PEFT 0.21.2, bitsandbytes 0.49.2, tokenizers 0.22.2 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import make_families as families
import torch
import transformers
from make_first_families import MOVED, ROUNDING, row_gradients
from make_llama_like import EVERYTHING, SIZES, T, bf16_errors, curve, greedy, nll, quantised, rows, tokenizer
from safetensors.torch import save_file
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen3_5

LINEAR, FULL = "linear_attention", "full_attention"
PROJECTIONS = EVERYTHING + ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
TEXT = r".*language_model.*\.(" + "|".join(PROJECTIONS) + ")"  # the vision tower has layers of its own
VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2, spatial_merge_size=1, temporal_patch_size=1, out_hidden_size=32, num_position_embeddings=4)
DELTA = dict(rms_norm_eps=1e-2, head_dim=24, num_attention_heads=2, num_key_value_heads=1, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
             linear_value_head_dim=12, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25, mrope_section=[1, 1, 1], mrope_interleaved=True))

# name: (name, name of its weights, what differs from SIZES)
MODELS = {
    "qwen3_5": ("qwen3_5", "qwen3_5", dict(DELTA, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR])),
    "qwen3_5_text": ("qwen3_5_text", "qwen3_5_text", dict(DELTA, num_hidden_layers=4, full_attention_interval=4, tie_word_embeddings=True)),
    "qwen3_5_text_alike": ("qwen3_5_text_alike", "qwen3_5_text_alike", dict(
        DELTA, num_hidden_layers=2, full_attention_interval=2, linear_num_value_heads=2, linear_conv_kernel_dim=2, attention_bias=True, num_key_value_heads=2)),
}
# Draws whose gradients bf16 moves little, and whose curves transformers' two forms of the rule give within 1e-4.
SEEDS = {"qwen3_5": 44, "qwen3_5_text": 20, "qwen3_5_text_alike": 3}


def randomise(m, seed):
    """Random numbers; norms whose weights are stored less one are near one."""
    families.randomise(m, seed)
    for name, p in m.named_parameters():
        if name.endswith("norm.weight") and "linear_attn" not in name:
            p.data = (p.data - 1).bfloat16().float()
        elif "conv1d" in name or "lm_head" in name or "embed_tokens" in name:
            p.data = (p.data / 2).bfloat16().float()


def rounded(x):
    return x.bfloat16().float()


def build(name, extra, seed=None, prefix="Qwen3_5", seeds=SEEDS):
    """A language model alone, or, of a name without _text, in a folder with images."""
    sizes, seed = {**SIZES, **extra}, seeds[name]  # not the order of names
    if "_text" not in name:
        config = getattr(transformers, prefix + "Config")(text_config=sizes, vision_config=VISION, tie_word_embeddings=False, attn_implementation="eager")
        torch.manual_seed(seed)  # of what images need
        m = getattr(transformers, prefix + "ForConditionalGeneration")(config).float().eval()
        for p in m.parameters():  # not the buffers
            p.data = p.data.bfloat16().float()
        randomise(m.model.language_model, seed)
        m.lm_head.weight.data = (m.lm_head.weight.data * 8).bfloat16().float()
        return config, m
    config = getattr(transformers, prefix + "TextConfig")(**sizes, attn_implementation="eager")
    m = getattr(transformers, prefix + "ForCausalLM")(config).float().eval()
    randomise(m, seed)
    return config, m


def calm(m, packed, adapter, rows, every=3, times=4):
    """The draws of ids, every third number added to them, in which errors of bf16's size, made at random so many times, move the gradients by
    at most MOVED over the weights as they are and packed: in others PEFT's own error is as large as the gradients now and then. rows(add) are
    a draw's."""
    def moved(base, add):
        exact = row_gradients(base, adapter, 0.0, 0, lambda: rows(add))
        return max(float((row_gradients(base, adapter, ROUNDING, 1 + d, lambda: rows(add)) - exact).norm() / exact.norm()) for d in range(times))
    return [add for add in range(0, families.VOCAB, every) if max(moved(m, add), moved(packed, add)) <= MOVED]


def drawn(add):
    """make_llama_like.rows with a number added to every id."""
    ids, labels, lengths = rows()
    return (ids + add) % families.VOCAB, torch.where(labels < 0, labels, (labels + add) % families.VOCAB), lengths


def delta(path):
    """The rule over 66 tokens, more than one of transformers' chunks, and the convolution, with their gradients."""
    g = torch.Generator().manual_seed(3)
    tokens, keys, values, d, e = 66, 2, 4, 3, 2
    normal = lambda *s: torch.randn(s, generator=g, dtype=torch.float64).requires_grad_()
    x, w = normal(tokens, 2 * keys * d + values * e), torch.randn(2 * keys * d + values * e, 4, generator=g, dtype=torch.float64)
    b, a = normal(tokens, values), normal(tokens, values)
    log_a, dt = torch.randn(values, generator=g, dtype=torch.float64), torch.randn(values, generator=g, dtype=torch.float64)
    kept = torch.Tensor.to
    torch.Tensor.to = lambda self, *args, **kw: self if args and args[0] == torch.float32 else kept(self, *args, **kw)  # float64 stays
    try:
        mixed = qwen3_5.causal_conv1d_fn(x.T[None], w, None, activation="silu")[0].T
        mixed.retain_grad()
        q, k, v = (p.reshape(1, tokens, -1, n) for p, n in zip(mixed.split([keys * d, keys * d, values * e], 1), (d, d, e)))
        q, k = (p.repeat_interleave(values // keys, dim=2) for p in (q, k))
        decay = -log_a.exp() * torch.nn.functional.softplus(a + dt)
        o, state = qwen3_5.torch_recurrent_gated_delta_rule(q, k, v, decay[None], b.sigmoid()[None], output_final_state=True, use_qk_l2norm_in_kernel=True)
    finally:
        torch.Tensor.to = kept
    do = torch.randn(o.shape, generator=g, dtype=torch.float64)
    (o * do).sum().backward()
    save_file({k: t.detach().contiguous() for k, t in dict(
        x=x, w=w, mixed=mixed, b=b, a=a, log_a=log_a, dt=dt, o=o[0].reshape(tokens, -1), do=do[0].reshape(tokens, -1), state=state[0],
        dx=x.grad, dmixed=mixed.grad, db=b.grad, da=a.grad).items()}, str(path))


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "linear_attention"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    delta(out / "delta.safetensors")
    models = families.logits(out, MODELS, build)
    for name in ("qwen3_5", "qwen3_5_text"):
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=2, lora_alpha=3, target_modules=TEXT if name == "qwen3_5" else PROJECTIONS), rounded)
        runs["bf16"] = bf16_errors(m, out / (name + ".lora"), calm(m, quantised(copy.deepcopy(m)), out / (name + ".lora"), drawn))
        runs["curve"] = curve(copy.deepcopy(m), out / (name + ".lora"), lr=3e-3)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
