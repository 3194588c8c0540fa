"""Writes testdata/methods, what tests of adapter methods need of reference numbers that PEFT made.

    python3 internal/golden/pack_methods.py SET    # then pack.py

SET is a folder with a folder for each method: the adapter as PEFT writes it, its values moved off their start, and
grads.json. Kept are the adapter, the loss in float64 and the norm of each tensor's gradient in float64. Projections that
a key makes are left out (see RANDOM). The gradients themselves and the weights that a method makes are compared where
the set is there (TRAINER_DATA).
"""
import json
import pathlib
import shutil
import sys

from safetensors.numpy import load_file, save_file

OUT = pathlib.Path(__file__).parent / "testdata" / "methods"
METHODS = "ia3 lokr miss oft vera".split()
STARTS = ("loftq_1", "loftq_5")
RANDOM = ("base_model.vera_A", "base_model.vera_B")


def main(source):
    shutil.rmtree(OUT, ignore_errors=True)
    for name in METHODS:
        (OUT / name).mkdir(parents=True)
        shutil.copy(source / name / "adapter_config.json", OUT / name)
        tensors = load_file(source / name / "adapter_model.safetensors")
        save_file({k: v for k, v in tensors.items() if k not in RANDOM}, OUT / name / "adapter_model.safetensors", {"format": "pt"})
        grads = json.loads((source / name / "grads.json").read_text())
        kept = {k: grads[k] for k in ("loss_f64", "norm_f64")}
        (OUT / name / "grads.json").write_text(json.dumps(kept, indent=1) + "\n")
    for name in STARTS:
        (OUT / name).mkdir()
        tensors = load_file(source / name / "init" / "adapter_model.safetensors")
        save_file({k: v for k, v in tensors.items() if "q_proj" in k}, OUT / name / "adapter_model.safetensors")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
