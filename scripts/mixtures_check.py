#!/usr/bin/env python3
"""Compares adapters of mixtures of experts between the program and PEFT, in both directions and in every form.

    python scripts/mixtures_check.py TRAINER [--keep DIR] [--only TEXT]

Run it under transformers 4.57 with PEFT 0.18 and under transformers 5 with PEFT 0.21: experts of mixtral, qwen2_moe and qwen3_moe are linear layers to the first and
parameters to the second. For each model and each `lora` section:
- the program trains a few steps; its evaluation with the adapter must be PEFT's, bound 1e-5 relative, unless the run's plan said at its start that this version of
  transformers refuses the adapter, and then PEFT must;
- `trainer export --format peft` must always give PEFT the program's value;
- an adapter that PEFT makes with routers, experts and dense layers must evaluate, and merge, as in PEFT (transformers 5).
Needs torch, transformers, PEFT and safetensors on a CPU. Exit code 1: something differs.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

transformers.utils.logging.disable_progress_bar()
BOUND = 1e-5
FIVE = transformers.__version__ >= "5"
COMMON = dict(vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
              tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
QWEN = dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
MODELS = {
    "mixtral": ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2, head_dim=12)),
    "mixtral_one": ("Mixtral", dict(num_local_experts=1, num_experts_per_tok=1, head_dim=12)),
    "qwen2_moe": ("Qwen2Moe", QWEN | dict(shared_expert_intermediate_size=32)),
    "qwen2_moe_dense": ("Qwen2Moe", QWEN | dict(shared_expert_intermediate_size=32, mlp_only_layers=[1])),
    "qwen3_moe": ("Qwen3Moe", QWEN | dict(head_dim=12)),
    "qwen3_moe_dense": ("Qwen3Moe", QWEN | dict(head_dim=12, mlp_only_layers=[1])),
    "gpt_oss": ("GptOss", dict(num_local_experts=4, num_experts_per_tok=2, head_dim=12, sliding_window=16)),
    "qwen3_5_moe": ("Qwen3_5Moe", dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=32, head_dim=12, num_key_value_heads=2,
                                       linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
                                       layer_types=["linear_attention", "full_attention", "linear_attention"])),
    "gemma4": ("Gemma4", dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=24, head_dim=12, global_head_dim=12, hidden_size_per_layer_input=0, sliding_window=16,
                              layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


def parts(model):
    return ["w1", "w3", "w2"] if model.startswith("mixtral") else ["gate_proj", "up_proj", "down_proj"]


def sections(model):
    """`lora` sections of runs: what they adapt, and with which ranks and scales."""
    gate, up, down = parts(model)
    if model in ("gpt_oss", "qwen3_5_moe", "gemma4"):
        router = {"gpt_oss": "router.weight", "qwen3_5_moe": "gate.weight"}.get(model)
        experts = ["experts.gate_up_proj", "experts.down_proj"]
        q = ["q_proj", "o_proj"]
        yield "parameters", dict(target_modules=q, target_parameters=experts)
        if router:
            yield "router", dict(target_modules=[], target_parameters=[router])
            yield "all", dict(target_modules=q, target_parameters=experts + [router], rank_pattern={router: 3}, use_rslora=True)
        return
    yield "all-linear", dict(target_modules="all-linear")
    yield "all-linear rs", dict(target_modules="all-linear", use_rslora=True)
    yield "named", dict(target_modules=["q_proj", gate, up, down])
    yield "router", dict(target_modules=["q_proj", "gate"], rank_pattern={"gate": 6}, alpha_pattern={"gate": 5})
    yield "ranks", dict(target_modules="all-linear", rank_pattern={gate: 2, up: 2, r"experts\.\d+\." + down: 7, r"layers\.0\..*q_proj": 3}, alpha_pattern={gate: 5, up: 5, down: 3})
    yield "two ranks", dict(target_modules="all-linear", rank_pattern={gate: 2, up: 6}, alpha_pattern={gate: 3, up: 9})
    yield "two ranks rs", dict(target_modules="all-linear", rank_pattern={gate: 2, up: 8}, alpha_pattern={gate: 3, up: 6}, use_rslora=True)
    yield "layers", dict(target_modules="all-linear", rank_pattern={r"layers\.1\..*": 2}, alpha_pattern={r"layers\.2\..*": 12})
    yield "two scales", dict(target_modules=[gate, up, down], alpha_pattern={up: 3})
    yield "expression", dict(target_modules=rf".*\.layers\.[02]\..*({gate}|{up}|{down}|q_proj|gate)")
    yield "some experts", dict(target_modules=rf".*(experts\.[01]\.({gate}|{up}|{down})|q_proj)")
    yield "gate alone", dict(target_modules=["q_proj", gate])
    yield "without down", dict(target_modules=["q_proj", gate, up])
    yield "down alone", dict(target_modules=["q_proj", down], rank_pattern={down: 2})
    yield "dropout", dict(target_modules="all-linear", dropout=0.1)
    yield "attention", dict(target_modules=ATTENTION, dropout=0.1)
    if model != "mixtral_one":
        yield "parameters", dict(target_modules=ATTENTION, target_parameters=["experts.gate_up_proj", "experts.down_proj"])
        yield "parameters, router", dict(target_modules=["q_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj", "gate.weight"], rank_pattern={"gate.weight": 6}, use_rslora=True)
    if model.endswith("dense"):
        yield "dense alone", dict(target_modules=rf".*\.mlp\.({gate}|{up}|{down})")
        yield "dense and parameters", dict(target_modules=rf".*\.(mlp\.({gate}|{up}|{down})|q_proj)", target_parameters=["experts.gate_up_proj", "experts.down_proj"])


def theirs(model):
    """LoraConfigs of PEFT's under transformers 5."""
    gate, up, down = parts(model)
    if model == "gpt_oss":
        yield "router", dict(target_modules=[], target_parameters=["router.weight"])
        yield "all", dict(target_modules=["q_proj"], target_parameters=["router.weight", "experts.gate_up_proj", "experts.down_proj"], rank_pattern={"router.weight": 2})
        return
    if model == "qwen3_5_moe":
        yield "all", dict(target_modules=["q_proj", gate, up, down], target_parameters=["gate.weight", "experts.gate_up_proj", "experts.down_proj"], use_rslora=True)
        return
    if model == "gemma4":
        yield "router", dict(target_modules=r".*language_model.*(q_proj|router\.proj)", target_parameters=["experts.gate_up_proj", "experts.down_proj"])
        return
    yield "all-linear", dict(target_modules="all-linear")
    yield "names", dict(target_modules=["q_proj", gate, up, down], use_rslora=True)
    yield "parameters", dict(target_modules=["q_proj"], target_parameters=["mlp.gate.weight", "experts.down_proj"], rank_pattern={r"mlp\.gate\.weight": 2}, alpha_pattern={r"layers\.1\.mlp\.gate\.weight": 3})
    yield "weights", dict(target_modules=["v_proj"], target_parameters=["q_proj.weight"])


