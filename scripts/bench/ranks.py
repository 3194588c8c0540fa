#!/usr/bin/env python3
"""Steps on several GPUs of one host: ours on one card and on N, and peers under torch's DDP, each on one card and on N.

    PYTHONPATH=site scripts/bench/ranks.py TRAINER TOKENIZER.json OUT [--world 2] [--peers peft,unsloth] [--cases 135m,1.1b,7b] [--limit SECONDS]
    scripts/bench/ranks.py --rehearse OUT          the peers' part on a CPU, a tiny shape and gloo: that it starts, no numbers

TRAINER is built with -tags gpu; gpu_site.sh makes site. Every rank has the case's whole micro-batch, so a perfect N cards take the time of one.
Cards differ: each is measured alone, apart from the others and in turn with the N together, ours and the peers' alike. N cards are compared
with the slowest of them, which is the one that the others wait for; the table has every card's time.
A peer is a process a card, as torchrun starts them; its model, loop and settings are gpu_peers.py's. Medians of --steps steps after a warm-up.
NVLink multicast stays off (NCCL_NVLS_ENABLE=0, TORCH_SYMM_MEM_DISABLE_MULTICAST=1) unless the environment says otherwise. Writes OUT/ranks.json
and OUT/ranks.md; a case that fails is named there with the end of its log, and those begun after --limit are left out by name.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import gpu_peers  # noqa: E402

CASES = {  # shape, batch, length, targets, rank
    "135m": ("smollm2-135m", 1, 512, "qv", 8),
    "1.1b": ("tinyllama-1.1b", 4, 2048, "all", 16),
    "7b": ("llama-2-7b", 4, 2048, "all", 16),
    "tiny": ("tiny", 1, 64, "all", 8),
}
PEER_CASES = {"peft": ["135m", "1.1b"], "unsloth": ["135m", "1.1b"]}


def peer(folder, name, cases, steps):
    """One rank: what torchrun's variables say. The first rank prints a line a case."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", UNSLOTH_DISABLE_STATISTICS="1")
    if name == "unsloth":
        import unsloth  # noqa: F401  before transformers, which it patches
    import torch

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if world > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if gpu else "gloo")
    for c in cases:
        shape, batch, length, targets, r = CASES[c]
        model = gpu_peers.LOADERS[name](dict(peer=name, model=shape, works={}, length=length, targets=targets, rank=r, ckpt=False, options=[]), f"{folder}/{shape}")
        if world > 1:
            model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if gpu else None)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=2e-4, fused=gpu)
        ids = torch.randint(5, gpu_peers.SHAPES[shape]["vocab_size"], (4, batch, length), generator=torch.Generator().manual_seed(rank)).to("cuda" if gpu else "cpu")
        ms = []
        for i in range(5 + steps):
            if gpu:
                torch.cuda.synchronize()
            at = time.perf_counter()
            with torch.autocast("cuda" if gpu else "cpu", dtype=torch.bfloat16):
                loss = model(input_ids=ids[i % 4], labels=ids[i % 4], use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if gpu:
                torch.cuda.synchronize()
            ms.append(1e3 * (time.perf_counter() - at))
        if rank == 0:
            peak = torch.cuda.max_memory_allocated() if gpu else 0
            print("@" + json.dumps(dict(case=c, ms=ms[5:], peak_bytes=peak)), flush=True)
        del model, trained, optimizer, loss
        if gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    if world > 1:
        torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cards():
    """What CUDA_VISIBLE_DEVICES calls each card."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return shown.split(",") if shown else [str(i) for i in range(64)]


def start(out, folder, name, cases, world, first, steps):
    """The processes of a peer, on the cards from first on."""
    port, log = free_port(), out / (f"{name}-{world}.log" if world > 1 else f"{name}-card{first}.log")
    processes = []
    for r in range(world):
        env = dict(os.environ, RANK=str(r), WORLD_SIZE=str(world), LOCAL_RANK=str(r + first), LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        if world == 1:
            env.update(CUDA_VISIBLE_DEVICES=cards()[first], LOCAL_RANK="0")
        with open(log if r == 0 else out / f"{name}-{world}.{r}.log", "wb") as f:
            processes.append(subprocess.Popen([sys.executable, str(HERE / "ranks.py"), "--peer", str(folder), name, ",".join(cases), str(steps)], env=env, stdout=f, stderr=subprocess.STDOUT))
    return dict(name=name, world=world, card=first, log=log, processes=processes)


def finish(run, seconds):
    """Its results by case; what is not there is an error."""
    end, why = time.time() + seconds, ""
    while any(p.poll() is None for p in run["processes"]):
        failed = [p.returncode for p in run["processes"] if p.returncode]
        if failed and not why:  # the others wait for it, and end by themselves or not at all
            why, end = f"exit code {failed[0]}", min(end, time.time() + 10)
        if time.time() > end:
            why = why or f"not done after {seconds:.0f} s"
            for p in run["processes"]:
                p.kill()
                p.wait()
            break
        time.sleep(0.1)
    failed = [p.returncode for p in run["processes"] if p.returncode]
    why = why or (f"exit code {failed[0]}" if failed else "")
    lines = run["log"].read_text(errors="replace").splitlines()
    results = {}
    for line in lines:
        if line.startswith("@{"):
            try:
                x = json.loads(line[1:])
                results[x["case"]] = x
            except (ValueError, KeyError):  # a process that was ended in the middle of a line
                pass
    return results, (why + ": " + " | ".join(lines[-3:]).replace("|", "/"))[:400] if why else ""


def ours(trainer, case, world, card, steps, seconds):
    shape, batch, length, targets, r = CASES[case]
    command = [trainer, "bench", "--shape", shape, "--batch", str(batch), "--length", str(length), "--r", str(r), "--steps", str(steps), "--device", "cuda", "--steps-alone", "--json",
               "--targets", "all-linear" if targets == "all" else ",".join(gpu_peers.TARGETS[targets])]
    if world > 1:
        command += ["--devices", str(world)]
    env = dict(os.environ, CUDA_VISIBLE_DEVICES=cards()[card]) if world == 1 else None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=env)
    except subprocess.TimeoutExpired:
        return None, f"not done after {seconds:.0f} s"
    except OSError as e:
        return None, str(e)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-1][:400] if done.stderr.strip() else f"exit code {done.returncode}"
    x = json.loads(done.stdout)
    return dict(median_ms=x["median_ms"], fastest_ms=x["fastest_ms"], slowest_ms=x["slowest_ms"], bytes=x["held_bytes"]), ""


def summary(x):
    return dict(median_ms=statistics.median(x["ms"]), fastest_ms=min(x["ms"]), slowest_ms=max(x["ms"]), bytes=x["peak_bytes"])


def table(rows, world):
    text = [f"| work, a card | program | each card alone, ms | {world} cards, ms | {world} cards do | bytes a card, one and {world} |", "|---|---|---:|---:|---:|---:|"]
    for (case, name), by in sorted(rows.items()):
        shape, batch, length, targets, r = CASES[case]
        alone = [by[key] for key in sorted(k for k in by if k[0] == 1)]
        measured = [x for x in alone if "median_ms" in x]
        one, many = max(measured, key=lambda x: x["median_ms"]) if len(measured) == len(alone) and alone else None, by.get((world, 0))

        def span(x):
            return f"{x['median_ms']:.2f} ({x['fastest_ms']:.2f} to {x['slowest_ms']:.2f})" if x and "median_ms" in x else (x or {}).get("error", "not run")

        both = one and many and "median_ms" in many
        ratio = f"{world * one['median_ms'] / many['median_ms']:.3f}x" if both else ""
        memory = f"{one['bytes']:,}, {many['bytes']:,}" if both else ""
        text.append(f"| {shape} {batch}x{length} {targets} r{r} | {name} | {'; '.join(span(x) for x in alone) or 'not run'} | {span(many)} | {ratio} | {memory} |")
    return "\n".join(text) + "\n"


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer(sys.argv[2], sys.argv[3], sys.argv[4].split(","), int(sys.argv[5]))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("paths", nargs="+")
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--peers", default="peft,unsloth")
    p.add_argument("--cases", default="135m,1.1b,7b")
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--limit", type=float, default=300)
    p.add_argument("--rehearse", action="store_true")
    a = p.parse_args()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    out, began = Path(a.paths[-1]).resolve(), time.time()
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(os.environ.get("BENCH_DIR", out / "models"))
    rows, cases, peers = {}, a.cases.split(","), [x for x in a.peers.split(",") if x]
    if a.rehearse:
        cases, peers = [], ["peft"]
        PEER_CASES["peft"] = ["tiny"]
    elif len(a.paths) != 3:
        p.error("TRAINER TOKENIZER.json OUT")
    tokenizer = a.paths[1] if not a.rehearse else os.environ.get("TOKENIZER", "tokenizer.json")
    needed = sorted({CASES[c][0] for n in peers for c in PEER_CASES[n]})
    writing = subprocess.Popen([sys.executable, str(HERE / "gpu_peers.py"), "models", str(folder), tokenizer, *needed]) if needed else None

    def left():
        return a.limit - (time.time() - began)

    def keep(case, name, world, card, result, why):
        by = rows.setdefault((case, name), {})
        before = by.get((world, card))
        if before and before.get("median_ms", 1e9) < (result or {}).get("median_ms", 1e9):  # the faster one of two rounds counts
            result = before
        by[world, card] = result or before or dict(error=why or "not run: the time was up")
        (out / "ranks.md").write_text(table(rows, a.world))
        flat = [dict(case=c, program=n, world=w, card=card, **x) for (c, n), by in rows.items() for (w, card), x in by.items()]
        (out / "ranks.json").write_text(json.dumps(flat, indent=1) + "\n")
        print(case, name, world, card, result or why, flush=True)

    turns = [*((1, card) for card in range(a.world)), (a.world, 0)]
    for case in cases:
        for world, card in turns * 2:
            if left() < 20:
                keep(case, "tierlora", world, card, None, "")
                continue
            keep(case, "tierlora", world, card, *ours(a.paths[0], case, world, card, a.steps if case != "135m" else 100, min(90, left())))
    if writing:
        writing.wait()

    for n in peers:
        for world, card in turns:  # alone on its card, nothing beside it
            results, why = {}, "not run: the time was up"
            if left() > 30:
                try:
                    results, why = finish(start(out, folder, n, PEER_CASES[n], world, card, a.steps), max(10, left()))
                except OSError as e:  # it does not even start
                    why = str(e)
            for case in PEER_CASES[n]:
                keep(case, n, world, card, summary(results[case]) if case in results else None, why or "it ended without a result")
    print(table(rows, a.world))


if __name__ == "__main__":
    main()
