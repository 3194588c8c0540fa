#!/usr/bin/env python3
"""A tier of the GPU validation, as a user would go through it: doctor, selfcheck, plan, the tier's run, and what it must have left.

    scripts/gpu-test.sh quick|convergence|memory|extended|full [OUT]

    quick        gpu_smollm2_quick        10 steps, 135M, 256 MB      memory    gpu_tinyllama_memory    50 steps, 1.1B, 2 GB
    convergence  gpu_smollm2_convergence  100 steps, 135M, 256 MB     extended  gpu_tinyllama_extended  500 steps, 1.1B, 2 GB
    full         gpu_llama7b_full         1000 steps, 7B, 12 GB

TRAINER names the program; without it `make gpu` builds what is stale. MODEL names the base model's folder; without it the Hugging Face cache is
searched (HF_HOME). ARGS are further arguments of the run ("--set seed=7"); SELFCHECK=no leaves that out, where several tiers run in turn. OUT (default runs/gpu-test/TIER-TIME) gets summary.txt, summary.json
and every command's output. Exit code 0: all passed, 1: something failed, 2: usage, 3: no usable GPU, driver or model.
Memory beside the arenas is the growth of the whole card while the run is on it, so nothing else should use the card then.
"""
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

TIERS = {"quick": "gpu_smollm2_quick", "convergence": "gpu_smollm2_convergence", "memory": "gpu_tinyllama_memory", "extended": "gpu_tinyllama_extended",
         "full": "gpu_llama7b_full"}
ROOT = Path(__file__).resolve().parent.parent


