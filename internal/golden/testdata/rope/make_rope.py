"""Writes rope.json: rotary inverse frequencies as transformers computes them,
in float32 (unmodified) and with its float32 replaced by float64.
Run: python make_rope.py (made with transformers 4.57.6, torch 2.8.0)."""
import copy
import json
import os
import torch
import transformers
from transformers import LlamaConfig, MistralConfig, Phi3Config, Qwen2Config
from transformers import modeling_rope_utils as rope


class Wide:
    """torch with float64 in the place of float32."""
    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


SIZES = {"vocab_size": 100, "hidden_size": 4096, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 2048}
YARN = {"rope_type": "yarn", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
LONG = {"type": "longrope", "short_factor": [1.0 + 0.01 * i for i in range(16)], "long_factor": [0.75 + 1.5 * i for i in range(16)]}
PHI = {"num_attention_heads": 128, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096}
CASES = [  # name, class, changes to SIZES, sequence lengths
    ("default", LlamaConfig, {}, [None]),
    ("default_head_dim", LlamaConfig, {"head_dim": 80, "rope_theta": 500000.0}, [None]),
    ("default_tiny", LlamaConfig, {"head_dim": 2}, [None]),
    ("default_mistral", MistralConfig, {"head_dim": 96, "rope_theta": 1000000.0}, [None]),
    ("linear", LlamaConfig, {"rope_scaling": {"type": "linear", "factor": 4.0}}, [None]),
    ("linear_fraction", Qwen2Config, {"rope_scaling": {"rope_type": "linear", "factor": 2.5}}, [7]),
    ("dynamic", LlamaConfig, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, [None, 1, 2048, 2049, 5000, 100000]),
    ("dynamic_small_head", LlamaConfig, {"head_dim": 4, "rope_scaling": {"rope_type": "dynamic", "factor": 8.0}}, [3000]),
    ("llama3", LlamaConfig, {"rope_theta": 500000.0, "max_position_embeddings": 131072, "rope_scaling": LLAMA3}, [None]),
    ("llama3_2", LlamaConfig, {"head_dim": 64, "rope_theta": 500000.0, "max_position_embeddings": 131072,
                               "rope_scaling": dict(LLAMA3, factor=32.0)}, [None]),
    ("llama3_odd", LlamaConfig, {"head_dim": 40, "rope_scaling": dict(LLAMA3, low_freq_factor=1.5, high_freq_factor=3.25,
                                                                  original_max_position_embeddings=777)}, [None]),
    ("yarn", Qwen2Config, {"rope_theta": 1000000.0, "max_position_embeddings": 131072,
                           "rope_scaling": dict(YARN, original_max_position_embeddings=32768)}, [None, 200000]),
    ("yarn_no_original", LlamaConfig, {"rope_scaling": YARN}, [None]),
    ("yarn_mscale", LlamaConfig, {"head_dim": 64, "rope_scaling": {"type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707,
                                  "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}}, [None]),
    ("yarn_mscale_alone", LlamaConfig, {"rope_scaling": dict(YARN, mscale=0.5)}, [None]),
    ("yarn_attention_factor", LlamaConfig, {"rope_scaling": dict(YARN, attention_factor=0.875, mscale=1.0, mscale_all_dim=0.5)}, [None]),
    ("yarn_betas", LlamaConfig, {"rope_scaling": dict(YARN, beta_fast=64.0, beta_slow=0.5)}, [None]),
    ("yarn_not_truncated", LlamaConfig, {"rope_scaling": dict(YARN, truncate=False)}, [None]),
    ("yarn_equal_bounds", LlamaConfig, {"rope_scaling": dict(YARN, truncate=False, beta_fast=4.0, beta_slow=4.0)}, [None]),
    ("yarn_zero_bounds", LlamaConfig, {"head_dim": 16, "rope_scaling": dict(YARN, original_max_position_embeddings=6)}, [None]),
    ("yarn_clamped_bound", LlamaConfig, {"head_dim": 16, "rope_theta": 50.0, "rope_scaling": dict(
        YARN, original_max_position_embeddings=131072, beta_fast=1000.0)}, [None]),
    ("yarn_factor_1", LlamaConfig, {"rope_scaling": dict(YARN, factor=1.0)}, [None]),
    ("yarn_short", LlamaConfig, {"head_dim": 16, "rope_scaling": dict(YARN, original_max_position_embeddings=8)}, [None]),
    ("partial", Phi3Config, {**PHI, "partial_rotary_factor": 0.75}, [None]),
    ("partial_odd", Phi3Config, {**PHI, "partial_rotary_factor": 0.6}, [None]),
    ("longrope", Phi3Config, {**PHI, "rope_scaling": LONG}, [None, 4096, 4097]),
    ("longrope_partial", Phi3Config, {**PHI, "num_attention_heads": 96, "hidden_size": 4032, "partial_rotary_factor": 0.77,
                                      "rope_theta": 5000.0, "rope_scaling": LONG}, [5000]),
    ("longrope_no_stretch", Phi3Config, {**PHI, "max_position_embeddings": 4096, "rope_scaling": LONG}, [3000]),
]

rows, single = [], torch.Tensor.float
for name, cls, changes, lengths in CASES:
    fields = {**SIZES, **copy.deepcopy(changes)}
    for length in lengths:
        config = cls(**copy.deepcopy(fields))
        scaling = getattr(config, "rope_scaling", None) or {}
        kind = scaling.get("rope_type", "longrope" if scaling.get("type") == "longrope" else "default")
        row = {"name": name, "seq_len": length or 0,
               "config": {"model_type": cls.model_type, "sliding_window": None, **fields}}
        for tag, module in (("f32", torch), ("f64", Wide())):
            rope.torch = module
            torch.Tensor.float = torch.Tensor.double if kind == "longrope" and module is not torch else single
            values, scale = rope.ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
            row[tag] = values.tolist()
            row["attention_scale"] = scale
        rope.torch = torch
        rows.append(row)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "rope.json"), "w") as f:
    f.write('{"versions": "transformers %s, torch %s", "cases": [\n' % (transformers.__version__, torch.__version__.split("+")[0]))
    f.write(",\n".join(json.dumps(r) for r in rows) + "\n]}\n")
