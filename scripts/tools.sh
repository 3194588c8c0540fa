#!/usr/bin/env bash
# The programs that check and make releases: built from the Go module proxy at the versions below, whose content go.sum's
# database vouches for, and kept in ~/.cache/tierlora/bin. Prints the path of each.
#   scripts/tools.sh actionlint|goreleaser|syft|cosign ...
set -euo pipefail
bin=${XDG_CACHE_HOME:-$HOME/.cache}/tierlora/bin
for name in "$@"; do
	case $name in
	actionlint) module=github.com/rhysd/actionlint/cmd/actionlint version=v1.7.12 ;;
	goreleaser) module=github.com/goreleaser/goreleaser/v2 version=v2.16.0 ;;
	syft) module=github.com/anchore/syft/cmd/syft version=v1.57.0 ;;
	cosign) module=github.com/sigstore/cosign/v2/cmd/cosign version=v2.6.5 ;;
	*)
		echo "scripts/tools.sh: $name is not one of actionlint, goreleaser, syft, cosign" >&2
		exit 2
		;;
	esac
	program=$bin/$name-$version
	if [ ! -x "$program" ]; then
		made=$(mktemp -d)
		trap 'rm -rf "$made"' EXIT
		# for this machine, whatever the platform that the caller builds for
		env -u GOOS -u GOARCH CGO_ENABLED=0 GOBIN="$made" go install "$module@$version" >&2
		mkdir -p "$bin"
		mv "$made/$name" "$program"
	fi
	echo "$program"
done
