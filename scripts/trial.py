#!/usr/bin/env python3
"""A trial of what kills and double starts do to runs. By hand; on a CPU it takes minutes.

    scripts/trial.py [--kills 100] [--starts 8] [--seed 1] [--steps 60] [--trainer PROGRAM]

Kills: short runs of configs/cpu_stories_quick.yaml that save after every step are killed with SIGKILL at random moments,
up to five times each, and resumed with --resume auto until they end. Adapter and metrics (but for the clock's numbers)
are compared with those of a run that nobody disturbed. Double starts: two processes start into one folder at the same
moment; one must train, the other be refused with a message that names the first. Live runs: --resume auto on a run that
lives must be refused and leave it alone.

Without --trainer the program is built. It prints a table of counts. Exit code 0: all as it must be, 1: not, 2: usage.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KILLS_OF_A_RUN = 5
CLOCK = ("tokens/train_per_sec_per_gpu", "train_runtime", "train_samples_per_second", "train_steps_per_second",
         "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")


class Trial:
    def __init__(self, program, folder, steps, seed):
        self.program, self.folder, self.steps = program, Path(folder), steps
        self.random, self.count, self.problems = random.Random(seed), Counter(), []

    def start(self, out, *more):
        sets = ["training.max_steps=%d" % self.steps, "training.batch_size=1", "dataset.max_length=64", "training.save_steps=1",
                "training.save_total_limit=3", "training.logging_steps=1", "expect.loss_decrease=0", "output_dir=" + out]
        words = [self.program, "train", "--config", "cpu_stories_quick.yaml", "--quiet", *more]
        for s in sets:
            words += ["--set", s]
        return subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def wrong(self, what, text=""):
        self.problems.append(what)
        print("WRONG: %s\n%s" % (what, text), file=sys.stderr)

    def alone(self):
        """The undisturbed run, whose time the kills are spread over."""
        began = time.monotonic()
        p = self.start("alone")
        text = p.communicate()[1]
        if p.returncode != 0:
            sys.exit("the undisturbed run failed:\n" + text)
        self.seconds = time.monotonic() - began
        self.adapter = (self.folder / "alone/adapter_model.safetensors").read_bytes()
        self.metrics = self.numbers("alone")

    def numbers(self, out):
        lines = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in line.items() if k not in CLOCK} for line in lines]

    def compare(self, what, out):
        same = (self.folder / out / "adapter_model.safetensors").read_bytes() == self.adapter
        self.count[what + ", adapter equal" if same else what + ", adapter DIFFERENT"] += 1
        if not same:
            self.wrong("%s: the adapter differs" % out)
        if self.numbers(out) == self.metrics:
            self.count[what + ", metrics equal"] += 1
        else:
            self.count[what + ", metrics DIFFERENT"] += 1
            self.wrong("%s: the metrics differ" % out)

    def killed_run(self, out, most):
        kills = 0
        while True:
            p = self.start(out, "--resume", "auto")
            self.count["starts after a kill"] += kills > 0
            if kills < most:
                try:
                    p.wait(self.random.uniform(0, self.seconds))
                except subprocess.TimeoutExpired:
                    p.kill()
            text = p.communicate()[1]
            if p.returncode == -9:
                kills += 1
                self.count["kills"] += 1
                if not any(self.folder.joinpath(out).glob("checkpoint-*")):
                    self.count["kills before the first checkpoint"] += 1
                continue
            if "resumed from" in text:
                self.count["resumes that came to the end"] += 1
            if p.returncode != 0:
                self.count["runs that failed"] += 1
                return self.wrong("%s failed after %d kills" % (out, kills), text)
            break
        if kills:
            self.count["runs killed"] += 1
            self.compare("killed runs", out)

    def refused(self, p, text, by):
        if p.returncode == 1 and "is in use by process %d on " % by.pid in text:
            self.count["refused, the holder named"] += 1
        else:
            self.count["NOT REFUSED as it must be"] += 1
            self.wrong("exit code %d instead of a refusal" % p.returncode, text)

    def double_start(self, out):
        self.count["double starts"] += 1
        both = [self.start(out), self.start(out)]
        said = [p.communicate()[1] for p in both]
        won = [i for i in (0, 1) if both[i].returncode == 0]
        if len(won) != 1:
            return self.wrong("%s: exit codes %s" % (out, [p.returncode for p in both]), "\n".join(said))
        self.refused(both[1 - won[0]], said[1 - won[0]], both[won[0]])
        self.compare("double starts", out)

    def live_resume(self, out):
        self.count["resumes of a live run"] += 1
        live = self.start(out)
        while live.poll() is None and not any(self.folder.joinpath(out).glob("checkpoint-*")):
            time.sleep(0.005)
        p = self.start(out, "--resume", "auto")
        self.refused(p, p.communicate()[1], live)
        text = live.communicate()[1]
        if live.returncode != 0:
            return self.wrong("%s: the live run ended with %d" % (out, live.returncode), text)
        self.compare("live runs", out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--trainer", help="the program; built where it is not given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = args.trainer and os.path.abspath(args.trainer)
        if not program:
            program = os.path.join(folder, "trainer")
            subprocess.run(["go", "build", "-o", program, "./cmd/trainer"], cwd=ROOT, check=True)
        t = Trial(program, folder, args.steps, args.seed)
        t.alone()
        run = 0
        while t.count["kills"] < args.kills:
            t.killed_run("killed-%d" % run, min(KILLS_OF_A_RUN, args.kills - t.count["kills"]))
            run += 1
        for i in range(args.starts):
            t.double_start("double-%d" % i)
        for i in range(args.starts):
            t.live_resume("live-%d" % i)
    print("| what | count |\n|---|---:|")
    print("| seconds of the undisturbed run, %d steps | %.1f |" % (args.steps, t.seconds))
    for what in t.count:
        print("| %s | %d |" % (what, t.count[what]))
    print("| problems | %d |" % len(t.problems))
    return 1 if t.problems else 0


if __name__ == "__main__":
    sys.exit(main())
