#!/usr/bin/env python3
"""Makes testdata/qwen3_vl_images: a small Qwen3-VL by transformers, whose weights golden.Qwen3VL draws again: rows with
images, their ids, positions, embeddings, logits, and LoRA gradients by PEFT.

    python internal/golden/make_qwen3_vl.py [OUT]

Made with torch 2.15.0, transformers 5.17.0, PEFT 0.21.0 on a CPU; needs neither network nor GPU. It reads the pictures
of make_images.py.
"""
import hashlib
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file

import make_idefics3
from make_idefics3 import HERE, draw

TEMPLATE = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% if message.content is string %}{{ message.content }}{% else %}{% for content in message.content %}{% if content.type == 'image' or 'image' in content %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% elif 'text' in content %}{{ content.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
TARGETS = r".*language_model\.layers\.[02]\.(self_attn\.q_proj|mlp\.down_proj)"
WIDTH = 24


def build():
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    make_idefics3.SPECIAL = SPECIAL
    tok = make_idefics3.tokenizer()
    tok.bos_token, tok.eos_token, tok.pad_token = None, "<|im_end|>", "<|endoftext|>"
    id = tok.convert_tokens_to_ids
    config = Qwen3VLConfig(
        image_token_id=id("<|image_pad|>"), video_token_id=id("<|video_pad|>"), vision_start_token_id=id("<|vision_start|>"),
        vision_end_token_id=id("<|vision_end|>"), tie_word_embeddings=False,
        vision_config=dict(depth=3, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, spatial_merge_size=2,
                           temporal_patch_size=2, out_hidden_size=WIDTH, num_position_embeddings=16,
                           deepstack_visual_indexes=[0, 1]),
        text_config=dict(vocab_size=len(tok), hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
                         rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=1000.0,
                                                                 mrope_section=[4, 2, 2], mrope_interleaved=True),
                         tie_word_embeddings=False, pad_token_id=id("<|endoftext|>"), eos_token_id=id("<|im_end|>")))
    m = Qwen3VLForConditionalGeneration._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, p in m.state_dict().items():
            p.copy_(draw(name, tuple(p.shape)))
    pictures = Qwen2VLImageProcessorPil(size={"shortest_edge": 256, "longest_edge": 1200}, patch_size=4, merge_size=2,
                                        temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    Qwen3VLProcessor.check_argument_for_proper_class = lambda *_: None  # there is no processor of videos, which needs torchvision
    p = Qwen3VLProcessor(pictures, tok, None, chat_template=TEMPLATE)
    return config, m, p


def trained(ids, tok):
    """Labels: the assistant's answers with the token that ends them."""
    start = tok("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
    end, labels, at = tok.convert_tokens_to_ids("<|im_end|>"), torch.full_like(ids, -100), 0
    while at < len(ids):
        if ids[at:at + len(start)].tolist() == start:
            at += len(start)
            while ids[at] != end:
                labels[at] = ids[at]
                at += 1
            labels[at] = ids[at]
        at += 1
    return labels


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "qwen3_vl_images")
    (out / "model").mkdir(parents=True, exist_ok=True)
    config, m, p = build()
    p.image_processor.save_pretrained(out / "model")
    p.tokenizer.save_pretrained(out / "model")
    (out / "model" / "chat_template.jinja").write_text(TEMPLATE)
    raw = config.to_dict()
    raw.update(dtype="float32", architectures=[type(m).__name__])
    raw["text_config"]["dtype"] = raw["vision_config"]["dtype"] = "float32"
    (out / "model" / "config.json").write_text(json.dumps(raw, indent=1, sort_keys=True) + "\n")
    (out / "model" / "tensors.json").write_text(json.dumps({n: list(t.shape) for n, t in m.state_dict().items()}) + "\n")
    picture = lambda name: ImageOps.exif_transpose(Image.open(HERE / "images" / name)).convert("RGB")
    rows, tensors, batches = [], {}, []
    for i, talk in enumerate(make_idefics3.conversations()):
        text = p.apply_chat_template(talk, tokenize=False)
        names = [part["image"] for message in talk for part in message["content"] if part["type"] == "image"]
        inputs = p(text=[text], images=[[picture(n) for n in names]] if names else None, return_tensors="pt",
                   add_special_tokens=False)
        ids = inputs["input_ids"][0]
        labels = trained(ids, p.tokenizer)
        positions = None
        m.model.rope_deltas = None
        with torch.no_grad():
            logits = m(**inputs).logits[0]
            if names:
                positions = m.model.get_rope_index(inputs["input_ids"], inputs["mm_token_type_ids"],
                                                   inputs["image_grid_thw"])[0][:, 0].T.tolist()
            if i < 1:
                out_of = m.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
                tensors[f"{i}.embeddings"] = torch.cat(
                    [torch.cat(list(out_of.pooler_output))] + list(out_of.deepstack_features), 1)[::4].contiguous()  # of each fourth token
        places = [len(ids) // 2, len(ids) - 1]
        tensors[f"{i}.logits"] = logits[places].contiguous()
        row = dict(messages=talk, text=text, ids=ids.tolist(), labels=labels.tolist(), places=places)
        if names:
            of = p.image_processor
            resized = [of.resize(np.array(picture(n)).transpose(2, 0, 1), of.size, of.resample, of.patch_size * of.merge_size)
                       for n in names]
            row["pixels"] = [hashlib.sha256(x.transpose(1, 2, 0).tobytes()).hexdigest() for x in resized]
            row.update(positions=positions, grids=inputs["image_grid_thw"].tolist())
        rows.append(row)
        batches.append((inputs, labels))
        print(i, len(ids), "ids, logits within", float(logits.abs().max()), row.get("grids"))
    asked = p.apply_chat_template(make_idefics3.conversations()[0][:1], tokenize=False, add_generation_prompt=True)
    inputs = p(text=[asked], images=[[picture("rgb.png")]], return_tensors="pt", add_special_tokens=False)
    m.model.rope_deltas = None
    answer = m.generate(**inputs, do_sample=False, max_new_tokens=10)[0][inputs["input_ids"].shape[1]:].tolist()
    print("answer", answer)
    from peft import LoraConfig, get_peft_model
    peft = get_peft_model(m, LoraConfig(r=2, lora_alpha=4, target_modules=TARGETS, init_lora_weights=False)).eval()
    for n, x in sorted(peft.named_parameters()):
        if "lora_" in n:
            x.data = draw(n.replace(".default", ""), tuple(x.shape))
    total, count = 0, 0
    for inputs, labels in batches:
        m.model.rope_deltas = None
        logits = peft(**inputs).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits[:-1], labels[1:], ignore_index=-100, reduction="sum")
        count += int((labels[1:] != -100).sum())
    loss = total / count
    loss.backward()
    for n, x in peft.named_parameters():
        if "lora_" in n:
            tensors["grad." + n.replace(".default", "")] = x.grad.contiguous()
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
    sizes = []
    for k in range(80):  # with the sizes of the releases: bounds of 256 and 1024 tokens of 32 x 32 pixels
        height, width = 1 + k * k * 37 % 3001, 1 + k * 7919 % 2500
        if max(height, width) <= 200 * min(height, width):
            sizes.append([height, width, *smart_resize(height, width, 32, 65536, 1048576)])
    save_file(tensors, str(out / "numbers.safetensors"))
    (out / "rows.json").write_text(json.dumps(dict(rows=rows, loss=float(loss.detach()), trained=count, targets=TARGETS, sizes=sizes, answer=answer)) + "\n")
    print("loss", float(loss.detach()), "over", count, "tokens;", sum(f.stat().st_size for f in out.rglob("*") if f.is_file()), "bytes")


if __name__ == "__main__":
    main()
