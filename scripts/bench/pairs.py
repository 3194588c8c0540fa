#!/usr/bin/env python3
"""Times steps of preference training (DPO, ORPO, KTO) beside TRL's trainers, with PEFT and Liger, and with Unsloth, on one card.

    pairs.py run --trainer TRAINER --model FOLDER --out OUT [--pairs 4] [--tokens 1024] [--prompt 256] [--objectives dpo,orpo]
                 [--peers peft,unsloth,unsloth:ckpt] [--rounds 2] [--steps 14] [--limit 500] [--set KEY=VALUE ...]
    pairs.py peer KIND OBJECTIVE FOLDER ROWS.jsonl OUT PAIRS TOKENS STEPS      one process of a peer; `run` starts it

FOLDER is a model with a Llama tokenizer (scripts/make_model.py makes one of random weights). Every row is a prompt with a
chosen and a rejected answer that are longer than max_length, so each sequence has exactly `tokens` tokens in every program.
The base is NF4 with double quantisation, the adapter LoRA r16 on all linear layers, the optimizer fused AdamW. Programs
alternate, each a new process. A step's time is the median of the steps after the fifth; memory is the most that the driver
counts on the card while the process runs. OUT gets pairs.json, pairs.md and every process's output. Peers: gpu_site.sh.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WORDS = "time year people way day man thing woman life child world school state family student group country problem hand part place case week company system".split()
WARM = 5  # steps that are not counted


def write_rows(path, rows, prompt, tokens):
    draw = random.Random(7)
    text = lambda n: " ".join(draw.choice(WORDS) for _ in range(n))
    with open(path, "w") as f:
        for _ in range(rows):
            f.write(json.dumps(dict(prompt=text(prompt), chosen=" " + text(tokens), rejected=" " + text(tokens))) + "\n")


class Memory(threading.Thread):
    """The most memory in use on the card by the driver's count."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.ended = 0, False
        try:
            import pynvml

            pynvml.nvmlInit()
            self.read = lambda: pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used
        except Exception:
            self.read = lambda: int(subprocess.check_output(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]).split()[0]) << 20
        self.before = self.read()

    def run(self):
        while not self.ended:
            self.most = max(self.most, self.read())
            time.sleep(0.05)

    def mib(self):
        self.ended = True
        return (self.most - self.before) >> 20


def run_logged(command, log, **env):
    memory = Memory()
    memory.start()
    with open(log, "w") as f:
        code = subprocess.run(command, stdout=f, stderr=subprocess.STDOUT, env=dict(os.environ, **env)).returncode
    return code, memory.mib()


def ours(a, objective, round_number):
    home = Path(a.out) / f"ours-{objective}-{round_number}"
    home.mkdir()
    config = {
        "base_model": a.model, "adapter": "qlora", "lora": {"r": 16, "alpha": 16, "dropout": 0.0, "target_modules": ["all-linear"]},
        "dataset": {"path": a.data, "max_length": a.tokens},
        "training": {"objective": objective, "max_steps": a.steps, "batch_size": a.pairs * (2 if objective == "kto" else 1), "learning_rate": 5e-6, "logging_steps": 1},
        "output_dir": str(home / "run"),
    }
    (home / "config.json").write_text(json.dumps(config, indent=1))
    sets = [x for s in a.set for x in ("--set", s)]
    code, mib = run_logged([a.trainer, "train", str(home / "config.json"), *sets], home / "log")
    if code:
        return dict(exit=code, tail=(home / "log").read_text()[-600:])
    rows = [json.loads(line) for line in open(home / "run" / "metrics.jsonl")]
    seconds = [r["train_seconds"] for r in rows if "loss" in r]
    return dict(exit=0, ms=1000 * statistics.median(b - a for a, b in zip(seconds[WARM - 1:], seconds[WARM:])), mib=mib, loss=[r["loss"] for r in rows if "loss" in r][0])


def last_json(log):
    for line in reversed(Path(log).read_text().splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {}


def peers(a, kind, objective, round_number):
    log = Path(a.out) / f"{kind.replace(':', '-')}-{objective}-{round_number}.log"
    code, mib = run_logged([sys.executable, __file__, "peer", kind, objective, a.model, a.data, a.out, str(a.pairs), str(a.tokens), str(a.steps)], log,
                           PYTHONUNBUFFERED="1", **({"UNSLOTH_FUSED_PREFERENCE_LOSS": "1"} if "fused" in kind else {}))
    if code:
        return dict(exit=code, tail=log.read_text()[-600:])
    return dict(last_json(log), exit=0, mib=mib)


def load_peer(kind, folder, tokens):
    import torch

    checkpointing = "ckpt" in kind
    if kind.startswith("unsloth"):
        from unsloth import FastLanguageModel

        how = "unsloth" if checkpointing else False
        model, tokenizer = FastLanguageModel.from_pretrained(folder, max_seq_length=tokens, load_in_4bit=True, use_gradient_checkpointing=how)
        model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS, use_gradient_checkpointing=how)
        return model, tokenizer
    from liger_kernel.transformers import apply_liger_kernel_to_llama
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    apply_liger_kernel_to_llama(rope=True, rms_norm=True, swiglu=True, fused_linear_cross_entropy=False)
    four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map={"": 0}, attn_implementation="sdpa", quantization_config=four)
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpointing, gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS, task_type="CAUSAL_LM"))
    return model, AutoTokenizer.from_pretrained(folder)


