#!/usr/bin/env bash
# Time of a training step, ours and transformers + PEFT (+ bitsandbytes), on the CPU, in alternation, on the same token ids.
#   PYTHON=venv/bin/python SMOLLM2=folder scripts/bench/step.sh [--rounds 3] [--only stories] [--json FILE]
# PYTHON needs torch, transformers, peft and bitsandbytes. Without SMOLLM2 (a folder of SmolLM2-135M) only stories260K is measured.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
CGO_ENABLED=0 go build -o "$build/trainer" ./cmd/trainer
"${PYTHON:-python3}" scripts/bench/step.py --trainer "$build/trainer" --folder "$build" "$@"
