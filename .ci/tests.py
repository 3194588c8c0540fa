"""Reads the output of go test -v ./... from standard input.

  tests.py packages   a line a package
  tests.py failed     what failing packages printed
  tests.py names      the packages that failed, each with its tests and the end of what they said
  tests.py skipped    skipped tests by reason, with their number
"""
import re
import sys

END = re.compile(r"^(ok|FAIL|\?|---)?\s+(github\.com/tierlora/\S+)\s")
RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)")
NAME = re.compile(r"^=== (?:RUN|CONT|NAME)\s+(\S+)")


def packages(lines):
    """Yields the lines of each package, its result last."""
    part = []
    for line in lines:
        part.append(line)
        if END.match(line):
            yield part
            part = []
    if part:
        yield part


def said(part, test):
    """A panic's first lines, else the last that a failed test printed itself, or for "" the package's."""
    own, name = [], ""
    for line in part:
        if m := NAME.match(line):
            name = m.group(1)
        elif m := RESULT.match(line):
            name = m.group(2)
        elif (name == test or not test) and line.strip() and not re.match(r"^(=== |ok|PASS$|FAIL$|FAIL\s|exit status )", line):
            own.append(line.rstrip())
    panic = next((i for i, x in enumerate(own) if x.startswith("panic: ")), max(0, len(own) - 12))
    return own[panic:panic + 12]


def skipped(lines):
    """Yields package, test and reason of each skipped test."""
    for part in packages(lines):
        where = END.match(part[-1])
        name, last = "", {}
        for line in part:
            if m := NAME.match(line):
                name = m.group(1)
            elif m := RESULT.match(line):
                if m.group(1) == "SKIP":
                    yield where.group(2) if where else "?", m.group(2), last.get(m.group(2), "no reason given")
            elif m := re.match(r"^\s+\S+\.go:\d+: (.*)", line):
                last[name] = m.group(1)


def main():
    what, lines = sys.argv[1], sys.stdin.read().splitlines()
    if what == "packages":
        print("\n".join(part[-1] for part in packages(lines)))
    elif what == "failed":
        for part in packages(lines):
            if re.match(r"^(FAIL|panic)", part[-1]) or any(re.match(r"^\s*(--- FAIL|FAIL|panic:)", x) for x in part):
                print("\n".join(x for x in part if not re.match(r"^(=== |\s*--- PASS)", x)))
    elif what == "names":
        for part in packages(lines):
            where = END.match(part[-1])
            names = [m.group(2) for x in part if (m := RESULT.match(x)) and m.group(1) == "FAIL"]
            if not names and (not re.match(r"^(FAIL|panic)", part[-1]) or part == ["FAIL"]):  # go test ends with a line FAIL of its own
                continue
            package = where.group(2).rsplit("tierlora/", 1)[-1] if where else "?"
            print(f"failed: {package}: {' '.join(names) or 'no test of it (a panic, a build that failed)'}")
            for name in names or [""]:
                print("\n".join("  " + x for x in said(part, name)))
    elif what == "skipped":
        passed = sum(1 for x in lines if (m := RESULT.match(x)) and m.group(1) == "PASS")
        reasons = {}
        for pkg, test, reason in skipped(lines):
            reasons.setdefault(reason, []).append(pkg.rsplit("tierlora/", 1)[-1] + "." + test)
        n = sum(map(len, reasons.values()))
        print(f"tests: {passed} passed (subtests counted), {n} skipped")
        for reason, tests in sorted(reasons.items()):
            print(f"  {len(tests)} skipped: {reason}\n    {' '.join(tests)}")


if __name__ == "__main__":
    main()
