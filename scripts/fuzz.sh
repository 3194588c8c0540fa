#!/bin/sh
# Runs every fuzz target for a while, one after another: scripts/fuzz.sh [SECONDS of each, default 60] [PACKAGE...]
# What is found stays in the package's testdata/fuzz, becomes a test by that, and belongs in the tree with its fix.
#
# Minimising an input is bounded to 10 runs: with the default of 60 seconds for each new input, targets whose one run
# takes long do nothing else, and test nothing.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- ./...
failed=0
for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "$@"); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "== $package $target"
		go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" -fuzzminimizetime 10x || failed=1
	done
done
exit $failed
