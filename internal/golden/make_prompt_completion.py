"""Writes testdata/chat/prompt_completion.json: rows of TRL's conversational prompt and completion as SFTTrainer trains them.

    python3 internal/golden/make_prompt_completion.py FOLDER

FOLDER holds chat templates (*.jinja). Needs trl 1.15.0 beside transformers and datasets. For every template and row it keeps
the text, the ids by the tokenizer of configs/assets/stories260K, and the labels that SFTTrainer's own preparation of a data
set gives them (first token never trained, since nothing predicts it). A template that refuses a row has its error instead; one
that writes the prompt otherwise once the completion follows is marked unprefixed: TRL then trains a part of the prompt too.
"""
import json
import pathlib
import sys
from types import SimpleNamespace

import trl
from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

HERE = pathlib.Path(__file__).parent
STORIES = HERE.parents[1] / "configs" / "assets" / "stories260K" / "tokenizer.json"
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
TEMPLATES = {
    "chatml": ("", "<|im_end|>"),
    "Qwen-Qwen2.5-7B-Instruct": ("", "<|endoftext|>"),
    "trl-qwen3": ("", "<|im_end|>"),
    "google-gemma-2-2b-it": ("<bos>", "<eos>"),
    "meta-llama-Llama-3.1-8B-Instruct": ("<|begin_of_text|>", "<|eot_id|>"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("<s>", "</s>"),
}


def said(role, text):
    return {"role": role, "content": text}


TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
ROWS = [
    {"prompt": [said("user", "Hi")], "completion": [said("assistant", "Hello")]},
    {"prompt": [said("system", "You are a pirate."), said("user", "Hi")], "completion": [said("assistant", "Ahoy!")]},
    {"prompt": [said("user", "Begin."), said("assistant", "Once."), said("user", "And then?")], "completion": [said("assistant", "The end.")]},
    {"prompt": [said("user", " Spaces \n kept ")], "completion": [said("assistant", "naïve 東京 <b> & 'it' 👩‍💻")]},
    {"prompt": [said("user", "How is Paris?")], "completion": [said("assistant", "Wet.")], "tools": [TOOL]},
]


def main(folder):
    out = {"templates": [], "rows": ROWS}
    for name, (bos, eos) in TEMPLATES.items():
        source = CHATML
        if name.startswith("trl-"):
            source = (pathlib.Path(trl.__file__).parent / "chat_templates" / f"{name[4:]}.jinja").read_text(encoding="utf-8")
        elif name != "chatml":
            source = (pathlib.Path(folder) / f"{name}.jinja").read_text(encoding="utf-8")
        writer = PreTrainedTokenizerFast(tokenizer_file=str(STORIES), bos_token=bos or None, eos_token=eos)
        writer.chat_template = source
        plain = PreTrainedTokenizerFast(tokenizer_file=str(STORIES), eos_token="</s>")

        def apply(messages, tokenize=True, add_generation_prompt=False, tools=None, return_dict=True, return_assistant_tokens_mask=False,
                  chat_template=None, writer=writer, plain=plain, **kwargs):
            # The template's own tokens add none to the vocabulary.
            text = writer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add_generation_prompt, tools=tools, **kwargs)
            if not tokenize:
                return text
            ids = plain(text, add_special_tokens=False).input_ids
            return {"input_ids": ids, "attention_mask": [1] * len(ids)} if return_dict else ids

        plain.apply_chat_template = apply
        trainer = SimpleNamespace(_tokenizer=plain, completion_only_loss=True, chat_template=None)
        args = SFTConfig(output_dir="/tmp/unused", max_length=None, report_to=[], use_cpu=True, bf16=False)
        trained = []
        for row in ROWS:
            try:
                set_ = SFTTrainer._prepare_dataset(trainer, Dataset.from_list([row]), plain, args, False, None, "train")
            except Exception as e:  # noqa: BLE001
                if type(e).__name__ != "TemplateError":
                    raise
                trained.append({"error": str(e)})
                continue
            text = apply(row["prompt"] + row["completion"], tokenize=False, tools=row.get("tools"))
            if not text.startswith(apply(row["prompt"], tokenize=False, add_generation_prompt=True, tools=row.get("tools"))):
                trained.append({"unprefixed": True})
                continue
            ids, labels = set_[0]["input_ids"], set_[0]["labels"]
            labels[0] = -100
            trained.append({"text": text, "ids": ids, "labels": labels})
            print(name, repr(plain.decode([t for t in labels if t >= 0])))
        out["templates"].append({"name": name, "source": source, "bos_token": bos, "eos_token": eos, "trained": trained})
    path = HERE / "testdata" / "chat" / "prompt_completion.json"
    path.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(path, path.stat().st_size, "bytes")


main(sys.argv[1])
