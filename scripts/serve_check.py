#!/usr/bin/env python3
"""Talks to `trainer serve` with OpenAI's own Python client and compares its answers with `trainer generate`.

    python3 -m venv venv && venv/bin/pip install openai
    venv/bin/python scripts/serve_check.py --trainer ./trainer --model DIR [--adapter DIR ...] [--chat | --chat-template NAME] [--log FILE]

Starts a server on a free port, checks models, completions (whole, streamed, by token ids, scored), conversations where
the model has a chat template, answers against the command line's for the same prompt, seed and adapter, errors, many
clients at once, and that SIGTERM ends the server with exit code 143. Exit code 1 where something differs.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import openai


class Check:
    def __init__(self, log):
        self.log, self.bad = log, 0

    def say(self, text):
        print(text)
        if self.log:
            self.log.write(text + "\n")

    def ok(self, what, good, detail=""):
        self.bad += not good
        self.say(f"{'ok  ' if good else 'FAIL'}  {what}" + (f": {detail}" if detail else ""))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trainer", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--adapter", action="append", default=[])
    p.add_argument("--device", default="cpu")
    p.add_argument("--chat", action="store_true", help="the model has a chat template")
    p.add_argument("--chat-template", help="the template, where the model has none; implies --chat")
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--log")
    a = p.parse_args()
    a.chat = a.chat or a.chat_template
    with open(a.log, "w") if a.log else open(os.devnull, "w") as log:
        c = Check(log)
        run(a, c)
        c.say(f"{c.bad} of the checks failed" if c.bad else "every check passed")
    sys.exit(1 if c.bad else 0)


def run(a, c):
    common = ["--model", a.model, "--device", a.device]
    template = ["--chat-template", a.chat_template] if a.chat_template else []
    names = {f"a{i}": d for i, d in enumerate(a.adapter)}
    command = [a.trainer, "serve", *common, "--port", "0", "--api-key", "k", "--served-model-name", "base", "--slots", "4", "--max-length", "512", "--json", *template]
    for name, folder in names.items():
        command += ["--adapter", f"{name}={folder}"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        while not text.endswith("}\n"):
            line = server.stdout.readline()
            if not line:
                raise SystemExit("the server did not start")
            text += line
        ready = json.loads(text)
        c.say(f"openai {openai.__version__}; {ready['url']}, {ready['slots']} slots of {ready['max_length']} tokens on {ready['device']}")
        checks(a, c, ready, names, common, template)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
    c.ok("SIGTERM ends the server with 143", code == 143, str(code))


def checks(a, c, ready, names, common, template):
    client = openai.OpenAI(base_url=ready["url"], api_key="k", max_retries=0)
    listed = [m.id for m in client.models.list()]
    c.ok("models.list", listed == ["base", *names], " ".join(listed))
    c.ok("models.retrieve", client.models.retrieve("base").id == "base")

    def generate(model, *more):
        command = [a.trainer, "generate", *common, "--json", *more]
        if model != "base":
            command += ["--adapter", names[model]]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    prompt = "Once upon a time, there was a little"
    for model in listed:
        for what, flags, options in [
            ("greedy", [], {"temperature": 0}),
            ("seeded", ["--temperature", "0.9", "--top-p", "0.9", "--top-k", "40", "--seed", "7"],
             {"temperature": 0.9, "top_p": 0.9, "seed": 7, "extra_body": {"top_k": 40}}),
        ]:
            want = generate(model, "--prompt", prompt, "--max-tokens", "40", *flags)
            got = client.completions.create(model=model, prompt=prompt, max_tokens=40, **options)
            stream = client.completions.create(model=model, prompt=prompt, max_tokens=40, stream=True, stream_options={"include_usage": True}, **options)
            pieces, usage = [], None
            for chunk in stream:
                usage = chunk.usage or usage
                pieces += [choice.text for choice in chunk.choices]
            c.ok(f"{model}, {what}: as trainer generate", got.choices[0].text == want["text"], repr(want["text"][:60]))
            c.ok(f"{model}, {what}: streamed", "".join(pieces) == want["text"] and usage == got.usage, f"{len(pieces)} pieces, {usage.completion_tokens} tokens")

    many = client.completions.create(model="base", prompt=[prompt, "The cat"], n=2, max_tokens=8, seed=1)
    c.ok("two prompts, n=2", [x.index for x in many.choices] == [0, 1, 2, 3])
    scored = client.completions.create(model="base", prompt=prompt, max_tokens=0, echo=True, logprobs=2, temperature=0)
    lp = scored.choices[0].logprobs
    c.ok("echo with log-probabilities", lp.token_logprobs[0] is None and all(x < 0 for x in lp.token_logprobs[1:])
         and len(lp.tokens) == scored.usage.prompt_tokens, f"sum {sum(lp.token_logprobs[1:]):.4f}")
    stopped = client.completions.create(model="base", prompt=prompt, max_tokens=60, temperature=0, stop=["."])
    c.ok("stop", "." not in stopped.choices[0].text and stopped.choices[0].finish_reason == "stop", repr(stopped.choices[0].text[:60]))

    if a.chat:
        conversations(c, client, listed, lambda model, *more: generate(model, *more, *template))

    for what, error, call in [
        ("a model that is not there", openai.NotFoundError, lambda: client.completions.create(model="gone", prompt="x")),
        ("a wrong key", openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list()),
        ("a temperature below 0", openai.BadRequestError, lambda: client.completions.create(model="base", prompt="x", temperature=-1)),
        ("too long a text", openai.BadRequestError, lambda: client.completions.create(model="base", prompt="x " * 2000)),
    ]:
        try:
            call()
            c.ok(what, False, "no error")
        except error as e:
            c.ok(what, True, e.message[:100])

    def one(i):
        model = listed[i % len(listed)]
        got = client.completions.create(model=model, prompt=f"{prompt} {i % 8}", max_tokens=24, temperature=0.8, seed=i % 8)
        return model, i % 8, got.choices[0].text

    began = time.time()
    with concurrent.futures.ThreadPoolExecutor(a.clients) as pool:
        results = list(pool.map(one, range(a.clients)))
    took = time.time() - began
    alone = {}
    wrong = 0
    for model, k, text in results:
        if (model, k) not in alone:
            alone[model, k] = client.completions.create(model=model, prompt=f"{prompt} {k}", max_tokens=24, temperature=0.8, seed=k).choices[0].text
        wrong += text != alone[model, k]
    c.ok(f"{a.clients} clients at once get what they get alone", wrong == 0, f"{wrong} differ, {took:.1f} s")


def forms(c, client, listed):
    """Answers in JSON: what the schema allows, streamed the same, side by side what each is alone."""
    schema = {"type": "object", "properties": {"country": {"enum": ["France", "Spain"]}, "big": {"type": "boolean"}},
              "required": ["country", "big"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}}

    def ask(seed, **more):
        return client.chat.completions.create(model=listed[0], messages=[{"role": "user", "content": "Describe Paris as JSON."}], seed=seed,
                                              temperature=0.8, max_tokens=100, response_format=form, **more)

    def text(seed):
        return ask(seed).choices[0].message.content

    alone = [text(seed) for seed in range(4)]
    values = [json.loads(t) for t in alone]
    c.ok("json_schema", all(v["country"] in ("France", "Spain") and isinstance(v["big"], bool) and len(v) == 2 for v in values), repr(alone[0]))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        c.ok("json_schema, side by side", list(pool.map(text, range(4))) == alone)
    c.ok("json_schema, streamed", "".join(e.choices[0].delta.content or "" for e in ask(0, stream=True) if e.choices) == alone[0])


def conversations(c, client, listed, generate):
    forms(c, client, listed)
    messages = [{"role": "system", "content": "Answer in one sentence."}, {"role": "user", "content": "What is the capital of France?"}]
    path = pathlib.Path(f"serve_check_{os.getpid()}.json")
    path.write_text(json.dumps(messages))
    try:
        for model in listed:
            for what, flags, options in [("greedy", [], {"temperature": 0}), ("seeded", ["--temperature", "1", "--seed", "5"], {"temperature": 1, "seed": 5})]:
                want = generate(model, "--messages", str(path), "--max-tokens", "32", *flags)
                got = client.chat.completions.create(model=model, messages=messages, max_tokens=32, logprobs=True, top_logprobs=2, **options)
                pieces = []
                for chunk in client.chat.completions.create(model=model, messages=messages, max_completion_tokens=32, stream=True, **options):
                    pieces += [choice.delta.content or "" for choice in chunk.choices]
                text = got.choices[0].message.content
                c.ok(f"{model}, conversation, {what}: as trainer generate", text == want["text"] == "".join(pieces), repr(text[:60]))
                c.ok(f"{model}, conversation, {what}: tokens of the log-probabilities", "".join(x.token for x in got.choices[0].logprobs.content) == text)
    finally:
        path.unlink()


if __name__ == "__main__":
    main()
