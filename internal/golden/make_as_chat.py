"""Writes testdata/chat/as_chat.json: rows of columns as conversations, rendered and tokenised by transformers.

    python3 internal/golden/make_as_chat.py FOLDER

FOLDER holds chat templates (*.jinja). Each row says its columns, the messages that they stand for, and for every template
the text of apply_chat_template, its ids by the tokenizer of configs/assets/stories260K, and the labels of the assistant's
turns: a token is trained if any of its characters lies between the end of the generation prompt and the end of the turn,
without the white space that the template writes behind it. A template that refuses a row has its error instead; one whose
whole rendering does not begin with the prompt of a turn has no one mask and is marked unprefixed.
"""
import json
import pathlib
import sys

from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
STORIES = HERE.parents[1] / "configs" / "assets" / "stories260K" / "tokenizer.json"
TEMPLATES = {
    "Qwen-Qwen2.5-7B-Instruct": ("", "<|endoftext|>"),
    "google-gemma-2-2b-it": ("<bos>", "<eos>"),
    "meta-llama-Llama-3.1-8B-Instruct": ("<|begin_of_text|>", "<|eot_id|>"),
    "axolotl-chatml": ("", "<|im_end|>"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("<s>", "</s>"),
}


def talk(*texts, system=None):
    roles = ["user", "assistant"]
    messages = [{"role": "system", "content": system}] if system else []
    return messages + [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


ROWS = [
    ("completion", {"question": "Two and two?", "answer": "Four."}, talk("Two and two?", "Four.")),
    ("completion", {"prompt": " Spaces \n kept ", "completion": "naïve 東京 <b> & 'it' 👩‍💻"},
     talk(" Spaces \n kept ", "naïve 東京 <b> & 'it' 👩‍💻")),
    ("completion", {"prompt": "Hi", "completion": "Ahoy!", "system": "You are a pirate."},
     talk("Hi", "Ahoy!", system="You are a pirate.")),
    ("completion", {"query": "And then?", "response": "The end.", "history": [["Begin.", "Once."], ["Go on.", "A dog."]]},
     talk("Begin.", "Once.", "Go on.", "A dog.", "And then?", "The end.")),
    ("alpaca", {"instruction": "Name a prime.", "input": "", "output": "7"}, talk("Name a prime.", "7")),
    ("alpaca", {"instruction": "Translate to French.", "input": "Good morning", "output": "Bonjour"},
     talk("Translate to French.\nGood morning", "Bonjour")),
    ("alpaca", {"instruction": "Sort.", "context": "3 1 2", "response": "1 2 3", "system": "Be terse."},
     talk("Sort.\n3 1 2", "1 2 3", system="Be terse.")),
]


def render(tokenizer, messages):
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    ends = []
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            before = tokenizer.apply_chat_template(messages[:i], tokenize=False, add_generation_prompt=True)
            upto = tokenizer.apply_chat_template(messages[:i + 1], tokenize=False)
            upto = upto.rstrip(" \n")
            if not text.startswith(before):
                return {"unprefixed": True}
            assert text.startswith(upto), (upto, text)
            ends.append((len(before), len(upto)))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    labels = []
    for token, (start, end) in zip(encoded.input_ids, encoded.offset_mapping):
        trained = any(start < to and end > begin for begin, to in ends)
        labels.append(token if trained else -100)
    labels[0] = -100
    return {"text": text, "ids": encoded.input_ids, "labels": labels}


def main(folder):
    out = {"templates": [], "rows": [{"format": f, "row": row, "messages": m} for f, row, m in ROWS]}
    for name, (bos, eos) in TEMPLATES.items():
        source = (pathlib.Path(folder) / f"{name}.jinja").read_text(encoding="utf-8")
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(STORIES), bos_token=bos or None, eos_token=eos)
        tokenizer.chat_template = source
        plain = PreTrainedTokenizerFast(tokenizer_file=str(STORIES))
        plain.chat_template = source
        plain.apply_chat_template = tokenizer.apply_chat_template  # the template's tokens add none to the vocabulary
        rendered = []
        for _, _, messages in ROWS:
            try:
                rendered.append(render(plain, messages))
            except Exception as e:  # noqa: BLE001
                if type(e).__name__ != "TemplateError":
                    raise
                rendered.append({"error": str(e)})
        out["templates"].append({"name": name, "source": source, "bos_token": bos, "eos_token": eos, "rendered": rendered})
    path = HERE / "testdata" / "chat" / "as_chat.json"
    path.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(path, path.stat().st_size, "bytes")


main(sys.argv[1])
