#!/usr/bin/env python3
"""Times what other trainers call for attention and GEMMs on this GPU: torch's cuDNN and FlashAttention-2 attention and its
matmul, for the table of docs/lab. Run right before or after the kernels' own benchmark, on the same card."""
import statistics
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


print(torch.__version__, torch.cuda.get_device_name(), "cuDNN", torch.backends.cudnn.version())
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
for M, N, K in [(8192, 4096, 4096), (512, 4096, 4096)]:
    a, b = torch.randn(M, K, device="cuda", dtype=torch.bfloat16), torch.randn(N, K, device="cuda", dtype=torch.bfloat16)
    t = time(lambda: a @ b.T)
    print(f"matmul {M}x{N}x{K}: {t:.1f} us {2e-12 * M * N * K / t * 1e6:.1f} TF")
