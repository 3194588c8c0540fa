"""Writes testdata/preferences, what tests of preference objectives need of TRL's numbers.

    python3 internal/golden/pack_preferences.py SET    # then pack.py

SET is a folder with pref/ and curves/: batches, adapters, and TRL 1.15's losses, metrics and gradients in float64, which
scripts beside it made. A gradient becomes two numbers a tensor, its norm and its product with cos(0.1 i); tests with
TRAINER_DATA compare whole gradients.
"""
import json
import pathlib
import shutil
import struct
import sys

import numpy as np

OUT = pathlib.Path(__file__).parent / "testdata" / "preferences"
KEPT = ("args", "adapter", "policy", "reference", "loss_f64", "metrics_f64", "kl", "rewards")


def tensors(path):
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            yield name, np.frombuffer(raw[8 + n + a:8 + n + b], "<f4").astype(np.float64)


def digests(path):
    return {name: [float(np.sqrt(x @ x)), float(x @ np.cos(0.1 * np.arange(len(x))))] for name, x in sorted(tensors(path))}


def main(source):
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    batches = {}
    for kind in ("dpo", "cpo", "orpo", "kto", "reward"):
        for path in sorted((source / "pref" / kind).glob("*.json")):
            one = json.loads(path.read_text())
            kept = {k: one[k] for k in KEPT if k in one}
            same = str(one.get("grads", ""))
            kept["grads"] = digests(path.with_name((same[3:] if same.startswith("as ") else path.stem) + ".grads.safetensors"))
            batches[f"{kind}/{path.stem}"] = kept
    (OUT / "pref.json").write_text(json.dumps(batches) + "\n")
    for name in ("pref/batches.safetensors", "pref/wrong_on_purpose.json"):
        shutil.copy(source / name, OUT / pathlib.Path(name).name)
    for name in ("pref/adapter", "pref/adapter_random", "pref/adapter_reward", "curves/init", "curves/init_reward"):
        to = OUT / name.replace("pref/", "").replace("curves/", "curve_")
        shutil.copytree(source / name, to)
        to.chmod(0o755)
        for path in to.iterdir():
            path.chmod(0o644)
    curves = {"settings": json.loads((source / "curves" / "curve.json").read_text())}
    curves["settings"].pop("summary")
    for path in sorted((source / "curves").glob("*/curve.json")):
        one = json.loads(path.read_text())
        one["steps"] = one.pop("steps_f64")
        one.pop("steps_f32")
        one["steps"].pop("micro_losses", None)
        curves[path.parent.name] = one
    (OUT / "curves.json").write_text(json.dumps(curves) + "\n")
    rows = json.loads((source / "curves" / "rows.json").read_text())
    (OUT / "curve_rows.json").write_text(json.dumps(rows["tokenised"], separators=(",", ":")) + "\n")
    for path in OUT.iterdir():
        if path.is_file():
            path.chmod(0o644)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
