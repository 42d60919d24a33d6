"""Triton kernels of products with weights in four bits; ``triton_ops`` launches them.

Which operand of a tensor core's product the weight is decides whether it goes through shared memory after it
was widened. For 16 rows it is faster as the right operand, and for 64 as the left one, with the sums
transposed.
"""

from __future__ import annotations

import triton
from triton import language as tl

#: Widens 4 bytes to 8 numbers in bfloat16, those of the low halves first. ``0x4300 | n`` are the bits of
#: 128 + n in bfloat16; 136 is subtracted from them, since the number 8 stands for zero. The compiler's own
#: conversion takes about twice as long.
_WIDEN = tl.constexpr("""
{
.reg .b32 a, b, one, minus;
mov.b32 one, 0x3F803F80;
mov.b32 minus, 0xC308C308;
prmt.b32 a, $4, 0, 0x4140;
prmt.b32 b, $4, 0, 0x4342;
lop3.b32 $0, a, 0x000F000F, 0x43004300, 0xEA;
lop3.b32 $1, b, 0x000F000F, 0x43004300, 0xEA;
shr.u32 a, a, 4;
shr.u32 b, b, 4;
lop3.b32 $2, a, 0x000F000F, 0x43004300, 0xEA;
lop3.b32 $3, b, 0x000F000F, 0x43004300, 0xEA;
fma.rn.bf16x2 $0, $0, one, minus;
fma.rn.bf16x2 $1, $1, one, minus;
fma.rn.bf16x2 $2, $2, one, minus;
fma.rn.bf16x2 $3, $3, one, minus;
}
""")


@triton.jit
def int4_product_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    scale: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    width: tl.tensor,
    pairs: tl.tensor,
    part: tl.tensor,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
    WEIGHT_LEFT: tl.constexpr,
) -> None:
    """Multiply a tile of bfloat16 rows by a part of an int4 weight, and write that part's sums.

    A step reads the bytes of two groups of weights; see ``int4_weights``.
    """
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    index = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    steps = tl.arange(0, GROUP)
    in_rows = index < rows
    in_columns = columns < outputs
    at = (split * rows + index).to(tl.int64) * outputs
    if WEIGHT_LEFT:
        left = x + index[None, :].to(tl.int64) * width + steps[:, None]
        total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    else:
        left = x + index[:, None].to(tl.int64) * width + steps[None, :]
        total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    right = weight + columns[:, None].to(tl.int64) * (pairs * GROUP) + steps[None, :]
    begin = split * part
    for pair in range(begin, tl.minimum(begin + part, pairs)):
        first = pair * 2 * GROUP
        numbers = tl.load(right + pair * GROUP, mask=in_columns[:, None], other=0)
        low, high = tl.inline_asm_elementwise(
            _WIDEN, "=r,=r,=r,=r,r", [numbers], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4
        )
        scales = scale + 2 * pair * outputs + columns
        low_scale = tl.load(scales, mask=in_columns, other=0.0).to(tl.float32)
        high_scale = tl.load(scales + outputs, mask=in_columns, other=0.0).to(tl.float32)
        if WEIGHT_LEFT:
            in_low = (steps < width - first)[:, None] & in_rows[None, :]
            in_high = (steps < width - first - GROUP)[:, None] & in_rows[None, :]
            total += tl.dot(low, tl.load(left + first, mask=in_low, other=0.0)) * low_scale[:, None]
            rest = tl.load(left + first + GROUP, mask=in_high, other=0.0)
            total += tl.dot(high, rest) * high_scale[:, None]
        else:
            in_low = (steps < width - first)[None, :] & in_rows[:, None]
            in_high = (steps < width - first - GROUP)[None, :] & in_rows[:, None]
            near = tl.load(left + first, mask=in_low, other=0.0)
            total += tl.dot(near, tl.trans(low)) * low_scale[None, :]
            rest = tl.load(left + first + GROUP, mask=in_high, other=0.0)
            total += tl.dot(rest, tl.trans(high)) * high_scale[None, :]
    if WEIGHT_LEFT:
        place, inside = at[None, :] + columns[:, None], in_rows[None, :] & in_columns[:, None]
    else:
        place, inside = at[:, None] + columns[None, :], in_rows[:, None] & in_columns[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)
