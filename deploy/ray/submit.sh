#!/usr/bin/env bash
# Ray's job submission, one host with all its cards: deploy/ray/submit.sh ADDRESS run.yaml [FLAGS of trainer]
# The folder that this is started in travels as the job's working directory, with a program for GPUs (make gpu) in it. Ray
# itself trains nothing: the entry point is one process that needs the cards, which Ray keeps for it, and which it gives two
# minutes to save where the job is stopped.
set -euo pipefail
address=${1:?usage: submit.sh ADDRESS CONFIG [FLAGS]} config=${2:?usage: submit.sh ADDRESS CONFIG [FLAGS]}
shift 2
exec ray job submit --address "$address" --entrypoint-num-gpus "${GPUS:-8}" --working-dir . \
	--runtime-env-json '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "120"}}' -- \
	./trainer train --config "$config" --devices all --resume auto "$@"
