"""The OpenBLAS side of gemm.sh and its table: Y = X Wt (transB=true) and dX = dY W for W [N,K] and M rows."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 3
THREADS = [int(v) for v in sys.argv[2].split(",")] if len(sys.argv) > 2 else [1, 2]
SECONDS = 0.1  # of each side in each round
SHAPES = [(576, 576), (1536, 576), (2048, 2048), (4096, 4096)]


def serve():
    """Child: reads "m n k transB", writes the best GFLOP/s of numpy's matmul."""
    import numpy as np
    rng = np.random.default_rng(1)
    for line in sys.stdin:
        m, n, k, trans = line.split()
        m, n, k = int(m), int(n), int(k)
        x = rng.standard_normal((m, k), dtype=np.float32)
        w = rng.standard_normal((n, k) if trans == "true" else (k, n), dtype=np.float32)
        w = w.T if trans == "true" else w
        y = np.empty((m, n), np.float32)
        best, end = 1e9, time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            start = time.perf_counter()
            np.dot(x, w, out=y)
            best = min(best, time.perf_counter() - start)
        print(2 * m * n * k / best / 1e9, flush=True)


def blas(child, m, n, k, trans):
    child.stdin.write(f"{m} {n} {k} {trans}\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def ours(binary, bench, name):
    run = [binary, "-test.run=^$", f"-test.bench=^Benchmark{bench}$/" + "/".join(f"^{p}$" for p in name.split("/")),
           f"-test.benchtime={SECONDS}s"]
    text = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"([\d.]+) GFLOP/s", text).group(1))


def main():
    import numpy as np
    config = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    if "openblas" not in config["name"]:
        sys.exit(f"gemm: this numpy uses {config['name']}, not OpenBLAS")
    print("numpy", np.__version__, "with", config.get("openblas configuration", config["name"]))
    with tempfile.TemporaryDirectory() as tmp:
        binary = str(pathlib.Path(tmp) / "gemm.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "./kernel/gemm"], check=True)
        for threads in THREADS:
            child = subprocess.Popen([sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": str(threads)})
            print("\n| threads | M | N | K | transB | OpenBLAS | ours | ratio | ours, NF4 |\n|---|---|---|---|---|---|---|---|---|")
            for rows, cols in SHAPES:
                for m in (1, 16, 128, 512):
                    for trans in ("true", "false"):
                        n, k = (rows, cols) if trans == "true" else (cols, rows)
                        name = f"threads={threads}/M={m}/N={n}/K={k}/transB={trans}(-[0-9]+)?"
                        best = [0.0, 0.0, 0.0]
                        for _ in range(ROUNDS):
                            for i, v in enumerate((blas(child, m, n, k, trans), ours(binary, "Gemm", name), ours(binary, "Packed", name))):
                                best[i] = max(best[i], v)
                        print(f"| {threads} | {m} | {n} | {k} | {trans} | {best[0]:.1f} | {best[1]:.1f} | {best[1] / best[0]:.2f} | {best[2]:.1f} |", flush=True)
            child.stdin.close()
            child.wait()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
