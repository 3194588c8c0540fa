"""Step times of tierlora and of transformers + PEFT on a CPU. step.sh says how to run it.

Both sides get the same rows: gsm8k in the model's own tokens, cut to the same length, only rows that fill it, the question
masked. Both do forward, backward, clipping and AdamW. A step's time is wall time: ours from the run's metrics (tokens seen
over tokens a second, one line a step), the peer's around its step. The first steps of every process are left out. The loss
of the first step must agree, or the two do not compute the same. On a machine with other work, the processor time of a step
(all threads; waiting threads that spin count) tells more: ours is the difference of a long run and a short one.
"""
import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.abspath(__file__)) + "/../.."
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WARM = 3  # steps left out at the start of a process

# name, model, batch, length, adapted layers, 4 bits?, steps a process (ours, the peer's)
CASES = [
    ("stories260K QLoRA 4x128 all-linear", "stories", 4, 128, ALL, True, (60, 60)),
    ("stories260K QLoRA 1x128 q,v", "stories", 1, 128, ["q_proj", "v_proj"], True, (120, 60)),
    ("SmolLM2-135M QLoRA 1x128 q,v", "smollm2", 1, 128, ["q_proj", "v_proj"], True, (15, 15)),
    ("SmolLM2-135M LoRA 1x128 q,v", "smollm2", 1, 128, ["q_proj", "v_proj"], False, (15, 15)),
]