def peer(kind, objective, folder, data, out, pairs, tokens, steps):
    pairs, tokens, steps = int(pairs), int(tokens), int(steps)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", UNSLOTH_DISABLE_STATISTICS="1")
    if kind.startswith("unsloth"):
        import unsloth

        if objective == "dpo":
            unsloth.PatchDPOTrainer()
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback

    model, tokenizer = load_peer(kind, folder, tokens)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    rows = [json.loads(line) for line in open(data)]
    common = dict(output_dir=f"{out}/{kind}", max_length=tokens, per_device_train_batch_size=pairs * (2 if objective == "kto" else 1), gradient_accumulation_steps=1, max_steps=steps, learning_rate=5e-6, bf16=True,
                  optim="adamw_torch_fused", report_to="none", save_strategy="no", logging_steps=1, gradient_checkpointing="ckpt" in kind, remove_unused_columns=False)
    if objective == "dpo":
        from trl import DPOConfig as Config, DPOTrainer as Trainer
    elif objective == "kto":
        from trl import KTOConfig as Config, KTOTrainer as Trainer
    else:
        from trl.experimental.orpo import ORPOConfig as Config, ORPOTrainer as Trainer

    times = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            torch.cuda.synchronize()
            times.append(time.time())

    trainer = Trainer(model=model, args=Config(**common), train_dataset=Dataset.from_list(rows), processing_class=tokenizer, callbacks=[Clock()])
    trainer.train()
    between = [1000 * (b - a) for a, b in zip(times, times[1:])][WARM - 1:]
    loss = [h["loss"] for h in trainer.state.log_history if "loss" in h][0]
    epochs = trainer.state.epoch  # 1 if a step took the pairs that it was asked to
    print("\n" + json.dumps(dict(ms=statistics.median(between), loss=loss, epochs=epochs, reserved_mib=torch.cuda.max_memory_reserved() >> 20)))


def table(results):
    lines = [f"{results['card']}, {results['pairs']} pairs of {results['tokens']} + {results['tokens']} tokens, QLoRA r16 on all linear layers", "",
             "| objective | program | ms a step, each round | MiB on the card | loss of the first step |", "|---|---|---|---:|---:|"]
    for r in results["runs"]:
        if r["exit"]:
            lines.append(f"| {r['objective']} | {r['program']} | failed, exit {r['exit']} | | |")
            continue
        lines.append(f"| {r['objective']} | {r['program']} | {r['ms']:.1f} | {r['mib']:,} | {r['loss']:.4f} |")
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:2] == ["peer"]:
        return peer(*sys.argv[2:])
    ap = argparse.ArgumentParser()
    ap.add_argument("verb", choices=["run"])
    ap.add_argument("--trainer", required=True)
    ap.add_argument("--model", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--pairs", type=int, default=4)
    ap.add_argument("--tokens", type=int, default=1024)
    ap.add_argument("--prompt", type=int, default=256)
    ap.add_argument("--objectives", default="dpo")
    ap.add_argument("--peers", default="peft,unsloth")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--steps", type=int, default=14)
    ap.add_argument("--limit", type=float, default=500, help="seconds after which no process begins")
    ap.add_argument("--set", action="append", default=[], help="KEY=VALUE for our configuration")
    a = ap.parse_args()
    began = time.time()
    a.out = str(Path(a.out).resolve())
    Path(a.out).mkdir(parents=True, exist_ok=True)
    a.model, a.data = str(Path(a.model).resolve()), a.out + "/rows.jsonl"
    write_rows(a.data, a.pairs * a.steps, a.prompt, a.tokens)
    card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    results = dict(card=card, pairs=a.pairs, tokens=a.tokens, runs=[], left_out=[])
    for number in range(a.rounds):
        for objective in a.objectives.split(","):
            for program in ["ours", *filter(None, a.peers.split(","))]:
                if time.time() - began > a.limit:
                    results["left_out"].append(f"{program}, {objective}, round {number}")
                    continue
                measured = ours(a, objective, number) if program == "ours" else peers(a, program, objective, number)
                results["runs"].append(dict(measured, program=program, objective=objective, round=number))
                print(results["runs"][-1], flush=True)
                (Path(a.out) / "pairs.json").write_text(json.dumps(results, indent=1))
                (Path(a.out) / "pairs.md").write_text(table(results))
    print(table(results), "left out:", results["left_out"])


if __name__ == "__main__":
    main()
