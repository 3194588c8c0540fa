#!/usr/bin/env python3
"""Loads what trainer merge and trainer export wrote with the programs it is for, and compares their logits with PEFT's.

    python scripts/loadcheck.py JOBS.json

JOBS.json is a list of {"what": merged|nf4|peft|mlx|vllm|images, "base": DIR, "adapter": DIR or null, "out": DIR, "weights": DIR or null}: base and
adapter are what PEFT computes with in float32, out is what was written; of an adapter's folder, weights is the model it is loaded over. A job
of images has a "picture" too, about which both models are asked; its out is a merged model, or an adapter whose names are compared with PEFT's. One
line of JSON comes out: for each job the largest difference and the largest logit, or why it was skipped. Needs torch, transformers and
PEFT; bitsandbytes for nf4, mlx and mlx-lm for mlx, vLLM or the files of its wheel (TRAINER_VLLM) for vllm. No network.
"""
import functools
import json
import os
import sys

sys.path.pop(0)  # this folder has a kernels.py, which is not the package of that name
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def ids(vocab):
    return [[(7 * i * i + 3 * i + 1) % vocab for i in range(40)]]


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for module in model.modules():
        if type(module).__name__ == "GptOssExperts" and not hasattr(module, "is_transposed"):
            module.is_transposed = True  # as transformers 5 says; PEFT 0.21 asks for it, and takes experts the other way round without
    return model


def scores(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor(ids(model.config.get_text_config().vocab_size))).logits[0].float()


@functools.cache
def reference(base, adapter):
    model = load(base)
    return scores(PeftModel.from_pretrained(model, adapter).eval() if adapter else model)


@functools.cache
def merged_by_peft(base, adapter):
    return PeftModel.from_pretrained(load(base), adapter).merge_and_unload().state_dict()


def merged(job):
    ours, theirs = load(job["out"]), merged_by_peft(job["base"], job["adapter"])
    state = ours.state_dict()
    if state.keys() != theirs.keys():
        raise ValueError(f"other tensors than merge_and_unload gives: {sorted(state.keys() ^ theirs.keys())[:5]}")
    weights = max(float((state[k].float() - theirs[k].float()).abs().max()) for k in state)
    return scores(ours), {"weights": weights}


def nf4(job):
    import bitsandbytes
    model = AutoModelForCausalLM.from_pretrained(job["out"], device_map={"": "cpu"})
    state = {}  # bitsandbytes' GEMMs on a CPU take some widths alone, so its dequantised weights go into a plain model
    for name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            q = module.weight.quant_state
            shape, q.dtype, q.shape = q.shape, torch.float32, torch.Size((1, q.shape.numel()))
            state[name + ".weight"] = bitsandbytes.functional.dequantize_4bit(module.weight.data, q).reshape(shape)
    if not state:
        raise ValueError("no layer is in 4 bits")
    config = model.config
    del config.quantization_config
    plain = type(model)(config).float().eval()
    plain.load_state_dict({k: v.float() for k, v in model.state_dict().items() if k in plain.state_dict() and v.is_floating_point()} | state)
    return scores(plain), {"layers": len(state)}


def peft(job):
    return scores(PeftModel.from_pretrained(load(job["weights"] or job["base"]), job["out"]).eval()), {}


def mlx(job):
    import mlx.core as mx
    from pathlib import Path
    from mlx_lm.tuner.utils import load_adapters
    from mlx_lm.utils import load_model
    mx.set_default_device(mx.cpu)
    model, config = load_model(Path(job["weights"] or job["base"]))
    model = load_adapters(model, job["out"])
    model.eval()
    return torch.tensor(memoryview(model(mx.array(ids(config["vocab_size"])))[0].astype(mx.float32)).tolist()), {}


