"""Makes testdata/tokenizers/releases.json: small tokenizers whose pipelines are those of the releases' tokenizer.json, with models
of every kind, and what Hugging Face tokenizers gives for them on random text of many scripts.

    python internal/golden/make_tokenizers.py && python internal/golden/pack.py
    python internal/golden/make_tokenizers.py --texts 2000 --seed 3 --out /tmp/cases.json.gz [--charsmap spiece.model]
    TRAINER_TOKENIZER_CASES=/tmp/cases.json.gz go test ./text/tokenizer -run TestGoldenReleases

The second form is a differential fuzz: other texts each time, compared by the same test. Needs tokenizers 0.22.1; same bytes every time.

Where the pipelines are from: convert_slow_tokenizer.py of transformers 4.57.6 writes those of gemma, llama, mixtral, phi-3, ERNIE 4.5, T5,
XLM-R and BERT, its conversion script of GLM the one of GLM-4; the split patterns of qwen3, qwen3_5, phi-4, phi-4-mini, smollm3, olmo2, granite, mistral-nemo, gpt-oss, bloom, gpt-neox and
deepseek-v3 are those of their tokenizer.json.
"""
import argparse
import base64
import gzip
import json
import pathlib
import random
import struct
import sys
import unicodedata

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent / "testdata" / "tokenizers"
sys.path.insert(0, str(HERE))
from make_pipelines import (BOS, CHUNKS, EOS, FLAGS, GPT2, LETTERS, LLAMA3, LLAMA_DECODER, O200K, QWEN2, SHORT, UNK, build, learn, level, meta,  # noqa: E402
                            seq, split, template, token)

TEKKEN = O200K.replace(SHORT, "").replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLITS = [  # patterns that need more than Go's regexp, or that families write in other ways
    GPT2, LLAMA3, QWEN2, O200K, TEKKEN, QWEN35,
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+",
    r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+|\p{N}{1,2}", r"<\|x\|>|'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", r"(?<=[a-z])(?=[A-Z0-9])|(?<!\s)\n",
    r"\b\w+\b|\B.", r"^\s+|\s+$|[[:punct:]]+", r"(?i)the|(?:ab|a)+?c|e{2,3}?|[^\x00-\x7f]", r"(?>a+b|a+)|\d{2}+|.{1,4}?(?=\s|\z)", r"(?:[a-e]|[^\W\d_])*+[.!?]|\S+",
    r"(?:a*)?b|(?:a|aa){1,4}\Z|\h{4}", r"[[:alpha:]\-]+|[]\]]|\p{^L}\P{Nd}",
]


def charsmap(rules):
    """A precompiled_charsmap: texts and what they become, in a double array laid out as darts-clone's."""
    texts, places = b"", {}
    for new in sorted(set(rules.values())):
        places[new] = len(texts)
        texts += new.encode() + b"\0"
    units, free = {}, 1

    def fill(node, entries):  # entries: {rest of the key: value}
        nonlocal free
        first = sorted({k[0] for k in entries if k})
        labels = ([0] if b"" in entries else []) + first
        base = free
        while any((base ^ c) in units for c in labels) or base == 0:
            base += 1
        free = max(free, base - 255)
        units[node] |= (base ^ node) << 10 | (0x100 if b"" in entries else 0)
        for c in labels:
            units[base ^ c] = c
        if b"" in entries:
            units[base] = entries[b""] | 1 << 31
        for c in first:
            fill(base ^ c, {k[1:]: v for k, v in entries.items() if k and k[0] == c})

    units[0] = 0
    fill(0, {k.encode(): places[v] for k, v in rules.items()})
    array = [units.get(i, 0x80000000) for i in range((max(units) | 255) + 1)]
    return base64.b64encode(struct.pack(f"<I{len(array)}I", 4 * len(array), *array) + texts).decode()


