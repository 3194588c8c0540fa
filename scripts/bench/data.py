"""Template, tokenise and pack one file: ours against datasets + TRL, on the same cores, in alternation.

TRL's side is its own: SFTTrainer._prepare_dataset with packing "bfd", dataset_num_proc = the number of cores, called with what it reads of a
trainer, so that no model is needed; its fastest way, without masks of the assistant's turns where the format has them. Nothing of either side is
kept between rounds. CPU seconds are of the whole processes, imports too, and tell more than seconds on a busy machine. Memory is the largest sum
of what the processes have for themselves (Pss of anonymous memory), seen every 200 ms.

usage: data.py messages|completion|text [MEGABYTES [ROUNDS]]"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MAX_LENGTH = 1024


def peer(kind, file, model, cores, work):
    """Runs in a process of its own."""
    import types

    import datasets
    import transformers
    from trl import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    datasets.disable_progress_bars()
    tok = transformers.AutoTokenizer.from_pretrained(model)
    args = SFTConfig(output_dir=work, max_length=MAX_LENGTH, packing=True, packing_strategy="bfd", dataset_num_proc=cores, assistant_only_loss=False,
                     completion_only_loss=kind == "completion", report_to=[], bf16=False, use_cpu=True)
    begin = time.perf_counter()
    rows = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=work)
    trainer = types.SimpleNamespace(_tokenizer=tok, chat_template=None, completion_only_loss=kind == "completion")
    packed = SFTTrainer._prepare_dataset(trainer, rows, tok, args, True, None, "train")
    seconds = time.perf_counter() - begin
    tokens = sum(sum(x) for x in packed["seq_lengths"])
    print(json.dumps({"seconds": seconds, "rows": len(rows), "tokens": tokens, "sequences": len(packed)}))


def anonymous(pid):
    """Bytes that a process and its children have for themselves, shared pages by their share."""
    total, todo = 0, [pid]
    while todo:
        p = todo.pop()
        try:
            for line in pathlib.Path(f"/proc/{p}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss_Anon:"):
                    total += int(line.split()[1]) * 1024
            for task in pathlib.Path(f"/proc/{p}/task").iterdir():
                todo += [int(c) for c in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def measured(command, env):
    """What the command prints last, as JSON, with the peak of its memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    peak, done = [0], threading.Event()

    def watch():
        while not done.wait(0.2):
            peak[0] = max(peak[0], anonymous(child.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = child.communicate()
    done.set()
    watcher.join()
    if child.returncode:
        sys.exit(err)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(out.splitlines()[-1]), "peak": peak[0], "cpu": cpu}


def main():
    kind = sys.argv[1]
    megabytes, rounds = float(sys.argv[2]) if len(sys.argv) > 2 else 100, int(sys.argv[3]) if len(sys.argv) > 3 else 3
    model, cores = os.environ["TRAINER_SMOLLM2"], len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as tmp:
        work = pathlib.Path(tmp)
        file, program = work / "rows.jsonl", work / "databench"
        subprocess.run([sys.executable, HERE / "data_make.py", kind, str(megabytes), file], check=True)
        subprocess.run(["go", "build", "-o", program, "./scripts/databench"], check=True)
        best = {}
        for i in range(rounds):
            cache, env = work / f"cache{i}", {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
            for who, command in {
                "trl": [sys.executable, __file__, "--peer", kind, file, model, str(cores), work / f"peer{i}"],
                "ours": [program, "-data", file, "-format", "" if kind == "messages" else kind, "-tokenizer", model, "-max-length", str(MAX_LENGTH)],
                "ours, cached": [program, "-data", file, "-tokenizer", model, "-max-length", str(MAX_LENGTH), "-cache", cache],
                "ours, second start": [program, "-data", file, "-tokenizer", model, "-max-length", str(MAX_LENGTH), "-cache", cache],
            }.items():
                got = measured([str(c) for c in command], env)
                if who not in best or got["seconds"] < best[who]["seconds"]:
                    best[who] = {**got, "peak": max(got["peak"], best.get(who, got)["peak"])}
                print(f"round {i + 1}: {who}: {got['seconds']:.1f} s, {got['cpu']:.1f} CPU s", file=sys.stderr)
            subprocess.run(["rm", "-rf", cache, work / f"peer{i}"], check=True)
        size = file.stat().st_size / 1e6
        print(f"{kind}: {size:.1f} MB, {best['ours']['rows']} rows, {cores} cores, sequences of {MAX_LENGTH}; best of {rounds} rounds")
        print(f"{'':20s}{'seconds':>9s}{'CPU s':>8s}{'MB/s':>8s}{'tokens':>12s}{'sequences':>11s}{'peak MB':>9s}{'times TRL':>11s}")
        for who, r in best.items():
            print(f"{who:20s}{r['seconds']:9.2f}{r['cpu']:8.1f}{size / r['seconds']:8.1f}{r['tokens']:12d}{r['sequences']:11d}{r['peak'] / 1e6:9.0f}"
                  f"{best['trl']['seconds'] / r['seconds']:11.1f}")


if len(sys.argv) < 2:
    sys.exit(__doc__)
if sys.argv[1] == "--peer":
    peer(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6])
else:
    main()
