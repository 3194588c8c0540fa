#!/usr/bin/env python3
"""Makes testdata/gemma: Gemma, Gemma 2 and the text model of Gemma 3, as make_families.py does it for the first three
families: logits by transformers (eager attention: other implementations leave out the soft cap) and LoRA gradients by PEFT.
And for one model of each generation, in NAME.runs.json: greedy texts, the NLL of rows, and 20 training steps with the
weights that bitsandbytes' NF4 stands for.

    python internal/golden/make_gemma.py [OUT]

Made with torch 2.8.0, transformers 4.57.6, PEFT 0.18.1, bitsandbytes 0.49.2, tokenizers 0.22.1 on a CPU; needs neither
network nor GPU.
"""
import copy
import json
import pathlib
import sys
import tempfile

import make_families as families
from make_llama_like import greedy, nll, quantised, rows, tokenizer
import torch
import transformers
from safetensors.torch import load_file, save_file

T = 16
SIZES = dict(vocab_size=families.VOCAB, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
             pad_token_id=0)
# Caps and windows that small random models reach.
CAPS = dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0, query_pre_attn_scalar=5, sliding_window=5)
FULL, SLIDING = "full_attention", "sliding_attention"
G3 = dict(query_pre_attn_scalar=30, sliding_window=5, sliding_window_pattern=2, rope_local_base_freq=100.0,
          rope_theta=5000.0)

# name: (classes of transformers, name of its weights, what differs from SIZES)
MODELS = {
    "gemma": ("Gemma", "gemma", dict(num_key_value_heads=1)),
    "gemma2": ("Gemma2", "gemma2", CAPS),
    "gemma2_plain": ("Gemma2", "gemma2", dict(CAPS, attn_logit_softcapping=None, final_logit_softcapping=None, query_pre_attn_scalar=100)),
    "gemma2_layers": ("Gemma2", "gemma2", dict(CAPS, layer_types=[FULL, SLIDING], sliding_window=3,
                                               rope_scaling=dict(rope_type="linear", factor=3.0))),
    "gemma2_exact": ("Gemma2", "gemma2", dict(CAPS, hidden_activation="gelu", query_pre_attn_scalar=40, sliding_window=3)),
    "gemma2_biases": ("Gemma2", "gemma2_biases", dict(CAPS, attention_bias=True, tie_word_embeddings=False,
                                                      num_key_value_heads=4, head_dim=6, hidden_activation="silu")),
    "gemma3": ("Gemma3", "gemma3", dict(G3, rope_scaling=dict(rope_type="linear", factor=4.0))),
    "gemma3_windows": ("Gemma3", "gemma3", dict(G3, sliding_window_pattern=6, sliding_window=3)),
    "gemma3_capped": ("Gemma3", "gemma3", dict(G3, layer_types=[FULL, SLIDING], final_logit_softcapping=2.5, attn_logit_softcapping=1.5)),
    "gemma3_images": ("Gemma3Images", "gemma3_images", dict(G3, sliding_window_pattern=None, layer_types=[SLIDING, FULL],
                                                            rope_scaling=dict(rope_type="linear", factor=8.0))),
    "gemma3_biases": ("Gemma3", "gemma3_biases", dict(G3, attention_bias=True, tie_word_embeddings=False, num_key_value_heads=4,
                                                      head_dim=10)),
}
EVERYTHING = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TEXT = r".*language_model.*\.(" + "|".join(EVERYTHING) + ")"  # the vision tower has layers of these names too


VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=28, patch_size=14)


def build(kind, extra, seed):
    sizes = {**SIZES, **extra}
    if kind == "Gemma3Images":
        config = transformers.Gemma3Config(text_config=sizes, vision_config=VISION, mm_tokens_per_image=4, attn_implementation="eager")
        torch.manual_seed(seed)  # of what images need
        m = transformers.Gemma3ForConditionalGeneration(config).float().eval()
        for p in m.parameters():  # not the buffers
            p.data = p.data.bfloat16().float()
    else:
        config = getattr(transformers, kind + ("TextConfig" if kind == "Gemma3" else "Config"))(**sizes, attn_implementation="eager")
        m = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    families.randomise(m.model.language_model if kind == "Gemma3Images" else m, seed)
    for name, p in m.named_parameters():
        if name.endswith("norm.weight"):  # stored less one
            p.data = (p.data - 1).bfloat16().float()
        elif "embed_tokens" in name:  # they are scaled by sqrt(hidden_size)
            p.data = (0.3 * p.data).bfloat16().float()
    return config, m


