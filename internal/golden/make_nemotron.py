#!/usr/bin/env python3
"""Makes testdata/ungated_experts: a tiny random Nemotron-H with all four kinds of layers, whose MLPs and experts have no gates, as make_state_space.py makes Granite 4:
logits by transformers, LoRA gradients of all linear layers and of the experts' parameters by PEFT, greedy texts, mean NLL, and 20 steps of QLoRA.

    python internal/golden/make_nemotron.py [OUT]

Made with torch 2.11.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU. PEFT refuses LoRA on out_proj in this family, because CUDA kernels
that transformers may use read its weight and not its module; here is none, and the refusal is left out, so that its gradients are compared too. Files have the names of a release. nemotron_h_pattern is the
same model with the keys of a release's config.json, and with a lower limit of the time steps that counts.
"""
import copy
import json
import pathlib
import sys

import peft.tuners.tuners_utils as tuners
import torch
import transformers
from safetensors.torch import load_file, save_file

import make_experts
import make_families
from make_experts import nf4
from make_parameter_experts import rounded

KINDS = ["linear_attention", "full_attention", "mlp", "moe"]
TINY = dict(vocab_size=make_families.VOCAB, hidden_size=16, intermediate_size=24, layers_block_type=KINDS, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2, ssm_state_size=8, mamba_num_heads=4, mamba_head_dim=8, n_groups=2, chunk_size=8, n_routed_experts=4,
            moe_intermediate_size=8, moe_shared_expert_intermediate_size=8, num_experts_per_tok=2, routed_scaling_factor=1.5)
MODELS = {
    "nemotron_h": ("NemotronH", "nemotron_h", TINY),
    "nemotron_h_pattern": ("NemotronH", "nemotron_h", dict(TINY, time_step_min=0.5)),
}
PARAMETERS = ["mixer.experts.up_proj", "mixer.experts.down_proj"]
SEED = 8  # with it fp32 and float64 give the same curve: norms of gradients within 6e-5
RATE = 1e-2


def build(kind, extra, seed):
    config = getattr(transformers, kind + "Config")(**extra, attn_implementation="eager")
    config._experts_implementation = "eager"
    m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    make_families.randomise(m, SEED)
    g = torch.Generator().manual_seed(100 + SEED)
    for name, p in sorted([*m.named_parameters(), *m.named_buffers()]):
        if name.endswith("correction_bias"):
            p.data = rounded(0.2 * torch.rand(p.shape, generator=g))
        elif name.endswith("norm_f.weight"):
            p.data = rounded(1 + 0.2 * p.data)
        elif name.endswith(tuple(PARAMETERS)):  # of a stack the second dimension is not what a product sums over
            p.data = rounded(p.data * (p.shape[1] / p.shape[2]) ** 0.5)
    return config, m


def in_nf4(m):
    """A copy whose linear layers, experts' among them, have the numbers of NF4; routers are no linear layers."""
    m = copy.deepcopy(m)
    for n, p in m.named_parameters():
        if n.endswith(tuple(PARAMETERS)):
            p.data = torch.stack([nf4(w.clone()) for w in p.data])
        elif p.dim() == 2 and ".layers." in n and not n.endswith("gate.weight"):
            p.data = nf4(p.data.clone())
    return m


def watch_leads(peft):
    """make_experts.watch_leads, by corrected scores."""
    leads = []
    for n, module in peft.named_modules():
        if n.endswith("mixer.gate"):
            module.register_forward_hook(lambda m, _x, y: leads.append(make_experts.lead_of(y[0].detach().sigmoid() + m.e_score_correction_bias, m.top_k)))
    return leads


def release(path):
    """Writes a file anew with the names of a release, which save_pretrained writes too."""
    state = {}
    for k, v in load_file(path).items():
        k = k.replace("model.", "backbone.", 1) if k.startswith("model.") else k
        if k.endswith(tuple(PARAMETERS)):
            start, name = k.rsplit(".", 1)
            state |= {f"{start}.{e}.{name}.weight": w.contiguous() for e, w in enumerate(v)}
        else:
            state[k] = v
    save_file(state, path, metadata={"format": "pt"})


def as_released(path):
    """Gives a config.json the keys of a release: a pattern, and the number of its letters."""
    raw = json.loads(path.read_text())
    raw["hybrid_override_pattern"] = "".join(dict(zip(KINDS, "M*-E"))[k] for k in raw.pop("layers_block_type"))
    raw["num_hidden_layers"] = len(raw["hybrid_override_pattern"])
    path.write_text(json.dumps(raw, indent=1, sort_keys=True) + "\n")


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "ungated_experts"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    make_families.T = 12  # small files
    tuners._check_lora_target_modules_mamba = lambda *_: None
    make_experts.in_nf4, make_experts.watch_leads = in_nf4, watch_leads
    name = "nemotron_h"
    m = make_families.logits(out, MODELS, build)[name][1]
    release(str(out / (name + ".safetensors")))
    as_released(out / (name + "_pattern.config.json"))
    folder = out / (name + ".lora")
    make_families.gradients(out, name, copy.deepcopy(m), dict(target_modules="all-linear", target_parameters=PARAMETERS, r=1, lora_alpha=2), rounded)
    runs = make_experts.nll(m) | make_experts.greedy(m, [[1, 5, 9, 30], [1, 40]])
    runs["curve"] = make_experts.curve(copy.deepcopy(m), folder, RATE)
    low = make_experts.curve(copy.deepcopy(m), folder, RATE, low=True)["loss"]
    off = [abs(a - b) / b for a, b in zip(low, runs["curve"]["loss"])]
    runs["clear"] = make_experts.clear(m, folder)
    runs["bf16"] = make_experts.bf16_errors(m, folder) | {"curve": sum(off) / len(off), "gradient_nf4": make_experts.bf16_errors(in_nf4(m), folder)["gradient"]}
    print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], "lead of the experts", runs["curve"]["lead"],
          "clear", runs["clear"], runs["bf16"])
    (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.glob("*.config.json"):  # as save_pretrained writes what JSON has no number for
        f.write_text(f.read_text().replace("Infinity", '{"__float__": "Infinity"}'))
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
