"""Checks of a CUDA device below the engine's rounds: environment, masks, operations, attention, products.

Each takes whether to run with a small shape on the CPU, and returns figures by name.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import shutil
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from specclient_local.model.config import DecoderConfig
from specclient_local.model.cuda_graphs.device_ops import DeviceOps, PassTables, TorchOps
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.triton_ops import select_ops
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.quantization import quantize_weight
from synthetic import LLAMA_8B, TINY, random_weights
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Figures = dict[str, Any]

_PACKAGES = ("torchao", "triton", "flashinfer", "flash_attn", "llguidance", "transformers", "vllm")


def device_of(tiny: bool) -> str:
    """Return the device that checks run on."""
    return "cpu" if tiny else "cuda"


def wait(device: str) -> None:
    """Wait until the device is idle."""
    if device != "cpu":
        torch.cuda.synchronize()


def seconds(run: Callable[[], object], device: str, count: int = 30) -> float:
    """Return the mean seconds of queued runs; on CUDA of a recorded graph of them, without launch gaps."""
    run()
    wait(device)
    if device == "cpu":
        begun = time.perf_counter()
        run()
        return time.perf_counter() - begun
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / count


def environment(tiny: bool) -> Figures:
    """Return versions, compilers and memory."""
    found: Figures = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "compiler": next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None),
        "Python.h": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
        "operations": type(select_ops(LLAMA_8B, torch.device(device_of(tiny)), kernels=True)).__name__,
    }
    if not tiny:
        found["device"] = torch.cuda.get_device_name()
        found["free_gib"] = round(torch.cuda.mem_get_info()[0] / 2**30, 1)
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


@torch.inference_mode()
def alignment(tiny: bool) -> Figures:
    """Decode without recordings at neighbouring positions, where views of the mask are unaligned."""
    device, found = device_of(tiny), Figures()
    config = TINY if tiny else dataclasses.replace(LLAMA_8B, layers=2, sliding=(False,) * 2)
    for dtype in (torch.bfloat16, torch.float32):
        decoder = TransformerDecoder(config, random_weights(config, dtype, device), 512)
        runner = DecoderRunner(decoder, 2, 512)
        runner.prefill(0, [1] * 20)
        for _ in range(16):
            runner.score(0, [1])
            wait(device)
        runner.prefill(0, [1] * 40)
        wait(device)
        found[str(dtype)] = "ok"
    return found


def _layout(
    config: DecoderConfig, slots: int, rows: int, *, at: int, capacity: int, device: str
) -> PassTables:
    """Return the tables of a chain of rows from position ``at`` on in every slot."""
    starts = torch.full((slots,), at, device=device)
    chain = DensePassLayout.chain(
        torch.arange(slots, device=device), starts, rows, capacity, context=capacity, first=True
    )
    angles = torch.rand(slots, rows, 1, config.head_dim // 2, device=device)
    mask = torch.zeros(slots, rows, capacity, device=device).masked_fill_(~chain.seen(), -torch.inf)
    groups = config.heads // config.kv_heads
    mask = mask[:, None].expand(-1, groups, -1, -1).flatten(1, 2)[:, None]
    return PassTables(chain, chain.places, angles.cos(), angles.sin(), mask, None, None)


def _operate(ops: DeviceOps, inputs: dict[str, Tensor], tables: PassTables) -> dict[str, Tensor]:
    """Return the results of all operations of a layer."""
    kv = inputs["kv"].clone()
    mask = None if tables.mask is None else tables.mask.to(kv.dtype)
    tables = dataclasses.replace(tables, mask=mask)
    x, h = ops.add_norm(inputs["x"].clone(), inputs["delta"], inputs["weight"], 1e-5)
    queries = ops.rotate_and_store(inputs["qkv"], kv, None, tables, 1e-5)
    out = ops.attend(queries, kv, tables, sliding=False)
    return {"sum": x, "norm": h, "queries": queries, "cache": kv, "attention": out, "gate": ops.gate(h)}


@torch.inference_mode()
def operations(tiny: bool) -> Figures:
    """Compare the kernels with PyTorch's operations in float64; return each one's largest relative error."""
    device, found = device_of(tiny), Figures()
    config, capacity = (TINY, 128) if tiny else (LLAMA_8B, 1024)
    ops = select_ops(config, torch.device(device), kernels=True)
    for dtype in (torch.bfloat16, torch.float32):
        for slots, rows, at in ((1, 1, 3), (1, 5, 700), (4, 16, 250), (64, 5, 900)):
            at = min(at, capacity - 2 * rows)  # noqa: PLW2901
            generator = torch.Generator(device).manual_seed(0)

            def draw(*shape: int, own: torch.Generator = generator, kind: torch.dtype = dtype) -> Tensor:
                return torch.randn(shape, generator=own, device=device).to(kind)

            width = (config.heads + 2 * config.kv_heads) * config.head_dim
            inputs = {
                "kv": draw(slots, 2 * config.kv_heads, capacity, config.head_dim),
                "x": draw(slots * rows, config.hidden_size),
                "delta": draw(slots * rows, config.hidden_size),
                "weight": draw(config.hidden_size),
                "qkv": draw(slots * rows, width),
            }
            tables = _layout(config, slots, rows, at=at, capacity=capacity, device=device)
            own = _operate(ops, inputs, tables)
            exact = _operate(TorchOps(), {name: value.double() for name, value in inputs.items()}, tables)
            errors = {name: _error(own[name], exact[name]) for name in own}
            found[f"{str(dtype)[6:]} {slots}x{rows} at {at}"] = errors
    return found


def _error(own: Tensor, exact: Tensor) -> float:
    """Return ‖own − exact‖ / ‖exact‖."""
    return float((own.double() - exact).norm() / exact.norm())


@torch.inference_mode()
def attention(tiny: bool) -> Figures:
    """Time the first call and later calls of attention by backend, at decoding and verification shapes."""
    device, found = device_of(tiny), Figures()
    config = TINY if tiny else LLAMA_8B
    ops = select_ops(config, torch.device(device), kernels=True)
    backends = (SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
    for slots, rows, length in (
        (1, 1, 512),
        (1, 5, 512),
        (1, 5, 4096),
        (1, 1, 32768),
        (64, 1, 1024),
        (64, 5, 1024),
    ):
        size = length // 64 if tiny else length
        tables = _layout(config, slots, rows, at=size - rows, capacity=size, device=device)
        assert tables.mask is not None
        tables = dataclasses.replace(tables, mask=tables.mask.to(torch.bfloat16))
        kv = torch.randn(slots, 2 * config.kv_heads, size, config.head_dim, device=device).bfloat16()
        q = torch.randn(slots, rows, config.heads, config.head_dim, device=device).bfloat16()
        grouped = (
            q.view(slots, rows, config.kv_heads, -1, config.head_dim).permute(0, 2, 3, 1, 4).flatten(2, 3)
        )
        keys, values = kv.chunk(2, dim=1)
        runs: dict[str, Callable[[], Tensor]] = {
            "ours": lambda q=q, kv=kv, t=tables: ops.attend(q, kv, t, sliding=False)  # type: ignore[misc]
        }
        for backend in backends:

            def run(
                b: Any = backend, g: Tensor = grouped, k: Tensor = keys, v: Tensor = values, t: Any = tables
            ) -> Tensor:
                with sdpa_kernel(b):
                    return F.scaled_dot_product_attention(g, k, v, attn_mask=t.mask)

            runs[backend.name] = run
        for name, call in runs.items():
            try:
                begun = time.perf_counter()
                call()
                wait(device)
                first = time.perf_counter() - begun
                each = seconds(call, device)
                figures = {"first_ms": 1e3 * first, "us": 1e6 * each, "gb_per_s": kv.numel() * 2 / each / 1e9}
                found[f"{slots}x{rows} over {length}, {name}"] = figures
            except RuntimeError as error:
                found[f"{slots}x{rows} over {length}, {name}"] = str(error)[:80]
    return found


@torch.inference_mode()
def products(tiny: bool) -> Figures:
    """Time matrix products by number of rows, and compare rows alone with rows in a batch, bit for bit."""
    device, found = device_of(tiny), Figures()
    c = TINY if tiny else LLAMA_8B
    shapes = {
        "qkv": ((c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden_size),
        "o": (c.hidden_size, c.heads * c.head_dim),
        "gate_up": (2 * c.intermediate_size, c.hidden_size),
        "down": (c.hidden_size, c.intermediate_size),
        "head": (c.vocab_size, c.hidden_size),
    }
    for name, (out, width) in shapes.items():
        # Several copies of a small matrix, so that it is not read from the cache.
        copies = [
            torch.randn(out, width, device=device, dtype=torch.bfloat16) / width**0.5
            for _ in range(1 if tiny or name == "head" else 4)
        ]
        size, figures = copies[0].numel() * 2, Figures()
        x = torch.randn(512, width, device=device, dtype=torch.bfloat16)
        for rows in (1, 2, 4, 5, 8, 16, 32, 64, 80, 128, 320, 512):
            turn = iter(range(10**6))
            own = x[:rows]
            each = seconds(lambda: F.linear(own, copies[next(turn) % len(copies)]), device)  # noqa: B023
            figures[f"{rows} rows"] = {"us": 1e6 * each, "gb_per_s": size / each / 1e9}
        alone = torch.cat([F.linear(x[i : i + 1], copies[0]) for i in range(16)])
        whole = F.linear(x[:16], copies[0])
        figures["rows that differ alone and in 16"] = int((alone != whole).any(-1).sum())
        shuffled = F.linear(torch.cat((x[8:16], x[:8])), copies[0])
        figures["rows that differ by their place in 16"] = int((whole[:8] != shuffled[8:]).any(-1).sum())
        for count in (32, 64, 128, 320):
            many = F.linear(x[:count], copies[0])
            figures[f"rows that differ in 16 and in {count}"] = int((many[:16] != whole).any(-1).sum())
        found[name] = figures
    return found


@torch.inference_mode()
def quantised(tiny: bool) -> Figures:
    """Time products with quantised weights relative to bfloat16, and compare them with float64."""
    device, found = device_of(tiny), Figures()
    shapes = ((256, 256),) if tiny else ((28672, 4096), (4096, 14336))
    ops = select_ops(LLAMA_8B, torch.device(device), kernels=True)
    for out, width in shapes:
        weight = torch.randn(out, width, device=device, dtype=torch.bfloat16)
        kinds: Figures = {}
        for kind in ("fp8", "int8", "int4"):
            try:
                kinds[kind] = quantize_weight(weight, kind)
            except Exception as error:  # noqa: BLE001 - whatever the library raises is the result
                found[f"{kind}"] = f"{type(error).__name__}: {error}"[:160]
        for rows in (16, 64, 256):
            x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
            base = seconds(lambda: F.linear(x, weight), device)  # noqa: B023
            found[f"bfloat16, {rows} rows of {out}x{width}, us"] = 1e6 * base
            for kind, held in kinds.items():
                each = seconds(lambda: ops.product(x, held, None), device)  # noqa: B023
                exact = F.linear(x.double(), held.dequantize().double())
                found[f"{kind}, {rows} rows of {out}x{width}"] = {
                    "of bfloat16": each / base,
                    "error": _error(ops.product(x, held, None), exact),
                }
    return found
