#!/usr/bin/env python3
"""What trackers cost a run, dead and alive, and what real programs read of them.

    python3 -m venv venv && venv/bin/pip install prometheus_client
    venv/bin/python scripts/tracker_check.py --trainer ./trainer [--config FILE] [--rounds N] [--full DIR] [--log FILE]

Trains one configuration with each, and at the same time without, so that whatever else the machine does slows both: an address that swallows connections, a server
that accepts and never answers, one that answers 500, one that answers every request after 3 s, a folder on a full file
system (--full, such as a tmpfs of 16k), and all that work. The median step time of each stands beside that of the run without, with the ratio and its
spread over the rounds, and so does the processor time. Every run must end with exit code 0 and the adapter of the run without trackers,
byte for byte. Then /metrics and the file are read by prometheus_client's parser, and a webhook's events by a server.
"""
import argparse
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


class Hooks(http.server.BaseHTTPRequestHandler):
    """A webhook that keeps what it gets, or answers as its server's mode says."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))
        if self.server.mode == "slow":
            time.sleep(3)
        self.send_response(500 if self.server.mode == "500" else 204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64


def hooks(mode):
    server = Server(("127.0.0.1", 0), Hooks)
    server.mode, server.got = mode, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/"


def hanging():
    """Accepts connections, and never reads or answers."""
    s = socket.create_server(("127.0.0.1", 0), backlog=64)
    kept = []

    def accept():
        while True:
            kept.append(s.accept()[0])

    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{s.getsockname()[1]}/"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trainer", required=True)
    p.add_argument("--config", default="cpu_stories_quick.yaml")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--full", help="a folder on a file system without room")
    p.add_argument("--log")
    a = p.parse_args()
    a.trainer = os.path.abspath(a.trainer)
    work = pathlib.Path(tempfile.mkdtemp())
    with open(a.log, "w") if a.log else open(os.devnull, "w") as log:
        try:
            bad = check(a, work, log)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if bad else 0)


def check(a, work, log):
    failures = []

    def say(text):
        print(text, flush=True)
        log.write(text + "\n")

    def ok(what, good, detail=""):
        if not good:
            failures.append(what)
        say(f"{'ok  ' if good else 'FAIL'}  {what}" + (f": {detail}" if detail else ""))

    port = socket.create_server(("127.0.0.1", 0))
    metrics = f"127.0.0.1:{port.getsockname()[1]}"
    port.close()
    good, good_url = hooks("204")
    _, bad_url = hooks("500")
    _, slow_url = hooks("slow")
    hang = hanging()
    swallow = "http://10.255.255.1:9/"
    cases = {
        "none": ([], {}),
        "webhook, swallowed": (["webhook"], {"tracking.webhook_url": swallow}),
        "webhook, hangs": (["webhook"], {"tracking.webhook_url": hang}),
        "webhook, 500": (["webhook"], {"tracking.webhook_url": bad_url}),
        "webhook, 3 s": (["webhook"], {"tracking.webhook_url": slow_url}),
        "mlflow, swallowed": (["mlflow"], {"tracking.mlflow_url": swallow}),
        "mlflow, hangs": (["mlflow"], {"tracking.mlflow_url": hang}),
        "all that work": (["webhook", "prometheus", "tensorboard", "wandb", "trackio", "csv"],
                          {"tracking.webhook_url": good_url, "tracking.metrics_addr": metrics}),
    }
    full = {}
    if a.full:
        cases["trackio, disk full"] = (["trackio"], {})
        cases["wandb, disk full"] = (["wandb"], {})
        cases["prometheus, disk full"] = (["prometheus"], {"tracking.metrics_file": os.path.join(a.full, "run.prom")})
        full = {"trackio, disk full": {"TRACKIO_DIR": a.full}, "wandb, disk full": {"WANDB_DIR": a.full}}
    results = {name: [] for name in cases}
    adapters, said, scraped, prom = set(), {name: set() for name in cases}, [], ""
    none = cases.pop("none")

    def start(out, trackers, keys, env):
        command = [a.trainer, "--config", a.config, "--set", f"output_dir={out}", "--set", f"training.max_steps={a.steps}",
                   "--set", "training.logging_steps=1", "--set", f"training.report_to=[{','.join(trackers)}]"]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        log_file = open(f"{out}.log", "w+")
        return subprocess.Popen(command, env=os.environ | {"TRACKIO_DIR": str(work / "trackio")} | env, stdout=log_file, stderr=subprocess.STDOUT), log_file

    def ended(run, log_file, out):
        """Milliseconds a step, processor seconds, and what was said."""
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        log_file.seek(0)
        text = log_file.read()
        step = re.search(r"^step +([0-9.]+) ms in the median", text, re.M)
        if run.returncode or not step:
            ok(f"{out.name}: the run ends well", False, text[-800:])
            return None
        adapters.add(hashlib.sha256((out / "adapter_model.safetensors").read_bytes()).hexdigest())
        return float(step[1]), usage.ru_utime + usage.ru_stime, text

    for turn in range(a.rounds):
        for name, (trackers, keys) in cases.items():
            out = work / f"{turn}-{name.replace(' ', '').replace(',', '-')}"
            beside = work / f"{out.name}-none"
            jobs = [(out, start(out, trackers, keys, full.get(name, {}))), (beside, start(beside, *none, {}))]
            while name == "all that work" and turn == 0 and not os.path.exists(out / "adapter_model.safetensors") and len(scraped) < 2000:
                try:
                    scraped.append(urllib.request.urlopen(f"http://{metrics}/metrics", timeout=1).read().decode())
                except OSError:
                    pass
                time.sleep(0.05)
            with_it, without = [ended(*job, folder) for folder, job in jobs]
            if not with_it or not without:
                continue
            results[name].append((with_it[:2], without[:2]))
            said[name] |= {re.sub(r"\d+ of \d+", "N of M", line)[:160] for line in with_it[2].splitlines() if line.startswith("tracking: ")}
            if name == "all that work" and turn == 0:
                prom = (out / "metrics.prom").read_text()
    say(f"{a.rounds} rounds of {a.steps} steps; the median over rounds, least to most")
    for name, pairs in results.items():
        if not pairs:
            continue
        steps = sorted(x[0] / y[0] for x, y in pairs)
        cpu = sorted(x[1] / y[1] for x, y in pairs)
        ms = statistics.median(x[0] - y[0] for x, y in pairs)
        say(f"      {name:22} {statistics.median(x[0] for x, _ in pairs):7.2f} ms a step, {statistics.median(y[0] for _, y in pairs):7.2f} without: {ms:+6.2f}, ratio "
            f"{statistics.median(steps):.3f} ({steps[0]:.3f} to {steps[-1]:.3f}); processor time {statistics.median(cpu):.3f} ({cpu[0]:.3f} to {cpu[-1]:.3f})")
        for line in sorted(said[name]):
            log.write(f"        {line}\n")
        # Where the machine does more than this, processor time is what is steady; a step may cost no more than its spread.
        ok(f"{name}: costs no step", statistics.median(cpu) <= (1.1 if name == "all that work" else 1.02) and steps[0] <= 1.03)
    ok("every run has the same adapter", len(adapters) == 1, f"{len(adapters)} different")
    read_back(a, ok, prom, scraped, good.got)
    return failures


def read_back(a, ok, prom, scraped, got):
    samples = {s.name: s.value for family in text_string_to_metric_families(prom) for s in family.samples}
    ok("prometheus_client reads the file", samples.get("tierlora_step") == a.steps and samples.get("tierlora_ended") == 1, f"{len(samples)} samples")
    read = [{s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples} for text in scraped]
    steps = [s["tierlora_step"] for s in read if "tierlora_step" in s]
    ok("and /metrics while the run trains", len(steps) > 3 and steps == sorted(steps), f"{len(steps)} readings, steps {steps[:1]} to {steps[-1:]}")
    events = [e["event"] for e in got]
    each = len(events) / a.rounds
    ok("the webhook's server has every event", events.count("step") == a.steps * a.rounds and events.count("end") == a.rounds
       and all(e["status"] == "done" for e in got if e["event"] == "end"), f"{each:.0f} a run")


if __name__ == "__main__":
    main()
