#!/usr/bin/env bash
# A container image of the Dockerfile, by docker or else buildah: for this machine's processor from the sources, or for
# both from the programs that a release made.
#   scripts/image.sh cpu|cuda [--check] [--tag NAME] [--dist DIR --push]
# --check runs the image: as its own user, a training run of seconds, files that a stopped container leaves.
# --dist DIR takes the programs of goreleaser's DIR and makes linux/amd64 and linux/arm64; --push sends the image to
# --tag, writes its digest to DIR/image-cpu.digest (or cuda), and needs docker's buildx, logged in.
# GO_IMAGE and BASE_IMAGE name other base images. DRY_RUN=1 prints the commands.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
	sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
	exit 2
}

do_it() {
	if [ "${DRY_RUN:-}" = 1 ]; then
		printf '%q ' "$@"
		echo
	else
		"$@"
	fi
}

case ${1:-} in cpu | cuda) target=$1 ;; *) usage ;; esac
shift
tag=tierlora:$target check= dist= push=
while [ $# -gt 0 ]; do
	case $1 in
	--check) check=1 ;;
	--push) push=1 ;;
	--tag) tag=${2:?--tag needs a name} && shift ;;
	--dist) dist=${2:?--dist needs a folder} && shift ;;
	*) usage ;;
	esac
	shift
done
if [ -n "$push" ] && [ -z "$dist" ]; then usage; fi

engine=docker
if [ "${DRY_RUN:-}" != 1 ] && ! docker info >/dev/null 2>&1; then
	engine=buildah
	if ! command -v buildah >/dev/null; then
		echo 'scripts/image.sh: neither a docker daemon nor buildah is here' >&2
		exit 3
	fi
fi

build=(--target "$target" --tag "$tag")
for name in GO_IMAGE BASE_IMAGE; do
	if [ -n "${!name:-}" ]; then build+=(--build-arg "$name=${!name}"); fi
done
revision=$(git rev-parse HEAD 2>/dev/null || true)
build+=(--build-arg "COMMIT=$revision" --build-arg "VERSION=${VERSION:-${revision:0:12}}")
build+=(--label "org.opencontainers.image.revision=$revision")
if [ -n "${GITHUB_REPOSITORY:-}" ]; then # packages are found by it
	build+=(--label "org.opencontainers.image.source=https://github.com/$GITHUB_REPOSITORY")
fi

if [ -n "$dist" ]; then
	programs=$(mktemp -d)
	trap 'rm -rf "$programs"' EXIT
	for arch in amd64 arm64; do
		case $target-$arch in
		cpu-amd64) made=$dist/cpu_linux_amd64_v1 ;;
		cpu-arm64) made=$dist/cpu_linux_arm64_v8.0 ;;
		cuda-amd64) made=$dist/gpu-amd64_linux_amd64_v1 ;;
		cuda-arm64) made=$dist/gpu-arm64_linux_arm64_v8.0 ;;
		esac
		mkdir -p "$programs/out/$arch"
		do_it cp "$made/trainer" "$programs/out/$arch/trainer"
	done
	build+=(--build-context "build-$target=$programs" --platform linux/amd64,linux/arm64)
fi
if [ -n "$push" ]; then
	do_it docker buildx build --push --metadata-file "$programs/metadata.json" "${build[@]}" .
	if [ "${DRY_RUN:-}" != 1 ]; then
		python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["containerimage.digest"])' "$programs/metadata.json" >"$dist/image-$target.digest"
	fi
	exit
fi
# --isolation chroot: buildah's way that needs no user namespaces and no network bridge
case $engine in
docker) do_it docker build "${build[@]}" . ;;
buildah) do_it buildah build --isolation chroot --build-arg "TARGETARCH=$(go env GOHOSTARCH)" "${build[@]}" . ;;
esac
[ -n "$check" ] || exit 0

# What is asked of an image: its user, that it trains and what it writes is that user's, that SIGTERM stops and saves, what
# doctor says of a GPU, and that no toolkit, Python or compiler is in it.
work=$(mktemp -d)
if [ "${DRY_RUN:-}" != 1 ]; then chown 65532:65532 "$work" 2>/dev/null || chmod 1777 "$work"; fi
container=
trap 'if [ -n "$container" ]; then buildah rm "$container" >/dev/null; fi; rm -rf "$work" "${programs:-}"' EXIT
if [ $engine = buildah ]; then container=$(buildah from "$tag"); fi

# run ARGUMENT... runs the image's program
run() {
	case $engine in
	docker) do_it docker run --rm --network none --name "tierlora-check-$$" -v "$work:/work" "$tag" "$@" ;;
	buildah) buildah run --isolation chroot -v "$work:/work" "$container" /usr/local/bin/trainer "$@" ;;
	esac
}

# stop sends SIGTERM to the program of the run whose shell has this process number.
stop() {
	case $engine in
	docker) docker stop --time 60 "tierlora-check-$$" >/dev/null ;;
	buildah) # it hands no signal on
		local pid=$1 child
		while child=$(pgrep -P "$pid" | head -1) && [ -n "$child" ]; do pid=$child; done
		kill -TERM "$pid"
		;;
	esac
}

# files lists what is in the image.
files() {
	case $engine in
	docker)
		local made
		made=$(docker create "$tag")
		docker export "$made" | tar -t
		docker rm "$made" >/dev/null
		;;
	buildah) (cd "$(buildah mount "$container")" && find . -mindepth 1 -printf '%P\n') ;;
	esac
}

refuse() {
	echo "scripts/image.sh: $tag $1" >&2
	exit 1
}

run version
run --config cpu_stories_quick.yaml --set training.max_steps=10 --set expect.loss_decrease=0
status=0
run doctor --cuda --json >/dev/null || status=$?
if [ "${DRY_RUN:-}" = 1 ]; then exit 0; fi
[ $status = 3 ] || [ "$target-$status" = cuda-0 ] || refuse "ends doctor --cuda with $status; without a GPU it is 3"
run doctor >/dev/null
owner=$(stat -c %u "$work/runs/cpu_stories_quick/adapter_model.safetensors")
[ "$owner" = 65532 ] || refuse "writes files of user $owner, not 65532"

run --config cpu_stories_quick.yaml --set output_dir=runs/stopped --set training.max_steps=1000000 --set training.save_steps=1000000 >"$work/log" 2>&1 &
running=$!
for _ in $(seq 600); do
	if [ -s "$work/runs/stopped/metrics.jsonl" ] || ! kill -0 $running 2>/dev/null; then break; fi
	sleep 0.1
done
stop $running
status=0
wait $running || status=$?
# buildah's own status is 1 where the program's is 143
ls -d "$work"/runs/stopped/checkpoint-* >/dev/null 2>&1 || refuse "saves nothing at SIGTERM (it ended with $status): $(tail -3 "$work/log")"

found=$(files | grep -v "^usr/share/" | grep -E '(^|/)(python[0-9.]*|pip[0-9]*|gcc|cc|g\+\+|clang|ld|nvcc|ptxas|go|lib(cudart|nvrtc|nvfatbin|cublas[A-Za-z]*)\.so[0-9.]*)$' || true)
[ -z "$found" ] || refuse "holds $found"
echo "scripts/image.sh: $tag runs as user 65532, trains, and saves at SIGTERM"
