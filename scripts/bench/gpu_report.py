"""Tables of gpu.sh: gpu_report.py gpu.json prints them again.

A kernel's share of the ceiling is the time that the same work takes in the fastest thing measured on the card in the same call (cuBLAS with dense
bf16 weights, cuDNN's attention, or the bytes that must move over the rate of a copy), over the time our profile gives. Profile times hold a
launch of their own each, and GEMMs with packed weights also hold the dequantisation, which the ceiling does not.
"""
import json
import statistics
import sys

MIB = 2**20
SIZES = {"tinyllama-1.1b": (2048, 5632, 22, 32, 4, 64, 32000), "llama-2-7b": (4096, 11008, 32, 32, 32, 128, 32000)}  # C F L H K D V


def work(model, R):
    """Of a step without recomputation, all seven projections adapted: kernel line -> (calls, what, its ceiling's parts). M is written as 8192."""
    C, F, L, H, K, D, _ = SIZES[model]
    M, KV = 8192, K * D
    V = SIZES[model][6]
    # fan-in and fan-out of the seven projections
    seven = [(C, C), (C, KV), (C, KV), (C, C), (C, F), (C, F), (F, C)]
    lines = {}

    def put(name, parts, calls):
        have = lines.setdefault(name, [0, []])
        have[0] += calls
        have[1].append((calls, parts))

    for i, (k, n) in enumerate(seven):
        back = L - 1 if i < 3 else L  # nothing below the first layer's q, k and v is trained
        put(f"nf4 bf16[{M},{n}]", ("gemm", f"nt {M}x{n}x{k}"), L)
        put(f"nf4 bf16[{M},{k}]", ("gemm", f"nn {M}x{k}x{n}"), back)
        put(f"matmul bf16[{M},{R}]", ("gemm", f"nt {M}x{R}x{k}"), L)
        put(f"matmul bf16[{M},{n}]", ("bytes", 4 * M * n), L)  # added into what is there: read and written
        put(f"matmul bf16[{M},{R}]", ("gemm", f"nn {M}x{R}x{n}"), L)
        put(f"matmul bf16[{M},{k}]", ("bytes", 4 * M * k), back)
        put(f"matmul f32[{R},{k}]", ("gemm", f"tn {R}x{k}x{M}"), L)
        put(f"matmul f32[{n},{R}]", ("gemm", f"tn {n}x{R}x{M}"), L)
    attention = f"4x2048 {H}/{K}x{D}"
    put(f"attention bf16[{M},{C}]", ("attention", attention, "forward"), L)
    put(f"attention_grad bf16[{M},{C}]", ("attention", attention, "backward"), L)
    # a norm adds the residual, its gradient the residual's: two passes more, but for the first norm and one for the last gradient
    for name, width, passes, calls in (("swiglu", F, 3, L), ("swiglu_grad", F, 5, L), ("rmsnorm", C, 4, 2 * L), ("rmsnorm", C, 2, 1),
                                       ("rmsnorm_grad", C, 4, 2 * L - 1), ("rmsnorm_grad", C, 3, 1)):
        put(f"{name} bf16[{M},{width}]", ("bytes", 2 * passes * M * width), calls)
    for width in (C, KV):  # q and k, forward and backward
        put(f"rope bf16[{M},{width}]", ("bytes", 4 * M * width), 2 * L)
    put("crossentropy f32[]", ("gemm", f"nt {M}x{V}x{C}"), 1)
    lines["crossentropy f32[]"][1].append((1, ("gemm", f"nn {M}x{C}x{V}")))
    return lines


def ceiling_ms(parts, ceilings):
    total = 0.0
    for calls, part in parts:
        if part[0] == "gemm":
            if part[1] not in ceilings["gemm"]:
                return None
            total += calls * ceilings["gemm"][part[1]][0]
        elif part[0] == "attention" and part[1] not in ceilings["attention"]:
            return None
        elif part[0] == "attention":
            total += calls * ceilings["attention"][part[1]][part[2]][0]
        else:
            total += calls * part[1] / ceilings["copy_bytes_per_s"] * 1e6
    return total / 1e3


