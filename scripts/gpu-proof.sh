#!/usr/bin/env bash
# Proves a build on this machine's GPU: kernel suite, driver suite, compute-sanitizer, PEFT's error as the bound, runs, bench.
#   make proof                                  builds the programs into build/proof (needs Go, no GPU)
#   scripts/gpu-proof.sh build/proof OUT        needs neither Go nor network; OUT gets a log of each part and summary.txt
# TRAINER_SMOLLM2 (the model's folder) and TRAINER_DATA (with goldens/smollm2) add the tests on real weights. Where torch,
# transformers and PEFT are installed, references are computed here (scripts/proof_reference.py), Llama-2-7B's whole shape
# among them: 60 GB of device memory. PARTS names the parts to run: any of "side alone program bench". Exit code 1: a part failed.
# OLD is another build's program: curves and adapters are compared with its own byte by byte (scripts/same-as.sh).
set -u
bin=$(realpath "$1") out=$2
mkdir -p "$out/refs"
out=$(realpath "$out")
cd "$(dirname "$0")/.."
root=$PWD parts=${PARTS:-side alone program bench} failed=0
export TRAINER_GPU=require TRAINER_BINARY=$bin/trainer
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
tools='racecheck memcheck initcheck'
# Tests that share the card with others: no timing, no reading of free memory.
beside='TestGPU(SelfCheck|SmolLM2Curve|Families|ExpertsAsLayers|Gradients|Precisions|Overflow|LossOverflow|Curve|Evaluates|WithoutBLAS|Dropout)'

say() { echo "$*" | tee -a "$out/summary.txt"; }
wants() { [[ " $parts " == *" $1 "* ]]; }
# part NAME FOLDER SECONDS COMMAND... notes a part's exit code, and what its tests say.
part() {
	local name=$1 folder=$2 limit=$3 status=0 began=$SECONDS
	shift 3
	(cd "$root/$folder" && timeout "$limit" "$@") >"$out/$name.log" 2>&1 || status=$?
	say "$(printf '%-24s %s, %d s: %d passed, %d failed %s' "$name" "$([ $status = 0 ] && echo ok || echo "FAILED ($status)")" $((SECONDS - began)) \
		"$(grep -ac '^--- PASS' "$out/$name.log")" "$(grep -ac '^--- FAIL' "$out/$name.log")" "$(grep -a 'ERROR SUMMARY\|RACECHECK SUMMARY\|checks\? passed' "$out/$name.log" | tail -1 | tr -d =)")"
	[ $status = 0 ]
}
all() { # waits for parts in the background
	local p
	for p in "$@"; do wait "$p" || failed=1; done
}

: >"$out/summary.txt"
say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -1); $("$bin/trainer" version | head -1); $(git -C "$root" rev-parse --short HEAD 2>/dev/null)"

if wants side; then
	jobs=()
	if python3 -c 'import torch, transformers, peft' 2>/dev/null; then
		ref() { part "reference-$1" . 400 python3 -P scripts/proof_reference.py "$out/refs/$1" "${@:2}"; }
		nf4=quant/testdata/nf4.safetensors.gz
		llama() { ref llama-2-7b-nf4 --shape llama-2-7b --draws 2 --rows 1 --nf4 $nf4; }
		roomy=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | awk 'NR == 1 {print ($1 > 100000)}')
		[ "$roomy" = 1 ] && { llama & jobs+=($!); } # 60 GB: on a smaller card it comes when the others are done
		ref tinyllama-1.1b --shape tinyllama-1.1b --draws 8 & jobs+=($!)
		ref tinyllama-1.1b-nf4 --shape tinyllama-1.1b --draws 4 --nf4 $nf4 & jobs+=($!)
		ref stories260K --model configs/assets/stories260K --rows 4 --tokens 128 --draws 16 & jobs+=($!)
		ref stories260K-nf4 --model configs/assets/stories260K --rows 4 --tokens 128 --draws 16 --nf4 $nf4 & jobs+=($!)
		every() {
			local family status=0
			for family in qwen3 smollm3 granite olmo2 mistral gemma2 gemma3 phi3 phi3_head_96; do ref "$family" --family "$family" --rows 4 --draws 16 || status=1; done
			ref qwen3-nf4 --family qwen3 --rows 4 --draws 16 --nf4 $nf4 && return $status
		}
		every & jobs+=($!)
		if [ -n "${TRAINER_SMOLLM2:-}" ] && [ -n "${TRAINER_DATA:-}" ]; then
			ref smollm2-135m --model "$TRAINER_SMOLLM2" --rows 4 --tokens 256 --ids "$TRAINER_DATA/goldens/smollm2/evaluation.json" & jobs+=($!)
		fi
	else
		say 'left out: references (torch, transformers or peft is missing)'
	fi
	part kernels kernel/cuda 400 "$bin/kernels.test" -test.v & jobs+=($!)
	part driver kernel/gpu 90 "$bin/driver.test" -test.v & jobs+=($!)
	part train-beside train 400 "$bin/train.test" -test.run "$beside" -test.v & jobs+=($!)
	part infer infer 400 "$bin/infer.test" -test.run TestGPU -test.v & jobs+=($!)
	part selfcheck-beside selfcheck 400 "$bin/selfcheck.test" -test.run "$beside" -test.v & jobs+=($!)
	if [ -n "$sanitizer" ]; then
		for tool in $tools; do
			for group in attention='TestAttention$/(mma|hopper)' attention-wide='TestAttention$/wide' cached='TestAttentionCached|TestKVAppend' skinny='TestSkinny|TestRowFactors|TestDraw' attention-single-1='TestAttentionSingle/heads_of_(8|16|32|40|64|72)$' attention-single-2='TestAttentionSingle/heads_of_(80|96|112)$' attention-single-3='TestAttentionSingle/heads_of_(128|256)$' attention-single-4='TestAttentionSingle/heads_of_320$' attention-single-5='TestAttentionSingle/heads_of_512$' nf4=TestNF4 int8=TestInt8 lowrank=LowRank gemm="TestGemm$/mma" gemm-hopper="TestGemm$/hopper" gemm-single=TestGemmSingle experts=TestExpert delta=TestGatedDelta \
				elements='TestRMSNorm|TestRope|TestSwiglu|TestGeglu|TestSigmoidGate|TestCausalConv|TestHeadGate|TestHeadColumns|TestHeadParts|TestLatentKeys|TestMoEScores|TestShortConv|TestStateSpace|TestDoRA|TestBlockRotate|TestSoftcap|TestColumns|TestColumnSums|TestHeads|TestPositions|TestEmbedding|TestReplaceRows|TestSetRows|TestAxisAngles|TestCrossEntropy|TestSmoothedCrossEntropy|TestDivergence|TestTokenLoss|TestNEFTune|TestLogProbs|TestSequenceSums|TestAnswerSums|TestPreference|TestPool|TestTaskLoss|TestUnpaired|TestPolicy|TestAdamW|TestLion|TestSGD|TestScheduleFree|TestInOrder|TestNorm|TestReduce|TestDropout|TestBias|TestAddLowBits|TestScale|TestConvert'; do
				part "$tool-${group%%=*}" kernel/cuda 400 "$sanitizer" --report-api-errors no --error-exitcode 9 --tool "$tool" "$bin/kernels.test" -test.v -test.run "${group#*=}" & jobs+=($!)
			done
		done
	else
		say 'left out: compute-sanitizer is not installed'
	fi
	all "${jobs[@]}"
	if [ "${roomy:-1}" = 0 ]; then llama || failed=1; fi
