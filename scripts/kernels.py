#!/usr/bin/env python3
"""Compiles kernel/cuda/*.cu to kernel/cuda/build/*.fatbin with NVRTC and ptxas: no GPU, no nvcc, no host compiler.

NVRTC's passes take longer than ptxas', and give targets of one generation the same PTX but for its .target line: PASS
says which targets share one.

A source whose header has a line "// Elements: bf16, f16, f32." is compiled once for each of these element types
(elem.cuh), to STEM.fatbin for bf16 and STEM_f16.fatbin, STEM_f32.fatbin; any other source once, to STEM.fatbin.
Only stale forms are compiled (a form is fresh while the hash of its source, the headers it includes, the targets and the
compiler is the one written beside it), at most two at a time; what was compiled before from the same hash, in any working
tree, is taken from $TRAINER_KERNEL_CACHE (default ~/.cache/tierlora/kernels; "off" compiles anew). Each fatbin gets a .json with registers, shared memory and spills of
every kernel on every architecture; a kernel above kernel/cuda/budget.json fails the run.

  kernels.py            compile what is stale, print a line a file
  kernels.py -v         also print registers, shared memory and spills of every kernel
  kernels.py -g         add line information for Nsight
  kernels.py --stale    only name the stale files; needs no compiler
  kernels.py --targets sm_90a,compute_90   other targets than the released ones, for work on one chip
  kernels.py --folder DIR                  another folder than kernel/cuda
"""
import argparse, ctypes, glob, hashlib, json, os, re, subprocess, sys, tempfile, time
from concurrent.futures import ProcessPoolExecutor

