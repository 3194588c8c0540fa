#!/usr/bin/env bash
# Tiers of the GPU validation: scripts/gpu-test.sh quick|convergence|memory|extended|full|all [FLAGS of trainer tier]
# TRAINER names the program; without it make gpu builds what is stale. trainer tier --help lists the flags.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${TRAINER:-}" ]; then
	make -s -C "$root" gpu >&2
	TRAINER=$root/trainer
fi
exec "$TRAINER" tier "$@"