fi

if wants alone; then
	[ -n "$(ls "$out/refs" 2>/dev/null)" ] && export TRAINER_PROOF=$out/refs
	part train-alone train 300 "$bin/train.test" -test.run TestGPU -test.skip "$beside" -test.v || failed=1
	part selfcheck-alone selfcheck 200 "$bin/selfcheck.test" -test.run TestGPU -test.skip "$beside" -test.v || failed=1
fi

if wants program; then
	part program tests 120 "$bin/tests.test" -test.run TestGPU -test.v || failed=1
	if [ -n "${OLD:-}" ]; then part same-as . 600 scripts/same-as.sh "$OLD" "$bin/trainer" "$out/same-as" || failed=1; fi
	part command cmd/trainer 90 "$bin/command.test" -test.run 'GPU|Doctor|ExitCodes' -test.v || failed=1
	jobs=()
	if [ -n "$sanitizer" ]; then
		for tool in $tools; do
			steps=3
			[ $tool = racecheck ] && steps=2 # three were killed on a host of 128 GiB
			part "$tool-run" . 120 "$sanitizer" --report-api-errors no --error-exitcode 9 --num-callers-device 0 --tool "$tool" "$bin/trainer" train --config cpu_stories_quick --set device=cuda \
				--set training.max_steps=$steps --set training.dequantised_weights=never --set "output_dir=$out/run-$tool" --quiet & jobs+=($!)
		done
		all "${jobs[@]}"
	fi
fi

if wants bench; then
	part profiling bench 120 "$bin/bench.test" -test.run GPU -test.v || failed=1
	part kernels-bench kernel/cuda 90 "$bin/kernels.test" -test.run none -test.bench 'Kernels|LowRank|Attention$|Gemm' -test.benchtime 1x || failed=1
	part forms-bench kernel/cuda 120 "$bin/kernels.test" -test.run none -test.bench Forms -test.benchtime 1x || failed=1
	bench() {
		local name=$1
		shift
		if ! timeout 60 "$bin/trainer" bench --device cuda --json "$@" >"$out/$name.json" 2>"$out/$name.err"; then
			failed=1
			say "bench $name FAILED: $(tail -1 "$out/$name.err")"
			return
		fi
		say "$(python3 -c "
import json; r = json.load(open('$out/$name.json'))
print('bench %-20s %.2f ms (%.2f to %.2f), held %.1f MiB' % ('$name', r['median_ms'], r['fastest_ms'], r['slowest_ms'], r['held_bytes'] / 2**20))")"
	}
	qkvo=q_proj,k_proj,v_proj,o_proj
	for dequantised in '' --dequantised; do
		bench "135m$dequantised" --steps 20 --shape smollm2-135m --length 512 --r 8 --targets q_proj,v_proj $dequantised
		bench "1.1b$dequantised" --steps 20 --shape tinyllama-1.1b --length 512 --r 8 --targets $qkvo $dequantised
		bench "7b$dequantised" --shape llama-2-7b --length 512 --r 8 --targets $qkvo $dequantised
		bench "1.1b-large$dequantised" --shape tinyllama-1.1b --batch 4 --length 2048 --r 16 --targets all-linear $dequantised
		bench "7b-large$dequantised" --shape llama-2-7b --batch 4 --length 2048 --r 16 --targets all-linear $dequantised
	done
	bench 135m-large --shape smollm2-135m --batch 8 --length 2048 --r 8 --targets q_proj,v_proj
fi
[ $failed = 0 ] && say 'passed' || say 'FAILED: see the logs named above'
exit $failed