def ms_of(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def mib(n):
    return f"{n / MIB:,.0f}" if n else "-"


def steps_table(result):
    out = ["| work | who | step ms: median (fastest to slowest) of each round | tokens/s | memory, MiB | on the card, MiB | against ours |", "|---|---|---|---:|---:|---:|---:|"]
    for c in result["cases"]:
        name = f"{c['model']} {c['batch']}x{c['length']}, {c['targets']} r{c['rank']}"
        tokens = c["batch"] * c["length"]
        slowest = {}
        for mode, rounds in c["ours"].items():
            good = [r for r in rounds if "median_ms" in r]
            if not good:
                out.append(f"| {name} | ours, {mode} | not measured: {rounds[-1]['error'][-120:] if rounds else 'no time'} | | | | |".replace("\n", " "))
                continue
            slowest[mode] = max(r["median_ms"] for r in good)
            said = "; ".join(f"{r['median_ms']:.2f} ({r['fastest_ms']:.2f} to {r['slowest_ms']:.2f})" for r in good)
            layout = good[0].get("layout", "").removeprefix("gradient_checkpointing ")
            if "=peer" in mode:
                layout += f", at most {mib(good[0]['limit'])} MiB" if good[0].get("limit") else ", no peer's memory known"
            out.append(f"| {name} | ours, {mode}{f' ({layout})' if layout not in mode else ''} | {said} | {tokens / slowest[mode] * 1e3:,.0f} | held {mib(good[0]['held_bytes'])} | {mib(good[0].get('card_bytes'))} | |")
        for peer, rounds in c["peers"].items():
            good = [r for r in rounds if "ms" in r]
            if not good:
                why = rounds[-1]["error"][-120:] if rounds else "not ready, or no time"
                out.append(f"| {name} | {peer} | not measured: {why} | | | | |".replace("\n", " "))
                continue
            best = min(statistics.median(r["ms"]) for r in good)  # the peer's best round against our worst
            memory = f"allocated {mib(good[-1].get('allocated'))}, reserved {mib(good[-1].get('reserved'))}"
            ratio = ", ".join(f"{int(100 * best / v) / 100:.2f} x {m}" for m, v in slowest.items())
            out.append(f"| {name} | {peer} | {'; '.join(ms_of(r['ms']) for r in good)} | {tokens / best * 1e3:,.0f} | {memory} | {mib(good[-1].get('card_bytes'))} | {ratio} |")
    return out


def kernels_table(result, model):
    """The profile of the 4x2048 case without recomputation."""
    ceilings = result.get("ceilings", {})
    runs = [r for c in result["cases"] if c["model"] == model and c["length"] == 2048 and c["rank"] == 16 for r in c["ours"].get("none", []) if r.get("profile")]
    if not runs or "gemm" not in ceilings:
        return []
    known = work(model, 16)
    all_lines = [{p["kernel"]: p for p in r["profile"]} for r in runs]
    total = sum(p["ms"] for p in runs[0]["profile"])
    out = [f"{model} 4x2048, all r16, no recomputation: step {runs[0]['median_ms']:.2f} ms, sum of the profile {total:.2f} ms.", "",
           "| kernel | calls | ms a step, each run | ceiling ms | % of ceiling |", "|---|---:|---:|---:|---:|"]
    for p in runs[0]["profile"]:
        if p["ms"] < 0.002 * total:
            continue
        each = [lines[p["kernel"]]["ms"] for lines in all_lines if p["kernel"] in lines]
        calls, parts = known.get(p["kernel"], (0, []))
        limit = ceiling_ms(parts, ceilings) if parts and calls == p["calls"] else None
        out.append(f"| `{p['kernel']}` | {p['calls']} | {', '.join(f'{v:.2f}' for v in each)} | {f'{limit:.2f}' if limit else '-'} | {f'{100 * limit / statistics.mean(each):.0f}' if limit else '-'} |")
    return out + [""]


def ceilings_table(result):
    c = result.get("ceilings", {})
    if "gemm" not in c:
        return []
    out = [f"Copy {c['copy_bytes_per_s'] / 1e12:.2f} TB/s, read and written bytes counted (2 GiB).", "", "| GEMM (nt: y = x wt, nn: dx = dy w, tn: dw = dyt x) | us (fastest to slowest) | TFLOP/s |", "|---|---:|---:|"]
    for name, (median, low, high) in c["gemm"].items():
        m, n, k = (int(v) for v in name.split()[1].split("x"))
        if min(m, n, k) > 16:
            out.append(f"| {name} | {median:.1f} ({low:.1f} to {high:.1f}) | {2 * m * n * k / median / 1e6:.0f} |")
    out += ["", "| cuDNN attention, causal | forward us | TFLOP/s | backward us | TFLOP/s |", "|---|---:|---:|---:|---:|"]
    for name, t in c["attention"].items():
        (b, length), (heads, d) = (int(v) for v in name.split()[0].split("x")), name.split()[1].split("x")
        flop = 2 * b * int(heads.split("/")[0]) * length * length * int(d)
        f, g = t["forward"], t["backward"]
        out.append(f"| {name} | {f[0]:.1f} ({f[1]:.1f} to {f[2]:.1f}) | {flop / f[0] / 1e6:.0f} | {g[0]:.1f} ({g[1]:.1f} to {g[2]:.1f}) | {2.5 * flop / g[0] / 1e6:.0f} |")
    return out + [""]


def first_table(result):
    f = result.get("first")
    if not f:
        return []
    out = ["| tinyllama-1.1b 1x512, qkvo r8 | seconds, each try |", "|---|---|"]
    steps = ", ".join(f"{r['step_s']:.2f}" if r["step_s"] else f"exit {r['exit']}" for r in f["folder"])
    out.append(f"| folder of safetensors: command to the line of the first step | {steps} |")
    out.append("| the same: command to the end, adapter and checkpoint saved | " + ", ".join(f"{r['end_s']:.2f}" for r in f["folder"]) + " |")
    good = [r for r in f["bench"] if "first_step_s" in r]
    out.append("| random weights, `trainer bench --warmup 0 --steps 1`: whole process | " + ", ".join(f"{r['wall_s']:.2f}" for r in good) + " |")
    out.append("| of that: load, first step | " + ", ".join(f"{r['load_s']:.2f} + {r['first_step_s']:.3f}" for r in good) + " |")
    return out + [""]


def markdown(result):
    h = result["host"]
    versions = ", ".join(f"{k} {v}" for k, v in h["versions"].items() if v)
    out = [f"{h['gpu']} (name, driver, memory, SM and memory clock idle, temperature, power); {h['date']}; ours at commit {h['commit']}; {h['cores']} cores, Linux {h['kernel']}, Python {h['python']}.",
           f"Peers: {versions}.", ""]
    out += steps_table(result) + [""] + first_table(result)
    for model in ("llama-2-7b", "tinyllama-1.1b"):
        out += kernels_table(result, model)
    out += ceilings_table(result)
    trained = {c["model"]: r["trained_parameters"] for c in result["cases"] for rounds in c["ours"].values() for r in rounds if r.get("trained_parameters")}
    for name, w in result["workers"].items():
        if "trainable" in w:
            ours = trained.get(name.split(":")[1])
            out.append(f"- {name}: {w['trainable']:,} trained parameters" + (f", ours {ours:,}" if ours else "") +
                       f"; start: import {w['import_s']:.0f} s, load {w['load_s']:.0f} s; {json.dumps(w['works'])}")
        if "error" in w:
            out.append(f"- not run: {name}: {w['error'][-200:]}".replace("\n", " "))
    out += [f"- left out, no time: {x}" for x in result["left_out"]]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(markdown(json.load(open(sys.argv[1]))), end="")
