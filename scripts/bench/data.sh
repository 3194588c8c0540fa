#!/usr/bin/env bash
# Preparing 100 MB of data (template, tokenise, pack): ours against datasets + TRL on the same cores, in one run. Needs TRAINER_DATA (the shared
# data), TRAINER_SMOLLM2 (SmolLM2-135M-Instruct's folder) and a PYTHON with datasets, transformers and trl. Arguments: data.py says.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${TRAINER_DATA:?the folder with the shared data}" "${TRAINER_SMOLLM2:?the folder of SmolLM2-135M-Instruct}"
exec "${PYTHON:-python3}" scripts/bench/data.py "$@"
