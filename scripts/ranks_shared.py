#!/usr/bin/env python3
"""Proves several ranks on one GPU: processes that share it (docs/LAUNCH.md) train the bytes of one.

  TRAINER=build/trainer scripts/ranks_shared.py OUT [--device cuda|cpu] [--at-once N]

Each case is stories260K on 8 steps of 12 rows: with one process, then with 2 and 4, whose adapter, losses and gradient
norms have to be equal byte for byte. Runs that stopped go on with another number of processes to the same bytes, and
trainer verify agrees. Where ranks share each row (context parallel) two runs and two groups of two have to be equal, and
losses and norms those of one process within rounding. On GPUs it needs NCCL 2.30 or newer (TRAINER_NCCL). Exit code 1:
something differed; OUT has each run and its log.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BASE = {"training.max_steps": 8, "training.batch_size": 1, "training.global_batch_size": 12, "training.save_steps": 3, "training.logging_steps": 1,
        "training.grad_norm_steps": 1, "dataset.max_length": 160, "expect.loss_decrease": 0}
CASES = {
    "plain": {},
    "lora": {},
    "dropout": {"lora.dropout": 0.05},
    "packed": {"dataset.packing": "true"},
    "evaluated": {"dataset.val_split": 0.1, "training.eval_steps": 2, "training.eval_on_start": "true"},
    "fp16": {"training.precision": "fp16"},
    "fp32": {"training.precision": "fp32"},
    "full": {"training.gradient_checkpointing": "full"},
    "offload": {"training.gradient_checkpointing": "offload"},
    "sliced": {"training.dequantised_weights": "never"},
    "adam8": {"training.optimizer": "adamw_8bit"},
}
CONTEXT = {"fp32": (2e-5, 2e-5), "dropout": (5e-3, 2e-2), "full": (5e-3, 2e-2), "sliced": (5e-3, 2e-2), "evaluated": (5e-3, 2e-2)}  # losses and norms within


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--at-once", type=int, default=4)
    a = p.parse_args()
    t = Trial(a.out, a.device)
    with concurrent.futures.ThreadPoolExecutor(a.at_once) as pool:
        for done in [pool.submit(t.resumed)] + [pool.submit(t.case, name) for name in CASES if a.device == "cuda" or name not in ("fp16",)]:
            done.result()
    print(f"{t.passed} passed, {t.failed} failed")
    return 1 if t.failed else 0


class Trial:
    def __init__(self, out, device):
        self.out, self.device, self.passed, self.failed = os.path.abspath(out), device, 0, 0
        self.program = os.path.abspath(os.environ.get("TRAINER", os.path.join(ROOT, "build", "trainer")))
        os.makedirs(self.out, exist_ok=True)
        with open(os.path.join(ROOT, "configs", "cpu_stories_quick.yaml")) as f:
            text = f.read().split("\nquantization:\n")
        with open(self.at("lora.yaml"), "w") as f:  # without the section quantization
            f.write(text[0].replace("adapter: qlora", "adapter: lora") + "\n" + text[1].split("\n\n", 1)[1])

    def at(self, *names):
        return os.path.join(self.out, *names)

    def train(self, name, processes, settings, *more):
        """Trains into a folder of that name; the exit code."""
        config = self.at("lora.yaml") if name.startswith("lora") else "cpu_stories_quick"
        args = ["train", "--config", config, "--quiet", *more]
        for key, value in {**BASE, **settings, "device": self.device, "output_dir": self.at(name)}.items():
            args += ["--set", f"{key}={value}"]
        env = dict(os.environ, TRAINER_SHARE_GPU=str(processes), NCCL_NVLS_ENABLE="0")
        if processes > 1:
            args = ["launch", "--nproc", str(processes), "--", *args]
        with open(self.at(name + ".log"), "a") as log:
            return subprocess.run([self.program, *args], stdout=log, stderr=log, env=env, timeout=300).returncode

    def adapter(self, name):
        try:
            with open(self.at(name, "adapter_model.safetensors"), "rb") as f:
                return hashlib.sha256(f.read()).hexdigest()
        except FileNotFoundError:
            return None

    def metrics(self, name):
        """Loss and gradient norm of each step."""
        try:
            with open(self.at(name, "metrics.jsonl")) as f:
                return [(m["loss"], m["grad_norm"]) for m in map(json.loads, f) if "grad_norm" in m]
        except FileNotFoundError:
            return None

    def report(self, what, ok, detail=""):
        self.passed, self.failed = self.passed + bool(ok), self.failed + (not ok)
        print("ok    " if ok else "FAILED", what, detail, flush=True)

    def case(self, name):
        settings = CASES[name]
        if self.train(name + "-1", 1, settings) != 0:
            return self.report(name, False, f"one process: see {name}-1.log")
        if name == "sliced":
            settings = {**settings, "training.base_sharding": "always"}
        want = self.adapter(name + "-1"), self.metrics(name + "-1")
        for n in (2, 4):
            run = f"{name}-{n}"
            code = self.train(run, n, settings)
            self.report(f"{name}: {n} processes", code == 0 and (self.adapter(run), self.metrics(run)) == want, f"exit code {code}")
        if name in CONTEXT:
            self.context(name, {**settings, "training.context_parallel_size": 2}, want[1])

    def context(self, name, settings, want):
        runs = {f"{name}-shared": 2, f"{name}-shared-again": 2, f"{name}-shared-groups": 4}
        codes = [self.train(run, n, settings) for run, n in runs.items()]
        got = self.metrics(f"{name}-shared")
        if any(codes) or not got or len(got) != len(want):
            return self.report(f"{name}: context parallel", False, f"exit codes {codes}")
        loss, norm = (max(abs(a[i] / b[i] - 1) for a, b in zip(got, want)) for i in (0, 1))
        equal = len({self.adapter(run) for run in runs}) == 1
        self.report(f"{name}: context parallel, twice and in two groups", equal and loss <= CONTEXT[name][0] and norm <= CONTEXT[name][1],
                    f"equal: {equal}; losses differ by {loss:.2g}, norms by {norm:.2g} from one process")

    def resumed(self):
        if self.train("whole", 1, {}) != 0:
            return self.report("resumed", False, "see whole.log")
        for first, last in ((2, 1), (1, 2), (4, 2)):
            run = f"resumed-{first}-{last}"
            codes = [self.train(run, first, {})]
            for name in os.listdir(self.at(run)):  # as if it had stopped behind step 3
                if name != "checkpoint-3":
                    path = self.at(run, name)
                    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
            codes.append(self.train(run, last, {}, "--resume", "auto"))
            codes.append(subprocess.run([self.program, "verify", self.at(run)], capture_output=True).returncode)
            self.report(f"resumed: {first} processes, then {last}", not any(codes) and self.adapter(run) == self.adapter("whole"), f"exit codes {codes}")


if __name__ == "__main__":
    sys.exit(main())
