#!/usr/bin/env python3
"""Times what other trainers call for attention, GEMMs and GEMMs over experts' rows on this GPU: torch's cuDNN and
FlashAttention-2 attention, its matmul and its grouped GEMM, for the tables of docs. Run right before or after the kernels'
own benchmark, on the same card. Arguments name the parts to run: attention, matmul, experts; none: all."""
import statistics
import sys
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def time(f):
    for _ in range(3):
        f()
    times = []
    for _ in range(5):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(10):
            f()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / 10 * 1e3)
    return statistics.median(times)


def attention():
    for B, T, H, K, D in [(4, 2048, 32, 32, 128), (4, 2048, 32, 8, 128), (4, 2048, 32, 4, 64), (8, 2048, 9, 3, 64), (1, 512, 32, 32, 128), (1, 512, 32, 4, 64), (1, 512, 9, 3, 64)]:
        q = torch.randn(B, H, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        k, v = (torch.randn(B, K, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
        do = torch.randn_like(q)
        flop = 4 * B * H * T * T / 2 * D / 1e12
        for name, backend in [("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)]:
            try:
                with sdpa_kernel(backend):
                    fwd = time(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K))
                    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)
                    bwd = time(lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True))
                print(f"attention {name} {B}x{T} H {H} K {K} D {D}: fwd {fwd:.1f} us {flop / fwd * 1e6:.1f} TF, bwd {bwd:.1f} us {2.5 * flop / bwd * 1e6:.1f} TF", flush=True)
            except RuntimeError as e:
                print(f"attention {name} {B}x{T} H {H} K {K} D {D}: {str(e).splitlines()[0]}", flush=True)


def matmul():
    for M, N, K in [(8192, 4096, 4096), (512, 4096, 4096)]:
        a, b = torch.randn(M, K, device="cuda", dtype=torch.bfloat16), torch.randn(N, K, device="cuda", dtype=torch.bfloat16)
        t = time(lambda: a @ b.T)
        print(f"matmul {M}x{N}x{K}: {t:.1f} us {2e-12 * M * N * K / t * 1e6:.1f} TF")


def experts(E=128, C=2048, F=768, S=65536, of=8):
    """Qwen3-30B-A3B's: one GEMM, one for each expert of as many rows in a batch, and torch's grouped GEMM over rows as a router
    sends them, by turns: a card at its power limit runs at a clock that depends on what has just run."""
    chosen = torch.randn(S // of, E, device="cuda").topk(of).indices.flatten()
    ends = torch.bincount(chosen, minlength=E).cumsum(0).to(torch.int32)
    for what, N, K, turned in [("gate, up", F, C, True), ("down", C, F, True), ("gradient of gate, up", C, F, False), ("gradient of down", F, C, False)]:
        x = torch.randn(S, K, device="cuda", dtype=torch.bfloat16)
        w = torch.randn((E, N, K) if turned else (E, K, N), device="cuda", dtype=torch.bfloat16)
        w = w.transpose(1, 2) if turned else w
        y = torch.empty(S, N, device="cuda", dtype=torch.bfloat16)
        forms = {"dense": lambda: torch.mm(x, w[0], out=y), "batched": lambda: torch.bmm(x.view(E, S // E, K), w, out=y.view(E, S // E, N)), "grouped": lambda: torch._grouped_mm(x, w, offs=ends)}
        times = {name: [] for name in forms}
        for _ in range(5):
            for name, f in forms.items():
                times[name].append(time(f))
        print(f"experts {what} {S}x{N}x{K}: " + ", ".join(f"{name} {statistics.median(t):.1f} us" for name, t in times.items()), flush=True)


print(torch.__version__, torch.cuda.get_device_name(), "cuDNN", torch.backends.cudnn.version())
for part in [attention, matmul, experts]:
    if len(sys.argv) == 1 or part.__name__ in sys.argv[1:]:
        part()
