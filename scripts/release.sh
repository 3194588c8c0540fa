#!/usr/bin/env bash
# A release by goreleaser: docs/internals/RELEASE.md.
#   scripts/release.sh check          .goreleaser.yaml alone
#   scripts/release.sh snapshot       every program, archive and checksum into build/dist, of the files as they are; no signature, and
#                                     SBOMs where SYFT names the program: SYFT=$(scripts/tools.sh syft) scripts/release.sh snapshot
#   scripts/release.sh publish        of the tag that is checked out: SBOMs, signatures, a draft release
# CPU_ONLY=1 leaves the programs with GPU support out of a snapshot, which then needs Go alone. DRY_RUN=1 prints the commands.
set -euo pipefail
cd "$(dirname "$0")/.."

do_it() {
	if [ "${DRY_RUN:-}" = 1 ]; then
		printf '%q ' "$@"
		echo
	else
		"$@"
	fi
}

tool() {
	if [ "${DRY_RUN:-}" = 1 ]; then echo "$1"; else scripts/tools.sh "$1"; fi
}

# gpu readies the CUDA parts and kernels, which are the same for every processor, and says where they lie.
gpu() {
	if [ "${DRY_RUN:-}" = 1 ]; then
		echo 'scripts/cuda.sh && python3 scripts/kernels.py'
		return
	fi
	if ! command -v aarch64-linux-gnu-gcc >/dev/null; then
		echo 'scripts/release.sh: linux/arm64 with GPU needs aarch64-linux-gnu-gcc: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross' >&2
		exit 3
	fi
	local env
	env=$(scripts/cuda.sh)
	eval "$env"
	python3 scripts/kernels.py
}

# as NAME PROGRAM lets goreleaser find a program by a name without its version.
as() {
	if [ "${DRY_RUN:-}" = 1 ]; then return; fi
	if [ -z "${links:-}" ]; then
		links=$(mktemp -d)
		trap 'rm -rf "$links"' EXIT
		export PATH=$links:$PATH
	fi
	ln -s "$(realpath "$2")" "$links/$1"
}

case ${1:-} in
check)
	do_it "$(tool goreleaser)" check
	;;
snapshot)
	goreleaser=$(tool goreleaser)
	if [ "${CPU_ONLY:-}" = 1 ]; then
		do_it "$goreleaser" build --snapshot --clean --id cpu
	else
		skip=sign,sbom
		if [ -n "${SYFT:-}" ]; then
			as syft "$SYFT"
			skip=sign
		fi
		gpu
		do_it "$goreleaser" release --snapshot --clean --skip=$skip
	fi
	;;
publish)
	goreleaser=$(tool goreleaser)
	syft=$(tool syft) cosign=$(tool cosign)
	as syft "$syft"
	as cosign "$cosign"
	gpu
	do_it "$goreleaser" release --clean
	;;
*)
	sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
	exit 2
	;;
esac
