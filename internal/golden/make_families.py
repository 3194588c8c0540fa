#!/usr/bin/env python3
"""Makes testdata/families: logits of tiny random models by transformers, LoRA gradients by PEFT, and what PEFT's
own matching functions say of target_modules, rank_pattern and alpha_pattern.

    python internal/golden/make_families.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1 on a CPU (llama_longrope* with torch 2.11.0); needs neither network nor GPU.
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from safetensors.torch import save_file

VOCAB, T = 64, 24
SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)

# name: (model type, name of its weights, what differs from SIZES)
MODELS = {
    "llama": ("llama", "llama", dict(tie_word_embeddings=False)),
    "llama_linear": ("llama", "llama", dict(tie_word_embeddings=False, rope_scaling=dict(rope_type="linear", factor=3.0))),
    # longer than the model's positions: the only case in which dynamic scaling does anything
    "llama_dynamic": ("llama", "llama", dict(tie_word_embeddings=False, max_position_embeddings=16,
                                             rope_scaling=dict(rope_type="dynamic", factor=2.0))),
    "llama_llama3": ("llama", "llama", dict(tie_word_embeddings=False, rope_scaling=dict(
        rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "llama_yarn": ("llama", "llama", dict(tie_word_embeddings=False, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16))),
    # transformers 4 reads the original length beside rope_scaling; of 24 tokens these take the long factors and the short ones
    "llama_longrope": ("llama", "llama", dict(tie_word_embeddings=False, original_max_position_embeddings=16, rope_scaling=dict(
        rope_type="longrope", short_factor=[1.0, 1.2, 1.5, 1.9], long_factor=[1.1, 2.0, 3.5, 4.0]))),
    "llama_longrope_short": ("llama", "llama", dict(tie_word_embeddings=False, original_max_position_embeddings=32, rope_scaling=dict(
        rope_type="longrope", short_factor=[1.0, 1.2, 1.5, 1.9], long_factor=[1.1, 2.0, 3.5, 4.0]))),
    "llama_biases": ("llama", "llama_biases", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                                                   num_key_value_heads=4)),
    "llama_head_dim": ("llama", "llama_head_dim", dict(tie_word_embeddings=False, head_dim=12, num_key_value_heads=1)),
    "mistral": ("mistral", "mistral", dict(tie_word_embeddings=False, sliding_window=7)),
    "mistral_full": ("mistral", "mistral", dict(tie_word_embeddings=False, sliding_window=None)),
    "qwen2": ("qwen2", "qwen2", dict(tie_word_embeddings=False)),
    "qwen2_tied": ("qwen2", "qwen2_tied", dict(tie_word_embeddings=True, rope_theta=1000000.0)),
    "qwen2_window": ("qwen2", "qwen2", dict(tie_word_embeddings=False, use_sliding_window=True, sliding_window=5,
                                            max_window_layers=1)),
}


def build(kind, extra, seed):
    """A model whose random numbers give logits of a few units, rounded to bfloat16, computing in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM
    config, model = {"llama": (LlamaConfig, LlamaForCausalLM), "mistral": (MistralConfig, MistralForCausalLM),
                     "qwen2": (Qwen2Config, Qwen2ForCausalLM)}[kind]
    config = config(**{**SIZES, **extra}, attn_implementation="eager")
    m = model(config).float().eval()
    randomise(m, seed)
    return config, m


def randomise(m, seed):
    """Gives a model random numbers."""
    g = torch.Generator().manual_seed(seed)
    for name, p in sorted(m.named_parameters()):
        x = torch.randn(p.shape, generator=g)
        if name.endswith("norm.weight") or name.endswith("layernorm.weight"):
            x = 1 + 0.2 * x
        elif name.endswith("bias"):
            x = 0.4 * x
        elif p.dim() == 1:
            pass
        elif "embed_tokens" in name:
            x = 0.5 * x
        else:
            x = 1.3 * x / p.shape[1] ** 0.5
        p.data = x.bfloat16().float()


def logits(out, MODELS=MODELS, build=build):
    ids = torch.randint(0, VOCAB, (1, T), generator=torch.Generator().manual_seed(7))
    result, written = {"ids": ids[0].to(torch.int32)}, {}
    models = {}
    for name, (kind, weights, extra) in MODELS.items():
        config, m = build(kind, extra, seed=sorted({w for _, w, _ in MODELS.values()}).index(weights) + 1)
        state = {k: v.bfloat16().contiguous() for k, v in m.state_dict().items()
                 if not (k == "lm_head.weight" and config.tie_word_embeddings)}
        if weights in written:
            assert all(torch.equal(state[k], v) for k, v in written[weights].items()), name
        written[weights] = state
        with torch.no_grad():
            result[name + ".logits"] = m(input_ids=ids).logits[0].contiguous()
        raw = config.to_dict()
        raw["dtype"] = "bfloat16"
        raw.pop("attn_implementation", None)
        raw.pop("_name_or_path", None)
        raw["architectures"] = [type(m).__name__]
        (out / (name + ".config.json")).write_text(json.dumps(raw, indent=1, sort_keys=True) + "\n")
        models[name] = (config, m)
        print(name, "logits within", float(result[name + ".logits"].abs().max()))
    for weights, state in written.items():
        save_file(state, str(out / (weights + ".safetensors")), metadata={"format": "pt"})
    save_file(result, str(out / "logits.safetensors"))
    (out / "models.json").write_text(json.dumps({n: w for n, (_, w, _) in MODELS.items()}, indent=1) + "\n")
    return models


