#!/usr/bin/env python3
"""The real Ollama makes models of exported folders and answers conversations; its greedy answers are compared with `trainer generate`.

    python3 scripts/ollama_check.py --ollama ./ollama --trainer ./trainer --model DIR [--adapter DIR]

DIR is a model with a chat template, the adapter one of it. Ollama runs on a free port of 127.0.0.1 with a folder of models of its own.
Exported are the model in F16 and Q8_0, merged with the adapter, and the adapter as a file of its own beside the model. In F16 the text
must be the same; Q8_0 is only shown. Exit code 1 where something differs.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Answer in one short sentence."}, {"role": "user", "content": "Why is the sky blue?"}],
    [{"role": "user", "content": "Name three colours."}, {"role": "assistant", "content": "Red, green and blue."}, {"role": "user", "content": "Name one more."}],
]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("--ollama", "--trainer", "--model"):
        p.add_argument(name, required=True)
    p.add_argument("--adapter")
    p.add_argument("--tokens", type=int, default=40)
    o = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{s.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as work:
        env = dict(os.environ, OLLAMA_HOST=host, OLLAMA_MODELS=os.path.join(work, "models"), HOME=work)
        with open(os.path.join(work, "log"), "w") as log:
            server = subprocess.Popen([o.ollama, "serve"], env=env, stdout=log, stderr=log)
        try:
            wait(host, server)
            bad = check(o, work, host, env)
        finally:
            server.terminate()
            server.wait()
    print(f"{bad} of the checks failed" if bad else "every check passed")
    sys.exit(1 if bad else 0)


def wait(host, server):
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://{host}/api/version", timeout=5) as r:
                print("ollama", json.load(r)["version"])
                return
        except OSError:
            if server.poll() is not None:
                raise SystemExit(f"ollama serve ended with {server.returncode}")
            time.sleep(0.1)
    raise SystemExit("ollama serve does not answer")


def check(o, work, host, env):
    cases = [("base-f16", "f16", None, []), ("base-q8", "q8_0", None, [])]
    if o.adapter:
        cases += [("merged-f16", "f16", o.adapter, []), ("beside-f16", "f16", o.adapter, ["--separate-adapter"])]
    bad, wanted = 0, {}
    for name, dtype, adapter, more in cases:
        folder = os.path.join(work, name)
        with_adapter = ["--adapter", adapter] if adapter else []
        subprocess.run([o.trainer, "export", "--format", "ollama", "--model", o.model, "--dtype", dtype, "--out", folder, *with_adapter, *more], check=True, capture_output=True)
        made = subprocess.run([o.ollama, "create", name, "-f", os.path.join(folder, "Modelfile")], env=env, capture_output=True, text=True)
        if made.returncode:
            print(f"FAIL  {name}: ollama create: {made.stderr.strip()[-300:]}")
            bad += 1
            continue
        for i, messages in enumerate(CONVERSATIONS):
            if (i, adapter) not in wanted:
                wanted[i, adapter] = generate(o, work, messages, with_adapter)
            want, got = wanted[i, adapter], chat(o, host, name, messages)
            same = got == want
            bad += not same and dtype == "f16"
            print(f"{'ok  ' if same else 'FAIL' if dtype == 'f16' else 'note'}  {name}, conversation {i}: " + (f"{got!r}" if same else f"\n      ollama  {got!r}\n      trainer {want!r}"), flush=True)
    return bad


def generate(o, work, messages, with_adapter):
    path = os.path.join(work, "messages.json")
    with open(path, "w") as f:
        json.dump(messages, f)
    r = subprocess.run([o.trainer, "generate", "--model", o.model, *with_adapter, "--messages", path, "--max-tokens", str(o.tokens), "--device", "cpu", "--json"],
                       check=True, capture_output=True, text=True)
    return json.loads(r.stdout)["text"].strip()


def chat(o, host, name, messages):
    body = {"model": name, "messages": messages, "stream": False, "options": {"temperature": 0, "num_predict": o.tokens, "num_ctx": 1024, "repeat_penalty": 1}}
    request = urllib.request.Request(f"http://{host}/api/chat", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as r:
        return json.load(r)["message"]["content"].strip()


if __name__ == "__main__":
    main()
