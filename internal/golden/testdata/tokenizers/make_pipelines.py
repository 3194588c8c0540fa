"""Makes pipelines.json: small byte-pair tokenizers with every pipeline part that text/tokenizer knows, and what Hugging Face
tokenizers gives for them. Run with tokenizers 0.22.1: python make_pipelines.py (writes next to itself; same bytes every time)."""
import gzip
import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def seq(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def split(pattern, behavior="Isolated", invert=False, regex=True):
    return {"type": "Split", "pattern": {"Regex" if regex else "String": pattern}, "behavior": behavior, "invert": invert}


def level(prefix=False, trim=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def meta(scheme="always", cut=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}


def template(before, after=()):
    special = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    a = {"Sequence": {"id": "A", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [*map(special, before), a, *map(special, after)],
            "pair": [a, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": None, "tokens": [t]} for t in sorted({*before, *after})}}


def token(content, special=True, **flags):
    base = {"id": None, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special,
            "special": special}
    return {**base, **flags}


LLAMA_DECODER = seq("decoders", {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
BOS, EOS, UNK = "<s>", "</s>", "<unk>"
FLAGS = [token(BOS), token(EOS), token("<l>", lstrip=True), token("<r>", rstrip=True), token("<lr>", lstrip=True, rstrip=True),
         token("word", special=False, single_word=True, normalized=False), token("Norm e\u0301", special=False),
         token("<n>", special=False, lstrip=True), token("<ll>", special=False, normalized=False)]
CASES = {
    "gpt2": dict(pre=level(True, True, True), post=level(True, True, True), dec=level(True, True, True)),
    "gpt2-split": dict(pre=seq("pretokenizers", split(GPT2), level()), dec=level(), post=level(False, True)),
    "llama3": dict(pre=seq("pretokenizers", split(LLAMA3), level()), dec=level(), ignore_merges=True,
                   post=seq("processors", level(True, True, True), template([BOS]))),
    "qwen2": dict(norm={"type": "NFC"}, pre=seq("pretokenizers", split(QWEN2), level()), dec=level(), post=level(False, False)),
    "o200k": dict(pre=seq("pretokenizers", split(O200K), level()), dec=level(), post=template([BOS, BOS], [EOS])),
    "falcon": dict(pre=seq("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, level(False, True, True),
                           {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")), dec=level()),
    "starcoder": dict(pre=seq("pretokenizers", {"type": "Digits", "individual_digits": True}, level(False, True, True)), dec=level()),
    "few-bytes": dict(pre=level(False, True, True), dec=level(), alphabet=False),
    "few-bytes-unk": dict(pre=level(False, True, True), dec=level(), alphabet=False, unk=UNK),
    "bytes-normalizer": dict(norm={"type": "ByteLevel"}, pre=split("\u0120", "MergedWithNext", regex=False), dec=level()),
    "llama2": dict(norm=seq("normalizers", {"type": "Prepend", "prepend": "\u2581"},
                            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}),
                   pre=None, dec=LLAMA_DECODER, unk=UNK, fuse=True, fallback=True, post=template([BOS], [EOS])),
    "metaspace": dict(pre=meta(), dec=meta(), unk=UNK, fuse=False),
    "metaspace-first": dict(norm=seq("normalizers", {"type": "NFKC"}, {"type": "Strip", "strip_left": True, "strip_right": False},
                                     {"type": "Lowercase"}),
                            pre=meta("first", False), dec=meta("first", False), unk=UNK, fuse=True),
    "metaspace-never": dict(norm={"type": "NFD"}, pre=meta("never"), dec=meta("never")),
    "digits-metaspace-first": dict(pre=seq("pretokenizers", {"type": "Digits", "individual_digits": True}, meta("first")), dec=meta()),
    "suffix": dict(norm={"type": "NFKD"}, pre={"type": "WhitespaceSplit"}, dec={"type": "BPEDecoder", "suffix": "</w>"}, unk=UNK,
                   suffix="</w>"),
    "prefix": dict(pre={"type": "Whitespace"}, dec=None, unk=UNK, prefix="##"),
    "replace": dict(norm=seq("normalizers", {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": "_ "},
                             {"type": "Replace", "pattern": {"String": "ll"}, "content": ""}),
                    pre={"type": "Punctuation", "behavior": "MergedWithPrevious"}, dec={"type": "Fuse"}),
}
for b in ("Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"):
    for invert in (False, True):
        CASES[f"split-{b}-{invert}"] = dict(pre=split("[aeiou ]", b, invert), dec={"type": "Fuse"})

LETTERS = list("aeiou stnrlETAS'\"-_.,!?()<>[]{}/\\\t\n\r0123456789\u00e9\u00df\u0130\u017f\u03c3\u03a3\u0436\u4e2d\u6587\u3042\uac00"
               "\u1112\u1161\u11ab\u0301\u0323\u0327\u0345\u200d\u00a0\u2003\u3000\u2028\u0085\u00bd\u00b2\u2167\u0661\u0966\ufb01\u212b"
               "\U0001f600\U0001f468\U0001d4b3\u2581\u0120\u0644\u0e44\u0915\u093c\u0000\ufffd\u1e9b\u0f71\u0f72")
CHUNKS = ["'s", "'S", "'\u017f", "'LL", "'re ", " the", "  ", "   ", "\r\n", " \n ", "<s>", "</s>", "<l>", " <l> ", "<r>  ", " <lr> ", "word",
          " word ", "keyword", "Norm \u00e9", "Norm e\u0301", "norm \u00e9", " <n>", "<ll>", "hello", "World", "1234567", "e\u0301\u0323",
          "o\u0323\u0302", "\u1112\u1161\u11ab", "a" * 50, "\u0300" * 35, "ABCdefGHI", "don't", "\U0001f468\u200d\U0001f469"]


def texts(corpus):
    rnd = random.Random(7)
    out = [t for t in corpus if len(t) < 400]
    for n in range(160):
        parts = [rnd.choice(CHUNKS) if rnd.random() < 0.35 else rnd.choice(LETTERS) for _ in range(rnd.randint(1, 24))]
        out.append("".join(parts))
    return out


def learn(words, prefix, suffix, alphabet, count):
    """Plain byte-pair learning on a list of words (the trainer of the library is not the same from run to run)."""
    work = []
    for w in sorted(set(words)):
        s = [c if i == 0 else prefix + c for i, c in enumerate(w)]
        s[-1] += suffix
        work.append((words.count(w), s))
    vocab = sorted({c for _, s in work for c in s} | set(alphabet))
    merges = []
    while len(merges) < count:
        pairs = {}
        for n, s in work:
            for a, b in zip(s, s[1:]):
                pairs[a, b] = pairs.get((a, b), 0) + n
        if not pairs:
            break
        a, b = max(pairs, key=lambda p: (pairs[p], p))
        new = a + b[len(prefix):]
        merges.append([a, b])
        if new not in vocab:
            vocab.append(new)
        for _, s in work:
            i = 0
            while i + 1 < len(s):
                if s[i] == a and s[i + 1] == b:
                    s[i:i + 2] = [new]
                i += 1
    return vocab, merges


def build(c, train):
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": c.get("norm"),
            "pre_tokenizer": c.get("pre"), "post_processor": None, "decoder": c.get("dec"),
            "model": {"type": "BPE", "dropout": None, "unk_token": c.get("unk"), "continuing_subword_prefix": c.get("prefix"),
                      "end_of_word_suffix": c.get("suffix"), "fuse_unk": c.get("fuse", False), "byte_fallback": c.get("fallback", False),
                      "ignore_merges": c.get("ignore_merges", False), "vocab": {}, "merges": []}}
    bare = Tokenizer.from_str(json.dumps(file))
    words = []
    for t in train:
        t = bare.normalizer.normalize_str(t) if bare.normalizer else t
        words += [w for w, _ in bare.pre_tokenizer.pre_tokenize_str(t)] if bare.pre_tokenizer else t.replace("\u2581", " \u2581").split(" ")
    words = [w for w in words if w]
    alphabet = []
    if c.get("dec") == level() or (c.get("dec") or {}).get("type") == "ByteLevel":
        from tokenizers.pre_tokenizers import ByteLevel
        alphabet = sorted(ByteLevel.alphabet()) if c.get("alphabet", True) else []
    vocab, merges = learn(words, c.get("prefix") or "", c.get("suffix") or "", alphabet, 220)
    if c.get("fallback"):
        vocab = [f"<0x{b:02X}>" for b in range(256)] + vocab
    if c.get("unk"):
        vocab = [c["unk"]] + vocab
    file["model"]["vocab"] = {t: i for i, t in enumerate(vocab)}
    file["model"]["merges"] = merges if len(merges) % 2 or any(" " in m for pair in merges for m in pair) else [" ".join(m) for m in merges]
    ids = dict(file["model"]["vocab"])
    for t in FLAGS:
        ids.setdefault(t["content"], len(ids))
        file["added_tokens"].append({**t, "id": ids[t["content"]]})
    if c.get("post"):
        post = json.loads(json.dumps(c["post"]))
        for p in [post] + post.get("processors", []):
            for t in p.get("special_tokens", {}).values():
                t["ids"] = [ids[t["id"]]]
        file["post_processor"] = post
    return file


def main():
    corpus = json.loads(gzip.decompress((HERE / "corpus.json.gz").read_bytes()))
    train, probe = corpus[15:62], texts(corpus)
    out = {"texts": probe, "cases": {}}
    for name, c in CASES.items():
        file = build(c, train)
        tok = Tokenizer.from_str(json.dumps(file))
        rows = []
        for t in probe:
            e, s = tok.encode(t, add_special_tokens=False), tok.encode(t, add_special_tokens=True)
            rows.append({"ids": e.ids, "ids_special": s.ids, "offsets": [x for o in e.offsets for x in o],
                         "decode": tok.decode(s.ids, skip_special_tokens=False), "decode_skip": tok.decode(s.ids)})
        out["cases"][name] = {"file": file, "vocab_size": tok.get_vocab_size(), "rows": rows}
    out["splits"] = {}  # pattern -> for every text the ends of its words, in code points
    for pattern in (GPT2, LLAMA3, QWEN2, O200K):
        cut = Tokenizer.from_str(json.dumps(build({"pre": split(pattern)}, train[:1]))).pre_tokenizer.pre_tokenize_str
        out["splits"][pattern] = [[end for _, (_, end) in cut(t)] for t in probe]
    (HERE / "pipelines.json").write_bytes(json.dumps(out, separators=(",", ":")).encode())  # pack.py packs it


if __name__ == "__main__":
    main()
