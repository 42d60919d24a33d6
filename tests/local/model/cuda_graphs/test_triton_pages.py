"""Kernels that read and write pages, in Triton's interpreter on the CPU: bit for bit those without pages."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

_PROGRAM = """
import torch
from specclient_local.model.cuda_graphs.dense_decoder import page_places
from specclient_local.model.cuda_graphs.device_ops import PassTables, TorchOps
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.triton_ops import TritonOps

HEADS, SHARED, DIM, PAGE, WIDTH, SLOTS = 4, 2, 16, 64, 5, 4
CAPACITY = PAGE * WIDTH
torch.manual_seed(0)
block_table = torch.randperm(SLOTS * WIDTH).view(SLOTS, WIDTH).int()


def paged(kv):
    pages = torch.empty(SLOTS * WIDTH, 2 * SHARED, PAGE, DIM, dtype=kv.dtype)
    pages[block_table.flatten().long()] = (
        kv.view(SLOTS, 2 * SHARED, WIDTH, PAGE, DIM).transpose(1, 2).flatten(0, 1)
    )
    return pages


def in_order(pages):
    return pages[block_table.long()].transpose(1, 2).flatten(2, 3)


def mask_of(layout, window, dtype):
    seen = layout.seen(window)
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)
    return mask[:, None].expand(-1, HEADS // SHARED, -1, -1).flatten(1, 2)[:, None]


def layouts():
    for slots, starts, rows in (([3], [70], 1), ([3, 0, 2], [3, 190, 64], 5)):
        own = torch.tensor(slots), torch.tensor(starts)
        yield DensePassLayout.chain(*own, rows, CAPACITY, context=CAPACITY - 16, first=False)
    yield DensePassLayout.prompt(torch.tensor([2]), torch.tensor([50]), 18, CAPACITY)


for layout in layouts():
    batch, rows = layout.positions.shape
    angles = torch.rand(batch, rows, 1, DIM // 2)
    qkv = torch.randn(batch * rows, (HEADS + 2 * SHARED) * DIM)
    kv = torch.randn(SLOTS, 2 * SHARED, CAPACITY, DIM)
    for window in (None, 40) if layout.words is None else (None,):
        masks = mask_of(layout, None, qkv.dtype), mask_of(layout, window, qkv.dtype)
        places = layout.places.clamp(0, CAPACITY - 1)
        pages, offsets = page_places(block_table, layout.slots, layout.places, PAGE)
        rotations = angles.cos(), angles.sin(), *masks, window
        found = []
        for ops, cache, tables in (
            (TritonOps(), kv.clone(), PassTables(layout, places, *rotations)),
            (TritonOps(), paged(kv), PassTables(layout, offsets, *rotations, pages, block_table)),
            (TorchOps(), kv.clone(), PassTables(layout, places, *rotations)),
            (TorchOps(), paged(kv), PassTables(layout, offsets, *rotations, pages, block_table)),
        ):
            queries = ops.rotate_and_store(qkv, cache, None, tables, 1e-5)
            out = ops.attend(queries, cache, tables, sliding=window is not None)
            found.append((out, cache if tables.block_table is None else in_order(cache)))
        for one, other in ((0, 1), (2, 3)):
            assert torch.equal(found[one][0], found[other][0]), (layout, window)
            assert torch.equal(found[one][1], found[other][1]), (layout, window)
        torch.testing.assert_close(found[0][0], found[2][0], atol=1e-4, rtol=1e-4)
print("equal")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
def test_kernels_over_pages_equal_those_over_neighbouring_positions():
    """The interpreter is chosen when triton is imported, so the kernels run in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip().endswith("equal"), done.stderr[-2000:]
