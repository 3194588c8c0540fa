#!/usr/bin/env python3
"""The text of an issue about a nightly validation that failed, from the reports that it left.

    nightly_issue.py FOLDER [--out FILE] [--post] [--run URL]

FOLDER is searched for report.json (trainer tier), doctor.json and NAME.err, what a command said that failed without either.
The text goes to FILE (standard output), with the title
as its first line; nothing is written where everything passed. --post gives it to GitHub's gh: a comment on the open issue
with the label nightly, or a new one. Text from reports is data: it is cut, and quoted so that it is no Markdown and names
nobody. Exit code 0, 2 where FOLDER holds no report or --post failed.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

LABEL = "nightly"
MOST_BYTES = 64 << 20  # of a report; one with the samples of hours has a few
MOST_LINES = 40  # of checks for one tier
MOST_SAID = 20  # last lines of what a command said that left no report


def quoted(text, most=300):
    """Text as a code span: no mention, link, HTML or line break comes of it."""
    text = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in str(text))).strip()
    if len(text) > most:
        text = text[: most - 3] + "..."
    return "`" + text.replace("`", "'") + "`" if text else "(nothing)"


def load(path):
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES} bytes")
    data = json.loads(path.read_bytes())
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data


def field(value, *names, default=""):
    for name in names:
        if not isinstance(value, dict):
            return default
        value = value.get(name)
    return default if value is None else value


def items(value, name):
    got = field(value, name, default=[])
    return [x for x in got if isinstance(x, dict)] if isinstance(got, list) else []


def failing(checks):
    return [c for c in checks if field(c, "status") != "pass"]


def checks_text(checks):
    lines = [f"- {quoted(field(c, 'check'))} {quoted(field(c, 'status'), 10)}: {quoted(field(c, 'detail'))}" for c in failing(checks)[:MOST_LINES]]
    left = len(failing(checks)) - len(lines)
    return lines + ([f"- and {left} more"] if left > 0 else [])


def tier_text(tier):
    lines = [f"### Tier {quoted(field(tier, 'tier'), 40)}: {quoted(field(tier, 'status'), 10)}", ""]
    lines.append(f"- reason: {quoted(field(tier, 'reason'))}, exit code {quoted(field(tier, 'exit_code'), 10)}")
    lines.append(f"- base model: {quoted(field(tier, 'base_model'))}, weights {quoted(field(tier, 'base_weights_sha256'), 80)}")
    lines += checks_text(items(tier, "checks"))
    regressions = field(tier, "comparison", "regressions", default=[])
    if isinstance(regressions, list):
        lines += [f"- slower, larger or worse than kept reports: {quoted(r)}" for r in regressions[:MOST_LINES]]
    return lines + [""]


def report_text(path, report):
    lines = [f"## {quoted(path)}", ""]
    lines.append(f"- started {quoted(field(report, 'time'), 40)}, program {quoted(field(report, 'program', 'version'), 80)}, "
                 f"SHA-256 {quoted(field(report, 'program', 'sha256'), 80)}")
    lines.append(f"- GPU {quoted(field(report, 'machine', 'gpu'), 80)}, driver {quoted(field(report, 'machine', 'driver'), 40)}")
    command = field(report, "command", default=[])
    if isinstance(command, list) and command:
        lines.append(f"- again: {quoted(' '.join(map(str, command)), 500)}")
    lines += checks_text(items(report, "checks")) + [""]
    for tier in items(report, "tiers"):
        if field(tier, "status") != "pass":
            lines += tier_text(tier)
    return lines


def doctor_text(path, doctor):
    """Findings of doctor that are errors, a GPU that is not there, and what differs from the pins; [] where there is none."""
    bad = [f for f in items(doctor, "findings") if field(f, "severity") == "error"]
    lines = [f"- {quoted(field(f, 'about'))}: {quoted(field(f, 'says'))} remedy: {quoted(field(f, 'remedy'))}" for f in bad[:MOST_LINES]]
    lines += [f"- {quoted(field(m, 'key'))}: {quoted(field(m, 'found'))}, pinned {quoted(field(m, 'expected'))} remedy: {quoted(field(m, 'remedy'))}"
              for m in items(doctor, "mismatches")[:MOST_LINES]]
    if not field(doctor, "gpus") and field(doctor, "no_gpu_reason"):  # the night asks doctor for one, to which it is no error
        lines.append(f"- no GPU: {quoted(field(doctor, 'no_gpu_reason'))}")
    return [f"## {quoted(path)}", "", *lines, ""] if lines else []


def said_text(path, name):
    """The last lines of what a command said that failed and left no report."""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - (64 << 10)))
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return [f"## {quoted(name)}", "", *(f"- {quoted(line)}" for line in lines[-MOST_SAID:] or ["it said nothing"]), ""]


def text(folder, run=""):
    """Title and body; ("", "") where everything passed. The second value says how many reports there were."""
    body, bad, seen = [], [], 0
    for path in sorted(folder.rglob("report.json")):
        seen += 1
        name = path.relative_to(folder).as_posix()
        try:
            report = load(path)
        except (OSError, ValueError, RecursionError) as problem:
            bad.append(name)
            body += [f"## {quoted(name)}", "", f"- can't be read: {quoted(problem)}", ""]
            continue
        if field(report, "status") == "pass":
            continue
        tiers = [str(field(t, "tier")) for t in items(report, "tiers") if field(t, "status") != "pass"]
        bad += tiers or [name]
        body += report_text(name, report)
    for path in sorted(folder.rglob("doctor.json")):
        if path.with_name("report.json").exists():
            continue  # a tier's own, which its report has judged
        seen += 1
        name = path.relative_to(folder).as_posix()
        try:
            lines = doctor_text(name, load(path))
        except (OSError, ValueError, RecursionError) as problem:
            lines = [f"## {quoted(name)}", "", f"- can't be read: {quoted(problem)}", ""]
        if lines:
            bad.append("doctor")
            body += lines
    for path in sorted(folder.rglob("*.err")):
        if path.with_suffix(".json").exists() or (path.with_suffix("") / "report.json").exists():
            continue  # which says more
        seen += 1
        bad.append(path.stem)
        name = path.relative_to(folder).as_posix()
        try:
            body += said_text(path, name)
        except OSError as problem:
            body += [f"## {quoted(name)}", "", f"- can't be read: {quoted(problem)}", ""]
    if not bad:
        return "", "", seen
    names = re.sub(r"[^A-Za-z0-9_./, -]", "?", ", ".join(dict.fromkeys(bad)))[:120]
    head = ["A nightly validation failed. The reports, with plots, are among the artefacts of the run."]
    if run:
        head.append(f"Run: {run}")
    return f"Nightly validation failed: {names}", "\n".join([*head, "", *body]), seen


def post(title, body):
    """Comments on the open issue, so that a fault of ten nights is one issue, or opens it."""
    found = subprocess.run(["gh", "issue", "list", "--label", LABEL, "--state", "open", "--json", "number", "--limit", "1"], check=True, capture_output=True, text=True)
    numbers = json.loads(found.stdout)
    if numbers:
        command = ["gh", "issue", "comment", str(numbers[0]["number"]), "--body-file", "-"]
    else:
        subprocess.run(["gh", "label", "create", LABEL, "--force", "--description", "nightly validation on GPUs"], check=True)
        command = ["gh", "issue", "create", "--title", title, "--label", LABEL, "--body-file", "-"]
    subprocess.run(command, input=body[:60000], text=True, check=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=Path)
    p.add_argument("--out", type=Path, help="instead of standard output")
    p.add_argument("--post", action="store_true", help="open an issue, or comment on the open one, by gh")
    p.add_argument("--run", default="", help="address of the run, for the text")
    a = p.parse_args()
    title, body, seen = text(a.folder, a.run if re.fullmatch(r"https://[\w./-]+", a.run) else "")
    if not title and not (seen == 0 and a.post):
        print(f"{seen} reports, nothing failed" if seen else f"{a.folder} holds no report", file=sys.stderr)
        return 0 if seen else 2
    if not title:  # the night failed before it left a report
        title, body = "Nightly validation failed: no report", "No report was left: the machine was not reached, or the program was not built.\n" + (f"Run: {a.run}\n" if a.run else "")
    if a.out:
        a.out.write_text(f"{title}\n\n{body}\n", encoding="utf-8")
    else:
        print(f"{title}\n\n{body}")
    if a.post:
        try:
            post(title, body)
        except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as problem:
            print(f"the issue could not be posted: {problem}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
