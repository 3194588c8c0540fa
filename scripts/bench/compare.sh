#!/usr/bin/env bash
# Ours beside transformers + PEFT, Unsloth, Axolotl and LLaMA-Factory on the same shapes, in alternation on this machine: runs
# what can run here, says what cannot and why, and keeps one table.
#   scripts/bench/compare.sh [--out DIR] [--parts "cpu gpu"] [--dry-run] [--rounds N] [--cases FILE.json] [--limit SECONDS]
# PYTHON        interpreter with torch, transformers, peft and bitsandbytes, for both parts
# BENCH_PYTHON_UNSLOTH, BENCH_PYTHON_AXOLOTL, BENCH_PYTHON_LLAMAFACTORY
#               interpreters of environments of their own (README.md: how to make them); else PYTHON, where it has the package
# SMOLLM2       folder of SmolLM2-135M(-Instruct), for the CPU part; without it stories260K alone
# TRAINER       program built with make gpu, for the GPU part; TOKENIZER any Llama tokenizer.json of 32,000 words
# Exit code 0: what could run ran; 1: a part failed; 2: bad command line; 77: nothing could run.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=build/compare parts="cpu gpu" dry=0 rounds=3 cases=$here/compare.json limit=3000
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry=1 ;;
	--out | --parts | --rounds | --cases | --limit)
		[ $# -gt 1 ] || { echo "compare.sh: $1 wants a value" >&2; exit 2; }
		declare "${1#--}=$2"
		shift
		;;
	-h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
	*) echo "compare.sh: unknown word $1; --help lists them" >&2; exit 2 ;;
	esac
	shift
done
for p in $parts; do
	case $p in cpu | gpu) ;; *) echo "compare.sh: --parts: $p is not one of cpu, gpu" >&2; exit 2 ;; esac
done
PYTHON=${PYTHON:-python3}
export PYTHON
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
table=$out/compare.md ran=0 failed=0
cd "$root" || exit 1

# has INTERPRETER MODULE: without importing it, which takes seconds.
has() { "$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)' "$2" 2>/dev/null; }
lacks() { echo "not run: $*" | tee -a "$table"; }
run() { # prints a command, and runs it unless --dry-run; its output goes to a file
	local to=$1
	shift
	echo "+ $*"
	[ $dry = 1 ] || "$@" 2>&1 | tee "$to"
	return "${PIPESTATUS[0]}"
}
interpreter() { # of a peer
	local name=BENCH_PYTHON_${1^^}
	echo "${!name:-$PYTHON}"
}

{
	echo "# Comparison"
	echo
	echo "Commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F), $(nproc) cores, $(uname -sm), $("$PYTHON" --version 2>&1)."
	for p in torch transformers peft bitsandbytes unsloth axolotl llamafactory; do
		"$(interpreter "$p")" -c 'import importlib.metadata as m, sys; print(f"- {sys.argv[1]} {m.version(sys.argv[1])}")' "$p" 2>/dev/null
	done
	echo
} >"$table"
cat "$table"

cpu() {
	for m in torch transformers peft tokenizers; do
		has "$PYTHON" "$m" || { lacks "CPU: $PYTHON has no $m (pip install torch transformers peft bitsandbytes)"; return; }
	done
	has "$PYTHON" bitsandbytes || { lacks "CPU: $PYTHON has no bitsandbytes, which quantises PEFT's base"; return; }
	command -v go >/dev/null || { lacks "CPU: no Go to build the trainer with"; return; }
	[ -n "${SMOLLM2:-}" ] || lacks "SmolLM2-135M on the CPU: SMOLLM2 names no folder of it"
	ran=1
	run "$out/cpu.txt" "$here/step.sh" --rounds "$rounds" --json "$out/cpu.json" || { failed=1; lacks "the rest of the CPU part: it failed, $out/cpu.txt says how"; }
	if [ $dry = 0 ]; then printf '## CPU\n\n```\n%s\n```\n\n' "$(cat "$out/cpu.txt")" >>"$table"; fi
}

gpu() {
	command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { lacks "GPU: no NVIDIA GPU here (nvidia-smi finds none)"; [ $dry = 1 ] || return; }
	local trainer=${TRAINER:-build/proof/trainer} tokenizer=${TOKENIZER:-} peers="" p python
	case $("$trainer" version 2>/dev/null) in *"gpu build"*) ;; *) lacks "GPU: $trainer is no program with GPU kernels (TRAINER; make gpu builds one)"; [ $dry = 1 ] || return ;; esac
	[ -f "$tokenizer" ] || { lacks "GPU: TOKENIZER names no tokenizer.json of a Llama model"; [ $dry = 1 ] || return; }
	for p in peft unsloth axolotl llamafactory; do
		python=$(interpreter "$p")
		if has "$python" "$p" && has "$python" torch; then peers="$peers $p"; else lacks "GPU beside $p: $python lacks it (README.md: an environment for it, BENCH_PYTHON_${p^^})"; fi
	done
	# cases without the peers that are not here
	"$PYTHON" - "$cases" $peers >"$out/cases.json" <<-'PY' || { failed=1; return; }
		import json, sys
		cases = json.load(open(sys.argv[1]))
		json.dump([c[:6] + [[p for p in c[6] if p.split(":")[0] in sys.argv[2:]]] + c[7:] for c in cases], sys.stdout)
	PY
	ran=1
	run "$out/gpu.txt" "$here/gpu.sh" "$trainer" "${tokenizer:-TOKENIZER.json}" "$out" --cases "@$out/cases.json" --limit "$limit" || failed=1
	if [ -f "$out/gpu.md" ] && [ $dry = 0 ]; then { printf '## GPU\n\n'; cat "$out/gpu.md"; } >>"$table"; fi
}

for p in $parts; do $p; done
echo "table: $table"
[ $failed = 0 ] || exit 1
[ $ran = 1 ] || exit 77
