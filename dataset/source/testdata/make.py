"""Makes the files of this folder and expected.json.gz: what pyarrow, pandas and datasets read in them.

Needs pyarrow 21 or later, pandas 2 and datasets; expected.json.gz names the versions.
"""
import base64
import datetime
import decimal
import gzip
import json
import math
import os
import shutil
import sys
import tempfile

import datasets
import pandas
import pyarrow
import pyarrow.parquet as parquet

HERE = os.path.dirname(os.path.abspath(__file__))
expected = {"versions": {"pyarrow": pyarrow.__version__, "pandas": pandas.__version__, "datasets": datasets.__version__}, "files": {}, "splits": []}


def plain(v):
    """A value as a row of JSON has it."""
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, float) and not math.isfinite(v):
        return None
    if isinstance(v, bytes):
        try:
            return v.decode()
        except UnicodeDecodeError:
            return base64.b64encode(v).decode()
    if isinstance(v, decimal.Decimal):
        return {"decimal": str(v)}
    if isinstance(v, pandas.Timestamp):
        text = v.strftime("%Y-%m-%dT%H:%M:%S")
        return {"time": text, "nanoseconds": v.microsecond * 1000 + v.nanosecond}
    if isinstance(v, datetime.datetime):
        return {"time": v.strftime("%Y-%m-%dT%H:%M:%S"), "nanoseconds": v.microsecond * 1000}
    if isinstance(v, datetime.date):
        return v.isoformat()
    if isinstance(v, datetime.time):
        return {"time": v.strftime("%H:%M:%S"), "nanoseconds": v.microsecond * 1000}
    return v


def without_nulls(v, top=True):
    """A row without the members of structs that are null: they are there because another row has them."""
    if isinstance(v, dict):
        return {k: without_nulls(x, False) for k, x in v.items() if top or x is not None or k == "content"}
    if isinstance(v, list):
        return [without_nulls(x, False) for x in v]
    return v


def write(name, table, **options):
    path = f"{HERE}/{name}"
    parquet.write_table(table, path, **options)
    if name in ("latin1.parquet", "brotli.parquet"):
        return  # what we refuse
    rows = [without_nulls(plain(r)) for r in parquet.read_table(path).to_pylist()]
    same = [other for other, known in expected["files"].items() if known == rows and name.startswith("chat")]
    expected["files"][name] = same[0] if same else rows


def chats(n):
    for i in range(n):
        yield {"id": i, "messages": [{"role": "user", "content": f"question {i} é 東京"}] + [
            {"role": "assistant", "content": None if j == 2 else f"answer {i} {j}"} for j in range(i % 4)], "tags": None if i % 5 == 0 else [f"t{j}" for j in range(i % 3)]}


MESSAGES = pyarrow.schema([
    ("id", pyarrow.int64()),
    ("messages", pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())]))),
    ("tags", pyarrow.list_(pyarrow.string())),
])
chat = pyarrow.Table.from_pylist(list(chats(60)), schema=MESSAGES)
for codec in ("none", "snappy", "gzip", "zstd"):
    for version in ("1.0", "2.0"):
        write(f"chat_{codec}_v{version[0]}.parquet", chat, compression=codec, data_page_version=version, data_page_size=256, row_group_size=25,
              write_page_checksum=version == "2.0", use_dictionary=codec != "zstd")