def query(what):
    """A line of nvidia-smi about the first GPU; "" where it is missing."""
    try:
        done = subprocess.run(["nvidia-smi", "-i", "0", f"--query-gpu={what}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def used():
    text = query("memory.used")
    return int(text) << 20 if text.isdigit() else None


def commit():
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"]
    try:
        return subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def program():
    if os.environ.get("TRAINER"):
        return str(Path(os.environ["TRAINER"]).resolve())
    if subprocess.run(["make", "-s", "gpu"], cwd=ROOT, stdout=sys.stderr).returncode:
        sys.exit("make gpu failed; TRAINER names a program that is built already")
    return str(ROOT / "trainer")


class Tier:
    def __init__(self, name, out):
        self.name, self.config, self.out, self.checks = name, TIERS[name], out, []
        self.trainer, self.model = program(), os.environ.get("MODEL")

    def check(self, what, ok, detail=""):
        self.checks.append(dict(check=what, ok=bool(ok), detail=str(detail)))
        print(f"{'pass' if ok else 'FAIL'}  {what}{f': {detail}' if detail else ''}", flush=True)
        return ok

    def call(self, name, *args, watch=False):
        """Runs the program; its JSON, exit code, last words, and seconds, most growth of the card, most memory of the process."""
        began, before, grown = time.time(), used() if watch else None, None
        with open(self.out / f"{name}.json", "w+") as o, open(self.out / f"{name}.log", "w+") as e:
            p = subprocess.Popen([self.trainer, *args], stdout=o, stderr=e, cwd=self.out)
            pid = 0
            while not pid:
                time.sleep(0.05)
                pid, status, usage = os.wait4(p.pid, os.WNOHANG)
                now = used() if watch and before is not None and not pid else None
                if now is not None:
                    grown = max(grown or 0, now - before)
            p.returncode = os.waitstatus_to_exitcode(status)
            memory = dict(seconds=time.time() - began, card_growth_bytes=grown, host_peak_bytes=usage.ru_maxrss << 10)
            o.seek(0)
            e.seek(0)
            text, log = o.read(), e.read().strip()
        try:
            data = json.loads(text)
        except ValueError:
            data = {}
        return data, p.returncode, log.split("\n")[-1][-600:], memory

    def run(self):
        doctor, code, words, _ = self.call("doctor", "doctor", "--cuda", "--json")
        if not self.check("a usable GPU", code == 0, words if code else doctor["gpus"][0]["name"]):
            return self.finish(3 if code == 3 else 1, doctor=doctor)
        checks, code = {}, 0
        if os.environ.get("SELFCHECK") != "no":
            checks, code, words, took = self.call("selfcheck", "selfcheck", "--json")
            self.check("selfcheck", code == 0, f"{checks.get('passed')} passed, {checks.get('failed')} failed, {checks.get('skipped')} skipped in {took['seconds']:.1f} s" if checks else words)
        config = ["--config", self.config] + (["--set", "base_model=" + str(Path(self.model).resolve() if Path(self.model).is_dir() else self.model)] if self.model else [])
        config += shlex.split(os.environ.get("ARGS", ""))
        plan, code, words, _ = self.call("plan", "plan", *config, "--json")
        if not self.check("plan", code == 0, f"{plan['total_bytes']:,} bytes, gradient_checkpointing {plan['gradient_checkpointing']}" if plan else words):
            return self.finish(3 if code == 3 else 1, doctor=doctor, selfcheck=checks)
        result, code, words, took = self.call("train", "train", *config, "--set", "output_dir=run", "--json", watch=True)
        self.check("the run", code == 0, "exit code 0" if code == 0 else f"exit code {code}: {words}")
        if result:
            self.check("all steps", result["steps"] == result["max_steps"] == plan["steps"], f"{result['steps']} of {result['max_steps']}, {result['tokens']:,} tokens")
            self.check("held bytes are the plan's", result["held_bytes"] == plan["total_bytes"], f"{result['held_bytes']:,}")
            self.check("the adapter", all((self.out / "run" / f).is_file() for f in ("adapter_config.json", "adapter_model.safetensors")))
            for x in result.get("expect", []):
                self.check(f"expect {x['criterion']} {x['want']}", x["met"], x["got"])
        return self.finish(0, doctor=doctor, selfcheck=checks, plan=plan, train=result, exit_code=code, **took)

    def finish(self, code, **facts):
        ok = all(c["ok"] for c in self.checks)
        code = code or (0 if ok else 1)
        facts.get("selfcheck", {}).pop("checks", None)
        summary = dict(tier=self.name, config=self.config, model=self.model, ok=ok, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), commit=commit(),
                       gpu=query("name"), driver=query("driver_version"), checks=self.checks, **facts)
        (self.out / "summary.json").write_text(json.dumps(summary, indent=1))
        text = self.page(summary)
        (self.out / "summary.txt").write_text(text)
        print("\n" + text + f"\n{self.out}/summary.json", flush=True)
        return code

    def page(self, s):
        mib = lambda n: "not measured" if n is None else f"{n / 2**20:,.1f} MiB"
        d, p, r = s.get("doctor") or {}, s.get("plan") or {}, s.get("train") or {}
        rows = [("tier", f"{s['tier']} ({s['config']}.yaml): {'PASSED' if s['ok'] else 'FAILED'}"), ("when", f"{s['time']}, commit {s['commit'] or 'unknown'}"),
                ("program", f"{d.get('version')}, {d.get('build')} build, {d.get('go')}, {d.get('platform')}, {d.get('cores')} cores"),
                ("GPU", f"{s['gpu'] or d.get('no_gpu_reason')}, driver {d.get('driver') or s['driver']} (CUDA {d.get('driver_cuda')})"),
                ("libraries", ", ".join(f"{x['name']} {x.get('version') or x.get('problem')}" for x in d.get("libraries") or []) or "none")]
        if p:
            rows += [("model", f"{p['model']}, {p['parameters']:,} parameters, {p['trained_parameters']:,} trained"),
                     ("layout", "; ".join([f"gradient_checkpointing {p['gradient_checkpointing']}"] + [f"does not fit: {t['way']}" for t in p.get("tried", [])] + p.get("notes", [])))]
        if r:
            t = r.get("step_ms") or {}
            rows += [("steps", f"{r['steps']} of {r['max_steps']}, {p['batch']} rows of up to {p['sequence_length']} tokens, {r['tokens']:,} in all, {100 * p['padding']:.1f} % padding, {s['seconds']:.1f} s from command to end"),
                     ("step", f"median {t.get('median', 0):.2f} ms; first tenth {t.get('first_tenth', 0):.2f}, last tenth {t.get('last_tenth', 0):.2f}"),
                     ("loss", f"{r['first_loss']:.4f} at the first step, {r['last_loss']:.4f} at the last" + (f", evaluation {r['eval_loss']:.4f}" if r.get("eval_loss") else "")),
                     ("memory", f"{r['held_bytes']:,} bytes held ({mib(r['held_bytes'])}); the card grew by {mib(s['card_growth_bytes'])}; host process at most {mib(s['host_peak_bytes'])}, mapped pages of the model counted")]
        lines = [f"{k:10}{v}" for k, v in rows] + [""]
        lines += [f"{'pass' if c['ok'] else 'FAIL'}  {c['check']}{': ' + c['detail'] if c['detail'] else ''}" for c in s["checks"]]
        return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in TIERS:
        print(__doc__, file=sys.stderr)
        return 2
    name = sys.argv[1]
    out = Path(sys.argv[2] if len(sys.argv) == 3 else ROOT / "runs" / "gpu-test" / time.strftime(f"{name}-%Y%m%d-%H%M%S")).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if (out / "run").exists():
        print(f"{out} holds an earlier run; name another folder", file=sys.stderr)
        return 2
    return Tier(name, out).run()


if __name__ == "__main__":
    sys.exit(main())
