#!/usr/bin/env python3
"""The tables of docs/internals/SCALING.md: what data-parallel LoRA costs on N cards, computed from the constants below.

    scripts/scaling.py            prints the tables
    scripts/scaling.py --update   writes them into docs/internals/SCALING.md, between its marks

Step times are measured (docs/PERFORMANCE.md, one H200); everything else here is arithmetic.
"""
import math
import pathlib
import sys

DOC = pathlib.Path(__file__).resolve().parent.parent / "docs" / "internals" / "SCALING.md"
LAYERS = {  # name: layers, width, mlp, width of k and v, targets, rank, micro-batch, ms of its step on one H200, bytes of the base in 16 bits
    "135M q v r8, 1x512": (30, 576, 1536, 192, "qv", 8, 512, 4.15, 0.27e9),
    "1.1B all r16, 4x2048": (22, 2048, 5632, 256, "all", 16, 8192, 91.3, 2.2e9),
    "7B all r16, 4x2048": (32, 4096, 11008, 4096, "all", 16, 8192, 438, 13.5e9),
    "70B all r16, 4x2048": (80, 8192, 28672, 1024, "all", 16, 8192, 438 * 70.6 / 6.74, 141.1e9),  # its step is 7B's times the parameters: not measured
}
LINKS = {"NVLink 4": 450e9, "InfiniBand NDR, a port a card": 50e9, "PCIe 5.0 x16": 50e9, "PCIe 4.0 x16": 25e9, "100 GbE, a port for 8 cards": 12.5e9 / 8}  # bytes/s out of a card
WORLDS = (2, 8, 64, 1024)
MESSAGE = 4e-6  # seconds until a message to one other rank is on its way: an assumption, of the order that NCCL's small sends take
INTERRUPTIONS = 419 / (54 * 24 * 16384)  # an hour and card: unexpected ones of Llama 3's 54 days on 16,384 H100 (The Llama 3 Herd of Models, 2024)
DEAL = 0.3e-6  # seconds a row on one core: shuffled, and the batches of a step made even (BenchmarkDeal, dataset)
START = 120.0  # seconds from an interruption to the first step of the restarted run: an assumption; schedulers may take longer
SAVE = 1.0  # seconds that a checkpoint holds the run up: that of the 7B adapter, to a network disk of 0.5 GB/s; 70B takes five


def parameters(layers, c, f, kv, targets, r):
    """A and B of each adapted linear layer [in,out]: r (in + out)."""
    sizes = {"qv": [(c, c), (c, kv)], "all": [(c, c), (c, kv), (c, kv), (c, c), (c, f), (c, f), (f, c)]}[targets]
    return layers * r * sum(a + b for a, b in sizes)


def reduction(gradient, world, link):
    """Slices out and in, then the sums: 2 (N-1)/N of the gradient each way, and two rounds of N-1 messages."""
    return 2 * (world - 1) / world * gradient / link + 2 * (world - 1) * MESSAGE


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)] + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def ms(seconds):
    return f"{1e3 * seconds:.2f}" if seconds < 0.01 else f"{1e3 * seconds:.0f}"


def exchanged():
    rows = []
    for name, (*shape, _, step, _) in LAYERS.items():
        n = parameters(*shape)
        rows.append([name, f"{n:,}", f"{4 * n / 1e6:.1f} MB", *(f"{2 * (w - 1) / w * 4 * n / 1e6:.1f} MB" for w in WORLDS)])
    return table(["work", "trained", "gradient", *(f"sent by a card of {w}" for w in WORLDS)], rows)


def efficiency():
    rows = []
    for name, (*shape, _, step, _) in LAYERS.items():
        for link, rate in LINKS.items():
            row = [f"{name}, {link}"]
            for w in WORLDS:
                if link == "NVLink 4" and w > 8:
                    row.append("–")
                    continue
                t = reduction(4 * parameters(*shape), w, rate)
                row.append(f"{ms(t)} ms, {100 * step / (step + 1e3 * t):.1f} %")
            rows.append(row)
    return table(["work, link", *(f"{w} cards" for w in WORLDS)], rows)


def around():
    rows = []
    for name, (*shape, tokens, step, base) in LAYERS.items():
        state = 3 * 4 * parameters(*shape)
        for w in WORLDS:
            rows.append([name, str(w), f"{w * tokens:,}", f"{state / 1e6:.0f} MB", f"{w * base / 1e9:,.0f} GB", f"{math.ceil(w / 8) * base / 1e9:,.0f} GB"])
    return table(["work", "cards", "tokens a step", "checkpoint", "base read by all ranks", "read once a host of 8"], rows)


def failures():
    rows = []
    for w in WORLDS:
        between = 1 / (INTERRUPTIONS * w)
        save = SAVE / 3600
        best = math.sqrt(2 * save * between)  # Young (1974)
        daly = best * (1 + math.sqrt(save / 2 / between) / 3 + save / 2 / between / 9) - save  # Daly (2006), for save < 2 between
        start = START / 3600
        rows.append([str(w), f"{between:,.0f} h", f"{60 * best:.1f} min", f"{60 * daly:.1f} min", f"{100 * (save / best + (best / 2 + start) / between):.2f} %"])
    return table(["cards", "between interruptions", "a checkpoint every (Young)", "(Daly)", "time lost to saving, starting and repeating"], rows)


def loading():
    rows = []
    for n in (1e5, 1e7):
        for w in WORLDS:
            rows.append([f"{n:,.0f}", str(w), f"{4 * n / 1e6:.1f} MB", f"{DEAL * n:.2g} s", f"{n / (4 * w):,.0f}"])
    return table(["rows", "cards", "the order, a rank", "dealing an epoch, a rank", "steps an epoch, 4 rows a card"], rows)


TABLES = dict(exchanged=exchanged, efficiency=efficiency, around=around, loading=loading, failures=failures)


def main():
    text = DOC.read_text()
    for name, make in TABLES.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + begin + make() + end + after
    if "--update" in sys.argv[1:]:
        DOC.write_text(text)
    elif "--check" in sys.argv[1:]:
        sys.exit(text != DOC.read_text() and "docs/internals/SCALING.md is not what scripts/scaling.py computes: run it with --update")
    else:
        for name, make in TABLES.items():
            print(f"{name}\n{make()}")


if __name__ == "__main__":
    main()