D = decimal.Decimal
T = datetime.datetime
types = pyarrow.table({
    "bool": pyarrow.array([True, False, None, True]),
    "i8": pyarrow.array([-128, 127, None, 0], pyarrow.int8()),
    "u8": pyarrow.array([255, 0, None, 1], pyarrow.uint8()),
    "i16": pyarrow.array([-32768, 32767, None, 0], pyarrow.int16()),
    "u32": pyarrow.array([4294967295, 0, None, 1], pyarrow.uint32()),
    "i64": pyarrow.array([-9223372036854775808, 9223372036854775807, None, 0], pyarrow.int64()),
    "u64": pyarrow.array([18446744073709551615, 0, None, 1], pyarrow.uint64()),
    "f32": pyarrow.array([0.5, -3.25, None, float("nan")], pyarrow.float32()),
    "f64": pyarrow.array([0.1, 1e300, None, float("-inf")], pyarrow.float64()),
    "text": pyarrow.array(["a\"b\\c\n\t", "", None, "😀\u0001"]),
    "large": pyarrow.array(["x", "y", None, "z"], pyarrow.large_string()),
    "dict": pyarrow.array(["red", "blue", None, "red"]).dictionary_encode(),
    "bytes": pyarrow.array([b"plain", b"\xff\x00", None, b""], pyarrow.binary()),
    "fixed": pyarrow.array([b"abcd", b"\x00\x01\x02\xff", None, b"wxyz"], pyarrow.binary(4)),
    "date": pyarrow.array([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)]),
    "ms": pyarrow.array([T(2024, 2, 29, 12, 30, 15, 250000), T(1969, 12, 31, 23, 59, 59, 999000), None, T(1970, 1, 1)], pyarrow.timestamp("ms")),
    "us": pyarrow.array([T(2024, 2, 29, 12, 30, 15, 250001), T(1969, 12, 31, 23, 59, 59, 999999), None, T(1970, 1, 1)], pyarrow.timestamp("us", tz="UTC")),
    "ns": pyarrow.array([1, -1, None, 1700000000000000000], pyarrow.timestamp("ns")),
    "clock": pyarrow.array([datetime.time(1, 2, 3, 4), datetime.time(23, 59, 59), None, datetime.time(0)], pyarrow.time64("us")),
    "d9": pyarrow.array([D("1.25"), D("-0.01"), None, D("12345.00")], pyarrow.decimal128(9, 2)),
    "d38": pyarrow.array([D("12345678901234567890.123456"), D("-1.000000"), None, D("0.000000")], pyarrow.decimal128(38, 6)),
    "nested": pyarrow.array([[[1, 2], [], None], [], None, [[3]]], pyarrow.list_(pyarrow.list_(pyarrow.int32()))),
    "struct": pyarrow.array([{"a": {"b": ["x", None]}}, {"a": None}, None, {"a": {"b": None}}],
                            pyarrow.struct([("a", pyarrow.struct([("b", pyarrow.list_(pyarrow.string()))]))])),
    "empty": pyarrow.array([None, None, None, None], pyarrow.null()),
})
write("types.parquet", types)
write("types_v2.parquet", types, data_page_version="2.0", compression="zstd")

N = 300
numbers = pyarrow.table({
    "delta": pyarrow.array([i * i * (-1) ** i for i in range(N)], pyarrow.int64()),
    "delta32": pyarrow.array([i - 150 if i % 7 else None for i in range(N)], pyarrow.int32()),
    "length": pyarrow.array(["v" * (i % 13) for i in range(N)]),
    "prefix": pyarrow.array([f"https://example.org/{i // 10}/{i}" for i in range(N)]),
    "split": pyarrow.array([i / 3 for i in range(N)], pyarrow.float64()),
    "flag": pyarrow.array([i % 3 == 0 for i in range(N)]),
})
write("encodings.parquet", numbers, use_dictionary=False, data_page_version="2.0", data_page_size=400, column_encoding={
    "delta": "DELTA_BINARY_PACKED", "delta32": "DELTA_BINARY_PACKED", "length": "DELTA_LENGTH_BYTE_ARRAY",
    "prefix": "DELTA_BYTE_ARRAY", "split": "BYTE_STREAM_SPLIT", "flag": "RLE"})
write("int96.parquet", pyarrow.table({"t": pyarrow.array([T(2024, 2, 29, 1, 2, 3, 4), None], pyarrow.timestamp("us"))}), use_deprecated_int96_timestamps=True)
write("empty.parquet", pyarrow.table({"text": pyarrow.array([], pyarrow.string())}))

