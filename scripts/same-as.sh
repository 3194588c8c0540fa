#!/usr/bin/env bash
# Trains the same configurations with two builds of the program and compares curves and adapters byte by byte.
#   scripts/same-as.sh OLD NEW OUT [DEVICE]    OLD, NEW: programs; OUT gets each run's folder and log; DEVICE: cuda (default) or cpu
# The configurations have the keys of both builds. TRAINER_SMOLLM2 (the model's folder) adds runs on real weights. ONLY names the runs to
# make. Exit code 1: a run failed, or a curve or an adapter differs.
set -u
old=$(realpath "$1") new=$(realpath "$2") out=$3 device=${4:-cuda} failed=0
mkdir -p "$out"
out=$(realpath "$out")
small='training.max_steps=40 dataset.max_length=128 training.logging_steps=1 training.save_steps=20 dataset.val_split=0.05 training.eval_steps=20'

# LoRA over unquantised weights has no section quantization.
sed '/^quantization:/,/^$/d' configs/cpu_stories_quick.yaml >"$out/lora.yaml"

# losses FOLDER prints what a run logged of each step that does not depend on time.
losses() {
	python3 - "$1/metrics.jsonl" <<-'P'
		import json, sys
		for line in open(sys.argv[1]):
		    row = json.loads(line)
		    print({k: row[k] for k in ("step", "loss", "grad_norm", "learning_rate", "eval_loss") if k in row})
	P
}

# train BUILD PROGRAM NAME KEY=VALUE... makes one run.
train() {
	local build=$1 program=$2 name=$3 to=$out/$3-$1 config=cpu_stories_quick sets=() set
	shift 3
	[[ " $* " == *" adapter=lora "* ]] && config=$out/lora.yaml
	for set in "device=$device" expect.loss_decrease=0 "output_dir=$to" $small "$@"; do sets+=(--set "$set"); done
	rm -rf "$to"
	timeout 300 "$program" train --config "$config" "${sets[@]}" --quiet >"$out/$name-$build.log" 2>&1
}

# compare NAME KEY=VALUE...
compare() {
	local name=$1
	if [ -n "${ONLY:-}" ] && [[ " $ONLY " != *" $name "* ]]; then return; fi
	if ! train old "$old" "$@" || ! train new "$new" "$@"; then
		echo "FAILED  $name: $(tail -qn 1 "$out/$name-old.log" "$out/$name-new.log" | tr '\n' ' ')"
		failed=1
		return
	fi
	local bad=''
	losses "$out/$name-old" >"$out/$name-old.curve"
	losses "$out/$name-new" >"$out/$name-new.curve"
	[ -s "$out/$name-old.curve" ] || bad+=' no curve;'
	cmp -s "$out/$name-old.curve" "$out/$name-new.curve" || bad+=' the curves differ;'
	cmp -s "$out/$name-old/adapter_model.safetensors" "$out/$name-new/adapter_model.safetensors" || bad+=' the adapters differ;'
	if [ -n "$bad" ]; then
		echo "FAILED  $name:$bad"
		diff "$out/$name-old.curve" "$out/$name-new.curve" | head -4
		failed=1
	else
		echo "ok      $name: $(wc -l <"$out/$name-new.curve") lines of the curve and the adapter are equal"
	fi
}

compare qlora
compare lora adapter=lora
compare rslora adapter=lora lora.use_rslora=true
compare dropout lora.dropout=0.1
compare simple-quantisation quantization.double_quant=false
compare checkpointing training.gradient_checkpointing=full
compare selective training.gradient_checkpointing=selective
compare packed dataset.packing=true
compare accumulated training.gradient_accumulation_steps=3 training.batch_size=2
compare adamw-8bit training.optimizer=adamw_8bit
compare lion training.optimizer=lion training.learning_rate=1e-4
compare float32 training.precision=fp32
if [ "$device" = cuda ]; then
	compare bf16 training.precision=bf16
	compare fp16 training.precision=fp16
	compare dequantised training.dequantised_weights=always
fi
if [ -n "${TRAINER_SMOLLM2:-}" ]; then
	compare smollm2-qlora "base_model=$TRAINER_SMOLLM2" training.max_steps=20 training.save_steps=10
	compare smollm2-lora "base_model=$TRAINER_SMOLLM2" adapter=lora training.max_steps=20 training.save_steps=10
fi
exit $failed
