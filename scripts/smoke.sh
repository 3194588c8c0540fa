#!/usr/bin/env bash
# What the program does on any platform, in seconds and without network: train, refuse a used folder, resume to the same
# bytes, answer. Exit code 0, or 1 with what was wrong.
#   scripts/smoke.sh [PROGRAM]    without PROGRAM it is built
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=$work/trainer$(go env GOEXE 2>/dev/null || true)
if [ $# -gt 0 ]; then
	case $1 in /* | ?:*) program=$1 ;; *) program=$here/$1 ;; esac
else
	CGO_ENABLED=0 go build -o "$program" ./cmd/trainer
fi
cd "$work"
"$program" version
short=("$program" --config cpu_stories_quick.yaml --set training.max_steps=10 --set training.save_steps=5 --set expect.loss_decrease=0)
"${short[@]}" --set output_dir=whole >whole.log 2>&1 || { cat whole.log && exit 1; }
if "${short[@]}" --set output_dir=whole >again.log 2>&1; then
	echo "scripts/smoke.sh: a second run into the same folder was not refused" >&2
	exit 1
fi
mkdir parts
cp -R whole/checkpoint-5 parts/
"${short[@]}" --set output_dir=parts --resume parts/checkpoint-5 >parts.log 2>&1 || { cat parts.log && exit 1; }
cmp whole/adapter_model.safetensors parts/adapter_model.safetensors
"$program" generate --model embedded:stories260K --prompt 'Once upon a time' --max-tokens 8
echo 'scripts/smoke.sh: trained, refused the used folder, resumed to the same bytes, answered'
