"""Driver of gpu.sh. All peer processes are started together, load, compile and take five steps; only when every one of them waits does the
measuring begin, so nothing else runs on card or processor then. Cases go ours, peer, ours, peer ...; ours is a fresh process each time
(five steps, then ten timed), a peer's is the same process continuing (five more steps, then ten timed). Results are written as they come.
"""
import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gpu_report
from gpu_peers import Card

HERE = Path(__file__).resolve().parent
OURS_TARGETS = {"qv": "q_proj,v_proj", "qkvo": "q_proj,k_proj,v_proj,o_proj", "all": "all-linear", "parameters": "q_proj,k_proj,v_proj,o_proj"}
PARAMETERS = "mlp.experts.gate_up_proj,mlp.experts.down_proj"  # of experts, with the targets of that name
PACKAGES = ["torch", "triton", "transformers", "peft", "accelerate", "bitsandbytes", "unsloth", "unsloth_zoo", "liger_kernel", "nvidia-cudnn-cu13", "nvidia-cublas"]

# model, batch x length, targets, rank, ours (kinds of checkpointing, +dequantised for weights kept so, +vram=SIZE or +vram=peer for a plan that holds
# no more than that, or than the case's first peer allocates; those after the first in the first round only), peers (checkpointing and options, @WORK+WORK
# for a process that several cases share), rounds; large ones first, they free the most memory
CASES = [
    ("tinyllama-1.1b", 4, 2048, "all", 16, ["none", "none+dequantised"], ["unsloth:none", "peft:none:liger"], 2),
    ("llama-2-7b", 4, 2048, "all", 16, ["none", "none+dequantised"], ["unsloth:none"], 2),
    ("llama-2-7b", 1, 512, "qkvo", 8, ["none", "none+dequantised"], ["unsloth:none:graphs", "peft:none:ligerce,compile"], 2),
    ("tinyllama-1.1b", 1, 512, "qkvo", 8, ["none", "none+dequantised"], ["unsloth:none:graphs", "unsloth:none"], 2),
    ("smollm2-135m", 1, 512, "qv", 8, ["none", "none+dequantised"], ["unsloth:none:graphs"], 2),
    ("smollm2-135m", 8, 2048, "qv", 8, ["none", "none+dequantised"], ["unsloth:none:graphs"], 2),
    ("tinyllama-1.1b", 4, 2048, "all", 16, ["full", "offload", "selective"], ["unsloth:ckpt"], 2),
    ("llama-2-7b", 4, 2048, "all", 16, ["full", "offload", "selective"], ["unsloth:ckpt"], 1),
]


def spec(case, peer):
    model, batch, length, targets, rank, _, _, _ = case
    kind, rest = peer.split(":", 1)
    rest, _, works = rest.partition("@")
    return f"{kind}:{model}:{works or f'{batch}x{length}'}:{targets}:{rank}:{rest}"


