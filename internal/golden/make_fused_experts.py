#!/usr/bin/env python3
"""Makes testdata/fused_experts: what transformers 5 and PEFT compute with models of testdata/experts, whose experts transformers 5
keeps as two parameters a layer, with adapters on these parameters (target_parameters) and on attention: mean NLL, greedy text,
logits, LoRA gradients, and 20 steps over weights as they are and in NF4.

    python internal/golden/make_fused_experts.py [OUT]

Made with torch 2.11.0, transformers 5.17.0, PEFT 0.21.2 on a CPU; needs neither network nor GPU. The weights are those files,
in transformers 4's spelling, which transformers 5 writes too.
"""
import copy
import json
import pathlib
import shutil
import sys
import tempfile

import torch

import make_experts
import make_families
from make_experts import bf16_errors, clear, curve, draws, greedy, lead_of, nf4, nll

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]

# name: (of which model, learning rate of the curves, adapter); no rate: gradients alone
MODELS = {
    "qwen3_moe_fused": ("qwen3_moe", 1.5e-2, dict(r=2, lora_alpha=4, target_modules=ATTENTION, target_parameters=BOTH)),
    "mixtral_fused": ("mixtral_balanced", 1.1e-2, dict(r=3, lora_alpha=4, target_modules=ATTENTION, target_parameters=BOTH)),
    "mixtral_fused_some": ("mixtral", None, dict(
        r=2, lora_alpha=5, use_rslora=True, target_modules=[], target_parameters=["layers.1.mlp.experts.gate_up_proj", "experts.down_proj"],
        rank_pattern={r"layers\.1\.mlp\.experts\.down_proj": 4}, alpha_pattern={"experts.gate_up_proj": 3})),
}


def load(experts, name, out, called):
    """A model from its file of transformers 4, and config.json as transformers 5 writes it."""
    from transformers import AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(experts / (name + ".config.json"), d + "/config.json")
        weights = json.loads((experts / "models.json").read_text())[name]
        shutil.copy(experts / (weights + ".safetensors"), d + "/model.safetensors")
        m = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
        m.config.save_pretrained(d)
        (out / (called + ".config.json")).write_text(pathlib.Path(d, "config.json").read_text())
    return m, "../experts/" + weights


def in_nf4(m):
    """A copy whose linear layers of transformers 4 have the numbers of NF4: gate and up of an expert each by itself."""
    m = copy.deepcopy(m)
    for n, p in m.named_parameters():
        if n.endswith(".gate_up_proj"):
            p.data = torch.stack([torch.cat([nf4(half.clone()) for half in w.chunk(2)]) for w in p.data])
        elif n.endswith("experts.down_proj"):
            p.data = torch.stack([nf4(w.clone()) for w in p.data])
        elif p.dim() == 2 and ".layers." in n:
            p.data = nf4(p.data.clone())
    return m


def watch_leads(peft):
    """make_experts.watch_leads, of routers that return more than logits."""
    leads = []
    for n, module in peft.named_modules():
        if n.endswith("mlp.gate"):
            module.register_forward_hook(lambda _m, _x, y: leads.append(lead_of(y[0].detach(), peft.config.num_experts_per_tok)))
    return leads


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "fused_experts"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    make_experts.in_nf4, make_experts.watch_leads = in_nf4, watch_leads
    files = {}
    for called, (name, lr, lora) in MODELS.items():
        m, files[called] = load(here / "testdata" / "experts", name, out, called)
        make_families.gradients(out, called, copy.deepcopy(m), lora)
        if lr is None:
            continue
        adapter = out / (called + ".lora")
        runs = nll(m) | greedy(m, [[1, 5, 9, 30], [1, 40]])
        runs["curve"] = curve(copy.deepcopy(m), adapter, lr)
        runs["curve_of_floats"] = curve(copy.deepcopy(m), adapter, lr, packed=False)
        runs["draws"], off = draws(m, adapter, lr)
        runs["clear"] = clear(m, adapter)
        runs["bf16"] = bf16_errors(m, adapter) | {"curve": off, "gradient_nf4": bf16_errors(in_nf4(m), adapter)["gradient"]}
        print(called, "bf16", runs["bf16"], "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0],
              runs["curve"]["loss"][-1], "lead of the experts", runs["curve"]["lead"])
        (out / (called + ".runs.json")).write_text(json.dumps(runs) + "\n")
    (out / "models.json").write_text(json.dumps(files, indent=1) + "\n")
    make_experts.tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
