#!/usr/bin/env python3
"""Makes testdata/state_space and testdata/state_space_experts: tiny random models with Mamba-2 layers (selective state spaces), as make_parameter_experts.py makes others: logits by
transformers, LoRA gradients of all linear layers by PEFT, greedy texts, mean NLL, and 20 steps of QLoRA. And scan.safetensors: transformers'
own convolution and scan of a Mamba-2 layer with their gradients, in float64.

    python internal/golden/make_state_space.py [OUT]

Made with torch 2.15.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU.
"""
import copy
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.granitemoehybrid import modeling_granitemoehybrid as granite

import make_experts
import make_families
import make_fused_experts
from make_parameter_experts import plain_runs, rounded

MAMBA, FULL = "linear_attention", "full_attention"
SIZES = dict(hidden_size=16, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, vocab_size=make_families.VOCAB, bos_token_id=1,
             eos_token_id=2, rms_norm_eps=1e-5, tie_word_embeddings=True)
GRANITE = dict(SIZES, shared_intermediate_size=16, embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.0, mamba_n_heads=4,
               mamba_d_state=8, mamba_n_groups=2, mamba_expand=2, mamba_chunk_size=8, num_local_experts=0, num_experts_per_tok=0)

# name: (classes of transformers, name of its weights, what differs from SIZES)
MODELS = {
    "granitemoehybrid": ("GraniteMoeHybrid", "granitemoehybrid", dict(GRANITE, num_hidden_layers=2, layer_types=[MAMBA, FULL], position_embedding_type="nope")),
    "granitemoehybrid_rope": ("GraniteMoeHybrid", "granitemoehybrid", dict(GRANITE, num_hidden_layers=2, layer_types=[MAMBA, FULL], position_embedding_type="rope",
                                                                           time_step_limit=(0.4, 1.5))),
}
MIXTURES = {
    "granitemoehybrid_experts": ("GraniteMoeHybrid", "granitemoehybrid_experts", dict(GRANITE, num_hidden_layers=2, layer_types=[MAMBA, FULL], position_embedding_type="nope", num_local_experts=4,
                                                                                      num_experts_per_tok=2)),
}
CURVES = {"granitemoehybrid": 1e-2}
SEEDS = {"granitemoehybrid": 1}
BLOCK = "block_sparse_moe."
PARAMETERS = [BLOCK + "experts.gate_up_proj", BLOCK + "experts.down_proj"]
RELEASED = {PARAMETERS[0]: BLOCK + "input_linear.weight", PARAMETERS[1]: BLOCK + "output_linear.weight", BLOCK + "router.weight": BLOCK + "router.layer.weight"}


def build(kind, extra, seed):
    config = getattr(transformers, kind + "Config")(**extra, attn_implementation="eager")
    config._experts_implementation = "eager"
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    make_families.randomise(m, SEEDS[config.model_type])
    for name, p in m.named_parameters():
        if name.endswith(tuple(PARAMETERS)):  # of a stack the second dimension is not what a product sums over
            p.data = rounded(p.data * (p.shape[1] / p.shape[2]) ** 0.5)
    return config, m


def in_nf4(m):
    """make_fused_experts.in_nf4, but for routers, which are no linear layers."""
    low = make_fused_experts.in_nf4(m)
    for (n, p), (_, was) in zip(low.named_parameters(), m.named_parameters()):
        if n.endswith("router.weight"):
            p.data = was.data.clone()
    return low


def watch_leads(peft):
    """make_experts.watch_leads, of routers whose third result are their logits."""
    leads = []
    for n, module in peft.named_modules():
        if n.endswith(BLOCK + "router"):
            module.register_forward_hook(lambda m, _x, y: leads.append(make_experts.lead_of(y[2].detach(), m.top_k)))
    return leads