def run(trainer, *args):
    done = subprocess.run([trainer, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"trainer {args[0]}: {done.stderr.strip()[-700:]}")
    return done.stdout


def make(name, folder):
    torch.manual_seed(7)
    cls, own = MODELS[name]
    options = COMMON | own
    if cls in ("Qwen3_5Moe", "Gemma4"):
        config = getattr(transformers, cls + "TextConfig")(**options)
        m = getattr(transformers, cls + "ForCausalLM")(config)
    else:
        m = getattr(transformers, cls + "ForCausalLM")(getattr(transformers, cls + "Config")(**options))
    with torch.no_grad():
        for n, p in m.named_parameters():
            if p.dim() > 1:
                p.mul_(6)
            elif not n.endswith("A_log"):
                p.add_(0.2 * torch.randn(p.shape))
    m.save_pretrained(folder / "model")
    r = random.Random(1)
    rows = [[r.randrange(3, 97) for _ in range(r.choice([2, 9, 30, 41]))] for _ in range(8)]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": x, "labels": x}) + "\n" for x in rows))
    vocabulary = {f"t{i}": i for i in range(97)}
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None, pre_tokenizer=dict(type="Whitespace"), post_processor=None, decoder=None,
                     model=dict(type="WordLevel", vocab=vocabulary, unk_token="t0"))
    (folder / "model" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="t2", pad_token="t0")))
    return rows


def load(folder):
    more = dict(experts_implementation="eager") if FIVE else {}
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **more).eval()


