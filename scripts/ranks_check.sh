#!/usr/bin/env bash
# Proves training on several GPUs of this machine: byte equality with one GPU, the exchange in the captured graph, a rank that
# is lost, and what a step takes on one GPU and on more.
#   make ranks                             builds the programs into build/ranks (needs Go, no GPU)
#   scripts/ranks_check.sh build/ranks OUT [TESTS|bench]   needs neither Go nor network; OUT gets a log of each part
# What lies in build/ranks is run: the tests, where train.test is there, and doctor and the timings, where trainer is.
# NCCL is looked for where cuBLASLt is, or in the folder of TRAINER_NCCL. Exit code 1: a part failed.
set -u
bin=$(realpath "$1") out=$2 only=${3:-}
mkdir -p "$out"
out=$(realpath "$out")
cd "$(dirname "$0")/.."
export TRAINER_GPU=require-several
failed=0
say() { echo "$*" | tee -a "$out/summary.txt"; }

: >"$out/summary.txt"
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
say "$gpus GPUs: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
nvidia-smi topo -m >"$out/topology.txt" 2>&1
if [ -x "$bin/trainer" ]; then
	"$bin/trainer" doctor >"$out/doctor.txt" 2>&1
	say "$("$bin/trainer" version | head -1); $(grep -i nccl "$out/doctor.txt" | head -2)"
fi
if [ "$only" != bench ] && [ -x "$bin/train.test" ]; then
	[ -x "$bin/kernels.test" ] && { (cd kernel/cuda && timeout 100 "$bin/kernels.test" -test.run 'TestInOrder|TestHeads' -test.v) >"$out/kernels.log" 2>&1 || failed=1; }
	(cd train && timeout 400 "$bin/train.test" -test.run "${only:-TestGPURanks|TestGPUSlices|TestGPUContext|TestGPUSumIsInTheGraph|TestGPULostRank|TestGPUStandingRank}" -test.v) >"$out/ranks.log" 2>&1 || failed=1
	grep -ahE '^ *--- |FAIL|panic|device_test.go' "$out/kernels.log" "$out/ranks.log" | head -80 | tee -a "$out/summary.txt"
fi
if [ -x "$bin/trainer" ] && { [ -z "$only" ] || [ "$only" = bench ]; }; then
	step() { # NAME SHAPE BATCH LENGTH DEVICES [MORE FLAGS]
		"$bin/trainer" bench --shape "$2" --batch "$3" --length "$4" --r 16 --targets all-linear --devices "$5" --device cuda --checkpointing auto \
			--steps 20 --warmup 5 --steps-alone --json "${@:6}" >"$out/$1-$5.json" 2>"$out/$1-$5.log" ||
			{ failed=1; say "$1 on $5: $(tail -2 "$out/$1-$5.log")"; return; }
		python3 - "$out/$1-$5.json" "$out/${1%-slices}-1.json" <<-'PY' | tee -a "$out/summary.txt"
			import json, os, sys
			now = json.load(open(sys.argv[1]))
			one = json.load(open(sys.argv[2])) if os.path.exists(sys.argv[2]) else None
			n = now.get("ranks", 1)
			times = f'{now["tokens_per_step"] * one["ahead_ms"] / one["tokens_per_step"] / now["ahead_ms"]:.3f} times one, ' if one else ""
			print(f'{now["shape"]} {now["batch"]}x{now["length"]} on {n}{", base in slices" if "base_sharding" in now["layout"] else ""}: {now["median_ms"]:.3f} ms waited, {now["ahead_ms"]:.3f} ms queued ahead, '
			      f'{times}{now["queued"]} nodes, held {now["held_bytes"]} bytes each')
		PY
	}
	for n in 1 2 4 8; do
		[ "$n" -gt "$gpus" ] && continue
		step 135m smollm2-135m 1 512 "$n"
		step 1b tinyllama-1.1b 4 2048 "$n"
		step 7b llama-2-7b 4 2048 "$n"
		[ "$n" -gt 1 ] && step 7b-slices llama-2-7b 4 2048 "$n" --base-sharding always
		# 70 billion parameters: on one card where they fit it, in slices of four and more
		if [ "$n" = 1 ] || [ "$n" -ge 4 ]; then
			step 70b llama-3.3-70b 4 2048 "$n" --steps 5 --warmup 2 --base-sharding "$([ "$n" = 1 ] && echo never || echo always)"
		fi
		# a long row, on one card and shared by all
		step 8b-long qwen3-8b 1 32768 "$n" --steps 5 --warmup 2 --context-parallel "$n"
	done
fi
say "$([ $failed = 0 ] && echo passed || echo FAILED)"
exit $failed
