#!/usr/bin/env bash
# One tier of the GPU validation, from doctor to a page of results: scripts/gpu-test.sh quick|convergence|memory|extended|full [OUT]
# gpu_test.py says what is run and which variables it takes.
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_test.py" "$@"
