#!/usr/bin/env bash
# Profiles training steps of a configuration or a shape on this machine's GPU with Nsight, and prints the hot spots as text.
#   scripts/profile.sh CONFIG.yaml|SHAPE [nsys|ncu] [--steps N] [--graph] [--kernels REGEX] [--count N] [--out DIR] [-- FLAGS]
# nsys (default): Nsight Systems over N steps (200). Each call is queued by itself in ranges of its pass, layer and operation
#   (TRAINER_NVTX=calls); with --graph the steps stay captured graphs, whose kernels are traced one by one and carry the
#   names of their operations, not of layers: a graph that is replayed opens no ranges.
# ncu: Nsight Compute over COUNT launches (40) of kernels whose names match REGEX (all), skipping those of the first step.
# FLAGS go to trainer bench, such as --vram 8GiB, or --batch 4 --length 2048 with a shape. TRAINER is the program (make gpu).
# The card's settings stay as they are: no clock is locked, so ncu's times vary as the run's do.
# Exit code 2: bad command line; 3: tool, program or GPU missing; else the tool's own.
set -eu
fail() { local code=$1; shift; echo "profile.sh: $*" >&2; exit "$code"; }
what='' tool='' steps=200 graph=0 kernels=. count=40 out=build/profile
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
	--graph) graph=1 ;;
	--steps | --kernels | --count | --out)
		[ $# -gt 1 ] || fail 2 "$1 wants a value"
		declare "${1#--}=$2"
		shift
		;;
	--) shift; break ;;
	-*) fail 2 "unknown flag $1; --help lists them" ;;
	nsys | ncu) [ -n "$what" ] && [ -z "$tool" ] || fail 2 "$1: first what to profile, then one tool"; tool=$1 ;;
	*) [ -z "$what" ] || fail 2 "$1: one configuration or shape, then nsys or ncu"; what=$1 ;;
	esac
	shift
done
[ -n "$what" ] || fail 2 "profile.sh CONFIG.yaml|SHAPE [nsys|ncu]: name what to profile; --help says more"
tool=${tool:-nsys}
for n in "$steps" "$count"; do
	case $n in '' | *[!0-9]* | 0*) fail 2 "$n is no number of steps or launches" ;; esac
done
trainer=${TRAINER:-./trainer}
found=$(command -v "$trainer") || fail 3 "$trainer is no program: make gpu builds one, TRAINER names it"
case $("$found" version) in *"gpu build"*) ;; *) fail 3 "$trainer has no GPU kernels: make gpu builds one that has" ;; esac
if ! command -v "$tool" >/dev/null; then
	case $tool in
	nsys) fail 3 "nsys is not here: install Nsight Systems (package nsight-systems of NVIDIA's repository, or a CUDA toolkit), or trainer bench --trace FILE for a timeline without it" ;;
	*) fail 3 "ncu is not here: install Nsight Compute (package nsight-compute of NVIDIA's repository, or a CUDA toolkit), or trainer bench for per cent of the ceilings without it" ;;
	esac
fi
case $what in
*.yaml | *.yml) subject=(--config "$what") ;;
*) subject=(--shape "$what") ;;
esac
"$found" doctor --cuda >/dev/null 2>&1 || fail 3 "no GPU that a run can use: trainer doctor --cuda says why"
mkdir -p "$out"
export TRAINER_NVTX=calls
[ $graph = 0 ] || export TRAINER_NVTX=1
if [ "$tool" = nsys ]; then
	nsys profile --trace=cuda,nvtx --cuda-graph-trace=node --sample=none --cpuctxsw=none --force-overwrite=true --output="$out/profile" \
		"$found" bench "${subject[@]}" --device cuda --steps-alone --warmup 5 --steps "$steps" "$@"
	reports=cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,nvtx_gpu_proj_sum
	[ $graph = 0 ] || reports=cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,nvtx_sum
	echo "hot spots, of the whole process with loading and warm-up:"
	nsys stats --force-export=true --report "$reports" --format table --timeunit us "$out/profile.nsys-rep" | tee "$out/hotspots.txt"
	echo "timeline: nsys-ui $out/profile.nsys-rep; hot spots: $out/hotspots.txt"
	exit
fi
skip=0 # launches of the first step, where every kernel is looked at
if [ "$kernels" = . ]; then
	skip=$(TRAINER_NVTX=0 "$found" bench "${subject[@]}" --device cuda --steps-alone --warmup 0 --steps 1 --json "$@" | sed -n 's/^  "queued": \([0-9]*\).*/\1/p')
fi
set +e
ncu --target-processes all --clock-control none --kernel-name "regex:$kernels" --launch-skip "${skip:-0}" --launch-count "$count" \
	--section SpeedOfLight --section MemoryWorkloadAnalysis --section Occupancy --section LaunchStats --force-overwrite --export "$out/profile" \
	"$found" bench "${subject[@]}" --device cuda --steps-alone --warmup 1 --steps 1 "$@" 2>&1 | tee "$out/ncu.log"
status=${PIPESTATUS[0]}
set -e
if grep -q ERR_NVGPUCTRPERM "$out/ncu.log"; then
	fail 3 "the driver keeps performance counters for administrators (ERR_NVGPUCTRPERM): run as root, or ask for NVreg_RestrictProfilingToAdminUsers=0"
fi
[ "$status" = 0 ] || exit "$status"
echo "hot spots, by kernel:"
ncu --import "$out/profile.ncu-rep" --print-summary per-kernel | tee "$out/hotspots.txt"
echo "all sections: ncu-ui $out/profile.ncu-rep; summary: $out/hotspots.txt"