# What SentencePiece's own rules do: nmt_nfkc maps compatibility characters, controls and spaces, and composes.
RULES = {"\t": " ", "\r": " ", "\u00a0": " ", "\u2003": " ", "\u3000": " ", "\u200b": "", "\x00": "", "\x07": "", "\ufb01": "fi", "\u00bd": "1\u20442",
         "\u2167": "VIII", "\u212b": "\u00c5", "\u00b2": "2", "\uff21": "A", "\uff42": "b", "\u2026": "...", "e\u0301": "\u00e9", "o\u0323\u0302": "\u1ed9",
         "\u3042\u3099": "\u3042", "\u30ab\u3099": "\u30ac", "\U0001d4b3": "X", "\u0345": "", "\u0301": "", "a\u0308b": "ab", "\u00e9": "\u00e9",
         "\u1112\u1161": "\ud558", "\u0644\u0627": "\ufefb"}

T5 = lambda norm: dict(norm=norm, pre=meta(), dec=meta(), post=template([], [EOS]))
SPM = lambda table: seq("normalizers", table, {"type": "Strip", "strip_left": False, "strip_right": True},
                        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"})
GEMMA_DECODER = seq("decoders", {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"})
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
BERT = lambda lower, accents=None, clean=True, chinese=True: {
    "type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": lower}
WORDPIECE = {"type": "WordPiece", "prefix": "##", "cleanup": True}


def cases(table):
    cls, sep = ("[CLS]", "[SEP]")
    bert = dict(kind="WordPiece", pre={"type": "BertPreTokenizer"}, dec=WORDPIECE, post=template([cls], [sep]), unk="[UNK]", prefix="##")
    bytes_of = lambda pattern: dict(pre=seq("pretokenizers", split(pattern), level()), dec=level())
    uni = lambda **c: dict(dict(kind="Unigram", unk=UNK), **c)
    return {
        "qwen3": dict(bytes_of(QWEN2), norm={"type": "NFC"}, post=level(False, False)),
        "qwen3_5": dict(bytes_of(QWEN35), norm={"type": "NFC"}, post=level(False, False)),
        "gemma": dict(norm=REPLACE, pre=split(" ", "MergedWithPrevious", regex=False), dec=GEMMA_DECODER, unk=UNK, fuse=True, fallback=True,
                      ignore_merges=False, post=template([BOS])),
        "phi3": dict(norm=seq("normalizers", {"type": "Prepend", "prepend": "\u2581"}, REPLACE), dec=LLAMA_DECODER, unk=UNK, fuse=True, fallback=True),
        "phi4": dict(bytes_of(LLAMA3), post=level(True, True)),
        "smollm3": dict(bytes_of(LLAMA3), ignore_merges=True, post=seq("processors", level(True, True, True), template([BOS]))),
        "olmo2": dict(bytes_of(LLAMA3), post=level(True, False)),
        "granite": dict(pre=seq("pretokenizers", {"type": "Digits", "individual_digits": True}, level(False, True, True)), dec=level()),
        "nemo": dict(bytes_of(TEKKEN), ignore_merges=True, post=template([BOS])),
        "gpt-oss": dict(bytes_of(O200K), ignore_merges=True, post=level(True, False)),
        "mixtral": dict(pre=meta("first", False), dec=LLAMA_DECODER, unk=UNK, fuse=True, fallback=True, post=template([BOS])),
        "deepseek": dict(pre=seq("pretokenizers", split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(SPLITS[8]), level()), dec=level()),
        "t5": uni(**T5(table)), "t5-split": uni(**dict(T5(table), pre=seq("pretokenizers", {"type": "WhitespaceSplit"}, meta()))),
        "xlm-r": uni(norm=SPM(table), pre=meta(), dec=meta(), post=template([BOS], [EOS])),
        "albert": uni(norm=seq("normalizers", {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "NFKD"}, {"type": "StripAccents"},
                               {"type": "Lowercase"}, table), pre=meta("first"), dec=meta("first")),
        "unigram-bytes": uni(norm=REPLACE, dec=GEMMA_DECODER, fallback=True),
        "unigram-level": uni(unk=None, pre=level(True, True, True), dec=level(), post=level(True, True)),
        "nmt": uni(norm=seq("normalizers", {"type": "Nmt"}, {"type": "NFKC"}), pre=meta("never", False), dec=meta("never")),
        "bert": dict(bert, norm=BERT(True)), "bert-cased": dict(bert, norm=BERT(False, chinese=False), post={
            "type": "BertProcessing", "sep": [sep, None], "cls": [cls, None]}),
        "bert-accents": dict(bert, norm=BERT(False, True, False), most=6, post=None), "wordpiece": dict(bert, norm=None, prefix="@@", dec=dict(WORDPIECE, prefix="@@", cleanup=False),
            pre=seq("pretokenizers", {"type": "Whitespace"}, {"type": "Punctuation", "behavior": "Isolated"}), post=None),
        "roberta": dict(pre=level(False, True, True), dec=level(), post={
            "type": "RobertaProcessing", "sep": [EOS, None], "cls": [BOS, None], "trim_offsets": True, "add_prefix_space": False}),
        "scripts": uni(pre=seq("pretokenizers", {"type": "UnicodeScripts"}, meta()), dec=meta()),
        "glm4": dict(bytes_of(LLAMA3), post=seq("processors", level(True, False), template(["[gMASK]", "<sop>"])), added=["[gMASK]", "<sop>"]),
        "ernie4_5": dict(norm=seq("normalizers", REPLACE), pre=None, dec=GEMMA_DECODER, unk=UNK, fuse=True, fallback=True, post=template([])),
        "delimiter": dict(norm={"type": "StripAccents"}, pre=seq("pretokenizers", {"type": "CharDelimiterSplit", "delimiter": "t"}, {"type": "FixedLength", "length": 3}),
                          dec=None, unk=UNK),
    }


def unigram(c, file, words, rnd):
    """Substrings of the words with scores that tie now and then."""
    found = {}
    for w in words:
        for i in range(len(w)):
            for j in range(i + 1, min(len(w), i + 7) + 1):
                found[w[i:j]] = found.get(w[i:j], 0) + j - i
    best = sorted(found, key=lambda t: (-found[t], t))[:260]
    best = sorted(set(best) | {w for t in best for w in t if rnd.random() < 0.9})
    if c.get("dec") == level():
        from tokenizers.pre_tokenizers import ByteLevel
        best = sorted(set(best) | set(ByteLevel.alphabet()))
    vocab = [[c["unk"], 0.0]] if c["unk"] else []
    vocab += [[t, round(-rnd.random() * 12 - 1, rnd.choice([0, 2, 12]))] for t in best if t != c["unk"]]
    if c.get("fallback"):
        vocab += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    return {"type": "Unigram", "unk_id": 0 if c["unk"] else None, "vocab": vocab, "byte_fallback": bool(c.get("fallback"))}, [t for t, _ in vocab]


def make(c, train, rnd):
    """The tokenizer.json of a case."""
    if "kind" not in c:
        file = build({k: v for k, v in c.items() if k not in ("post", "added")}, train)
        for t in c.get("added", []):
            file["added_tokens"].append({**token(t), "id": max(a["id"] for a in file["added_tokens"]) + 1})
    else:
        file = build({"norm": c.get("norm"), "pre": c.get("pre"), "dec": c.get("dec")}, train)
        bare = Tokenizer.from_str(json.dumps({**file, "added_tokens": []}))
        words = []
        for t in train:
            t = bare.normalizer.normalize_str(t) if bare.normalizer else t
            words += [w for w, _ in bare.pre_tokenizer.pre_tokenize_str(t)] if bare.pre_tokenizer else t.split(" ")
        words = [w for w in words if w]
        if c["kind"] == "Unigram":
            file["model"], vocab = unigram(c, file, words, rnd)
        else:
            vocab, _ = learn(words, c["prefix"], "", [c["unk"]], 220)
            file["model"] = {"type": "WordPiece", "unk_token": c["unk"], "continuing_subword_prefix": c["prefix"],
                             "max_input_chars_per_word": c.get("most", 100), "vocab": {t: i for i, t in enumerate(vocab)}}
        file["added_tokens"] = []
        ids = {t: i for i, t in enumerate(vocab)}
        for t in FLAGS + [token("[CLS]"), token("[SEP]"), token("[MASK]", lstrip=True)]:
            ids.setdefault(t["content"], len(ids))
            file["added_tokens"].append({**t, "id": ids[t["content"]]})
    if c.get("post"):
        ids = {t["content"]: t["id"] for t in file["added_tokens"]}
        post = json.loads(json.dumps(c["post"]))
        for p in [post] + post.get("processors", []):
            for t in p.get("special_tokens", {}).values():
                t["ids"] = [ids[t["id"]]]
            for end in ("sep", "cls"):
                if end in p:
                    p[end][1] = ids[p[end][0]]
        file["post_processor"] = post
    return file


# Code points by kind; those that came after Unicode 14 are left out: the libraries' tables differ in age.
BLOCKS = [(0x20, 0x7E), (0x00, 0x1F), (0x7F, 0xFF), (0x100, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xFFF),
          (0x1000, 0x109F), (0x10A0, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x27BF), (0x2C00, 0x2DFF), (0x3000, 0x30FF),
          (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xE010), (0xF900, 0xFDFF), (0xFE00, 0xFFFD), (0x10000, 0x10FFF), (0x11000, 0x1FFFF),
          (0x20000, 0x2FFFF), (0xE0000, 0xE01EF), (0xF0000, 0xF0010)]


def random_text(rnd, most):
    def one():
        k = rnd.random()
        if k < 0.25:
            return rnd.choice(CHUNKS)
        if k < 0.6:
            return rnd.choice(LETTERS)
        if k < 0.75:
            return rnd.choice(["Hello", "HELLOworld", "iPhone's", "x\u0301Y", " \u0301", "\u1d2c", "\u01c5", "``q''", "12345", "...", "/", "\n/", "a" * rnd.randint(1, 70),
                               "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\u0600a", "\u4f60\u597d\u3042\u30ab\u30fc", "\u0e01\u0e33",
                               "do not", " n't", "[CLS]", " [MASK] ", "</w>", "##a", "\u2581\u2581", "<0x41>", "naI\u0307ve", "\r", "\t\t", "\u00ad", "\u200b"])
        while True:
            lo, hi = rnd.choice(BLOCKS)
            c = chr(rnd.randint(lo, hi))
            if unicodedata.category(c) not in ("Cs", "Cn"):
                return c
    return "".join(one() for _ in range(rnd.randint(1, most)))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--texts", type=int, default=70)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--most", type=int, default=14, help="parts of a text")
    a.add_argument("--out", type=pathlib.Path, default=HERE / "releases.json")
    a.add_argument("--charsmap", type=pathlib.Path, help="a file with the base64 of another precompiled_charsmap")
    a = a.parse_args()
    rnd = random.Random(a.seed)
    corpus = json.loads(gzip.decompress((HERE / "corpus.json.gz").read_bytes()))
    train = [t[:160] for t in corpus[15:62]]
    table = a.charsmap.read_text().strip() if a.charsmap else charsmap(RULES)
    probe = ["", " ", "  a", "\n\n", "a\u0301", "\u0301a"] + [random_text(rnd, a.most) for _ in range(a.texts)]
    out = {"texts": probe, "cases": {}, "splits": {}}
    for name, c in cases({"type": "Precompiled", "precompiled_charsmap": table}).items():
        file = make(c, train, random.Random(5))
        tok = Tokenizer.from_str(json.dumps(file))
        rows = []
        for t in probe:
            e, s = tok.encode(t, add_special_tokens=False), tok.encode(t, add_special_tokens=True)
            rows.append({"ids": e.ids, "ids_special": s.ids, "offsets": [x for o in e.offsets for x in o],
                         "decode": tok.decode(s.ids, skip_special_tokens=False), "decode_skip": tok.decode(s.ids)})
        out["cases"][name] = {"file": file, "vocab_size": tok.get_vocab_size(), "rows": rows}
    for pattern in SPLITS:
        cut = Tokenizer.from_str(json.dumps(build({"pre": split(pattern)}, train[:1]))).pre_tokenizer.pre_tokenize_str
        out["splits"][pattern] = [[x for _, o in cut(t) for x in o] for t in probe]
    raw = json.dumps(out, separators=(",", ":")).encode()
    a.out.write_bytes(gzip.compress(raw, mtime=0) if a.out.suffix == ".gz" else raw)


main()