def as_saved(m, path):
    """Gives a model's tensors in a file the names that save_pretrained gives them: those of the released files."""
    with tempfile.TemporaryDirectory() as folder:
        m.save_pretrained(folder)
        names = sorted(load_file(folder + "/model.safetensors"))
    new = {"lm_head.": "language_model.lm_head.", "model.language_model.": "language_model.model.", "model.vision_tower.": "vision_tower.", "model.multi_modal_projector.": "multi_modal_projector."}
    state = {}
    for name, x in load_file(str(path)).items():
        old = next((o for o in new if name.startswith(o)), "")
        state[new.get(old, "") + name[len(old):]] = x
    assert sorted(state) == names, (sorted(state), names)
    save_file(state, str(path), metadata={"format": "pt"})


def curve(model, adapter, lr, steps=20, batch=4):
    """AdamW with a rate that falls linearly and clipping, from PEFT's adapter in a folder."""
    from peft import PeftModel
    peft = PeftModel.from_pretrained(quantised(model), str(adapter), is_trainable=True).eval()  # no dropout
    params = {n.replace(".default", ""): p for n, p in sorted(peft.named_parameters()) if p.requires_grad}
    opt = torch.optim.AdamW(list(params.values()), lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, foreach=False)
    ids, labels = (x[:batch] for x in rows()[:2])  # the same rows in every step
    c = {k: [] for k in ("loss", "grad_norm", "lr", "trained_tokens")} | dict(rows=ids.tolist(), labels=labels.tolist(), batch=batch)
    for step in range(steps):
        which = [(batch * step + k) % len(ids) for k in range(batch)]
        x, y = ids[which], labels[which]
        opt.param_groups[0]["lr"] = lr * (1 - step / steps)
        opt.zero_grad()
        total = int((y[:, 1:] != -100).sum())
        logits = peft(input_ids=x, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y[:, 1:].reshape(-1), ignore_index=-100, reduction="sum") / total
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(params.values()), 1.0, foreach=False)
        for k, v in (("loss", loss), ("grad_norm", norm), ("lr", opt.param_groups[0]["lr"]), ("trained_tokens", total)):
            c[k].append(float(v.detach() if hasattr(v, "detach") else v) if k != "trained_tokens" else v)
        opt.step()
    return c


def bf16_errors(model, adapter):
    """The error of PEFT's own bf16 (base in bf16, adapter in fp32, autocast) against fp32, as norms over the rows' logits and
    gradients, each row a batch of its own."""
    from peft import PeftModel
    ids, labels, _ = rows()

    def run(m, autocast):
        peft = PeftModel.from_pretrained(m, str(adapter), is_trainable=True).eval()
        all_logits, grads = [], []
        for x, y in zip(ids, labels):
            peft.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                logits = peft(input_ids=x[None], use_cache=False).logits[0].float()
            torch.nn.functional.cross_entropy(logits[:-1], y[1:], ignore_index=-100).backward()
            all_logits.append(logits.detach().double())
            grads.append(torch.cat([p.grad.double().flatten() for n, p in sorted(peft.named_parameters()) if p.requires_grad]))
        return torch.stack(all_logits), torch.stack(grads)

    low = copy.deepcopy(model)
    for p in low.parameters():  # as from_pretrained does: rotary frequencies stay fp32
        p.data = p.data.bfloat16()
    ref, got = run(copy.deepcopy(model), False), run(low, True)
    return {k: float((g - r).norm() / r.norm()) for k, r, g in zip(("logits", "gradient"), ref, got)}


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "gemma"
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    families.T = T
    models = families.logits(out, MODELS, build)
    as_saved(models["gemma3_images"][1], out / "gemma3_images.safetensors")
    for name in ("gemma", "gemma2", "gemma3", "gemma3_images"):
        m = models[name][1]
        runs = {**nll(m)}
        runs["texts"], runs["lead"] = greedy(m, [[1, 5, 9, 30], [1, 40]])
        families.gradients(out, name, copy.deepcopy(m), dict(r=2, lora_alpha=4, target_modules=TEXT if name.endswith("images") else EVERYTHING))
        runs["bf16"] = bf16_errors(m, out / (name + ".lora"))
        runs["curve"] = curve(copy.deepcopy(m), out / (name + ".lora"), lr=1e-2 if name.endswith("images") else 1.5e-2)
        print(name, "mean NLL", runs["mean_nll"], "lead", runs["lead"], "losses", runs["curve"]["loss"][0], runs["curve"]["loss"][-1], runs["bf16"])
        (out / (name + ".runs.json")).write_text(json.dumps(runs) + "\n")
    families.gradients(out, "gemma2_exact", models["gemma2_exact"][1], dict(r=2, lora_alpha=4, target_modules=EVERYTHING))
    tokenizer(out / "tokenizer.json")
    for f in out.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)


if __name__ == "__main__":
    main()
