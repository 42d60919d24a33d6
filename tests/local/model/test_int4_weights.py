"""Weights in 4 bits: rounding, the layout of bytes, and use in modules."""

from __future__ import annotations

import pytest
import torch
from specclient_local.model.int4_weights import GROUP, QUARTER, Int4Weight
from torch import nn
from torch.nn import functional as F


def matrix(out=6, width=3 * 2 * GROUP, seed=1):
    return torch.randn(out, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("width", [1, 127, 128, 200, 256, 300, 1200])
def test_each_weight_is_within_half_a_step_or_was_cut_off(width):
    weight = matrix(width=width)
    held = Int4Weight.rounded(weight)
    widened = held.dequantize()
    assert widened.shape == held.shape == weight.shape
    step = held.scale.t().abs().repeat_interleave(GROUP, 1)[:, :width]
    error = (widened - weight).abs()
    cut_off = weight.abs() > 7.49 * step
    assert (error <= step * 0.5001)[~cut_off].all()
    assert (error[cut_off] <= 0.35 * weight.abs()[cut_off]).all(), "7/8 of 0.75 of the largest is left"


def test_the_scales_have_a_smaller_error_than_those_without_cutting_off():
    weight = matrix(64)
    groups = weight.view(64, -1, GROUP)
    plain = groups.abs().amax(-1, keepdim=True) / 7
    rounded = (groups / plain).round().clamp(-8, 7) * plain
    error = (Int4Weight.rounded(weight).dequantize() - weight).norm()
    assert error < 0.95 * (rounded.view_as(weight) - weight).norm()


def test_the_numbers_that_fit_are_kept_exactly():
    numbers = torch.arange(2 * 2 * GROUP).view(2, -1) * 5 % 16 - 8
    weight = numbers * 0.25
    assert torch.equal(Int4Weight.rounded(weight).dequantize(), weight)


def test_an_integer_holds_four_weights_a_quarter_of_two_groups_apart():
    weight = torch.zeros(1, 2 * GROUP)
    weight[0, 3], weight[0, QUARTER + 3] = -8.0, 7.0
    weight[0, 2 * QUARTER + 3], weight[0, 3 * QUARTER + 3] = 1.0, -8.0
    held = Int4Weight.rounded(weight)
    assert held.qdata.shape == (1, QUARTER)
    assert held.qdata[0, 3].item() & 0xFFFF == 0 | 15 << 4 | 9 << 8 | 0 << 12
    assert held.qdata[0, 0].item() & 0xFFFF == 0x8888
    assert held.scale.shape == (2, 1)


def test_zeros_and_both_signs_of_the_largest_weight_are_kept():
    weight = torch.zeros(3, GROUP)
    weight[1, 5], weight[2, 5] = 3.0, -3.0
    assert torch.equal(Int4Weight.rounded(weight).dequantize(), weight)


@torch.inference_mode()
def test_rows_are_rounded_alike_in_any_number():
    weight = matrix(5000, 2 * GROUP)
    whole, part = Int4Weight.rounded(weight), Int4Weight.rounded(weight[4090:4100])
    assert torch.equal(whole.dequantize()[4090:4100], part.dequantize())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_module_multiplies_by_the_rounded_weight(dtype):
    weight, x = matrix().to(dtype), matrix(3, seed=2).to(dtype)
    layer = nn.Linear(weight.shape[1], len(weight), device="meta", dtype=dtype)
    layer.weight = nn.Parameter(Int4Weight.rounded(weight), requires_grad=False)
    layer.bias = nn.Parameter(torch.arange(len(weight)).to(dtype), requires_grad=False)
    expected = F.linear(x, layer.weight.detach().dequantize(), layer.bias)
    assert torch.equal(layer(x), expected)
    assert not torch.equal(expected, F.linear(x, weight, layer.bias))


def test_other_operations_are_refused_with_the_way_out():
    with pytest.raises(NotImplementedError, match=r"4 bits; use dequantize\(\) first"):
        Int4Weight.rounded(matrix()) + 1