COMPILER = "NVRTC and ptxas 12.9.86"
# 80 also serves 8.6 and 8.7, 120 also 12.1; PTX is for chips that no cubin serves.
TARGETS = ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120", "compute_90", "compute_120"]
# The virtual architecture whose PTX a target is made of: its own, or the earlier one of its generation, whose PTX every
# later target takes.
PASS = {"sm_89": "compute_80", "sm_90a": "compute_90", "sm_100a": "compute_100", "sm_120": "compute_100", "compute_120": "compute_100"}
JOBS = 2
CACHE = os.environ.get("TRAINER_KERNEL_CACHE", os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/tierlora/kernels")
UNUSED = 30 * 86400  # seconds after which an entry of the cache that nothing asked for goes


def forms(folder):
    """(source, element type) of everything there is to compile; the type is None for a source without a list of them."""
    found = []
    for src in sorted(glob.glob(folder + "/*.cu")):
        listed = re.search(r"^// Elements: (.*)\.$", open(src).read(), re.M)
        found += [(src, e) for e in (listed.group(1).split(", ") if listed else [None])]
    return found


def included(src):
    """The source and the headers of its folder that it includes, directly or not, in the order they are met."""
    found = [src]
    for p in found:
        for name in re.findall(r'^#include "(.*)"', open(p).read(), re.M):
            q = os.path.dirname(src) + "/" + name
            if q not in found:
                found.append(q)
    return found


def key(form, targets, lines):
    """Names everything that decides a fatbin's bytes."""
    h = hashlib.sha256()
    for p in included(form[0]):
        h.update(os.path.basename(p).encode() + b"\0" + open(p, "rb").read() + b"\0")
    h.update(json.dumps([COMPILER, targets, lines, options(form, "sm_80", "", lines)[1:], passes(form[0], targets)]).encode())
    return h.hexdigest()


def outputs(form):
    src, elem = form
    suffix = "" if elem in (None, "bf16") else "_" + elem
    base = os.path.dirname(src) + "/build/" + os.path.basename(src)[:-3] + suffix
    return base + ".fatbin", base + ".json"


def title(form):
    return os.path.basename(form[0]) + (" " + form[1] if form[1] else "")


def stale(folder, targets, lines):
    todo = []
    for form in forms(folder):
        fatbin, report = outputs(form)
        try:
            fresh = json.load(open(report))["key"] == key(form, targets, lines) and os.path.getsize(fatbin) > 0
        except (OSError, ValueError, KeyError, TypeError):
            fresh = False
        if not fresh:
            todo.append(form)
    return todo


def passes(src, targets):
    """The targets of each of NVRTC's passes. A source that tests for more than a generation gets passes of its targets' own."""
    text = "".join(open(p).read() for p in included(src))
    tested = {int(n) for n in re.findall(r"__CUDA_ARCH__\s*[<>=!]+\s*(\d+)", text)}
    features = re.search(r"__CUDA_ARCH_(FEAT|SPECIFIC|FAMILY)", text)
    found = {}
    for t in targets:
        own = t.replace("sm_", "compute_")
        shared = PASS.get(t, own)
        first, last = (int(re.search(r"\d+", a).group()) * 10 for a in (shared, own))
        if any(first < n <= last for n in tested) or features and t[-1].isalpha():
            shared = own
        found.setdefault(shared, []).append(t)
    return list(found.items())


def options(form, target, root, lines):
    opts = ["--gpu-architecture=" + target, "--std=c++17", "-I" + root + "cuda_runtime/include"]
    opts += {"f16": ["-DELEM_F16"], "f32": ["-DELEM_F32"]}.get(form[1], [])
    return opts + (["--generate-line-info"] if lines else [])


def load(folder, name):
    root = os.environ["TRAINER_CUDA"] + "/nvidia/"
    found = sorted(glob.glob(root + folder + "/lib/" + name), key=len, reverse=True)
    if not found:
        sys.exit(f"{root}{folder}/lib/{name}: not there; run: eval \"$(scripts/cuda.sh)\"")
    return [ctypes.CDLL(p, mode=ctypes.RTLD_GLOBAL) for p in found][-1]


def nvrtc(form, architecture, lines):
    """The form's PTX for a virtual architecture."""
    src = form[0]
    load("cuda_nvrtc", "libnvrtc-builtins.so.*")  # NVRTC finds it already loaded
    lib, prog, n = load("cuda_nvrtc", "libnvrtc.so.*"), ctypes.c_void_p(), ctypes.c_size_t()
    lib.nvrtcGetErrorString.restype = ctypes.c_char_p
    opts = options(form, architecture, os.environ["TRAINER_CUDA"] + "/nvidia/", lines) + ["-I" + os.path.dirname(src)]
    lib.nvrtcCreateProgram(ctypes.byref(prog), open(src, "rb").read(), src.encode(), 0, None, None)
    rc = lib.nvrtcCompileProgram(prog, len(opts), (ctypes.c_char_p * len(opts))(*[o.encode() for o in opts]))

    def get(what):
        getattr(lib, f"nvrtcGet{what}Size")(prog, ctypes.byref(n))
        buf = ctypes.create_string_buffer(n.value)
        getattr(lib, f"nvrtcGet{what}")(prog, buf)
        return buf.raw

    log = get("ProgramLog").decode().strip("\0\n")
    if rc:
        raise SystemExit(f"{title(form)} for {architecture}: {lib.nvrtcGetErrorString(rc).decode()}\n{log}")
    return get("PTX")


def ptxas(form, target, ptx, lines):
    """The cubin of PTX, and what ptxas says of its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder + "/in.ptx", ptx.rstrip(b"\0"))
        run = [os.environ["TRAINER_CUDA"] + "/nvidia/cuda_nvcc/bin/ptxas", "-v", "-arch", target, folder + "/in.ptx", "-o", folder + "/out.cubin"]
        try:
            done = subprocess.run(run + (["-lineinfo"] if lines else []), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except OSError as e:
            raise SystemExit(f'{e}; run: eval "$(scripts/cuda.sh)"')
        if done.returncode:
            raise SystemExit(f"{title(form)} for {target}: ptxas: exit status {done.returncode}\n{done.stdout}")
        return open(folder + "/out.cubin", "rb").read(), done.stdout


def compile_one(job):
    """What one pass gives: (target, cubin or PTX, log) of each of its targets."""
    form, architecture, targets, lines = job
    ptx = nvrtc(form, architecture, lines)
    found = []
    for target in targets:
        own = re.sub(rb"(?m)^\.target \w+", b".target " + target.replace("compute_", "sm_").encode(), ptx, count=1)
        found.append((target, *(ptxas(form, target, own, lines) if target.startswith("sm_") else (own, ""))))
    return form, found


def resources(log):
    """ptxas's report, one entry a kernel."""
    found = {}
    for name, body in re.findall(r"Compiling entry function '(\w+)'(.*?)Compile time", log, re.S):
        store, ld = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", body).groups()
        regs = re.search(r"Used (\d+) registers", body)
        smem = re.search(r"(\d+) bytes smem", body)
        found[name] = {"registers": int(regs.group(1)) if regs else 0, "shared": int(smem.group(1)) if smem else 0,
                       "spill": int(store) + int(ld)}
    return found


def over_budget(report, budget):
    """Lines for kernels that spill more, or take more registers, than the budget lists ("*" is every other kernel)."""
    bad = []
    for target, kernels in report.items():
        for name, used in kernels.items():
            allowed = dict(budget.get("*", {"spill": 0, "registers": 255}))
            allowed.update(budget.get(name, {}))
            allowed.update(budget.get(name + " " + target, {}))
            for what in ("spill", "registers"):
                if used[what] > allowed[what]:
                    bad.append(f"{name} on {target}: {used[what]} {what}, budget {allowed[what]}")
    return bad


def pack(out, parts):
    lib, h, n = load("nvfatbin", "libnvfatbin.so.*"), ctypes.c_void_p(), ctypes.c_size_t()

    def ok(rc):
        if rc:
            raise SystemExit(f"{out}: nvFatbin error {rc}")

    opts = (ctypes.c_char_p * 1)(b"-compress-all")
    ok(lib.nvFatbinCreate(ctypes.byref(h), opts, 1))
    for target, data in parts:
        arch = target.split("_")[1].encode()
        if target.startswith("sm_"):
            ok(lib.nvFatbinAddCubin(h, data, ctypes.c_size_t(len(data)), arch, None))
        else:
            ok(lib.nvFatbinAddPTX(h, data, ctypes.c_size_t(len(data)), arch, None, b""))
    ok(lib.nvFatbinSize(h, ctypes.byref(n)))
    buf = ctypes.create_string_buffer(n.value)
    ok(lib.nvFatbinGet(h, buf))
    write(out, buf.raw)


def cached(form, found):
    """Takes a form from the cache. An entry that is damaged counts as none."""
    path = f"{CACHE}/{found}"
    try:
        report, fatbin = open(path + ".json", "rb").read(), open(path + ".fatbin", "rb").read()
        read = json.loads(report)
        if read["key"] != found or read["sha256"] != hashlib.sha256(fatbin).hexdigest():
            return False
    except (OSError, ValueError, KeyError, TypeError):
        return False
    for suffix in (".json", ".fatbin"):
        os.utime(path + suffix)
    write(outputs(form)[0], fatbin)
    write(outputs(form)[1], report)
    return True


def keep(form, found):
    """Puts a form into the cache, and takes out what was not asked for in a while. A full disk is no error."""
    try:
        os.makedirs(CACHE, exist_ok=True)
        for old in glob.glob(CACHE + "/*"):
            if time.time() - os.path.getmtime(old) > UNUSED:
                os.remove(old)
        for name in outputs(form):
            write(f"{CACHE}/{found}{os.path.splitext(name)[1]}", open(name, "rb").read())
    except OSError as e:
        print(f"{CACHE}: not kept: {e}")


def write(path, data):
    own = f"{path}.{os.getpid()}"  # two builds may run at once
    with open(own, "wb") as f:
        f.write(data)
    os.replace(own, path)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("-v", action="store_true")
    ap.add_argument("-g", action="store_true")
    ap.add_argument("--stale", action="store_true")
    ap.add_argument("--targets", default=",".join(TARGETS))
    ap.add_argument("--folder", default="kernel/cuda")
    a = ap.parse_args()
    if not os.path.isabs(a.folder):
        os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/..")  # relative names: the binary does not hold the build folder
    targets = a.targets.split(",")
    todo = stale(a.folder, targets, a.g)
    if a.stale:
        print("\n".join(title(f) for f in todo))
        return
    os.environ.setdefault("TRAINER_CUDA", os.path.dirname(os.path.abspath(__file__)) + "/../.cache/cuda-12.9")
    os.makedirs(a.folder + "/build", exist_ok=True)
    keys = {f: key(f, targets, a.g) for f in todo}  # before compiling: an edit meanwhile leaves the file stale
    wanted = {os.path.basename(outputs(f)[0]) for f in forms(a.folder)}
    for out in glob.glob(a.folder + "/build/*.fatbin"):  # of a source that is gone: go:embed would take it along
        if os.path.basename(out) not in wanted:
            os.remove(out)
    if CACHE != "off":
        taken = [f for f in todo if cached(f, keys[f])]
        todo = [f for f in todo if f not in taken]
        if taken:
            print(f"{len(taken)} fatbins as compiled before, from {CACHE}; {len(todo)} to compile", flush=True)
    parts, reports = {}, {}
    with ProcessPoolExecutor(max_workers=JOBS) as pool:
        jobs = [(f, architecture, served, a.g) for f in todo for architecture, served in passes(f[0], targets)]
        for form, found in pool.map(compile_one, jobs):
            for target, data, log in found:
                parts.setdefault(form, {})[target] = data
                for line in log.splitlines():  # what ptxas says about instructions it had to serialise or ignore
                    if "wgmma" in line or "setmaxnreg" in line:
                        print(f"{title(form)} {target}: {line}")
                if target.startswith("sm_"):
                    reports.setdefault(form, {})[target] = resources(log)
            if len(parts[form]) == len(targets):
                fatbin, report = outputs(form)
                data = parts.pop(form)
                pack(fatbin, [(t, data[t]) for t in targets])
                text = {"key": keys[form], "sha256": hashlib.sha256(open(fatbin, "rb").read()).hexdigest(),
                        "compiler": COMPILER, "kernels": reports.get(form, {})}
                write(report, json.dumps(text, indent=1, sort_keys=True).encode())
                if CACHE != "off":
                    keep(form, keys[form])
                print(f"{fatbin} {os.path.getsize(fatbin)} bytes", flush=True)
    budget, bad = {}, []
    if os.path.exists(a.folder + "/budget.json"):
        budget = json.load(open(a.folder + "/budget.json"))
    for form in forms(a.folder):
        try:
            report = json.load(open(outputs(form)[1]))["kernels"]
        except OSError:
            continue
        bad += [title(form) + ": " + b for b in over_budget(report, budget)]
        if a.v:
            for target in sorted(report):
                for name, u in sorted(report[target].items()):
                    print(f"{target:8} {form[1] or '':4} {name:36} {u['registers']:4} registers {u['shared']:6} shared {u['spill']:5} spilled")
    if bad:
        sys.exit("over budget:\n" + "\n".join(bad))


if __name__ == "__main__":
    main()
