"""Times of the int4 product by its settings, relative to bfloat16."""
import itertools, json, os, sys, time
import torch
from torch.nn import functional as F
from specclient_local.model.cuda_graphs import triton_ops as T
from specclient_local.model.int4_weights import Int4Weight
ops = T.TritonOps()
def seconds(run, reps=30):
    for _ in range(3): run()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(reps): run()
    g.replay(); torch.cuda.synchronize()
    best = 1e9
    for _ in range(3):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); g.replay(); b.record(); torch.cuda.synchronize()
        best = min(best, a.elapsed_time(b) / reps * 1e-3)
    return best
begun = time.time()
shapes = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
for out, width in shapes:
    copies = max(2, int(3e8 // (out * width * 0.5)))
    weights = [torch.randn(out, width, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    held = [Int4Weight.rounded(weights[i % 2]) for i in range(min(copies, 12))]
    wide = [w.clone() for w in weights] if out * width > 1e8 else [weights[i % 2].clone() for i in range(min(copies, 8))]
    for rows in (1, 16, 64, 256):
        x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
        turn = itertools.count()
        base = seconds(lambda: F.linear(x, wide[next(turn) % len(wide)]))
        exact = x.double() @ held[0].dequantize().double().t()
        found = []
        grid = itertools.product((16, 32, 64, 128), (4, 8), (2, 3, 4, 6), (128, 256, 512, 1024), (64, 128) if rows == 256 else (64,))
        for n, warps, stages, programs, tile in grid:
            if rows == 256 and (programs > 256 or n < 32): continue
            if n == 16 and warps == 8: continue
            T._INT4_OUTPUTS, T._INT4_WARPS, T._INT4_STAGES, T._INT4_PROGRAMS, T._INT4_ROWS = n, warps, stages, programs, tile
            try:
                y = ops.product(x, held[0], None)
                error = ((y.double() - exact).norm() / exact.norm()).item()
                each = seconds(lambda: ops.product(x, held[next(turn) % len(held)], None))
                found.append((each / base, error, (n, warps, stages, programs, tile)))
            except Exception as e:
                found.append((99.0, 9.0, (n, warps, stages, programs, tile, type(e).__name__ + str(e)[:60])))
            if time.time() - begun > float(os.environ.get("LIMIT", "240")): break
        found.sort()
        print(out, width, rows, f"bf16 {base*1e6:.1f} us", [(f"{r:.2f}", f"{e:.4f}", c) for r, e, c in found[:4]], "worst", f"{found[-1][0]:.2f}", found[-1][2], f"{time.time()-begun:.0f}s", flush=True)
