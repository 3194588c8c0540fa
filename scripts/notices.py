#!/usr/bin/env python3
"""Rewrites the second part of THIRD_PARTY_NOTICES: the licences of the Go modules that the program links.

The first part, what the repository itself carries, is written by hand and kept.
"""
import os
import subprocess

ROOT = os.path.dirname(os.path.abspath(__file__)) + "/.."
MARK = "PART 2: Go modules linked into the program"


def modules():
    form = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}"
    found = set()
    for tags, cgo in (("", "0"), ("gpu", "1")):
        env = dict(os.environ, CGO_ENABLED=cgo)
        out = subprocess.run(["go", "list", "-e", "-deps", "-tags", tags, "-f", form, "./cmd/trainer"], cwd=ROOT, env=env, check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        found.update(line for line in out.splitlines() if line.strip())
    return [line.split("\t") for line in sorted(found)]


def main():
    path = ROOT + "/THIRD_PARTY_NOTICES"
    head = open(path).read().split(MARK)[0]
    texts = {}
    for name, version, folder in modules():
        files = sorted(f for f in os.listdir(folder) if f.upper().split(".")[0] in ("LICENSE", "LICENCE", "COPYING", "NOTICE"))
        if not files:
            raise SystemExit(f"{name} {version}: no licence file in {folder}")
        text = "\n".join(open(f"{folder}/{f}").read().strip("\n") for f in files)
        if len(text) > 10000 and "Apache License" in text[:200]:
            text = "Apache License 2.0: the text is in the file LICENSE of this repository."
        texts.setdefault(text, []).append(f"{name} {version}")
    with open(path, "w") as f:
        f.write(head + MARK + "\n(written by scripts/notices.py)\n")
        for text, names in sorted(texts.items(), key=lambda kv: kv[1]):
            f.write("\n" + "-" * 80 + "\n" + "\n".join(names) + "\n\n" + text.expandtabs(4) + "\n")
    print(f"{sum(map(len, texts.values()))} modules, {len(texts)} texts")


if __name__ == "__main__":
    main()
