#!/usr/bin/env bash
# Rates of text/tokenizer and of Hugging Face tokenizers, single thread, on the same megabyte of mixed text, in alternation,
# after checking that both give the same ids. Needs TRAINER_DATA (the shared data) and a PYTHON that has tokenizers.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${TRAINER_DATA:?the folder with the shared data}"
exec env TOKENIZERS_PARALLELISM=false RAYON_NUM_THREADS=1 GOMAXPROCS=1 "${PYTHON:-python3}" scripts/bench/tokenizer.py "$@"
