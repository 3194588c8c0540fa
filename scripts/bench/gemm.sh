#!/usr/bin/env bash
# GFLOP/s of kernel/gemm (float32 weights, and weights that stay NF4) and of OpenBLAS on the same shapes, in alternation, best
# of all rounds: gemm.sh [rounds] [1,2 threads]. Needs a PYTHON with a numpy that was built on OpenBLAS. TRAINER_CPU=avx2 or generic measures another path.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" scripts/bench/gemm.py "$@"