def vllm_loader():
    """vLLM's own reader of adapters. TRAINER_VLLM names a folder with its package unpacked from the wheel: then what of it needs a GPU
    is replaced by mocks, and lora/peft_helper.py, lora_model.py, lora_weights.py and utils.py are the real files."""
    source = os.environ.get("TRAINER_VLLM")
    if source:
        import importlib.abc
        import importlib.machinery
        import types
        from unittest.mock import MagicMock
        import transformers
        real = {f"vllm.lora.{name}": os.path.join(source, "vllm", "lora", name + ".py") for name in ("peft_helper", "lora_weights", "lora_model", "utils")}
        for f in real.values():
            if not os.path.isfile(f):
                raise FileNotFoundError(f)

        class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] != "vllm":
                    return None
                if name in real:
                    return importlib.util.spec_from_file_location(name, real[name])
                return importlib.machinery.ModuleSpec(name, self, is_package=True)

            def create_module(self, spec):
                module = MagicMock(spec_set=None, name=spec.name) if spec.name not in ("vllm", "vllm.lora") else types.ModuleType(spec.name)
                module.__path__, module.__spec__ = [], spec
                if spec.name == "vllm.utils.torch_utils":
                    module.PIN_MEMORY = False
                return module

            def exec_module(self, module):
                pass

        sys.meta_path.insert(0, Finder())
        if not hasattr(transformers, "PreTrainedConfig"):  # the name from version 5 on
            transformers.PreTrainedConfig = transformers.PretrainedConfig
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper
    return LoRAModel, PEFTHelper


def vllm(job):
    from types import SimpleNamespace
    LoRAModel, PEFTHelper = vllm_loader()
    helper = PEFTHelper.from_local_dir(job["out"], max_position_embeddings=None)
    helper.validate_legal(SimpleNamespace(max_lora_rank=512))
    linear = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}  # of vLLM's Llama, packed ones unpacked
    lora = LoRAModel.from_local_checkpoint(job["out"], linear, helper, lora_model_id=1, device="cpu", dtype=torch.float32)
    model = load(job["base"])
    for name, layer in lora.loras.items():
        layer.optimize()  # the scale into B, as vLLM does before it serves
        with torch.no_grad():
            model.get_submodule(name).weight += layer.lora_b @ layer.lora_a
    return scores(model), {"layers": len(lora.loras)}


def asked(folder, picture):
    """What the processor of a folder makes of a question about a picture."""
    from PIL import Image
    from transformers import AutoProcessor
    processor = AutoProcessor.from_pretrained(folder)
    talk = [dict(role="user", content=[dict(type="image"), dict(type="text", text="Which shape is red?")])]
    text = processor.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    return processor(text=[text], images=[[Image.open(picture).convert("RGB")]], return_tensors="pt", add_special_tokens=False)


@functools.cache
def of_image(base, adapter, picture):
    from transformers import AutoModelForImageTextToText
    model = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()
    if adapter:
        from peft import get_peft_model_state_dict
        from safetensors import safe_open
        model = PeftModel.from_pretrained(model, adapter).eval()
        with safe_open(os.path.join(adapter, "adapter_model.safetensors"), "pt") as f:
            if set(f.keys()) != set(get_peft_model_state_dict(model)):
                raise ValueError(f"other tensors than PEFT has: {sorted(set(f.keys()) ^ set(get_peft_model_state_dict(model)))[:5]}")
    inputs = asked(base, picture)
    with torch.no_grad():
        return inputs, model(**inputs).logits[0].float()


def images(job):
    if os.path.exists(os.path.join(job["out"], "adapter_config.json")):
        return of_image(job["base"], job["out"], job["picture"])[1], {}
    inputs, logits = of_image(job["out"], None, job["picture"])
    theirs = of_image(job["base"], job["adapter"], job["picture"])[0]
    if inputs.keys() != theirs.keys() or not all(torch.equal(inputs[k], theirs[k]) for k in inputs):
        raise ValueError("the processor of the merged folder gives other inputs than the base's")
    return logits, {}


def main():
    results = []
    for job in json.load(open(sys.argv[1])):
        of_images = job["what"] == "images"
        want = of_image(job["base"], job["adapter"], job["picture"])[1] if of_images else reference(job["base"], job["adapter"])
        try:
            got, more = {"merged": merged, "nf4": nf4, "peft": peft, "mlx": mlx, "vllm": vllm, "images": images}[job["what"]](job)
        except ImportError as e:
            results.append({"skipped": str(e)})
            continue
        results.append({"difference": float((got - want).abs().max()), "largest": float(want.abs().max()), **more})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
