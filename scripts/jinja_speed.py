#!/usr/bin/env python3
"""Times Jinja2 and text/jinja on the same conversations in one run, one thread each.

    python scripts/jinja_speed.py GOLDENS/templates

Needs jinja2 3.1.6 and go; prints microseconds for a conversation and the ratio. Run it from the repository's root.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import jinja_fuzz

TEMPLATES = ("axo-chatml", "axo-llama3", "trl-llama3_1", "trl-qwen3_training", "trl-gptoss")


def theirs(folder, name, conversations):
    g = json.loads((folder / f"{name}.json").read_text())
    template = jinja_fuzz.ENV.from_string(g["source"])
    work = [dict(messages=c["messages"], tools=c.get("tools"), documents=None, add_generation_prompt=False, bos_token="<s>", eos_token="</s>")
            for c in conversations if "text" in g["renders"][c["name"]]["plain"]]
    best = float("inf")
    for _ in range(5):
        start, n = time.perf_counter(), 0
        while time.perf_counter() - start < 0.3:
            for w in work:
                template.render(**w)
            n += len(work)
        best = min(best, (time.perf_counter() - start) / n * 1e6)
    return best


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]).resolve()
    conversations = json.loads((folder / "conversations.json").read_text())
    env = dict(os.environ, TRAINER_DATA=str(folder.parent.parent))
    out = subprocess.run(["go", "test", "-run", "^$", "-bench", "Render", "-cpu", "1", "-count", "3", "./text/jinja"], env=env, capture_output=True, text=True, check=True).stdout
    ours = {}
    for name, us in re.findall(r"BenchmarkRender/([\w.-]+?)\.json\S*\s.*?([\d.]+) us/conversation", out):
        ours[name] = min(float(us), ours.get(name, float("inf")))
    for name in TEMPLATES:
        t = theirs(folder, name, conversations)
        print(f"{name:22} Jinja2 {t:8.1f} us   here {ours[name]:7.2f} us   {t / ours[name]:5.1f} times")


main()
