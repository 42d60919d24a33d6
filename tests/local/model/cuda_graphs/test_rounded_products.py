"""Products with weights in eight and four bits: how they are divided, and their results on a CUDA device."""

from __future__ import annotations

import pytest
import torch
from specclient_local.model.cuda_graphs.rounded_products import TILINGS, RoundedProducts
from specclient_local.model.int4_weights import Int4Weight
from torch.nn import functional as F

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("tiling", [own for both in TILINGS.values() for own in both])
def test_a_product_is_split_only_as_far_as_its_tiles_leave_the_device_idle(tiling):
    assert tiling.splits(tiling.rows, 10**6, 100) == 1
    narrow = tiling.splits(tiling.rows, 4 * tiling.outputs, 10**6)
    assert narrow == tiling.programs // 4
    assert tiling.splits(tiling.rows, 4 * tiling.outputs, 3) == 3, "at most a part for each step"
    assert tiling.splits(4 * tiling.rows, 4 * tiling.outputs, 10**6) == narrow // 4


@needs_cuda
@pytest.mark.parametrize("rows", [1, 16, 40, 64, 200])
@pytest.mark.parametrize(("outputs", "width"), [(4096, 4096), (200, 1000), (20000, 512)])
@torch.inference_mode()
def test_products_equal_those_of_the_widened_weight_at_any_order_of_the_parts(outputs, width, rows):
    products = RoundedProducts()
    x = torch.randn(rows, width, device="cuda").bfloat16()
    weight = torch.randn(outputs, width, device="cuda").bfloat16()
    int4 = Int4Weight.rounded(weight)
    values = torch.randint(-128, 128, (outputs, width), device="cuda", dtype=torch.int8)
    scale = torch.rand(outputs, device="cuda").bfloat16()
    cases = [
        (lambda: products.int4(x, int4), F.linear(x.double(), int4.dequantize().double())),
        (lambda: products.int8(x, values, scale), F.linear(x.double(), values.double()) * scale.double()),
    ]
    for run, exact in cases:
        first = run()
        assert (first.double() - exact).norm() / exact.norm() < 4e-3
        assert all(run().equal(first) for _ in range(20)), "the parts are added in one order"
    assert not products._counters(x.device).any()


@needs_cuda
@torch.inference_mode()
def test_a_rows_product_does_not_depend_on_the_other_rows():
    products = RoundedProducts()
    x = torch.randn(16, 4096, device="cuda").bfloat16()
    weight = Int4Weight.rounded(torch.randn(4096, 4096, device="cuda").bfloat16())
    whole = products.int4(x, weight)
    for rows in (1, 5):
        assert products.int4(x[:rows].contiguous(), weight).equal(whole[:rows])
