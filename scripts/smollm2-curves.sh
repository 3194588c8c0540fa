#!/bin/sh
# Follows all 100 steps of PEFT's learning curves on SmolLM2-135M-Instruct (LoRA and QLoRA with double
# quantisation, float32) and keeps the log in docs/internals/lab.
#   TRAINER_DATA=… TRAINER_SMOLLM2=… scripts/smollm2-curves.sh
set -eu
: "${TRAINER_DATA:?the folder with goldens/smollm2}" "${TRAINER_SMOLLM2:?the folder of the model}"
cd "$(dirname "$0")/.."
log=docs/internals/lab/$(date +%Y-%m-%d)-smollm2-curves.log
{
	echo "commit $(git rev-parse --short HEAD), $(go version), $(uname -m), $(nproc) cores"
	TRAINER_SMOLLM2_STEPS=100 go test ./train -count=1 -v -timeout 60m -run '^TestSmolLM2CurvesEqualPEFT$'
} | tee "$log"
