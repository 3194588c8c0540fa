#!/usr/bin/env bash
# The nightly validation of a machine with a GPU: doctor against the machine's pins, then tiers, each compared with the
# kept reports. The workflow, the systemd timer and a person call the same.
#   scripts/nightly.sh doctor|TIER...      tiers are those of scripts/gpu-test.sh; doctor alone runs no tier
# Variables:
#   TRAINER  the program to validate; without it make gpu builds one
#   PINS     what doctor must find (/etc/tierlora/pins.json; trainer doctor --fail-on-mismatch FILE --refresh-pins
#            writes it); none = not checked, which is said
#   MODELS   folder of the base models: smollm2-135m, tinyllama-1.1b, llama-2-7b; one that is missing keeps the
#            configuration's name
#   REPORTS  where this night's reports go (runs/nightly/reports/TIME)
#   KEPT     the reports of nights that passed, TIER/TIME each (runs/nightly/kept); the newest ten of a tier stay
#   DRY_RUN  1 = print the commands and do nothing else: no file and no folder is made or removed
# Exit code: 0, or that of the first command that failed. Reports are there in either case.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
	sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
	exit 2
fi
now=$(date -u +%Y%m%dT%H%M%SZ)
reports=${REPORTS:-runs/nightly/reports/$now}
kept=${KEPT:-runs/nightly/kept}
pins=${PINS:-/etc/tierlora/pins.json}
models=${MODELS:-/srv/tierlora/models}

# do_it NAME COMMAND... runs a command, or prints it. What it says of errors goes to the terminal, and to NAME.err of the
# reports, which stays where it fails: the text of the issue has it where no report says more.
do_it() {
	local name=$1 status=0
	shift
	if [ "${DRY_RUN:-}" = 1 ]; then
		printf '%q ' "$@"
		echo
		return
	fi
	echo "== $*" >&2
	{ "$@" 2>&1 >&3 | tee "$reports/$name.err" >&2; } 3>&1 || status=$?
	[ $status -ne 0 ] || rm -f "$reports/$name.err"
	return $status
}

code=0
# note keeps the first exit code that is not 0.
note() {
	[ $code -ne 0 ] || code=$1
}

# finish writes the text of an issue about what failed, and ends.
finish() {
	if [ "${DRY_RUN:-}" = 1 ]; then
		:
	elif command -v python3 >/dev/null; then
		python3 scripts/nightly_issue.py "$reports" --out "$reports/issue.md" || note $?
	fi
	exit $code
}

[ "${DRY_RUN:-}" = 1 ] || mkdir -p "$reports" "$kept"
if [ -z "${TRAINER:-}" ]; then
	do_it build make gpu || note $?
	if [ $code -ne 0 ]; then
		echo "scripts/nightly.sh: make gpu ended with exit code $code: nothing was run" >&2
		finish
	fi
	TRAINER=./trainer
fi
export TRAINER

check=(--cuda --emit-json "$reports/doctor.json")
if [ "$pins" = none ]; then
	echo 'scripts/nightly.sh: PINS=none: driver, libraries and clocks are not compared with anything' >&2
else
	check+=(--fail-on-mismatch "$pins")
fi
do_it doctor "$TRAINER" doctor "${check[@]}" || note $?
if [ $code -ne 0 ]; then
	echo "scripts/nightly.sh: doctor ended with exit code $code: no tier was run" >&2
	finish
fi

base=()
for pair in 135m=smollm2-135m 1.1b=tinyllama-1.1b 7b=llama-2-7b; do
	if [ -d "$models/${pair#*=}" ]; then base+=(--base "${pair%%=*}=$models/${pair#*=}"); fi
done

for name in "$@"; do
	if [ "$name" = doctor ]; then continue; fi
	# A tier takes the base model of its size alone; naming another is a mistake.
	case $name in
	quick | convergence) size=135m ;;
	memory | extended) size=1.1b ;;
	full) size=7b ;;
	*) size= ;;
	esac
	[ "${DRY_RUN:-}" = 1 ] || mkdir -p "$kept/$name"
	mine=()
	for word in ${base[@]+"${base[@]}"}; do
		if [[ $word == "$size="* ]]; then mine=(--base "$word"); fi
	done
	if [ "$name" = all ]; then mine=(${base[@]+"${base[@]}"}); fi
	status=0
	out=$reports/$name.out
	[ "${DRY_RUN:-}" != 1 ] || out=/dev/stdout
	# what scripts/gpu-test.sh calls too
	do_it "$name" "$TRAINER" tier "$name" --check-vram --verbose --json --fail-on-regression --continue-on-error \
		--report "$reports/$name" --compare "$kept/$name" ${mine[@]+"${mine[@]}"} >"$out" || status=$?
	note $status
	if [ "${DRY_RUN:-}" != 1 ] && [ $status -eq 0 ] && [ -s "$reports/$name/report.json" ]; then
		mkdir -p "$kept/$name/$now"
		cp "$reports/$name/report.json" "$kept/$name/$now/"
		# names are times, so their order is the order of the nights
		(cd "$kept/$name" && ls | sort -r | tail -n +11 | xargs -r rm -r --)
	fi
done
finish
