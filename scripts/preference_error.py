#!/usr/bin/env python3
"""Errors of bf16 gradients of preference objectives: this program's beside TRL's, from the same adapter on the same rows.

  preference_error.py --trainer ./trainer --model DIR --out DIR [--device cpu|cuda] [--objectives dpo,orpo,simpo,kto]

Every program takes one step of plain SGD at rate 1, so what the adapter loses is the gradient. Each does it in fp32 and,
on a GPU, in bf16 with a base in bf16; the reference of both is TRL in fp32. DIR is a model whose weights are bf16 numbers.
The table has the error's norm over the gradient's norm: over all tensors, and the worst quotient of ours and TRL's of one
tensor. Needs transformers, PEFT and TRL 1.15; on a CPU the same formula in torch replaces TRL's Triton kernel.
"""
import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from compare_dpo import TARGETS, torch_log_probs

WORDS = "time year people way day man thing woman life child world school state family student group country problem hand".split()

# What the two are told of an objective. TRL's reference is the adapter as given where it is given one.
SECTIONS = {
    "dpo": ({"dpo": {"beta": 0.1}}, dict(beta=0.1)),
    "orpo": ({"orpo": {"beta": 0.1}}, dict(beta=0.1)),
    "simpo": ({"simpo": {"beta": 2.0, "simpo_gamma": 1.0}}, dict(loss_type="simpo", cpo_alpha=0.0, beta=2.0, simpo_gamma=1.0)),
    "kto": ({"kto": {"beta": 0.1}}, dict(beta=0.1)),
}


def write_rows(out, rows):
    """Pairs of answers of unequal lengths, and the same answers with labels for KTO."""
    draw = random.Random(11)
    text = lambda low, high: " ".join(draw.choice(WORDS) for _ in range(draw.randrange(low, high)))
    pairs = [dict(prompt=text(4, 12), chosen=" " + text(8, 24), rejected=" " + text(8, 24)) for _ in range(rows)]
    single = [dict(prompt=p["prompt"], completion=p[name], label=name == "chosen") for p in pairs for name in ("chosen", "rejected")]
    for name, lines in (("pairs", pairs), ("single", single)):
        Path(out, name + ".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_adapter(a):
    """An adapter whose A and B are both drawn: at B = 0 the gradient of A is zero."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=TARGETS, lora_dropout=0.0, task_type="CAUSAL_LM"))
    for name, value in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value, std=0.01)
    model.save_pretrained(f"{a.out}/start")


def ours(a, objective, precision, out):
    config = {
        "base_model": a.model, "output_dir": out, "device": a.device, "seed": 0,
        "lora": {"r": 8, "alpha": 16, "target_modules": TARGETS, "init_from": f"{a.out}/start"},
        "dataset": {"path": f"{a.out}/{'single' if objective == 'kto' else 'pairs'}.jsonl", "max_length": 128, "shuffle": False},
        "training": {"objective": objective, "max_steps": 1, "batch_size": a.rows * (2 if objective == "kto" else 1), "learning_rate": 1.0,
                     "optimizer": "sgd", "lr_scheduler": "constant", "warmup_ratio": 0, "weight_decay": 0, "max_grad_norm": 0,
                     "precision": precision, "logging_steps": 1},
    }
    config.update(SECTIONS[objective][0])
    if objective in ("dpo", "kto"):
        config["training"]["reference"] = "start"
    Path(f"{out}.yaml").write_text(json.dumps(config, indent=1))
    subprocess.run([a.trainer, "train", f"{out}.yaml", "--quiet"], check=True)
    return json.loads(Path(out, "metrics.jsonl").read_text().splitlines()[0]).get("loss")


def theirs(a, objective, precision, out):
    import torch
    from datasets import load_dataset
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer
    if a.device == "cpu":
        torch_log_probs()
    torch.backends.cuda.matmul.allow_tf32 = False
    base = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    model = PeftModel.from_pretrained(base, f"{a.out}/start", is_trainable=True)
    common = dict(output_dir=out + "-trl", use_cpu=a.device == "cpu", bf16=precision == "bf16", report_to=[], save_strategy="no", gradient_checkpointing=False,
                  logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False, max_length=128, max_steps=1, gradient_accumulation_steps=1,
                  per_device_train_batch_size=a.rows * (2 if objective == "kto" else 1), learning_rate=1.0, optim="sgd", lr_scheduler_type="constant",
                  weight_decay=0.0, max_grad_norm=0.0)
    if objective == "dpo":
        from trl import DPOConfig as Config, DPOTrainer as Trainer
    elif objective == "kto":
        from trl import KTOConfig as Config, KTOTrainer as Trainer
    elif objective == "orpo":
        from trl.experimental.orpo import ORPOConfig as Config, ORPOTrainer as Trainer
    else:
        from trl.experimental.cpo import CPOConfig as Config, CPOTrainer as Trainer
    common.update(SECTIONS[objective][1])
    rows = load_dataset("json", data_files=f"{a.out}/{'single' if objective == 'kto' else 'pairs'}.jsonl", split="train")
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    trainer = Trainer(model=model, args=Config(**common), train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    trainer.model.save_pretrained(out, selected_adapters=["default"])
    Path(out, "loss.json").write_text(json.dumps(trainer.state.log_history[0]))


def gradients(a, folder):
    import torch
    from safetensors.torch import load_file
    start, end = load_file(f"{a.out}/start/adapter_model.safetensors"), load_file(f"{folder}/adapter_model.safetensors")
    return {name: (start[name].double() - end[name].double()) for name in start}


def errors(got, want):
    """Norm of the error over norm of the reference: over all tensors, and of each tensor."""
    one = {name: ((got[name] - want[name]).norm() / want[name].norm()).item() for name in want}
    over = sum((got[n] - want[n]).norm() ** 2 for n in want) / sum(want[n].norm() ** 2 for n in want)
    return over.sqrt().item(), one


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trainer", "model", "out"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    p.add_argument("--objectives", default="dpo,orpo,simpo,kto")
    p.add_argument("--rows", type=int, default=4)
    p.add_argument("--one", nargs=2, metavar=("OBJECTIVE", "PRECISION"), help="one step of TRL; a run starts itself with it")
    a = p.parse_args()
    if a.one:
        return theirs(a, *a.one, f"{a.out}/trl-{a.one[0]}-{a.one[1]}")
    os.makedirs(a.out, exist_ok=True)
    write_rows(a.out, a.rows)
    write_adapter(a)
    precisions = ["fp32", "bf16"] if a.device == "cuda" else ["fp32"]
    print("| objective | precision | ours, all tensors | TRL, all tensors | worst quotient of one tensor |\n|---|---|---:|---:|---:|")
    for objective in a.objectives.split(","):
        for precision in precisions:
            out = f"{a.out}/{{}}-{objective}-{precision}"
            ours(a, objective, precision, out.format("ours"))
            log = open(f"{a.out}/trl-{objective}-{precision}.log", "w")
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", objective, precision], check=True, stdout=log, stderr=log)
        want = gradients(a, f"{a.out}/trl-{objective}-fp32")
        for precision in precisions:
            left, each = errors(gradients(a, f"{a.out}/ours-{objective}-{precision}"), want)
            right, beside = errors(gradients(a, f"{a.out}/trl-{objective}-{precision}"), want)
            worst = max((each[n] / beside[n] for n in want), default=0) if right else float("nan")
            print(f"| {objective} | {precision} | {left:.3g} | {right:.3g} | {worst:.3f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
