#!/usr/bin/env python3
"""Makes small models of images and text by transformers, whose weights golden.Drawn draws again: rows with images, their
ids, labels, positions, embeddings, logits, greedy answers, and LoRA gradients by PEFT.

    python internal/golden/make_image_models.py NAME [OUT]     # NAME of FAMILIES; OUT is testdata/NAME

idefics3 and qwen3_vl_images were made with torch 2.15.0, the others with torch 2.11.0, all with transformers 5.17.0
and PEFT 0.21.0 on a CPU; it needs neither network nor GPU. It reads the pictures of make_images.py.
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

HERE = pathlib.Path(__file__).parent / "testdata"


def tokenizer(special, newlines=2, **tokens):
    """Bytes of printable ASCII, and tokens of two newlines and more."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    line = "\u010a"
    vocab = {c: i for i, c in enumerate([chr(c) for c in range(33, 127)] + ["\u0120"] + [line * n for n in range(1, newlines + 1)])}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[(line * (n - 1), line) for n in range(2, newlines + 1)]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    return PreTrainedTokenizerFast(tokenizer_object=t, clean_up_tokenization_spaces=False, **tokens)


def draw(name, shape):
    """The numbers of a tensor: SplitMix64 from the name's FNV-1a hash, as golden.Drawn draws them."""
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


