#!/usr/bin/env bash
# The CPU program for every platform of a release, compiled and not run: build, or vet with the tests.
#   scripts/platforms.sh [build|vet|list] [PLATFORM...]
#   scripts/platforms.sh test PLATFORM [PACKAGE...]     runs tests: linux/arm64 by qemu-aarch64, windows/amd64 by Wine
# Without packages those whose code depends on the platform. Wine before 9 lacks bcryptprimitives.dll, which Go needs, and
# the call by which Go deletes folders: docs/internals/RELEASE.md has both.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-build}
[ $# -eq 0 ] || shift
if [ "$what" = test ]; then
	platform=${1:?test needs a platform} && shift
	export CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/}
	case $platform in
	linux/arm64)
		runner=qemu-aarch64
		[ $# -gt 0 ] || set -- ./kernel/gemm ./kernel/simd ./quant ./model/weights ./text/tokenizer
		;;
	windows/amd64)
		runner=wine
		[ $# -gt 0 ] || set -- ./internal/atomicfile ./train/checkpoint ./dataset/source ./model/weights
		;;
	*)
		echo "scripts/platforms.sh: $platform is not one of linux/arm64, windows/amd64" >&2
		exit 2
		;;
	esac
	if ! command -v $runner >/dev/null; then
		echo "scripts/platforms.sh: no $runner here, which $platform needs" >&2
		exit 77
	fi
	go test -exec $runner "$@"
	exit
fi
platforms=("$@")
[ $# -gt 0 ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64)
for platform in "${platforms[@]}"; do
	export CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/}
	case $what in
	list) echo "$platform" ;;
	vet) go vet ./... ;;
	build)
		suffix=
		if [ "$GOOS" = windows ]; then suffix=.exe; fi
		go build -trimpath -o "build/platforms/$GOOS-$GOARCH/trainer$suffix" ./cmd/trainer
		;;
	*)
		echo "scripts/platforms.sh: $what is not one of build, vet, list, test" >&2
		exit 2
		;;
	esac
done
