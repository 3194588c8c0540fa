#!/usr/bin/env bash
# Pushes and signs the images of the programs that scripts/release.sh publish left in build/dist.
#   scripts/release_images.sh IMAGE VERSION        makes IMAGE:VERSION and IMAGE:VERSION-cuda
# GITHUB_TOKEN and REGISTRY_USER log in to the registry. DRY_RUN=1 prints the commands.
set -euo pipefail
cd "$(dirname "$0")/.."
image=$(printf %s "${1:?the name of the image}" | tr '[:upper:]' '[:lower:]') # registries know no capitals
version=${2:?the version}
version=${version#v}

do_it() {
	if [ "${DRY_RUN:-}" = 1 ]; then
		printf '%q ' "$@"
		echo
	else
		"$@"
	fi
}

if [ "${DRY_RUN:-}" = 1 ]; then
	cosign=cosign
else
	cosign=$(scripts/tools.sh cosign)
	printf %s "$GITHUB_TOKEN" | docker login "${image%%/*}" --username "$REGISTRY_USER" --password-stdin
	docker buildx create --use # several platforms need a builder of its own
fi
for target in cpu cuda; do
	suffix=
	if [ $target = cuda ]; then suffix=-cuda; fi
	VERSION=$version scripts/image.sh $target --dist build/dist --push --tag "$image:$version$suffix"
	digest=DIGEST
	if [ "${DRY_RUN:-}" != 1 ]; then digest=$(cat "build/dist/image-$target.digest"); fi
	do_it "$cosign" sign --yes "$image@$digest"
done
