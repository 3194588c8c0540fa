"""Writes a JSONL file of conversations, prompts with completions, or texts, made from the shared data: turns of several sources put
together at random, numbers and some words changed, so that no two rows are the same. The seed decides every byte.

usage: data_make.py messages|completion|text MEGABYTES FILE"""
import json
import os
import pathlib
import random
import re
import sys

DATA = pathlib.Path(os.environ["TRAINER_DATA"]) / "data/datasets"
NAMES = ("Anna Bela Chidi Dora Emil Farid Greta Hana Ivo Jun Kofi Lena Mira Nils Olga Pedro Quinn Rosa Sami Tara Uma Viktor Wei "
         "Xenia Yusuf Zoe").split()


def lines(name):
    with open(DATA / name, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def pool():
    """Pairs of a question and an answer."""
    pairs = [(r["question"], r["answer"]) for r in lines("gsm8k/train.jsonl")]
    pairs += [(r["instruction"] + ("\n" + i["input"] if i["input"] else ""), i["output"]) for r in lines("seed_tasks.jsonl") for i in r["instances"]]
    for name in ("litgpt-fixtures/alpaca.json", "torchtune-tiny/alpaca_tiny.json"):
        pairs += [(r["instruction"] + ("\n" + r["input"] if r.get("input") else ""), r["output"]) for r in json.loads((DATA / name).read_text())]
    for talk in json.loads((DATA / "fastchat/dummy_conversation.json").read_text()):
        turns = [t["value"] for t in talk["conversations"]]
        pairs += list(zip(turns[::2], turns[1::2], strict=False))
    stories = (DATA / "tinystories/tinystories_sample.txt").read_text(encoding="utf-8", errors="ignore").split("<|endoftext|>")
    for story in stories:
        first, _, rest = story.strip().partition(".")
        if len(rest) > 40:
            pairs.append(("Continue this story: " + first + ".", rest.strip()))
    speeches = (DATA / "tinyshakespeare/input.txt").read_text(encoding="utf-8").split("\n\n")
    pairs += [("Who answers this, and how?\n" + a, b) for a, b in zip(speeches[::2], speeches[1::2], strict=False)]
    return [(q, a) for q, a in pairs if q.strip() and a.strip()]


def varied(text, rng):
    text = re.sub(r"\d+", lambda m: str(rng.randrange(10 ** len(m[0]))) if len(m[0]) < 9 else m[0], text)
    return re.sub(r"\b(?:Natalia|Weng|Betty|Lily|Tom|Tim|Sue|Max|Ben|Mia|Sam|Sara|John|James|Mary)\b", lambda _: rng.choice(NAMES), text)


def main():
    kind, megabytes, path = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    pairs, rng, size = pool(), random.Random(42), 0
    with open(path, "w", encoding="utf-8", newline="") as f:
        while size < megabytes * 1e6:
            turns = [tuple(varied(s, rng) for s in rng.choice(pairs)) for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 6)))]
            if kind == "messages":
                row = {"messages": [{"role": role, "content": s} for turn in turns for role, s in zip(("user", "assistant"), turn, strict=True)]}
                if rng.random() < 0.3:
                    row["messages"].insert(0, {"role": "system", "content": f"You are {rng.choice(NAMES)}, a helpful assistant."})
            elif kind == "completion":
                row = {"prompt": turns[0][0] + "\n", "completion": "\n".join(s for turn in turns for s in turn)}
            else:
                row = {"text": "\n\n".join(s for turn in turns for s in turn)}
            text = json.dumps(row, ensure_ascii=False) + "\n"
            size += len(text.encode())
            f.write(text)


main()
