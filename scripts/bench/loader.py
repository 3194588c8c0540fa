"""Tokens a second of the loader, on one core and on two, beside what the fastest measured steps on an H200 take.

The rows are conversations made of GSM8K, written by each model's own chat template, packed into sequences of 2,048
tokens. "tokenised on the way" is dataset.streaming: template, tokenizer, masks and packing as training goes. "from tokens"
is a set whose tokens are ready, which is every run without streaming. Rates go by the process's CPU seconds, so that other
programs on the machine do not count; wall seconds are in the JSON.

    TRAINER_DATA=/data python3 scripts/bench/loader.py --databench ./databench --models A B C > loader.md
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# tokens a second of ours on one H200, docs/PERFORMANCE.md
STEPS = [("135M, 1x512", 512 / 4.2e-3), ("135M, 8x2048", 8 * 2048 / 39.7e-3)]


def conversations(source, path, size):
    """Rows until the file has about so many bytes."""
    rows = [json.loads(line) for line in open(source)]
    with open(path, "w") as f:
        n = 0
        while n < size:
            for r in rows:
                f.write(json.dumps({"messages": [{"role": "user", "content": r["question"] + (f" ({n})" if n else "")},
                                                 {"role": "assistant", "content": r["answer"]}]}) + "\n")
            n = f.tell()


def run(databench, data, model, cores, stream, batches):
    args = [databench, "-data", data, "-tokenizer", model, "-format", "messages", "-max-length", "2048", "-workers", str(cores),
            "-deal", str(batches)] + (["-stream"] if stream else [])
    env = dict(os.environ, GOMAXPROCS=str(cores))
    out = subprocess.run(args, env=env, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(args)}: {out.stderr}")
    return json.loads(out.stdout)["deal"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--databench", required=True)
    p.add_argument("--models", nargs="+", required=True)
    p.add_argument("--mb", type=float, default=4, help="of rows, which repeat above 4")
    p.add_argument("--batches", type=int, default=300)
    p.add_argument("--json")
    a = p.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as home:
        data = home + "/rows.jsonl"
        conversations(pathlib.Path(os.environ["TRAINER_DATA"], "data/datasets/gsm8k/train.jsonl"), data, a.mb * 1e6)
        for model in a.models:
            for cores in (1, 2):
                for stream in (True, False):
                    d = run(a.databench, data, model, cores, stream, a.batches if stream else 20 * a.batches)
                    found.append(dict(d, model=pathlib.Path(model).name, cores=cores, stream=stream))
                    print(found[-1], file=sys.stderr)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(found, indent=1) + "\n")
    print("| tokenizer | data | cores | tokens a second | " + " | ".join(f"times the step of {name}" for name, _ in STEPS) + " |")
    print("|---|---|---:|---:|" + "---:|" * len(STEPS))
    for d in found:
        busy = max(d["cpu_seconds"], 0.01) / d["cores"] if d["stream"] else max(d["cpu_seconds"], 0.01)
        rate = d["tokens"] / busy
        print(f"| {d['model']} | {'tokenised on the way' if d['stream'] else 'from tokens'} | {d['cores']} | {rate:,.0f} | "
              + " | ".join(f"{rate / need:.1f}" for _, need in STEPS) + " |")


main()
