#!/usr/bin/env bash
# Makes OUT/site.tar.gz (12 MB): the peers' Python packages for gpu.sh, for Python 3.12 with torch 2.11 for CUDA 13, transformers and PEFT
# on x86-64 Linux. The machine that measures needs no network: mkdir site && tar xzf site.tar.gz -C site && PYTHONPATH=site scripts/bench/gpu.sh ...
set -euo pipefail
out=${1:?usage: gpu_site.sh OUT}
mkdir -p "$out"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
	--platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$tmp/whl" \
	unsloth==2026.10.9 unsloth_zoo==2026.10.9 bitsandbytes==0.50.2 trl==1.15.0 datasets==4.8.5 liger_kernel==0.8.5 torchao==0.18.0 \
	cut_cross_entropy==25.1.1 tyro==1.0.17 dill==0.4.1 multiprocess==0.70.19 docstring_parser==0.18.0 shtab==1.13.0 typeguard==4.6.0 \
	msgspec==0.22.0 structlog==26.1.0 json5==0.17.3 nest_asyncio==1.6.0
mkdir "$tmp/site"
for w in "$tmp"/whl/*.whl; do python3 -m zipfile -e "$w" "$tmp/site"; done
find "$tmp/site/bitsandbytes" -name '*.so' ! -name '*cuda130*' ! -name '*cpu*' -delete # one CUDA version is enough
find "$tmp/site/torchao" -name '*.so' -delete
rm -rf "$tmp/site/studio" "$tmp/site/test" # no part of the measured packages
tar czf "$out/site.tar.gz" -C "$tmp/site" .
ls -l "$out/site.tar.gz"
