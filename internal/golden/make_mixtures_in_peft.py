#!/usr/bin/env python3
"""Makes testdata/mixtures_in_peft: adapters of models of testdata whose experts transformers 5 has as parameters, and what PEFT computes with them.

    python internal/golden/make_mixtures_in_peft.py TRAINER [OUT]

Run it under transformers 5 first, then, with the same OUT, under transformers 4.57, which adds its numbers. Adapters in peft_* are PEFT's own under transformers 5;
those in ours_* are the program's, whose adapter_config.json is what is tested. The tensors of both hold small numbers, drawn. numbers.json has the rows, the model
of each adapter, and PEFT's mean NLL by the version of transformers; ours_* must have the same under both.

Made with torch 2.11.0, transformers 5.17.0 with PEFT 0.21.0 and 4.57.6 with 0.18.0 on a CPU; needs neither network nor GPU. The models' files must lie plain (pack.py --unpack).
"""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent / "testdata"
ATTENTION = ["q_proj", "o_proj"]
PEFTS = {
    "peft_all_linear": ("experts/qwen3_moe", dict(target_modules="all-linear")),
    "peft_router": ("experts/qwen3_moe", dict(target_modules=[], target_parameters=["gate.weight"])),
    "peft_shared_expert": ("shared_experts/qwen2_moe", dict(target_modules=ATTENTION + ["gate_proj", "up_proj", "down_proj"], use_rslora=True)),
    "peft_mixtral": ("experts/mixtral", dict(target_modules=["q_proj"], target_parameters=["mlp.gate.weight", "experts.down_proj"], rank_pattern={r"mlp\.gate\.weight": 3},
                                             alpha_pattern={r"layers\.1\.mlp\.gate\.weight": 3})),
    "peft_gpt_oss": ("experts/gpt_oss", dict(target_modules=["q_proj"], target_parameters=["router.weight", "layers.1.mlp.experts.down_proj"], rank_pattern={"router.weight": 1})),
    "peft_qwen3_5_moe": ("linear_experts/qwen3_5_moe_text", dict(target_modules=["q_proj"], target_parameters=["gate.weight"])),
}
OURS = {
    "ours_qwen2_moe": ("shared_experts/qwen2_moe", dict(target_modules="all-linear", use_rslora=True, rank_pattern={"gate_proj": 1, "up_proj": 1, "gate": 3}, alpha_pattern={"down_proj": 5})),
    "ours_qwen3_moe": ("experts/qwen3_moe_mixed", dict(target_modules="all-linear", alpha_pattern={"gate_proj": 3, "up_proj": 3})),
    "ours_mixtral": ("experts/mixtral", dict(target_modules=".*(w[123]|q_proj)", use_rslora=True)),
}


def model_folder(name, d):
    folder, name = name.split("/")
    weights = json.loads((HERE / folder / "models.json").read_text())[name]
    shutil.copy(HERE / folder / (name + ".config.json"), d / "config.json")
    shutil.copy(HERE / folder / (weights + ".safetensors"), d / "model.safetensors")
    shutil.copy(HERE / folder / "tokenizer.json", d / "tokenizer.json")
    return d


def load(d):
    more = dict(experts_implementation="eager") if transformers.__version__ >= "5" else {}
    return transformers.AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, attn_implementation="eager", **more).eval()


def nll(m, rows):
    total = count = 0
    with torch.no_grad():
        for ids in rows:
            lp = m(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
            total -= float(lp[:-1].gather(1, torch.tensor(ids[1:])[:, None]).sum())
            count += len(ids) - 1
    return total / count


def draw(folder):
    """Other numbers for an adapter's tensors: sixteenths, which pack well."""
    g = torch.Generator().manual_seed(3)
    tensors = load_file(folder / "adapter_model.safetensors")
    for name, t in sorted(tensors.items()):
        tensors[name] = torch.randint(-3, 4, t.shape, generator=g) / 16
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def clean(folder):
    for f in folder.iterdir():
        if not f.name.startswith("adapter_"):
            f.unlink()
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = "model"
    for key in ("target_modules", "target_parameters"):
        if isinstance(config.get(key), list):
            config[key].sort()
    if folder.name.startswith("peft"):
        path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def train(trainer, folder, lora, rows, out):
    (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": x, "labels": x}) + "\n" for x in rows))
    run = dict(base_model="model", adapter="lora", lora=dict(r=2, alpha=7) | lora, device="cpu", output_dir="run", dataset=dict(path="rows.jsonl", format="tokenized", max_length=64),
               training=dict(max_steps=1, batch_size=2))
    (folder / "run.json").write_text(json.dumps(run))
    subprocess.run([trainer, "train", "run.json", "--quiet"], cwd=folder, check=True)
    out.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(folder / "run" / name, out / name)


def main():
    trainer = pathlib.Path(sys.argv[1]).resolve()
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "mixtures_in_peft"
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    path, five = out / "numbers.json", transformers.__version__ >= "5"
    r = random.Random(5)
    rows = [[r.randrange(3, 64) for _ in range(n)] for n in (2, 9, 17, 24)]
    numbers = dict(rows=rows, adapters={}) if five else json.loads(path.read_text())
    for name, (model, options) in (PEFTS | OURS).items():
        if not five and name in PEFTS:
            continue
        with tempfile.TemporaryDirectory() as d:
            d = pathlib.Path(d)
            (d / "model").mkdir()
            of = model_folder(model, d / "model")
            if five:
                shutil.rmtree(out / name, ignore_errors=True)
                if name in PEFTS:
                    get_peft_model(load(of), LoraConfig(r=2, lora_alpha=7, task_type="CAUSAL_LM", **options)).save_pretrained(out / name)
                else:
                    train(trainer, d, options, rows, out / name)
                draw(out / name)
                clean(out / name)
                numbers["adapters"][name] = dict(model=model, peft={}, base=nll(load(of), rows))
            value = nll(PeftModel.from_pretrained(load(of), out / name).eval(), rows)
            numbers["adapters"][name]["peft"][transformers.__version__] = value
            print(name, numbers["adapters"][name], flush=True)
    path.write_text(json.dumps(numbers, indent=1) + "\n")


main()
