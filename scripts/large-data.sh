#!/usr/bin/env bash
# A data file larger than memory, once: tokenised into the cache, opened again, opened again after a flipped bit. Prints a report for docs/internals/lab.
# Needs TRAINER_DATA (the shared data), TRAINER_SMOLLM2 (SmolLM2-135M-Instruct's folder), a PYTHON, and twice the size on disk.
#
#   scripts/large-data.sh [GIGABYTES [FOLDER [text|completion|messages]]]      10 GB in a temporary folder; all of it is deleted at the end
set -euo pipefail
cd "$(dirname "$0")/.."
: "${TRAINER_DATA:?the folder with the shared data}" "${TRAINER_SMOLLM2:?the folder of SmolLM2-135M-Instruct}"
gigabytes=${1:-10} parent=${2:-${TMPDIR:-/tmp}} kind=${3:-text}
work=$(mktemp -d "$parent/large-data.XXXXXX")
trap 'rm -rf "$work"' EXIT
file=$work/rows.jsonl

go build -o "$work/databench" ./scripts/databench
"${PYTHON:-python3}" scripts/bench/data_make.py "$kind" 100 "$work/part.jsonl"
case $kind in # every copy of the rows says which one it is, so that all rows differ
    text) key='"text": "' ;;
    completion) key='"prompt": "' ;;
    messages) key='"content": "' ;;
esac
for copy in $(seq $((gigabytes * 10))); do
    sed "s/$key/&Copy $copy. /" "$work/part.jsonl"
done >"$file"
rm "$work/part.jsonl"

prepare() {
    echo
    echo "== $1"
    "$work/databench" -data "$file" -tokenizer "$TRAINER_SMOLLM2" -max-length 1024 -cache "$work/cache" 2>&1
}
echo "large-data.sh $gigabytes $kind, $(date -u +%F), commit $(git rev-parse --short HEAD), $(nproc) cores," \
    "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)"
wc -c "$file" | awk '{print $1 " bytes"}'
sleep 4 # a file that has just been written is hashed again at the next start
prepare "first start: hash, tokenise on all cores, count duplicates, pack the first epoch"
ls -l "$work"/cache/*.tokens | awk '{print "cache file: " $5 " bytes"}'
prepare "second start: all of the cache file is read and checked"
entry=$(ls "$work"/cache/*.tokens)
"${PYTHON:-python3}" - "$entry" <<'PY'
import os
import sys

with open(sys.argv[1], "r+b") as f:
    f.seek(os.path.getsize(sys.argv[1]) // 3)
    byte = f.read(1)[0] ^ 16
    f.seek(-1, 1)
    f.write(bytes([byte]))
PY
if [ "${DAMAGE:-yes}" = yes ]; then
    prepare "third start, after one bit of the cache file was flipped"
fi