def rows(model, length, count):
    """Rows of exactly length tokens: question masked, answer trained."""
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(model + "/tokenizer.json")
    tok.no_padding()
    tok.no_truncation()
    found = []
    for line in gzip.open(ROOT + "/configs/assets/gsm8k_300.jsonl.gzip", "rt"):
        r = json.loads(line)
        q = tok.encode(r["question"] + "\n").ids[: length // 2]
        a = tok.encode(r["answer"], add_special_tokens=False).ids
        if len(q) + len(a) >= length:
            ids = (q + a)[:length]
            found.append({"input_ids": ids, "labels": [-100] * len(q) + ids[len(q):]})
    return [found[i % len(found)] for i in range(count)]


def ours(a, case, model, data, n):
    _, short, _ = run_ours(a, case, model, data, WARM)
    loss, cpu, ms = run_ours(a, case, model, data, n)
    return loss, ms, 1e3 * (cpu - short) / (n - WARM)


def run_ours(a, case, model, data, n):
    _, _, batch, length, targets, four, _ = case
    out = f"{a.folder}/run-{time.time_ns()}"
    config = {"base_model": model, "adapter": "qlora" if four else "lora",
              "lora": {"r": 8, "alpha": 16, "target_modules": targets},
              "dataset": {"path": data, "format": "tokenized", "max_length": length, "shuffle": False},
              "training": {"max_steps": n, "batch_size": batch, "learning_rate": 2e-4, "lr_scheduler": "constant", "logging_steps": 1},
              "output_dir": out, "device": "cpu"}
    if four:
        config["quantization"] = {"bits": 4, "type": "nf4", "block_size": 64, "double_quant": True}
    path = out + ".yaml"
    json.dump(config, open(path, "w"))  # JSON is YAML
    before = os.times()
    subprocess.run([a.trainer, "train", "--config", path, "--quiet"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    lines = [json.loads(x) for x in open(out + "/metrics.jsonl")]
    steps = [x for x in lines if "num_input_tokens_seen" in x]
    ends = [x["num_input_tokens_seen"] / x["tokens/train_per_sec_per_gpu"] for x in steps]
    return steps[0]["loss"], cpu, [1e3 * (e - s) for s, e in zip(ends, ends[1:])][WARM - 1:]


def peer(a, case, model, data, n, dtype):
    name = [c[0] for c in CASES].index(case[0])
    p = subprocess.run([sys.executable, __file__, "--peer", str(name), "--model", model, "--data", data, "--steps", str(n), "--dtype", dtype],
                       check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    r = json.loads(p.stdout.splitlines()[-1])
    return r["loss"], r["ms"], r["cpu"]


def run_peer(a):
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    _, _, batch, length, targets, four, _ = CASES[a.peer]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    dtype = getattr(torch, a.dtype)
    extra = {}
    if four:
        extra["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                                          bnb_4bit_compute_dtype=dtype)
        extra["device_map"] = {"": "cpu"}
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=dtype, **extra)  # scaled-dot-product attention, its default
    if four and dtype == torch.float32:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM"))
    model.config.use_cache = False
    model.train()
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=2e-4, weight_decay=0.01)
    data = [json.loads(x) for x in open(a.data)]
    ids = torch.tensor([r["input_ids"] for r in data]).view(-1, batch, length)
    labels = torch.tensor([r["labels"] for r in data]).view(-1, batch, length)
    losses, ms = [], []
    for i in range(a.steps):
        if i == WARM:
            cpu = time.process_time()
        began = time.perf_counter()
        loss = model(input_ids=ids[i], labels=labels[i]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        losses.append(loss.item())
        ms.append(1e3 * (time.perf_counter() - began))
    cpu = 1e3 * (time.process_time() - cpu) / (a.steps - WARM)
    print(json.dumps({"loss": losses[0], "ms": ms[WARM:], "cpu": cpu}))


def spread(ms):
    q = statistics.quantiles(ms, n=10)
    return f"{statistics.median(ms):8.2f} ({q[0]:.2f} to {q[-1]:.2f}, best {min(ms):.2f})"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--trainer")
    ap.add_argument("--folder")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--only", default="", help="cases whose name holds this")
    ap.add_argument("--dtypes", default="float32,bfloat16", help="what the peer computes in")
    ap.add_argument("--json", help="also write the times here")
    ap.add_argument("--peer", type=int)
    ap.add_argument("--model")
    ap.add_argument("--data")
    ap.add_argument("--steps", type=int)
    ap.add_argument("--dtype")
    a = ap.parse_args()
    if a.peer is not None:
        return run_peer(a)
    models = {"stories": ROOT + "/configs/assets/stories260K", "smollm2": os.environ.get("SMOLLM2")}
    report = []
    print("ms a step: median (tenth to ninetieth percentile, best)")
    for case in CASES:
        name, model, batch, length, _, _, (n_ours, n_peer) = case
        if a.only not in name or not models[model]:
            continue
        model = models[model]
        data = f"{a.folder}/{batch}x{length}-{os.path.basename(model)}.jsonl"
        with open(data, "w") as f:
            for r in rows(model, length, batch * max(n_ours, n_peer)):
                f.write(json.dumps(r) + "\n")
        times, losses, cpus = {}, {}, {}
        for _ in range(a.rounds):
            for who in ["ours"] + a.dtypes.split(","):
                loss, ms, cpu = ours(a, case, model, data, n_ours) if who == "ours" else peer(a, case, model, data, n_peer, who)
                times.setdefault(who, []).extend(ms)
                cpus.setdefault(who, []).append(cpu)
                losses[who] = loss
        print(f"{name}; load {os.getloadavg()[0]:.1f}")
        mine = statistics.median(times["ours"])
        for who, ms in times.items():
            ratio = "" if who == "ours" else f"  {statistics.median(ms) / mine:.2f} x ours, best to best {min(ms) / min(times['ours']):.2f}, processor {statistics.median(cpus[who]) / statistics.median(cpus['ours']):.2f}"
            print(f"  {'ours' if who == 'ours' else 'PEFT ' + who:14} {spread(ms)}  processor {statistics.median(cpus[who]):.2f}  first loss {losses[who]:.5f}{ratio}", flush=True)
        if abs(losses["ours"] - losses.get("float32", losses["ours"])) > 1e-3 * losses["ours"]:
            sys.exit("the first losses differ: the two sides do not compute the same")
        report.append({"case": name, "ms": times, "processor_ms": cpus, "loss": losses})
    if a.json:
        json.dump(report, open(a.json, "w"))


if __name__ == "__main__":
    main()
