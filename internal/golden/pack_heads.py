"""Writes testdata/heads, what tests of classification heads and embeddings need of transformers' and
sentence-transformers' numbers.

    python3 internal/golden/pack_heads.py SET    # then pack.py

SET is a folder with heads/: a batch, adapters, and losses, scores and gradients in float64, which scripts beside it made.
A gradient becomes two numbers a tensor, as in pack_preferences.py.
"""
import json
import pathlib
import shutil
import sys

from pack_preferences import digests

OUT = pathlib.Path(__file__).parent / "testdata" / "heads"
KEPT = ("class", "num_labels", "labels", "pad_token_id", "loss_f64", "logits_f64", "scale")


def main(source):
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    all = {}
    for path in sorted((source / "heads").glob("*/grads.json")):
        one, name = json.loads(path.read_text()), path.parent.name
        all[name] = {k: one[k] for k in KEPT if k in one}
        all[name]["grads"] = {k: v for k, v in digests(path.with_suffix(".safetensors")).items() if k != "embeddings"}
        shutil.copytree(path.parent, OUT / name, ignore=shutil.ignore_patterns("grads.*"))
    (OUT / "heads.json").write_text(json.dumps(all) + "\n")
    shutil.copy(source / "heads" / "batch.safetensors", OUT / "batch.safetensors")
    for path in OUT.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