def mixtures(out):
    """Models with experts, and their files with the names of a release."""
    make_experts.in_nf4, make_experts.watch_leads = in_nf4, watch_leads
    models = make_families.logits(out, MIXTURES, build)
    for name, (_, m) in models.items():
        file, folder = str(out / (name + ".safetensors")), out / (name + ".lora")
        state = {}
        for k, v in load_file(file).items():
            layer, mixed, rest = k.partition("." + BLOCK)
            state[layer + "." + RELEASED[BLOCK + rest] if mixed else k] = v
        save_file(state, file, metadata={"format": "pt"})
        make_families.gradients(out, name, copy.deepcopy(m), dict(target_modules="all-linear", target_parameters=PARAMETERS, r=1, lora_alpha=2), rounded)
        runs = make_experts.nll(m) | make_experts.greedy(m, [[1, 5, 9, 30], [1, 40]])
        runs["curve"] = make_experts.curve(copy.deepcopy(m), folder, 1e-2)
        low = make_experts.curve(copy.deepcopy(m), folder, 1e-2, low=True)["loss"]
        off = [abs(a - b) / b for a, b in zip(low, runs["curve"]["loss"])]
        runs["clear"] = make_experts.clear(m, folder)
        runs["bf16"] = make_experts.bf16_errors(m, folder) | {"curve": sum(off) / len(off), "gradient_nf4": make_experts.bf16_errors(in_nf4(m), folder)["gradient"]}
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], "lead of the experts", runs["curve"]["lead"],
              "clear", runs["clear"], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")


def scan(path):
    """The convolution and the scan over 13 tokens, more than three of transformers' chunks, with their gradients."""
    g = torch.Generator().manual_seed(3)
    tokens, heads, size, groups, state, taps, limits = 13, 4, 2, 2, 3, 4, (0.1, 1.5)
    inner, filtered = heads * size, heads * size + 2 * groups * state
    normal = lambda *s: rounded(torch.randn(s, generator=g)).double()
    parts, w, b = normal(tokens, inner + filtered + heads).requires_grad_(), normal(filtered, taps), normal(filtered)
    dt_bias, a_log, skip, dy = normal(heads), normal(heads), normal(heads), normal(tokens, inner)
    kept = torch.Tensor.float
    torch.Tensor.float = lambda self: self  # float64 stays
    try:
        z, mixed, dt = parts.split([inner, filtered, heads], 1)
        mixed = granite.causal_conv1d_fn(mixed.T[None], w, b, activation="silu")[0].T
        convolved = torch.cat([z, mixed, dt], 1)
        z, x, B, C, dt = convolved[None].split([inner, inner, groups * state, groups * state, heads], 2)
        o = granite.mamba2_chunk_scan(x.view(1, tokens, heads, size), dt, -a_log.exp(), B.view(1, tokens, groups, state), C.view(1, tokens, groups, state), chunk_size=4, D=skip,
                                      dt_bias=dt_bias, dt_softplus=True, dt_limit=limits)
        y = o.reshape(tokens, inner) * torch.nn.functional.silu(z[0])
    finally:
        torch.Tensor.float = kept
    (y * dy).sum().backward()
    save_file({k: t.detach().contiguous() for k, t in dict(parts=parts, w=w, b=b, dt_bias=dt_bias, a_log=a_log, skip=skip, convolved=convolved, y=y, dy=dy, dparts=parts.grad).items()}, str(path))


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "state_space"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    make_families.T = 12  # small files
    make_experts.watch_leads = lambda _: [0.0]
    scan(out / "scan.safetensors")
    models = make_families.logits(out, MODELS, build)
    for name, lr in CURVES.items():
        m, folder = models[name][1], out / (name + ".lora")
        make_families.gradients(out, name, copy.deepcopy(m), dict(target_modules="all-linear", r=1, lora_alpha=2), rounded)
        runs = plain_runs(m)
        runs["curve"] = make_experts.curve(copy.deepcopy(m), folder, lr)
        runs["bf16"] = make_experts.bf16_errors(m, folder)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    experts = out.with_name(out.name + "_experts")
    experts.mkdir(parents=True, exist_ok=True)
    mixtures(experts)
    for folder in (out, experts):
        make_experts.tokenizer(folder / "tokenizer.json")
        for f in folder.glob("*.config.json"):  # as save_pretrained writes what JSON has no number for
            f.write_text(f.read_text().replace("Infinity", '{"__float__": "Infinity"}'))
        for f in folder.rglob("*"):
            f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
