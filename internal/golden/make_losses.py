"""Selects what the tests of supervised losses and of distillation read from reference numbers of TRL and transformers: the batches, the
adapter, each variant's loss and gradient norm, and the gradients of layer 0, which every layer above has a part in.

    python3 internal/golden/make_losses.py FOLDER    # with losses/ and distill/, each with VARIANT.json and VARIANT.grads.safetensors
"""
import json
import pathlib
import shutil
import struct
import sys

HERE = pathlib.Path(__file__).parent / "testdata"
LOSSES = ["nll", "dft", "focal", "label_smoothing", "z_loss", "neftune", "weighted_tokens", "weighted_tokens_by_count", "weighted_rows",
          "weighted_rows_by_count"]
DISTILL = ["forward_kl", "reverse_kl", "jsd", "jsd_temperature", "topk_teacher_forward", "topk_teacher_forward_tail", "topk_student_forward",
           "topk_student_jsd_tail", "topk_student_reverse_tail", "top1_jsd", "top1_reverse"]


def read(path):
    raw = path.read_bytes()
    n, = struct.unpack("<Q", raw[:8])
    return {k: (v["dtype"], v["shape"], raw[8 + n:][slice(*v["data_offsets"])]) for k, v in json.loads(raw[8:8 + n]).items() if k[0] != "_"}


def write(path, tensors):
    head, at = {}, 0
    for k in sorted(tensors):
        dtype, shape, data = tensors[k]
        head[k] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors[k][2] for k in sorted(tensors)))


def select(source, to, variants):
    to.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source / "adapter", to / "adapter", dirs_exist_ok=True)
    shutil.copy(source / "batch.safetensors", to / "batch.safetensors")
    cases, grads = {}, {}
    for v in variants:
        info = json.loads((source / f"{v}.json").read_text())
        cases[v] = {k: info[k] for k in ("loss_f64", "grad_norm_f64", "args", "formula", "made_by") if k in info}
        layer = [(k, x) for k, x in read(source / f"{v}.grads.safetensors").items() if ".layers.0." in k]
        grads |= {f"{v}.{k}": x for k, x in layer}
    (to / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    write(to / "grads.safetensors", grads)


source = pathlib.Path(sys.argv[1])
select(source / "losses", HERE / "losses", LOSSES)
select(source / "distill", HERE / "distill", DISTILL)