def save_adapter(peft, folder, name):
    peft.peft_config["default"].base_model_name_or_path = name
    peft.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"  # PEFT writes a set's names in any order
    config = json.loads(path.read_text())
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True))


def gradients(out, name, m, lora, draw=lambda x: x):
    """Loss and LoRA gradients of two rows with masked labels. draw rounds the adapter's random numbers."""
    from peft import LoraConfig, get_peft_model
    g = torch.Generator().manual_seed(11)
    peft = get_peft_model(m, LoraConfig(task_type="CAUSAL_LM", **lora)).eval()
    for n, p in sorted(peft.named_parameters()):
        if "lora_" in n:
            p.data = draw(0.3 * torch.randn(p.shape, generator=g))
    ids = torch.randint(0, VOCAB, (2, T), generator=g)
    labels = ids.clone()
    labels[0, :9] = -100
    labels[1, :4] = -100
    labels[1, 17:] = -100
    folder = out / (name + ".lora")
    save_adapter(peft, folder, name)
    peft.train(False)
    loss = peft(input_ids=ids, labels=labels).loss
    loss.backward()
    grads = {n.replace(".default", ""): (torch.zeros_like(p) if p.grad is None else p.grad).contiguous()
             for n, p in peft.named_parameters() if "lora_" in n}  # none: an expert without a token
    with torch.no_grad():
        grads["logits"] = peft(input_ids=ids[:1]).logits[0].contiguous()
    grads["input_ids"], grads["labels"] = ids.to(torch.int32), labels.to(torch.int32)
    grads["loss"] = loss.detach().reshape(1)
    save_file(grads, str(folder / "grads.safetensors"))
    print(name, "loss", loss.item(), len(grads) - 4, "gradients")


# target_modules, then rank_pattern and alpha_pattern as lists of pairs: their order counts
PATTERNS = [
    (["q_proj", "v_proj"], [], []),
    (["self_attn.q_proj", "layers.1.mlp.up_proj"], [["q_proj", 4]], [["q_proj", 32.0]]),
    (["proj"], [], []),
    (["model.layers.0.self_attn.q_proj", "down_proj"], [["model.layers.0.self_attn.q_proj", 2]], [["layers.1.mlp.down_proj", 3.0]]),
    (r".*\.self_attn\.(q|k)_proj", [[r"layers\.1\..*", 5]], [[r".*\.k_proj", 64.0]]),
    (r"model\.layers\.\d+\.mlp\..*_proj", [["up_proj|gate_proj", 7]], [["layers.[01].mlp.(up|down)_proj", 9.0]]),
    (r"layers\.0.*", [], []),
    (r".*layers\.1[0-9]\..*proj", [["^model.layers.10.mlp.up_proj", 6]], [["^up_proj", 1.0], ["model.layers.1.+", 2.0]]),
    (["q_proj", "k_proj", "up_proj"], [["q_proj", 3], ["layers.1.self_attn.q_proj", 9], [".*_proj", 11]],
     [["self_attn.k_proj", 5.0], ["k_proj", 6.0], ["proj", 7.0]]),
    (["up_proj", "q_proj"], [["layers.1.self_attn.q_proj", 9], ["q_proj", 3]], [["z_proj", 5.0], [".*", 8.0], ["up_proj", 6.0]]),
    (["up_proj", "down_proj"], [["p_proj", 2], ["mlp", 3], ["mlp.*", 4]], [["_proj", 2.0], [r"\S+up_proj", 3.0]]),
]


def patterns(out):
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists
    from peft.utils.other import get_pattern_key
    paths = [f"model.layers.{i}.{m}" for i in (0, 1, 10, 11) for m in (
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")]
    cases = []
    for targets, ranks, alphas in PATTERNS:
        c = LoraConfig(r=8, lora_alpha=16, target_modules=targets, rank_pattern=dict(ranks), alpha_pattern=dict(alphas))
        rows = []
        for p in paths:
            hit = bool(check_target_module_exists(c, p))
            rank = c.rank_pattern.get(get_pattern_key(c.rank_pattern.keys(), p), c.r)
            alpha = c.alpha_pattern.get(get_pattern_key(c.alpha_pattern.keys(), p), c.lora_alpha)
            rows.append([p, hit, rank, alpha])
        cases.append({"config": {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": targets,
                                 "rank_pattern": dict(ranks), "alpha_pattern": dict(alphas)}, "layers": rows})
    (out / "patterns.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "families"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    models = logits(out)
    everything = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    gradients(out, "qwen2", models["qwen2"][1], dict(
        r=3, lora_alpha=6, lora_dropout=0.1, target_modules=everything,
        rank_pattern={"layers.1.mlp.down_proj": 2, r".*\.k_proj": 4}, alpha_pattern={"layers.0.self_attn.q_proj": 12}))
    gradients(out, "mistral", models["mistral"][1], dict(
        r=2, lora_alpha=5, use_rslora=True, target_modules=r".*\.(q_proj|o_proj|up_proj)"))
    patterns(out)
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
