#!/usr/bin/env python3
"""Makes testdata/idefics3: a small model of images and text by transformers (Idefics3), whose weights golden.Idefics3
draws again: rows with images, their ids, logits, and LoRA gradients by PEFT.

    python internal/golden/make_idefics3.py [OUT]

Made with torch 2.15.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU. It reads the pictures
of make_images.py.
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent / "testdata"
TEMPLATE = """<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""
SPECIAL = ["<|im_start|>", "<|im_end|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>"] + [
    f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]
TARGETS = r".*text_model.*\.(q_proj|v_proj|gate_proj|down_proj)"


def tokenizer():
    """Bytes of printable ASCII and two newlines as one token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    vocab = {c: i for i, c in enumerate([chr(c) for c in range(33, 127)] + ["\u0120", "\u010a", "\u010a\u010a"])}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[("\u010a", "\u010a")]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<|im_start|>", eos_token="<end_of_utterance>",
                                   pad_token="<|im_end|>", clean_up_tokenization_spaces=False)


def draw(name, shape):
    """The numbers of a tensor: SplitMix64 from the name's FNV-1a hash, as golden.Idefics3 draws them."""
    h = 0xcbf29ce484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001b3 % 2**64
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        x = np.uint64(h) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        x = x ^ (x >> np.uint64(31))
    u = (x >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5
    if len(shape) == 1:
        u = 0.5 * u + (1 if "norm" in name and name.endswith("weight") else 0)
    elif "embed" in name and "patch" not in name:
        u = 2 * u
    else:
        u = 4 * u / np.sqrt(n / shape[0])
    return torch.from_numpy(u.astype(np.float32).reshape(shape))


def build():
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    tok = tokenizer()
    id = tok.convert_tokens_to_ids
    config = Idefics3Config(
        image_token_id=id("<image>"), scale_factor=2, pad_token_id=id("<|im_end|>"), tie_word_embeddings=False,
        vision_config=dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=16,
                           patch_size=4),
        text_config=dict(model_type="llama", vocab_size=len(tok), hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                         num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-5,
                         bos_token_id=id("<|im_start|>"), eos_token_id=id("<end_of_utterance>"),
                         pad_token_id=id("<|im_end|>"), tie_word_embeddings=False))
    m = Idefics3ForConditionalGeneration._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, p in m.state_dict().items():
            p.copy_(draw(name, tuple(p.shape)))
    p = Idefics3Processor(Idefics3ImageProcessorPil(size={"longest_edge": 48}, max_image_size={"longest_edge": 16}), tok,
                          image_seq_len=4, chat_template=TEMPLATE)
    return config, m, p


def conversations():
    def user(*parts):
        return {"role": "user", "content": [dict(type="image", image=x[1:]) if x.startswith("@") else
                                            dict(type="text", text=x) for x in parts]}

    def says(text):
        return {"role": "assistant", "content": [dict(type="text", text=text)]}
    return [
        [user("@rgb.png", "Which shape is red?"), says("The rectangle.")],
        [user("Compare ", "@lossless.webp", " with ", "@palette.png", "."), says("They differ."), user("Why?"),
         says("One has fewer colours.")],
        [user("Hello"), says("No image here.")],
        [user("@rgba.png"), says("A picture, turned.")],
    ]


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "idefics3")
    (out / "model").mkdir(parents=True, exist_ok=True)
    config, m, p = build()
    p.save_pretrained(out / "model")
    raw = config.to_dict()
    raw.update(dtype="float32", architectures=[type(m).__name__])
    raw["text_config"]["dtype"] = raw["vision_config"]["dtype"] = "float32"
    (out / "model" / "config.json").write_text(json.dumps(raw, indent=1, sort_keys=True) + "\n")
    (out / "model" / "tensors.json").write_text(json.dumps({n: list(t.shape) for n, t in m.state_dict().items()}) + "\n")
    picture = lambda name: ImageOps.exif_transpose(Image.open(HERE / "images" / name)).convert("RGB")
    rows, tensors, batches = [], {}, []
    for i, talk in enumerate(conversations()):
        text = p.apply_chat_template(talk, tokenize=False)
        names = [part["image"] for message in talk for part in message["content"] if part["type"] == "image"]
        inputs = p(text=[text], images=[[picture(n) for n in names]] if names else None, return_tensors="pt",
                   add_special_tokens=False)
        ids = inputs["input_ids"][0]
        labels = ids.clone()
        # what follows the generation prompt is trained, with the token that ends the answer
        labels[:] = -100
        end, at = p.tokenizer.convert_tokens_to_ids("<end_of_utterance>"), 0
        start = p.tokenizer("Assistant:", add_special_tokens=False)["input_ids"]
        while at < len(ids):
            if ids[at:at + len(start)].tolist() == start:
                at += len(start)
                while ids[at] != end:
                    labels[at] = ids[at]
                    at += 1
                labels[at] = ids[at]
            at += 1
        with torch.no_grad():
            logits = m(**{k: v for k, v in inputs.items()}).logits[0]
            if names and i < 1:
                tensors[f"{i}.embeddings"] = m.model.get_image_features(
                    inputs["pixel_values"], inputs["pixel_attention_mask"]).pooler_output.reshape(-1, 24).contiguous()
        places = list(range(0, len(ids), 23)) + [len(ids) - 1]
        tensors[f"{i}.logits"] = logits[places].contiguous()
        rows.append(dict(messages=talk, text=text, ids=ids.tolist(), labels=labels.tolist(), places=places))
        batches.append((inputs, labels))
        print(i, len(ids), "ids, logits within", float(logits.abs().max()))
    from peft import LoraConfig, get_peft_model
    peft = get_peft_model(m, LoraConfig(r=3, lora_alpha=6, target_modules=TARGETS, init_lora_weights=False)).eval()
    for n, x in sorted(peft.named_parameters()):
        if "lora_" in n:
            x.data = draw(n.replace(".default", ""), tuple(x.shape))
    total, count = 0, 0
    for inputs, labels in batches:
        logits = peft(**{k: v for k, v in inputs.items()}).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits[:-1], labels[1:], ignore_index=-100, reduction="sum")
        count += int((labels[1:] != -100).sum())
    loss = total / count
    loss.backward()
    for n, x in peft.named_parameters():
        if "lora_" in n:
            tensors["grad." + n.replace(".default", "")] = x.grad.contiguous()
    peft.peft_config["default"].base_model_name_or_path = "idefics3"
    save_file(tensors, str(out / "numbers.safetensors"))
    (out / "rows.json").write_text(json.dumps(dict(rows=rows, loss=float(loss), trained=count, targets=TARGETS)) + "\n")
    print("loss", float(loss), "over", count, "tokens;", sum(f.stat().st_size for f in out.rglob("*") if f.is_file()), "bytes")


if __name__ == "__main__":
    main()
