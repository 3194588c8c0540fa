#!/usr/bin/env bash
# Breaks one of several processes of a run in each way that can be made on one host, and looks at what becomes of the others:
# they end in time, they name the rank and its step, the newest checkpoint is whole, one rank goes on to the bytes of an
# undisturbed run, and no process is left.
#   scripts/ranks_faults.sh PROGRAM OUT [cpu|cuda] [RANKS] [TIMEOUT]
# RANKS (3) has to divide 12; on GPUs each has one. TIMEOUT (5) is training.ddp_timeout. A process that is stopped (SIGSTOP)
# stands for one that hangs: on GPUs the devices of the others then wait inside a captured graph. A full disk needs root (a
# small tmpfs) and is left out without. Exit code 1: something was not as it should be; OUT/summary.txt says what.
set -u
program=$(realpath "$1") out=$2 device=${3:-cpu} world=${4:-3} limit=${5:-5}
mkdir -p "$out"
out=$(realpath "$out")
cd "$out" || exit 1
failed=0 steps=32 port=$((15000 + $$ % 14000))
say() { echo "$*" | tee -a summary.txt; }
bad() { failed=1 && say "FAILED: $*"; }
: >summary.txt

run=(train --config cpu_stories_quick --set "device=$device" --set dataset.max_length=160 --set "training.max_steps=$steps" --quiet
	--set training.batch_size=1 --set training.global_batch_size=12 --set training.save_steps=4 --set expect.loss_decrease=0
	--set "training.ddp_timeout=$limit")
adapter() { sha256sum <"$1/adapter_model.safetensors"; }
now() { date +%s%N; }

say "$("$program" version | head -1), $world ranks on $device, ddp_timeout $limit s"
TRAINER_LAUNCHER=none "$program" "${run[@]}" --set output_dir=whole >whole.log 2>&1 || { bad "the undisturbed run: $(tail -1 whole.log)"; exit 1; }

launch() { # FOLDER: starts a process for each rank; their ids are in pids
	pids=() port=$((port + 1))
	for ((r = 0; r < world; r++)); do
		RANK=$r WORLD_SIZE=$world LOCAL_RANK=$r LOCAL_WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
			"$program" "${run[@]}" --set "output_dir=$1" >"$1.$r.log" 2>&1 &
		pids+=($!)
	done
}

begin() { # FOLDER: the same, and waits for a checkpoint
	launch "$1"
	for ((i = 0; i < 2400; i++)); do
		[ -f "$1/checkpoint-4/checkpoint.json" ] && return
		kill -0 "${pids[0]}" 2>/dev/null || break
		sleep 0.02
	done
	bad "$1: no checkpoint was written: $(tail -1 "$1.0.log")"
}

# fault FOLDER SIGNAL VICTIM SECONDS-AT-MOST
fault() {
	local name=$1 signal=$2 victim=$3 most=$4 began took code
	begin "$name"
	began=$(now)
	kill "-$signal" "${pids[$victim]}"
	for ((r = 0; r < world; r++)); do
		[ "$r" = "$victim" ] && continue
		wait "${pids[$r]}"
		code=$?
		took=$((($(now) - began) / 1000000))
		[ "$code" = 1 ] || bad "$name: rank $r ended with $code"
		[ "$took" -le $((most * 1000)) ] || bad "$name: rank $r took $took ms to end"
		grep -qE "rank $victim, step [0-9]+, [a-z ]+: " "$name.$r.log" || bad "$name: rank $r does not name rank $victim and its step: $(tail -1 "$name.$r.log")"
	done
	say "$name: the others ended after $took ms: $(tail -1 "$name.$(((victim + 1) % world)).log")"
	kill -KILL "${pids[$victim]}" 2>/dev/null
	wait
	again "$name"
}

again() { # FOLDER: one rank goes on to the bytes of the undisturbed run, and nothing of it is left
	TRAINER_LAUNCHER=none "$program" "${run[@]}" --set "output_dir=$1" --resume auto >"$1.resumed.log" 2>&1 || bad "$1: one rank does not go on: $(tail -1 "$1.resumed.log")"
	[ "$(adapter "$1")" = "$(adapter whole)" ] || bad "$1: one rank goes on to other bytes"
	left=$(pgrep -f "output_dir=$1 " | wc -l)
	[ "$left" = 0 ] || bad "$1: $left processes are left"
}

last=$((world - 1))
fault killed KILL $last $limit
fault killed-0 KILL 0 $limit
fault stopped STOP $last $((limit + 10))
fault stopped-0 STOP 0 $((limit + 10))

# A slow one: it stands for longer than half the timeout, is told of, and nobody ends.
begin slow
kill -STOP "${pids[$last]}"
sleep "$(awk "BEGIN { print $limit * 0.7 }")"
kill -CONT "${pids[$last]}"
for ((r = 0; r < world; r++)); do
	wait "${pids[$r]}" || bad "slow: rank $r: $(tail -1 "slow.$r.log")"
done
grep -q "training.ddp_timeout" slow.0.log || bad "slow: rank 0 does not tell of it"
[ "$(adapter slow)" = "$(adapter whole)" ] || bad "slow: other bytes"
say "slow: $(grep -m1 "training.ddp_timeout" slow.0.log)"

# A full disk of rank 0, which writes.
mkdir -p full
if mount -t tmpfs -o size=900k tmpfs full 2>/dev/null; then
	trap 'umount full 2>/dev/null' EXIT
	launch full
	for ((r = 0; r < world; r++)); do
		wait "${pids[$r]}"
		code=$?
		[ "$code" = 1 ] || bad "full: rank $r ended with $code: $(tail -1 "full.$r.log")"
		grep -qE "no (room|space)" "full.$r.log" || bad "full: rank $r does not say why: $(tail -1 "full.$r.log")"
	done
	say "full: $(tail -1 full.$last.log)"
	mount -o remount,size=64m full && again full
	umount full
else
	say "full: not run (a small file system needs root)"
fi
say "$([ $failed = 0 ] && echo passed || echo FAILED)"
exit $failed
