"""Writes testdata/rollouts, what tests of objectives over sampled answers need of TRL's numbers.

    python3 internal/golden/pack_rollouts.py SET    # then pack.py

SET is a folder with grpo/: sampled answers, an adapter, and TRL 1.15's losses, metrics, advantages and gradients in
float64, which scripts beside it made. A gradient becomes two numbers a tensor, as in pack_preferences.py.
"""
import json
import math
import pathlib
import shutil
import struct
import sys

OUT = pathlib.Path(__file__).parent / "testdata" / "rollouts"
KEPT = ("args", "loss_f64", "losses_f64", "metrics_f64", "advantages_f64")


def digests(path):
    raw, all = path.read_bytes(), {}
    n = struct.unpack("<Q", raw[:8])[0]
    for name, t in sorted(json.loads(raw[8:8 + n]).items()):
        if name != "__metadata__":
            a, b = t["data_offsets"]
            x = struct.unpack(f"<{(b - a) // 4}f", raw[8 + n + a:8 + n + b])
            all[name] = [math.sqrt(math.fsum(v * v for v in x)), math.fsum(v * math.cos(0.1 * i) for i, v in enumerate(x))]
    return all


def main(source):
    source = source / "grpo"
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    variants = {}
    for path in sorted(source.glob("*.json")):
        one = json.loads(path.read_text())
        if "args" not in one:
            continue
        same = str(one.get("grads", ""))
        grads = digests(path.with_name((same[3:] if same.startswith("as ") else path.stem) + ".grads.safetensors"))
        variants[path.stem] = {k: one[k] for k in KEPT if k in one} | {"grads": grads}
    (OUT / "grpo.json").write_text(json.dumps(variants) + "\n")
    for name in ("rollouts.json", "wrong_on_purpose.json"):
        shutil.copyfile(source / name, OUT / name)
    (OUT / "adapter").mkdir()
    for path in (source / "adapter").iterdir():
        shutil.copyfile(path, OUT / "adapter" / path.name)


main(pathlib.Path(sys.argv[1]))
