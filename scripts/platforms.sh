#!/usr/bin/env bash
# The CPU program for every platform of a release, compiled and not run: build, or vet with the tests.
#   scripts/platforms.sh [build|vet|list] [PLATFORM...]
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-build}
[ $# -eq 0 ] || shift
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
		echo "scripts/platforms.sh: $what is not one of build, vet, list" >&2
		exit 2
		;;
	esac
done
