"""Writes testdata/optimizers, what tests of optimizers need of reference numbers that torch, transformers and others made.

    python3 internal/golden/pack_optimizers.py SET    # then pack.py

SET is a folder with optim/: cases.safetensors (starts and ten gradients), a file of parameters after steps for each set of
hyper-parameters of optim.json, and bnb_8bit.safetensors. Kept are the parameters after the tenth step, which depend on
all of them, the averages of schedule-free AdamW, and the first block of 256 numbers of Lion in 8 bits.
"""
import json
import pathlib
import shutil
import sys

from safetensors.numpy import load_file, save_file

OUT = pathlib.Path(__file__).parent / "testdata" / "optimizers"
FILES = ("adafactor_beta1 adafactor_relative adafactor_trainer lion_32bit.decoupled muon muon_match_rms_adamw muon_no_nesterov "
         "schedule_free_adamw schedule_free_adamw_warmup sgd_momentum sgd_nesterov").split()
BLOCK = 256


def main(source):
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    after = {}
    for name in FILES:
        for key, x in load_file(source / f"{name}.safetensors").items():
            if key.endswith(".step10") or key.endswith(".x"):
                after[f"{name}/{key}"] = x
    save_file(after, OUT / "after.safetensors")
    save_file(load_file(source / "cases.safetensors"), OUT / "cases.safetensors")
    bits = load_file(source / "bnb_8bit.safetensors")
    lion = {"param0": bits["param0"][:BLOCK], "grads": bits["grads"][:, :BLOCK].copy()}
    for key, x in bits.items():
        if key.startswith("lion."):
            lion[key] = x[:BLOCK] if len(x) >= BLOCK else x[:1]
    save_file(lion, OUT / "lion_8bit.safetensors")
    hyper = {k: {"hyper": v["hyper"]} for k, v in json.loads((source / "optim.json").read_text()).items()
             if k in [name.removesuffix(".decoupled") for name in FILES]}
    (OUT / "optim.json").write_text(json.dumps(hyper, indent=1) + "\n")
    for path in OUT.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) / "optim")
