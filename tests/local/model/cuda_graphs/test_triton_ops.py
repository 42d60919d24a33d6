"""The choice of kernels by device; the kernels themselves where a CUDA device is available."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import shutil

import pytest
import torch
from specclient_local.model.config import read_config
from specclient_local.model.cuda_graphs.device_ops import PassTables, TorchOps
from specclient_local.model.cuda_graphs.device_verify import SamplingTensors
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.triton_ops import TritonOps, select_ops

CUDA = torch.device("cuda:0")


def test_kernels_run_on_cuda_devices_only(checkpoint):
    config = read_config(checkpoint())
    for device, kernels in (("cpu", True), ("mps", True), ("cuda:0", False)):
        assert isinstance(select_ops(config, torch.device(device), kernels=kernels), TorchOps)
    odd = dataclasses.replace(config, head_dim=7)
    assert isinstance(select_ops(odd, CUDA, kernels=True), TorchOps)


@pytest.mark.parametrize("missing", ["compiler", "triton"])
def test_a_missing_compiler_or_triton_is_a_warning(checkpoint, monkeypatch, caplog, missing):
    monkeypatch.setattr(shutil, "which", lambda name: None if missing == "compiler" else f"/usr/bin/{name}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if missing == "triton" else object())
    with caplog.at_level(logging.WARNING, "specclient"):
        assert isinstance(select_ops(read_config(checkpoint()), CUDA, kernels=True), TorchOps)
    assert "they need the package triton and a C compiler" in caplog.text


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
HEADS, SHARED, DIM, CAPACITY = 8, 2, 64, 1024


def tables(slots, starts, rows, window=None):
    own = torch.tensor(starts, device=CUDA)
    layout = DensePassLayout.chain(
        torch.tensor(slots, device=CUDA), own, rows, CAPACITY, context=CAPACITY - 32, first=False
    )
    angles = torch.rand(len(slots), rows, 1, DIM // 2, device=CUDA)
    masks = []
    for width in (None, window):
        seen = layout.seen(width)
        mask = torch.zeros(seen.shape, device=CUDA).masked_fill_(~seen, -torch.inf)
        masks.append(mask[:, None].expand(-1, HEADS // SHARED, -1, -1).flatten(1, 2)[:, None])
    places = layout.places.clamp(0, CAPACITY - 1)
    return PassTables(layout, places, angles.cos(), angles.sin(), *masks, window)


@needs_cuda
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("slots", [[3], [5, 0, 2], list(range(20))])
@torch.inference_mode()
def test_attention_equals_pytorchs(slots, window):
    kernels, plain = TritonOps(), TorchOps()
    for rows in (1, 5, 16):
        starts = [(37 * i + 3) % 900 for i, _ in enumerate(slots)]
        own = tables(slots, starts, rows, window)
        qkv = torch.randn(len(slots) * rows, (HEADS + 2 * SHARED) * DIM, device=CUDA)
        norm = torch.rand(HEADS + SHARED, DIM, device=CUDA)
        results = []
        for ops in (kernels, plain):
            torch.manual_seed(0)
            kv = torch.randn(20, 2 * SHARED, CAPACITY, DIM, device=CUDA)
            queries = ops.rotate_and_store(qkv, kv, norm, own, 1e-5)
            results.append((queries, kv, ops.attend(queries, kv, own, sliding=window is not None)))
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@needs_cuda
@torch.inference_mode()
def test_a_rows_attention_does_not_depend_on_the_number_of_rows():
    ops = TritonOps()
    kv = torch.randn(1, 2 * SHARED, CAPACITY, DIM, device=CUDA).bfloat16()
    queries = torch.randn(1, 16, HEADS, DIM, device=CUDA).bfloat16()
    whole = ops.attend(queries, kv, tables([0], [500], 16), sliding=False)
    for rows in (1, 2, 5, 9):
        part = ops.attend(queries[:, :rows].contiguous(), kv, tables([0], [500], rows), sliding=False)
        assert part.equal(whole[:rows])


@needs_cuda
@pytest.mark.parametrize("vocab", [300, 5000, 32000])
@torch.inference_mode()
def test_sampling_kernels_equal_pytorchs(vocab):
    kernels, plain = TritonOps(), TorchOps()
    logits = (torch.randn(4, 3, vocab, device=CUDA) * 3).bfloat16()
    logits[0, 0, 2] = logits[0, 0, 250] = 99.0  # a tie
    logits[1, 0, 5] = torch.nan
    logits[1, 1, 5] = torch.inf
    for found, expected in zip(kernels.largest(logits), plain.largest(logits), strict=True):
        keep = (
            ~expected.isnan() if expected.is_floating_point() else torch.ones_like(expected, dtype=torch.bool)
        )
        keep[1, 0] = False
        assert found[keep].float().equal(expected[keep].float())
    assert kernels.largest(logits)[1][1, 0].isnan()
    shaping = SamplingTensors(
        torch.tensor([0.0, 1.0, 0.5, 1.5], device=CUDA, dtype=torch.double),
        torch.ones(4, device=CUDA, dtype=torch.double),
        torch.zeros(4, device=CUDA, dtype=torch.long),
        cuts=False,
    )
    (p, largest), (q, _) = kernels.probabilities(logits, shaping), plain.probabilities(logits, shaping)
    assert largest[1, 1].isinf()
    torch.testing.assert_close(p[[0, 2, 3]], q[[0, 2, 3]], rtol=3e-6, atol=1e-12)
    numbers = torch.rand(3, 200, device=CUDA, dtype=torch.double)
    for i in range(200):
        own = p[[0, 2, 3], 1]
        drawn, expected = kernels.draw(own, numbers[:, i]), plain.draw(own, numbers[:, i])
        assert drawn.equal(expected)


def _hard_logits(vocab, dtype):
    """Return logits ``[8, 3, vocab]``: random, tied, nearly tied, all equal, and mostly -inf."""
    x = torch.randn(8, 3, vocab, device=CUDA) * 3
    x[:, 1] = x[:, 1].round()
    x[5:, 2] = 0.0
    x[4, 2] *= 1e-6
    x[4, 2, ::2] = -0.0
    x[3, 2] = -torch.inf
    x[3, 2, vocab // 2] = 1.0
    return x.to(dtype)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocab", [300, 5000, 128256])
@torch.inference_mode()
def test_cuts_without_a_sort_equal_sorted_ones(vocab, dtype):
    logits = _hard_logits(vocab, dtype)

    def parameters(*values, kind=torch.double):
        return torch.tensor(values, device=CUDA, dtype=kind)

    shaping = SamplingTensors(
        parameters(0.0, 1.0, 0.7, 1.3, 1.0, 0.01, 2.0, 1.0),
        parameters(0.5, 0.8, 1.0, 0.9, 0.999, 0.9, 0.99999, 0.01),
        parameters(3, 0, 5, 1000, 0, 0, 1 << 62, 7, kind=torch.long),
        cuts=True,
    )
    (p, best), (q, expected) = (ops.probabilities(logits, shaping) for ops in (TritonOps(), TorchOps()))
    assert best.equal(expected.float())
    torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-9)
    # Exponentials of two libraries differ in their last bits, which may move a bound by one token.
    assert ((p > 0) != (q > 0)).sum(-1).max() <= 1
    assert ((p > 0) == (q > 0)).all(-1).float().mean() > 0.9


@needs_cuda
@torch.inference_mode()
def test_layer_operations_equal_pytorchs():
    kernels, plain = TritonOps(), TorchOps()
    x, delta = torch.randn(2, 17, 320, device=CUDA).bfloat16()
    weight = torch.rand(320, device=CUDA).bfloat16()
    for more in (None, delta):
        found, expected = (ops.add_norm(x.clone(), more, weight, 1e-5) for ops in (kernels, plain))
        for own, other in zip(found, expected, strict=True):
            torch.testing.assert_close(own, other, atol=0.02, rtol=0.02)
    torch.testing.assert_close(kernels.gate(x), plain.gate(x), atol=0.02, rtol=0.02)