class Idefics3:
    template = """<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""
    special = ["<|im_start|>", "<|im_end|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>"] + [
        f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]
    targets, rank = r".*text_model.*\.(q_proj|v_proj|gate_proj|down_proj)", 3
    start, end = "Assistant:", "<end_of_utterance>"  # of an answer, whose text and end are trained

    def build(self):
        from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor
        from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
        tok = tokenizer(self.special, bos_token="<|im_start|>", eos_token="<end_of_utterance>", pad_token="<|im_end|>")
        id = tok.convert_tokens_to_ids
        config = Idefics3Config(
            image_token_id=id("<image>"), scale_factor=2, pad_token_id=id("<|im_end|>"), tie_word_embeddings=False,
            vision_config=dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=16,
                               patch_size=4),
            text_config=dict(model_type="llama", vocab_size=len(tok), hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                             num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-5,
                             bos_token_id=id("<|im_start|>"), eos_token_id=id("<end_of_utterance>"),
                             pad_token_id=id("<|im_end|>"), tie_word_embeddings=False))
        p = Idefics3Processor(Idefics3ImageProcessorPil(size={"longest_edge": 48}, max_image_size={"longest_edge": 16}), tok,
                              image_seq_len=4, chat_template=self.template)
        return config, Idefics3ForConditionalGeneration, p

    def save(self, p, folder):
        p.save_pretrained(folder)

    def places(self, n):
        return list(range(0, n, 23)) + [n - 1]

    def embeddings(self, m, inputs):
        return m.model.get_image_features(inputs["pixel_values"], inputs["pixel_attention_mask"]).pooler_output.reshape(-1, 24)


class Qwen3VL:
    template = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% if message.content is string %}{{ message.content }}{% else %}{% for content in message.content %}{% if content.type == 'image' or 'image' in content %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% elif 'text' in content %}{{ content.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<end_of_utterance>"]
    targets, rank = r".*language_model\.layers\.[02]\.(self_attn\.q_proj|mlp\.down_proj)", 2
    start, end = "<|im_start|>assistant\n", "<|im_end|>"

    def build(self):
        from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
        tok = tokenizer(self.special, eos_token="<|im_end|>", pad_token="<|endoftext|>")
        id = tok.convert_tokens_to_ids
        config = Qwen3VLConfig(
            image_token_id=id("<|image_pad|>"), video_token_id=id("<|video_pad|>"), vision_start_token_id=id("<|vision_start|>"),
            vision_end_token_id=id("<|vision_end|>"), tie_word_embeddings=False,
            vision_config=dict(depth=3, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, spatial_merge_size=2,
                               temporal_patch_size=2, out_hidden_size=24, num_position_embeddings=16,
                               deepstack_visual_indexes=[0, 1]),
            text_config=dict(vocab_size=len(tok), hidden_size=24, intermediate_size=32, num_hidden_layers=3,
                             num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
                             rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=1000.0,
                                                                     mrope_section=[4, 2, 2], mrope_interleaved=True),
                             tie_word_embeddings=False, pad_token_id=id("<|endoftext|>"), eos_token_id=id("<|im_end|>")))
        pictures = Qwen2VLImageProcessorPil(size={"shortest_edge": 256, "longest_edge": 1200}, patch_size=4, merge_size=2,
                                            temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3)
        Qwen3VLProcessor.check_argument_for_proper_class = lambda *_: None  # there is no processor of videos, which needs torchvision
        return config, Qwen3VLForConditionalGeneration, Qwen3VLProcessor(pictures, tok, None, chat_template=self.template)

    def save(self, p, folder):
        p.image_processor.save_pretrained(folder)
        p.tokenizer.save_pretrained(folder)
        (folder / "chat_template.jinja").write_text(self.template)

    def places(self, n):
        return [n // 2, n - 1]

    def embeddings(self, m, inputs):
        out = m.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
        return torch.cat([torch.cat(list(out.pooler_output))] + list(out.deepstack_features), 1)[::4]  # of each fourth token

    def of_row(self, m, p, inputs, pictures):
        of = p.image_processor
        resized = [of.resize(np.array(x).transpose(2, 0, 1), of.size, of.resample, of.patch_size * of.merge_size) for x in pictures]
        positions = m.model.get_rope_index(inputs["input_ids"], inputs["mm_token_type_ids"], inputs["image_grid_thw"])[0]
        return dict(pixels=[hashlib.sha256(x.transpose(1, 2, 0).tobytes()).hexdigest() for x in resized],
                    positions=positions[:, 0].T.tolist(), grids=inputs["image_grid_thw"].tolist())

    def of_all(self):
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
        sizes = []
        for k in range(80):  # with the sizes of the releases: bounds of 256 and 1024 tokens of 32 x 32 pixels
            height, width = 1 + k * k * 37 % 3001, 1 + k * 7919 % 2500
            if max(height, width) <= 200 * min(height, width):
                sizes.append([height, width, *smart_resize(height, width, 32, 65536, 1048576)])
        return dict(sizes=sizes)


class Qwen25VL(Qwen3VL):
    targets = r".*language_model\.layers\.[01]\.(self_attn\.q_proj|mlp\.down_proj)"

    def build(self):
        from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
        tok = tokenizer(self.special, eos_token="<|im_end|>", pad_token="<|endoftext|>")
        id = tok.convert_tokens_to_ids
        # windows of 2 x 2 tokens, which cut the grids of most pictures at their edges
        config = Qwen2_5_VLConfig(
            image_token_id=id("<|image_pad|>"), video_token_id=id("<|video_pad|>"), vision_start_token_id=id("<|vision_start|>"),
            vision_end_token_id=id("<|vision_end|>"), tie_word_embeddings=False,
            vision_config=dict(depth=3, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, spatial_merge_size=2,
                               temporal_patch_size=2, out_hidden_size=32, window_size=16, fullatt_block_indexes=[1]),
            text_config=dict(vocab_size=len(tok), hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                             num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-6,
                             rope_parameters=dict(rope_type="default", rope_theta=1000.0, mrope_section=[2, 3, 3]),
                             bos_token_id=id("<|endoftext|>"), pad_token_id=id("<|endoftext|>"), eos_token_id=id("<|im_end|>")))
        pictures = Qwen2VLImageProcessorPil(size={"shortest_edge": 256, "longest_edge": 1200}, patch_size=4, merge_size=2,
                                            temporal_patch_size=2)
        Qwen2_5_VLProcessor.check_argument_for_proper_class = lambda *_: None
        return config, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor(pictures, tok, None, chat_template=self.template)

    def embeddings(self, m, inputs):
        return torch.cat(list(m.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"]).pooler_output))

    def of_all(self):
        return {}


class Gemma3:
    template = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' }}{% if message['content'] is string %}{{ message['content'] | trim }}{% else %}{% for item in message['content'] %}{% if item['type'] == 'image' %}{{ '<start_of_image>' }}{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}{{ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""
    special = ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"]
    targets, rank = r".*language_model\.layers\.[01]\.(self_attn\.[qv]_proj|mlp\.down_proj)", 2
    start, end = "<start_of_turn>model\n", "<end_of_turn>"

    def build(self):
        from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3Processor
        from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
        tok = tokenizer(self.special, 4, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", extra_special_tokens=dict(
            boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>"))
        id = tok.convert_tokens_to_ids
        # the window is shorter than an image, whose tokens see one another only within it
        config = Gemma3Config(
            image_token_index=id("<image_soft_token>"), boi_token_index=id("<start_of_image>"), eoi_token_index=id("<end_of_image>"),
            mm_tokens_per_image=9, tie_word_embeddings=True,
            vision_config=dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=24,
                               patch_size=4, vision_use_head=False),
            text_config=dict(vocab_size=len(tok), hidden_size=24, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
                             num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16, max_position_embeddings=512,
                             sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                             bos_token_id=id("<bos>"), eos_token_id=id("<eos>"), pad_token_id=id("<pad>")))
        p = Gemma3Processor(Gemma3ImageProcessorPil(size={"height": 24, "width": 24}), tok, image_seq_length=9,
                            chat_template=self.template)
        return config, Gemma3ForConditionalGeneration, p

    def save(self, p, folder):
        p.save_pretrained(folder)

    def places(self, n):
        return [10, n // 2, n - 1]

    def embeddings(self, m, inputs):
        return m.model.get_image_features(inputs["pixel_values"]).pooler_output.reshape(-1, 24)

    def of_row(self, m, p, inputs, pictures):
        levels = (inputs["pixel_values"] * 127.5 + 127.5).round().to(torch.uint8)
        return dict(pixels=[hashlib.sha256(x.permute(1, 2, 0).contiguous().numpy().tobytes()).hexdigest() for x in levels])


class Mistral3:
    template = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}[INST]{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for block in message['content'] %}{% if block['type'] == 'text' %}{{ block['text'] }}{% elif block['type'] in ['image', 'image_url'] %}[IMG]{% endif %}{% endfor %}{% endif %}[/INST]{% else %}{% if message['content'] is string %}{{ message['content'] }}{% else %}{{ message['content'][0]['text'] }}{% endif %}{{ eos_token }}{% endif %}{% endfor %}"""
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<pad>"]
    targets, rank = r".*language_model\.layers\.[01]\.(self_attn\.q_proj|mlp\.down_proj)", 2
    start, end = "[/INST]", "</s>"

    def build(self):
        import transformers.models.pixtral.image_processing_pil_pixtral as pil
        sys.modules["transformers.models.pixtral.image_processing_pixtral"] = pil  # the other one needs torchvision
        from transformers import Mistral3Config, Mistral3ForConditionalGeneration
        from transformers.models.pixtral.processing_pixtral import PixtralProcessor
        tok = tokenizer(self.special, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
        id = tok.convert_tokens_to_ids
        config = Mistral3Config(
            image_token_index=id("[IMG]"), spatial_merge_size=2, tie_word_embeddings=False,
            vision_config=dict(model_type="pixtral", hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                               num_attention_heads=2, image_size=32, patch_size=4, hidden_act="silu",
                               rope_parameters=dict(rope_type="axial", rope_theta=100.0)),
            text_config=dict(model_type="mistral", vocab_size=len(tok), hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                             num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=512,
                             rms_norm_eps=1e-5, sliding_window=None, tie_word_embeddings=False, bos_token_id=id("<s>"),
                             eos_token_id=id("</s>"), pad_token_id=id("<pad>")))
        p = PixtralProcessor(pil.PixtralImageProcessorPil(size={"longest_edge": 32}, patch_size={"height": 4, "width": 4}), tok,
                             patch_size=4, spatial_merge_size=2, chat_template=self.template)
        return config, Mistral3ForConditionalGeneration, p

    def save(self, p, folder):
        p.save_pretrained(folder)

    def places(self, n):
        return [n // 2, n - 1]

    def embeddings(self, m, inputs):
        return torch.cat(list(m.model.get_image_features(inputs["pixel_values"], inputs["image_sizes"]).pooler_output))

    def of_row(self, m, p, inputs, pictures):
        of, side = p.image_processor, p.patch_size * p.spatial_merge_size
        from transformers.image_utils import SizeDict
        resized = [of.resize(np.array(x).transpose(2, 0, 1), of.size, SizeDict(height=side, width=side), of.resample) for x in pictures]
        return dict(pixels=[hashlib.sha256(x.transpose(1, 2, 0).tobytes()).hexdigest() for x in resized])


FAMILIES = {"idefics3": Idefics3(), "qwen3_vl_images": Qwen3VL(), "qwen2_5_vl_images": Qwen25VL(), "gemma3_images": Gemma3(), "mistral3_images": Mistral3()}


def trained(ids, tok, start, end):
    """Labels: the assistant's answers with the token that ends them."""
    start = tok(start, add_special_tokens=False)["input_ids"]
    end, labels, at = tok.convert_tokens_to_ids(end), torch.full_like(ids, -100), 0
    while at < len(ids):
        if ids[at:at + len(start)].tolist() == start:
            at += len(start)
            while ids[at] != end:
                labels[at] = ids[at]
                at += 1
            labels[at] = ids[at]
        at += 1
    return labels


def picture(name):
    return ImageOps.exif_transpose(Image.open(HERE / "images" / name)).convert("RGB")


def drawn(family, out):
    """The family's model with drawn weights, and its processor; its folder is written."""
    config, kind, p = family.build()
    m = kind._from_config(config, attn_implementation="eager").float().eval()
    tensors = m.state_dict()
    if config.tie_word_embeddings:
        del tensors["lm_head.weight"]  # it is the table of embeddings, and a folder stores it once
    with torch.no_grad():
        for name, x in tensors.items():
            x.copy_(draw(name, tuple(x.shape)))
    family.save(p, out)
    raw = config.to_dict()
    raw.update(dtype="float32", architectures=[kind.__name__])
    raw["text_config"]["dtype"] = raw["vision_config"]["dtype"] = "float32"
    (out / "config.json").write_text(json.dumps(raw, indent=1, sort_keys=True) + "\n")
    (out / "tensors.json").write_text(json.dumps({n: list(t.shape) for n, t in tensors.items()}) + "\n")
    return m, p


def restart(m):
    """Forgets the positions of an earlier prompt."""
    if hasattr(m.model, "rope_deltas"):
        m.model.rope_deltas = None


def main():
    name = sys.argv[1]
    family, out = FAMILIES[name], pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / name
    (out / "model").mkdir(parents=True, exist_ok=True)
    m, p = drawn(family, out / "model")
    rows, tensors, batches = [], {}, []
    for i, talk in enumerate(conversations()):
        text = p.apply_chat_template(talk, tokenize=False)
        pictures = [picture(part["image"]) for message in talk for part in message["content"] if part["type"] == "image"]
        inputs = p(text=[text], images=[pictures] if pictures else None, return_tensors="pt", add_special_tokens=False)
        ids = inputs["input_ids"][0]
        labels = trained(ids, p.tokenizer, family.start, family.end)
        restart(m)
        with torch.no_grad():
            logits = m(**inputs).logits[0]
            if i == 0:
                tensors[f"{i}.embeddings"] = family.embeddings(m, inputs).contiguous()
            places = family.places(len(ids))
            tensors[f"{i}.logits"] = logits[places].contiguous()
            row = dict(messages=talk, text=text, ids=ids.tolist(), labels=labels.tolist(), places=places)
            if pictures and hasattr(family, "of_row"):
                row.update(family.of_row(m, p, inputs, pictures))
        rows.append(row)
        batches.append((inputs, labels))
        print(i, len(ids), "ids, logits within", float(logits.abs().max()))
    asked = p.apply_chat_template(conversations()[0][:1], tokenize=False, add_generation_prompt=True)
    inputs = p(text=[asked], images=[[picture("rgb.png")]], return_tensors="pt", add_special_tokens=False)
    restart(m)
    answer = m.generate(**inputs, do_sample=False, max_new_tokens=10)[0][inputs["input_ids"].shape[1]:].tolist()
    print("answer", answer)
    from peft import LoraConfig, get_peft_model
    peft = get_peft_model(m, LoraConfig(r=family.rank, lora_alpha=2 * family.rank, target_modules=family.targets,
                                        init_lora_weights=False)).eval()
    for n, x in sorted(peft.named_parameters()):
        if "lora_" in n:
            x.data = draw(n.replace(".default", ""), tuple(x.shape))
    total, count = 0, 0
    for inputs, labels in batches:
        restart(m)
        logits = peft(**inputs).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits[:-1], labels[1:], ignore_index=-100, reduction="sum")
        count += int((labels[1:] != -100).sum())
    loss = total / count
    loss.backward()
    for n, x in peft.named_parameters():
        if "lora_" in n:
            tensors["grad." + n.replace(".default", "")] = x.grad.contiguous()
    save_file(tensors, str(out / "numbers.safetensors"))
    more = family.of_all() if hasattr(family, "of_all") else {}
    (out / "rows.json").write_text(json.dumps(dict(rows=rows, loss=float(loss.detach()), trained=count, targets=family.targets,
                                                   answer=answer, **more)) + "\n")
    print("loss", float(loss.detach()), "over", count, "tokens;", sum(f.stat().st_size for f in out.rglob("*") if f.is_file()), "bytes")


if __name__ == "__main__":
    main()
