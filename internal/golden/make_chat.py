#!/usr/bin/env python3
"""Reference numbers of conversations: make_chat.py SHARED SMOLLM2 OUT

SHARED is the folder with data/ and goldens/ (TRAINER_DATA), SMOLLM2 that of SmolLM2-135M-Instruct. Written with
transformers 4.57.6, tokenizers 0.22.1, jinja2 3.1.6, torch 2.8.0 (CPU, float32). OUT gets

  plain.json       ids of texts with special tokens in them, read as plain text (encode_special_tokens)
  smollm2.json     SmolLM2's template on conversations of SHARED: hashes of ids and of the assistant's mask
  generation.json  templates with {% generation %} blocks: hashes of ids and masks
  loss.json        SmolLM2's mean loss over the trained tokens of a batch of conversations
  talks.json       the conversations that the tests of a clone use, of FastChat's data (Apache-2.0)
"""
import hashlib
import json
import pathlib
import struct
import sys

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

SHARED, SMOLLM2, OUT = map(pathlib.Path, sys.argv[1:])
GENERATION = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ '<|im_start|>assistant\n' }}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def write(name, value):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_text(json.dumps(value, ensure_ascii=False, indent=0) + "\n")


def digest(numbers):
    return hashlib.sha256(struct.pack(f"<{len(numbers)}i", *numbers)).hexdigest()[:16]


def plain():
    """Texts as tokenizers reads them where special tokens are no more than text."""
    texts = ["</s>", "a</s>b", "<s>[INST] x</s>\n", "<|im_start|>user\nhi<|im_end|>\n", "x <|endoftext|> y", "<|im_end|><|im_end|>", "<unk>", "é <s> 漢</s>字", " <|im_start|> "]
    files = {
        "smollm": SHARED / "data/tokenizers/smollm-135m", "stories260K": SHARED / "data/models/stories260K-hf",
        "tinyllama": SHARED / "data/tokenizers/tinyllama-1.1b-chat", "mistral-v0.3": SHARED / "data/tokenizers/mistral-7b-instruct-v0.3",
    }
    out = {"texts": texts, "ids": {}}
    for name, folder in files.items():
        t = Tokenizer.from_file(str(folder / "tokenizer.json"))
        t.no_truncation()
        t.no_padding()
        t.encode_special_tokens = True
        out["ids"][name] = [t.encode(s, add_special_tokens=False).ids for s in texts]
    write("plain.json", out)


def sharegpt(rows):
    return [[{"role": ROLES[m["from"]], "content": m["value"]} for m in r["conversations"]] for r in rows]


def parts(rows):
    return [[{"role": m["role"], "content": "".join(p["value"] for p in m["content"])} for m in r["messages"]] for r in rows]


def data():
    d = SHARED / "data/datasets"
    lines = lambda f: [json.loads(s) for s in f.read_text().splitlines()]
    return {
        "fastchat/dummy_conversation.json": sharegpt(json.loads((d / "fastchat/dummy_conversation.json").read_text())),
        "torchtune-tiny/chat_tiny.json": sharegpt(json.loads((d / "torchtune-tiny/chat_tiny.json").read_text())),
        "axolotl-fixtures/conversation.json": sharegpt([json.loads((d / "axolotl-fixtures/conversation.json").read_text())]),
        "llamafactory/v1_sft_demo.jsonl": parts(lines(d / "llamafactory/v1_sft_demo.jsonl")),
    }


def encoded(tok, messages, template, **kwargs):
    out = tok.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **kwargs)
    return out["input_ids"], out["assistant_masks"]


def smollm2(tok):
    out = {"template": tok.chat_template, "generation": GENERATION, "files": {}}
    for name, talks in data().items():
        rows = []
        for messages in talks:
            try:
                ids, mask = encoded(tok, messages, GENERATION)
                assert ids == tok.apply_chat_template(messages)
                rows.append([len(ids), sum(mask), digest(ids), digest(mask)])
            except Exception as e:
                rows.append(f"{type(e).__name__}: {e}")
        out["files"][name] = rows
    write("smollm2.json", out)
    short = [t for t in data()["fastchat/dummy_conversation.json"]][:40]
    rows = []
    for messages in short:
        ids, mask = encoded(tok, messages, GENERATION)
        rows.append({"messages": messages, "ids": ids, "mask": mask})
    write("talks.json", rows)


def generation(smollm):
    """Every template with generation blocks, with tokenizers that know its marks and with one that does not."""
    tokenizers = {
        "smollm2": smollm,
        "qwen2.5": AutoTokenizer.from_pretrained(SHARED / "data/tokenizers/qwen2.5"),
        "tinyllama": AutoTokenizer.from_pretrained(SHARED / "data/tokenizers/tinyllama-1.1b-chat"),
    }
    talks = json.loads((SHARED / "goldens/templates/conversations.json").read_text())
    out = {}
    for f in sorted((SHARED / "goldens/templates").glob("*.json")):
        if f.stem == "conversations":
            continue
        source = json.loads(f.read_text())["source"]
        if "endgeneration" not in source:
            continue
        for name, tok in tokenizers.items():
            rows = {}
            for c in talks:
                try:
                    ids, mask = encoded(tok, c["messages"], source, tools=c.get("tools"))
                    rows[c["name"]] = {"ids": ids, "mask": "".join(map(str, mask))}
                except Exception as e:
                    rows[c["name"]] = {"error": f"{type(e).__name__}: {e}"}
            out[f"{f.stem} {name}"] = rows
    # Texts of templates may not be repeated here, so only hashes are written.
    for rows in out.values():
        for k, r in rows.items():
            if "ids" in r:
                mask = [int(c) for c in r["mask"]]
                rows[k] = {"tokens": len(mask), "trained": sum(mask), "ids": digest(r["ids"]), "mask": digest(mask)}
    write("generation.json", out)


def loss(tok):
    talks = data()["fastchat/dummy_conversation.json"]
    rows = [encoded(tok, t, GENERATION) for t in talks[:8]]
    longest = max(len(ids) for ids, _ in rows)
    model = AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor([r + [2] * (longest - len(r)) for r, _ in rows])
    labels = torch.tensor([[i if m else -100 for i, m in zip(r, mask)] + [-100] * (longest - len(r)) for r, mask in rows])
    attention = torch.tensor([[1] * len(r) + [0] * (longest - len(r)) for r, _ in rows])
    with torch.no_grad():
        mean = model(input_ids=ids, labels=labels, attention_mask=attention).loss.item()
    write("loss.json", {"rows": len(rows), "trained": int((labels[:, 1:] != -100).sum()), "loss": mean})


tok = AutoTokenizer.from_pretrained(SMOLLM2)
plain()
smollm2(tok)
generation(tok)
loss(tok)
