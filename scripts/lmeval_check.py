#!/usr/bin/env python3
"""lm-evaluation-harness asks `trainer serve` and its own transformers backend the same questions, and their numbers are compared.

    python3 -m venv venv && venv/bin/pip install "lm_eval[api]==0.4.13" torch transformers
    venv/bin/python scripts/lmeval_check.py --trainer ./trainer --model DIR [--adapter DIR] [--questions 24]

The tasks are made here of infer/tasks/testdata/choices.jsonl and configs/assets/gsm8k_300.jsonl, so no network is needed: choices by
their log-likelihood, the rolling log-likelihood of texts, and greedy answers. Exit code 1 where a choice, a text or a metric differs, or
a log-likelihood by more than 1e-3. transformers computes in float64: its log-likelihoods in float32 of 111 tokens are off by 0.0009.
"""
import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's threads wait busily for one another where others use the cores
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.pop(0)  # this folder has a kernels.py, which is not the package of that name

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
{more}
"""
TASKS = {
    "check_choices": ("multiple_choice", 'doc_to_text: "{{prompt}}"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: "{{gold}}"\n'
                      "metric_list:\n- metric: acc\n- metric: acc_norm"),
    "check_rolling": ("loglikelihood_rolling", 'doc_to_text: ""\ndoc_to_target: "{{question}}"\nmetric_list:\n- metric: word_perplexity\n- metric: byte_perplexity\n- metric: bits_per_byte'),
    "check_answers": ("generate_until", 'doc_to_text: "Question: {{question}}\\nAnswer:"\ndoc_to_target: "{{answer}}"\n'
                      'generation_kwargs:\n  until: ["Question:", "\\n\\n"]\n  do_sample: false\n  max_gen_toks: 32\nmetric_list:\n- metric: exact_match'),
}


def write_tasks(folder, questions):
    rows = [json.loads(line) for line in gzip.open(ROOT / "configs/assets/gsm8k_300.jsonl.gzip", "rt")][:questions]
    files = {"choices.jsonl": [json.loads(line) for line in open(ROOT / "infer/tasks/testdata/choices.jsonl")], "questions.jsonl": rows}
    for name, all in files.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in all))
    for name, (kind, more) in TASKS.items():
        data = folder / ("choices.jsonl" if name == "check_choices" else "questions.jsonl")
        (folder / (name + ".yaml")).write_text(TASK.format(name=name, data=data, kind=kind, more=more))


def ask(model, args, folder):
    r = lm_eval.simple_evaluate(model=model, model_args=args, tasks=list(TASKS), task_manager=TaskManager(include_path=str(folder)), log_samples=True, bootstrap_iters=0)
    return r["results"], {name: sorted(s, key=lambda s: s["doc_id"]) for name, s in r["samples"].items()}


def serve(a):
    args = [a.trainer, "serve", "--model", a.model, "--device", "cpu", "--port", "0", "--json", "--max-length", "1024", "--slots", "4"]
    p = subprocess.Popen(args + (["--adapter", "tuned=" + a.adapter] if a.adapter else []), stdout=subprocess.PIPE, text=True)
    decoder, text = json.JSONDecoder(), ""
    for line in p.stdout:
        text += line
        try:
            return p, decoder.decode(text)
        except json.JSONDecodeError:
            pass
    raise SystemExit("the server ended before it was ready")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--trainer", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--adapter")
    p.add_argument("--questions", type=int, default=24)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_tasks(folder, a.questions)
        server, ready = serve(a)
        try:
            model = "tuned" if a.adapter else ready["models"][0]
            ours = ask("local-completions", f"model={model},base_url={ready['url']}/completions,tokenizer={a.model},num_concurrent=4,max_length=1024,tokenized_requests=True", folder)
        finally:
            server.terminate()
            server.wait()
        theirs = ask("hf", f"pretrained={a.model},dtype=float64,device=cpu,max_length=1024,batch_size=1" + (f",peft={a.adapter}" if a.adapter else ""), folder)
    sys.exit(compare(ours, theirs))


def compare(ours, theirs):
    bad = 0
    for task, (kind, _) in TASKS.items():
        least = differ = n = 0
        for x, y in zip(ours[1][task], theirs[1][task], strict=True):
            for r, s in zip(x["resps"], y["resps"], strict=True):
                r, s, n = r[0], s[0], n + 1
                if kind == "generate_until":
                    differ += r != s
                else:
                    r, s = (r, s) if kind == "loglikelihood_rolling" else (r[0], s[0])
                    least = max(least, abs(float(r) - float(s)))
        metrics = {k: (v, theirs[0][task][k]) for k, v in ours[0][task].items() if isinstance(v, float) and "stderr" not in k}
        wrong = differ > 0 or least > 1e-3 or any(abs(u - v) > 1e-4 * max(1, abs(v)) for u, v in metrics.values())
        bad += wrong
        said = f"{differ} of {n} texts differ" if kind == "generate_until" else f"largest difference of {n} log-likelihoods {least:.2g}"
        print(f"{'FAIL' if wrong else 'ok  '}  {task}: {said}; " + ", ".join(f"{k.split(',')[0]} {u:.6g} and {v:.6g}" for k, (u, v) in metrics.items()))
    return 1 if bad else 0


if __name__ == "__main__":
    main()
