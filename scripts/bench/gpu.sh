#!/usr/bin/env bash
# Training steps on one GPU, ours and the peers' (Unsloth; transformers + PEFT + bitsandbytes with Liger), in alternation on the same card.
#   PYTHONPATH=site scripts/bench/gpu.sh TRAINER TOKENIZER.json OUT [gpu_run.py's options]
# TRAINER is a binary built with -tags gpu; TOKENIZER.json any Llama tokenizer of 32,000 words (Unsloth wants one, and so does the run from
# a folder); gpu_site.sh makes site. Writes OUT/gpu.json, OUT/gpu.md and OUT/gpu.log.
# README.md has the cases and what is counted. Models of random weights (16 GB) go to BENCH_DIR: a RAM disk, or files that stay in the page cache. BENCH_COMMIT names the commit where git cannot.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trainer=$(realpath "${1:?usage: gpu.sh TRAINER TOKENIZER.json OUT}") tokenizer=$(realpath "${2:?}") out=${3:?}
shift 3
mkdir -p "$out"
export BENCH_COMMIT=${BENCH_COMMIT:-$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)}
exec "${PYTHON:-python3}" "$here/gpu_run.py" --trainer "$trainer" --tokenizer "$tokenizer" --out "$(realpath "$out")" "$@"