def nll(m, rows):
    total = count = 0
    with torch.no_grad():
        for ids in rows:
            lp = m(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
            total -= float(lp[:-1].gather(1, torch.tensor(ids[1:])[:, None]).sum())
            count += len(ids) - 1
    return total / count


def peft(folder, adapter, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nll(PeftModel.from_pretrained(load(folder / "model"), adapter).eval(), rows)


worst = 0.0  # relative difference of those that are equal


def close(a, b):
    global worst
    off = abs(a - b) / abs(a)
    if off <= BOUND:
        worst = max(worst, off)
    return off <= BOUND


def here(notes):
    """Those of a plan's notes that are of this version of transformers."""
    return [n for n in notes if f"under transformers {transformers.__version__[0]}" in n]


def ours(trainer, folder, rows, what, lora):
    """A run of the program's. What its plan says and what PEFT does must agree."""
    out = folder / what.replace(" ", "_").replace(",", "")
    config = dict(base_model=str(folder / "model"), adapter="lora", lora=dict(r=4, alpha=7) | lora, device="cpu", output_dir=str(out),
                  dataset=dict(path=str(folder / "rows.jsonl"), format="tokenized", max_length=64, packing=False),
                  training=dict(max_steps=4, batch_size=4, learning_rate=0.03, logging_steps=1))
    path = folder / "run.json"
    path.write_text(json.dumps(config))
    run(trainer, "train", path, "--quiet")
    value = lambda d: json.loads(run(trainer, "eval", path, "--json", "--adapter", d))["eval_loss"]
    base, want = json.loads(run(trainer, "eval", path, "--json"))["eval_loss"], value(out)
    if close(base, want):
        raise RuntimeError("the run changed nothing")
    said = here(json.loads((out / "plan_report.json").read_text()).get("notes", []))
    said = [n for n in said if n.startswith("adapter in PEFT")]
    try:
        got = peft(folder, out, rows)
        result = "equal" if close(want, got) else f"another model, {got} for {want}"
    except Exception as e:  # noqa: BLE001
        result = f"refused: {type(e).__name__}"
    if said:
        agrees = result.startswith("refused") or "0.19 and later" in said[0]
    else:
        agrees = result == "equal"
    if not agrees:
        raise RuntimeError(f"as it is trained: {result}; the plan said {said}")
    if not lora.get("target_parameters") or not folder.name.startswith(("gpt_oss", "qwen3_5", "gemma4")):
        exported = folder / (out.name + "_exported")
        run(trainer, "export", "--model", folder / "model", "--adapter", out, "--format", "peft", "--dtype", "f32", "--out", exported)
        for which, got in (("the program", value(exported)), ("PEFT", peft(folder, exported, rows))):
            if not close(want, got):
                raise RuntimeError(f"exported: {which} has {got} for {want}")
        result += ", exported equal"
    return result + ("; said" if said else "")


def back(trainer, folder, rows, what, options):
    """An adapter of PEFT's own."""
    out = folder / ("peft_" + what.replace(" ", "_"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = get_peft_model(load(folder / "model"), LoraConfig(r=4, lora_alpha=7, task_type="CAUSAL_LM", **options)).eval()
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for n, p in sorted(m.named_parameters()):
                if "lora_" in n:
                    p.copy_(0.2 * torch.randn(p.shape, generator=g))
        m.save_pretrained(out)
        want = peft(folder, out, rows)
    if not close(want, nll(m, rows)):
        raise RuntimeError("PEFT does not load what it saved")
    path = folder / "run.json"
    path.write_text(json.dumps(dict(base_model=str(folder / "model"), adapter="lora", device="cpu", output_dir=str(folder / "none"),
                                    dataset=dict(path=str(folder / "rows.jsonl"), format="tokenized", max_length=64, packing=False), training=dict(max_steps=1, batch_size=4))))
    got = json.loads(run(trainer, "eval", path, "--json", "--adapter", out))["eval_loss"]
    if not close(want, got):
        raise RuntimeError(f"PEFT has {want}, the program {got}")
    run(trainer, "merge", "--model", folder / "model", "--adapter", out, "--out", folder / "merged" / what)
    if not close(want, nll(load(folder / "merged" / what), rows)):
        raise RuntimeError(f"merged it is {nll(load(folder / 'merged' / what), rows)} for {want}")
    return "equal, merged equal"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("trainer", type=pathlib.Path)
    ap.add_argument("--keep", type=pathlib.Path, help="folder for the models and runs")
    ap.add_argument("--only", default="", help="models whose name begins so")
    a = ap.parse_args()
    torch.set_num_threads(1)
    failed = 0
    print(f"transformers {transformers.__version__}, PEFT {version('peft')}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, (cls, _) in MODELS.items():
            if not name.startswith(a.only) or not hasattr(transformers, cls + "Config") or name in ("gpt_oss",) and not FIVE:
                continue
            folder = (a.keep or pathlib.Path(scratch)) / f"{name}-{transformers.__version__}"
            folder.mkdir(parents=True, exist_ok=True)
            rows = make(name, folder)
            for title, check, all in (("ours", ours, sections), ("PEFT's", back, theirs)):
                for what, options in all(name) if title == "ours" or FIVE else ():
                    try:
                        print(f"{name}, {title}, {what}: {check(a.trainer.resolve(), folder, rows, what, options)}", flush=True)
                    except Exception as e:  # noqa: BLE001
                        failed += 1
                        print(f"{name}, {title}, {what}: FAILED: {type(e).__name__}: {e}", flush=True)
    print(f"off by at most {worst:.1g}")
    if failed:
        sys.exit(f"{failed} failed")


main()