class Worker:
    """A peer process that waits for orders; its other output goes to the log."""

    def __init__(self, a, name, log):
        self.spec, self.log, self.answers, self.tail = name, log, queue.Queue(), []
        home = Path(a.scratch) / f"worker-{name.replace(':', '-').replace(',', '-')}"
        home.mkdir(parents=True, exist_ok=True)
        env = dict(os.environ, PYTHONUNBUFFERED="1", TORCHINDUCTOR_COMPILE_THREADS=str(a.compile_threads))
        # packages that exclude one another live in environments of their own
        python = os.environ.get(f"BENCH_PYTHON_{name.split(':')[0].upper()}", sys.executable)
        self.process = subprocess.Popen([python, str(HERE / "gpu_peers.py"), "serve", a.models, name], cwd=home, env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("@{"):
                self.answers.put(json.loads(line[1:]))
            elif line.strip():
                self.tail = (self.tail + [line.rstrip()[:300]])[-25:]
        self.answers.put(None)

    def answer(self, seconds):
        """The next answer; None when the process ended or the time is over."""
        try:
            return self.answers.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def order(self, line, seconds):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            return None
        return self.answer(seconds)

    def stop(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.write(f"==== {self.spec}\n" + "\n".join(self.tail) + "\n")
        self.log.flush()


class Given:
    """What processes that ended gave back of the card, so that the use of one process shows in the use of all."""

    def __init__(self, card):
        self.card, self.bytes, self.rounds = card, 0, {}

    def note(self, name, answer):
        if answer.get("card_used"):
            self.rounds.setdefault(name, []).append((answer, answer["card_used"] + self.bytes))

    def stop(self, worker):
        """Ends a process; each of its rounds gets what it had of the card then, by the driver's count."""
        before = self.card.used()
        worker.stop()
        without = self.card.used() + self.bytes
        self.bytes += before - self.card.used()
        for answer, used in self.rounds.pop(worker.spec, []):
            answer["card_bytes"] = (used - without) or None


def shell(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except OSError as e:
        return str(e)


def host():
    versions = {}
    for p in PACKAGES:
        try:
            versions[p] = importlib.metadata.version(p)
        except importlib.metadata.PackageNotFoundError:
            versions[p] = None
    gpu = shell("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,temperature.gpu,power.draw", "--format=csv,noheader")
    return dict(gpu=gpu, date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), commit=os.environ.get("BENCH_COMMIT"),
                kernel=platform.release(), python=platform.python_version(), cores=os.cpu_count(), versions=versions)


def flags(mode, allocated):
    """trainer bench's flags of a mode; without a limit where it wants a peer's memory and no peer told it."""
    kind, *more = mode.split("+")
    out = ["--checkpointing", kind]
    for m in more:
        name, _, value = m.partition("=")
        if value == "peer" and not allocated:
            continue
        out += [f"--{name}"] + ([str(allocated) if value == "peer" else value] if value else [])
    return out


def bench(a, card, case, mode, extra=(), allocated=None):
    model, batch, length, targets, rank, _, _, _ = case
    command = [a.trainer, "bench", "--shape", model, "--batch", str(batch), "--length", str(length), "--r", str(rank), "--targets", OURS_TARGETS[targets],
               *(["--target-parameters", PARAMETERS] if targets == "parameters" else []), *flags(mode, allocated), "--device", a.device, "--json", *extra]
    before, peak = card.used(), 0
    at = time.time()
    with open(a.out + "/bench.out", "w+") as sink:
        p = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)
        while p.poll() is None:
            peak = max(peak, card.used() - before)
            time.sleep(0.05)
        wall = time.time() - at
        sink.seek(0)
        text = sink.read()
    try:
        return dict(json.loads(text[text.index("{"):]), wall_s=wall, card_bytes=peak or None, limit=allocated if "=peer" in mode else None, command=" ".join(["trainer"] + command[1:]))
    except ValueError:
        return dict(error=text[-600:], exit=p.returncode, command=" ".join(["trainer"] + command[1:]))


def from_folder(a):
    """One step of a run on a folder of safetensors: seconds from the command to the line of the first step, and to the end with the adapter saved."""
    home = Path(a.scratch) / "first"
    home.mkdir(parents=True, exist_ok=True)
    rows = home / "rows.jsonl"
    ids = [[5 + (7 * i + j) % 30000 for j in range(512)] for i in range(8)]
    rows.write_text("".join(json.dumps({"input_ids": x, "labels": x}) + "\n" for x in ids))
    config = {"base_model": f"{a.models}/tinyllama-1.1b", "adapter": "qlora", "lora": {"r": 8, "alpha": 16, "target_modules": OURS_TARGETS["qkvo"].split(",")},
              "quantization": {"bits": 4, "type": "nf4", "block_size": 64, "double_quant": True},
              "dataset": {"path": str(rows), "format": "tokenized", "max_length": 512}, "training": {"max_steps": 1, "batch_size": 1, "logging_steps": 1},
              "output_dir": str(home / "run"), "device": a.device}
    (home / "one.yaml").write_text(json.dumps(config))  # JSON is YAML
    out = []
    for i in range(3):
        at = time.time()
        p = subprocess.Popen([a.trainer, "--config", str(home / "one.yaml"), "--set", f"output_dir={home}/run{i}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines, step = [], None
        for line in p.stdout:
            lines.append(line.rstrip())
            if step is None and line.startswith("step "):
                step = time.time() - at
        p.wait()
        out.append(dict(step_s=step, end_s=time.time() - at, exit=p.returncode, tail=lines[-12:]))
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--trainer", required=True)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--models", default=os.environ.get("BENCH_DIR", tempfile.gettempdir() + "/bench-models"))
    ap.add_argument("--scratch", default=tempfile.gettempdir() + "/bench-scratch")
    ap.add_argument("--limit", type=float, default=1e6, help="seconds in all; cases that would begin later are left out and said so")
    ap.add_argument("--setup", type=float, default=600, help="seconds that the peers get to load and compile")
    ap.add_argument("--answer", type=float, default=120, help="seconds that a round of a peer may take")
    ap.add_argument("--compile-threads", type=int, default=2)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--no-first", action="store_true", help="leave out the run from a folder to its first step")
    ap.add_argument("--need", default="", help="stop when no peer of this kind comes up")
    ap.add_argument("--no-ceilings", action="store_true", help="leave out what the card can do")
    ap.add_argument("--cases", help="JSON in place of the list in this file, or @FILE")
    a = ap.parse_args()
    began = time.time()
    if a.cases and a.cases.startswith("@"):
        a.cases = Path(a.cases[1:]).read_text()
    cases = [tuple(c) for c in json.loads(a.cases)] if a.cases else CASES
    result = dict(host=host(), cases=[], workers={}, left_out=[])
    log = open(f"{a.out}/gpu.log", "w")

    def note(text):
        print(f"[{time.time() - began:6.1f} s] {text}", flush=True)

    def keep():
        Path(f"{a.out}/gpu.json").write_text(json.dumps(result))
        Path(f"{a.out}/gpu.md").write_text(gpu_report.markdown(result))

    card = Card()
    result["host"]["nvml"] = bool(card.nvml)
    models = list(dict.fromkeys([c[0] for c in cases if c[6]] + ([] if a.no_first else ["tinyllama-1.1b"])))
    models = [m for m in models if not Path(a.models, m, "complete").exists()]
    writer = models and subprocess.Popen([sys.executable, str(HERE / "gpu_peers.py"), "models", a.models, a.tokenizer, *models], stdout=log, stderr=log)
    workers = {s: Worker(a, s, log) for c in cases for s in (spec(c, p) for p in c[6])}
    deadline = time.time() + a.setup
    waiting = dict(workers)
    while waiting and time.time() < deadline:
        for name, w in list(waiting.items()):
            got = w.answer(0.05)
            if got or w.process.poll() is not None:
                del waiting[name]
                result["workers"][name] = got or dict(error="\n".join(w.tail[-8:]))
                note(f"{name}: " + (f"ready, import {got['import_s']:.1f} load {got['load_s']:.1f} s, {got['works']}" if got else "ended: " + " | ".join(w.tail[-4:])))
    for name in waiting:
        result["workers"][name] = dict(error=f"not ready after {a.setup:.0f} s")
        workers[name].process.kill()
        note(f"{name}: not ready, ended")
    if writer:
        writer.wait()
    alive = {n: w for n, w in workers.items() if "ready" in result["workers"][n]}
    note(f"{len(alive)} of {len(workers)} peers wait; used on the card {card.used() / 2**30:.1f} GiB")
    keep()
    if workers and not any(n.startswith(a.need) for n in alive):
        for w in workers.values():
            w.stop()
            print(w.spec, *w.tail[-12:], sep="\n  ")
        sys.exit(f"no peer {a.need} came up".replace("  ", " "))

    given = Given(card)

    def left(seconds, what):
        if time.time() - began + seconds < a.limit:
            return True
        result["left_out"].append(what)
        note(f"no time left for {what}")
        return False

    for number, case in enumerate(cases):
        model, batch, length, targets, rank, modes, peers, rounds = case
        record = dict(model=model, batch=batch, length=length, targets=targets, rank=rank, ours={m: [] for m in modes}, peers={p: [] for p in peers})
        result["cases"].append(record)
        work = f"{batch}x{length}"
        first = result["workers"].get(spec(case, peers[0]), {}).get("works", {}).get(work, {}) if peers else {}
        for turn in range(rounds):
            for mode in modes:
                if turn and mode != modes[0] or not left(6, f"{model} {batch}x{length} ours {mode}, round {turn + 1}"):
                    continue
                r = bench(a, card, case, mode, allocated=first.get("allocated"))
                record["ours"][mode].append(r)
                note(f"{model} {batch}x{length} ours {mode}: " + (f"{r['median_ms']:.2f} ms ({r['fastest_ms']:.2f} to {r['slowest_ms']:.2f})" if "median_ms" in r else r["error"][-300:]))
            for p in peers:
                w = alive.get(spec(case, p))
                ready = result["workers"].get(spec(case, p), {}).get("works", {}).get(work, {})
                if w and "error" in ready:
                    record["peers"][p].append(ready)
                elif w and left(6, f"{w.spec}, round {turn + 1}"):
                    r = w.order(f"measure {work} 5 10", a.answer)
                    if r:
                        given.note(w.spec, r)
                    else:  # a late answer would be taken for the next one
                        r = dict(error=f"no answer in {a.answer:.0f} s" if w.process.poll() is None else "\n".join(w.tail[-8:]))
                        given.stop(alive.pop(w.spec))
                    record["peers"][p].append(r)
                    note(f"{w.spec}: " + (f"{statistics.median(r['ms']):.2f} ms ({min(r['ms']):.2f} to {max(r['ms']):.2f})" if "ms" in r else r["error"][-300:]))
        for p in peers:
            name = spec(case, p)
            if name in alive and not any(name == spec(c, q) for c in cases[number + 1:] for q in c[6]):
                given.stop(alive.pop(name))
        keep()
        if number == min(1, len(cases) - 1) and a.device == "cuda" and not a.no_ceilings and left(12, "ceilings"):
            done = subprocess.run([sys.executable, str(HERE / "gpu_peers.py"), "ceilings"], capture_output=True, text=True)
            log.write(done.stderr)
            result["ceilings"] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else dict(error=done.stderr[-500:])
            note("ceilings " + ("measured" if done.returncode == 0 else done.stderr[-300:]))
        if number == min(3, len(cases) - 1) and not a.no_first and left(10, "command to first step"):
            small = ("tinyllama-1.1b", 1, 512, "qkvo", 8, [], [], 0)
            result["first"] = dict(folder=from_folder(a), bench=[bench(a, card, small, "none", ("--warmup", "0", "--steps", "1")) for _ in range(3)])
            note("command to first step: " + json.dumps([{k: v for k, v in r.items() if k != "tail" or r["exit"]} for r in result["first"]["folder"]]))
            keep()
    for w in alive.values():
        given.stop(w)
    result["host"]["gpu_after"] = shell("nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw", "--format=csv,noheader")
    keep()
    Path(a.out, "bench.out").unlink(missing_ok=True)
    note("done")


if __name__ == "__main__":
    main()