write("numbers.parquet", pyarrow.table({"text": pyarrow.array([1, 2], pyarrow.int64())}))
write("lists.parquet", pyarrow.table({"prompt": ["a"], "completion": pyarrow.array([["b"]], pyarrow.list_(pyarrow.string()))}))
write("nulls.parquet", pyarrow.table({"text": ["a", None, "b"]}))
write("latin1.parquet", pyarrow.table({"text": pyarrow.StringArray.from_buffers(2, pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0\6\0\0\0"), pyarrow.py_buffer(b"okcaf\xe9"))}))
write("brotli.parquet", pyarrow.table({"text": ["a"]}), compression="brotli")


def table(name, text, **options):
    with open(f"{HERE}/{name}", "w", newline="") as f:
        f.write(text)
    frame = pandas.read_csv(f"{HERE}/{name}", dtype=str, keep_default_na=False, **options)
    expected["files"][name] = frame.to_dict("records")


table("quotes.csv", 'instruction,input,output\n"a, b",,"line 1\nline 2"\nplain "quoted" inside,x,"say ""hi"""\n\n"ab"c, padded ,é\r\nNA,null,007\n')
table("unnamed.csv", ",text\n0,first\n1,second")
table("tabs.tsv", 'text\tn\n"a\tb"\t1\nc,d\t2\n', sep="\t")


def text(name, content):
    with open(f"{HERE}/{name}", "w", newline="") as f:
        f.write(content)
    for by in ("line", "paragraph", "document"):
        rows = datasets.load_dataset("text", data_files=f"{HERE}/{name}", sample_by=by, split="train", cache_dir="/tmp/text_cache").to_list()
        expected["files"][f"{name} by {by}"] = rows


text("prose.txt", "First line.\nSecond.\n\nNew paragraph é\nits end.\r\n\r\nLast")

for name in ("quotes.csv",):
    with open(f"{HERE}/{name}", "rb") as f, open(f"{HERE}/{name}.gz", "wb") as g:
        g.write(gzip.compress(f.read(), mtime=0))
    expected["files"][f"{name}.gz"] = expected["files"][name]

# Calls of tools: a struct has the keys of every row. Read, they are the rows that the file was made from.
CALLS = [
    {"messages": [{"role": "user", "content": "Weather in Rome?"},
                  {"role": "assistant", "content": None, "tool_calls": [{"id": "a1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}]},
                  {"role": "tool", "content": "12 C", "tool_call_id": "a1"},
                  {"role": "assistant", "content": "12 degrees."}],
     "tools": [{"type": "function", "function": {"name": "weather", "description": "look", "parameters": {
         "type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", None]}}}}}]},
    {"messages": [{"role": "user", "content": "Two and two?"},
                  {"role": "assistant", "content": None, "tool_calls": [
                      {"id": "a2", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": {"of": [{"x": 1}, {"y": 2}]}}}},
                      {"id": "a3", "type": "function", "function": {"name": "now", "arguments": {}}}]},
                  {"role": "tool", "content": "4", "tool_call_id": "a2"},
                  {"role": "tool", "content": "noon", "tool_call_id": "a3"},
                  {"role": "assistant", "content": "Four."}],
     "tools": [{"type": "function", "function": {"name": "add", "description": "sum", "parameters": {
         "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}]},
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}], "tools": None},
]
parquet.write_table(pyarrow.Table.from_pylist(CALLS), f"{HERE}/calls.parquet")
expected["files"]["calls.parquet"] = CALLS

# Columns of the type JSON, as datasets reads them: whole ones, in lists and in structs.
JSON_ROWS = [{"id": i, "whole": r["messages"], "list": r["messages"], "struct": {"a": r["tools"], "b": str(i)}, "list_of_structs": [{"json": m} for m in r["messages"]]}
             for i, r in enumerate(CALLS)]
features = datasets.Features({
    "id": datasets.Value("int64"), "whole": datasets.Json(), "list": datasets.List(datasets.Json()), "struct": {"a": datasets.Json(), "b": datasets.Value("string")},
    "list_of_structs": datasets.List({"json": datasets.Json()})})
datasets.Dataset.from_list(JSON_ROWS, features=features).to_parquet(f"{HERE}/json.parquet")
rows = datasets.load_dataset("parquet", data_files=f"{HERE}/json.parquet", split="train", cache_dir="/tmp/text_cache").to_list()
for r in rows:
    r["struct"] = without_nulls(r["struct"], False)
expected["files"]["json.parquet"] = rows
parquet.write_table(pyarrow.table({"j": pyarrow.ExtensionArray.from_storage(pyarrow.json_(), pyarrow.array(['{"a": 1}', '{"a": ', None, " ", "null"]))}), f"{HERE}/broken_json.parquet")

# Arrow: streams as datasets saves them, and files.
def arrow(name, table, file=False, batch=None, **options):
    path = f"{HERE}/{name}"
    new = pyarrow.ipc.new_file if file else pyarrow.ipc.new_stream
    with new(path, table.schema, options=pyarrow.ipc.IpcWriteOptions(**options)) as w:
        w.write_table(table, batch)
    rows = [without_nulls(plain(r)) for r in table.to_pylist()]
    if name != "lz4.arrow":
        expected["files"][name] = rows


KEYS = pyarrow.table({
    "big": pyarrow.array([["a", None], [], None, ["b"]], pyarrow.large_list(pyarrow.large_string())),
    "pair": pyarrow.array([[1.5, 2], None, [3, None], [4, 5]], pyarrow.list_(pyarrow.float32(), 2)),
    "half": pyarrow.array([0.5, None, -2, 65504], pyarrow.float16()),
    "d256": pyarrow.array([D("12345678901234567890123456789012345678901234567890.25"), D("-0.01"), None, D("0.00")], pyarrow.decimal256(60, 2)),
    "date64": pyarrow.array([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None, datetime.date(1970, 1, 1)], pyarrow.date64()),
    "seconds": pyarrow.array([T(2024, 2, 29, 12, 30, 15), T(1969, 12, 31, 23, 59, 59), None, T(1970, 1, 1)], pyarrow.timestamp("s")),
    "clock32": pyarrow.array([datetime.time(1, 2, 3), datetime.time(23, 59, 59), None, datetime.time(0)], pyarrow.time32("s")),
    "coded": pyarrow.array([["red"], ["blue", None], None, ["red", "red"]], pyarrow.list_(pyarrow.dictionary(pyarrow.int8(), pyarrow.string()))),
    "coded_structs": pyarrow.DictionaryArray.from_arrays(pyarrow.array([1, 0, None, 1], pyarrow.uint16()), pyarrow.array([{"x": 1, "y": None}, {"x": None, "y": "z"}])),
    "nothing": pyarrow.nulls(4),
    "nothings": pyarrow.array([[None], [], None, [None, None]], pyarrow.list_(pyarrow.null())),
})
arrow("types.arrow", types)
arrow("types_file.arrow", types, file=True, batch=3, compression="zstd")
arrow("more_types.arrow", KEYS, batch=2)
arrow("lz4.arrow", types.select(["text"]), compression="lz4")
grown = pyarrow.schema([("c", pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))])
for name, deltas in (("deltas.arrow", True), ("replaced.arrow", False)):
    with pyarrow.ipc.new_stream(f"{HERE}/{name}", grown, options=pyarrow.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)) as w:
        for words, picks in ((["a"], [0, 0, None]), (["a", "b", "c"], [2, 1, 0])):
            w.write_batch(pyarrow.record_batch([pyarrow.DictionaryArray.from_arrays(pyarrow.array(picks, pyarrow.int32()), words)], schema=grown))
    expected["files"][name] = [{"c": c} for c in ("a", "a", None, "c", "b", "a")]

# Folders of save_to_disk, and their rows.
shutil.rmtree(f"{HERE}/saved", ignore_errors=True)
shutil.rmtree(f"{HERE}/saved_dict", ignore_errors=True)
datasets.Dataset.from_list(JSON_ROWS, features=features).save_to_disk(f"{HERE}/saved", num_shards=2)
datasets.DatasetDict({"train": datasets.Dataset.from_list(CALLS[:2]), "test": datasets.Dataset.from_list([{"text": "held out"}])}).save_to_disk(f"{HERE}/saved_dict")
expected["files"]["saved/data-00000-of-00002.arrow"] = expected["files"]["json.parquet"][:2]
expected["files"]["saved/data-00001-of-00002.arrow"] = expected["files"]["json.parquet"][2:]
expected["files"]["saved_dict/train/data-00000-of-00001.arrow"] = CALLS[:2]
expected["files"]["saved_dict/test/data-00000-of-00001.arrow"] = [{"text": "held out"}]

# Rows for a stream: several windows of it, in row groups that end inside windows. They are not in expected.json.gz.
numbers = [f"{i} " + "x" * (i * 7919 % 41) if i % 701 != 700 else "" for i in range(9500)]
parquet.write_table(pyarrow.table({"text": numbers}), f"{HERE}/stream.parquet", row_group_size=700, compression="zstd", compression_level=19, use_dictionary=False,
                    column_encoding={"text": "DELTA_BYTE_ARRAY"}, write_statistics=False)

rows = [{"text": f"row {i}"} for i in range(7)]
with open(f"{HERE}/list.json", "w") as f:
    json.dump(rows, f, indent=1)
with open(f"{HERE}/lines.jsonl", "w") as f:
    f.writelines(json.dumps(r) + "\n" for r in rows)
for name in ("list.json", "lines.jsonl"):
    expected["files"][name] = datasets.load_dataset("json", data_files=f"{HERE}/{name}", split="train", cache_dir="/tmp/text_cache").to_list()

for n in (1, 3, 7, 10, 50, 99, 101, 1000):
    for spec in ("train", "train[:5%]", "train[-5%:]", "train[5%:]", "train[:50%]", "train[33%:66%]", "train[10:20]", "train[:2]", "train[-3:]", "train[1:-1]",
                 "train[:0]", "train[200:300]", "train[:5%]+train[-5%:]", "train[1_0:2_0]", "train[10%:]", "train[-200%:]", "train[:100%]", "train[:-5]"):
        try:
            instruction = datasets.ReadInstruction.from_spec(spec).to_absolute({"train": n})
            expected["splits"].append({"rows": n, "spec": spec, "spans": [[a.from_, a.to] for a in instruction]})
        except Exception as e:  # what it refuses is refused here too
            expected["splits"].append({"rows": n, "spec": spec, "error": str(e)})

TREES = [
    ["train.jsonl", "valid.jsonl", "test.jsonl"], ["data.jsonl"], ["a.csv", "b.csv"], ["train/a.jsonl", "test/b.jsonl"], ["my-train-part.jsonl", "my_dev.jsonl"],
    ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/fr.old-00000-of-00001.parquet"], ["training.txt", "evaluation.txt"],
    ["retrain.jsonl", "x.jsonl"], ["sub/deep/val/x.jsonl", "sub/train.jsonl"], ["train.jsonl", "extra.jsonl"], ["train1.jsonl", "train_2.jsonl", "eval.jsonl"],
    [".hidden/train.jsonl", "a.jsonl"], ["a.jsonl.gz", "b.jsonl.gz"], ["set.train.json", "set.test.json"], ["__pycache__/train.jsonl", "c.jsonl"],
]
expected["trees"] = []
for tree in TREES:
    with tempfile.TemporaryDirectory() as root:
        for name in tree:
            os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
            open(f"{root}/{name}", "w").close()
        data_files = datasets.load_dataset_builder(root, cache_dir="/tmp/text_cache").config.data_files
        expected["trees"].append({"names": tree, "splits": {str(split): sorted(os.path.relpath(f, os.path.realpath(root)) for f in files) for split, files in data_files.items()}})

with open(f"{HERE}/expected.json.gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
    z.write((json.dumps(expected, sort_keys=True, ensure_ascii=False).replace("}, {", "},\n{") + "\n").encode())
print(sys.argv[0], "done")
