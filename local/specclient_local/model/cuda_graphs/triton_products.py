"""Triton kernels of products with weights in eight and in four bits; ``triton_ops`` launches them.

The weight is read in its own bits and widened in registers by a few instructions for several numbers, since
the compiler's own conversion takes longer than the reading. Which operand of a tensor core's product the
weight is decides whether it goes through shared memory after it was widened: it is faster as the left one,
with the sums transposed, but for eight bits and 16 rows.

A product with few outputs is split over its inputs. The program that finishes last adds up the sums of a tile
in the order of the splits, so that results do not depend on which one that is.
"""

from __future__ import annotations

import triton
from triton import language as tl

#: Widens two integers of 16 bits to 8 numbers in bfloat16, two of each four bits. ``0x4300 | n`` are the bits
#: of 128 + n in bfloat16; 136 is subtracted from them, since the number 8 stands for zero.
_WIDEN_INT4 = tl.constexpr("""
{
.reg .b32 a, b, c, one, minus;
mov.b32 one, 0x3F803F80;
mov.b32 minus, 0xC308C308;
shr.u32 a, $4, 4;
shr.u32 b, $4, 8;
shr.u32 c, $4, 12;
lop3.b32 $0, $4, 0x000F000F, 0x43004300, 0xEA;
lop3.b32 $1, a, 0x000F000F, 0x43004300, 0xEA;
lop3.b32 $2, b, 0x000F000F, 0x43004300, 0xEA;
lop3.b32 $3, c, 0x000F000F, 0x43004300, 0xEA;
fma.rn.bf16x2 $0, $0, one, minus;
fma.rn.bf16x2 $1, $1, one, minus;
fma.rn.bf16x2 $2, $2, one, minus;
fma.rn.bf16x2 $3, $3, one, minus;
}
""")

#: Widens 4 signed bytes to bfloat16. ``0x4300 | n`` are the bits of 128 + n for the lower seven bits n of a
#: byte. Its sign turns the bits of -128, ``0xC300``, into those of -256, ``0xC380``.
_WIDEN_INT8 = tl.constexpr("""
{
.reg .b32 a, b, c, d, one;
mov.b32 one, 0x3F803F80;
prmt.b32 a, $2, 0, 0x4140;
prmt.b32 b, $2, 0, 0x4342;
lop3.b32 c, a, 0x00800080, 0xC300C300, 0xEA;
lop3.b32 d, b, 0x00800080, 0xC300C300, 0xEA;
lop3.b32 a, a, 0x007F007F, 0x43004300, 0xEA;
lop3.b32 b, b, 0x007F007F, 0x43004300, 0xEA;
fma.rn.bf16x2 $0, a, one, c;
fma.rn.bf16x2 $1, b, one, d;
}
""")


@triton.jit
def _widen_int4(numbers: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return the four numbers of each integer in bfloat16, less 8, those of the lowest bits first."""
    a, b, c, d = tl.inline_asm_elementwise(
        _WIDEN_INT4,
        "=&r,=&r,=&r,=&r,r",
        [numbers],
        dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
        is_pure=True,
        pack=2,
    )
    return a, b, c, d


@triton.jit
def _widen_int8(numbers: tl.tensor) -> tl.tensor:
    """Return signed bytes in bfloat16."""
    return tl.inline_asm_elementwise(
        _WIDEN_INT8, "=r,=r,r", [numbers], dtype=tl.bfloat16, is_pure=True, pack=4
    )


@triton.jit
def _rows(
    at: tl.tensor,
    steps: tl.tensor,
    rest: tl.tensor,
    in_rows: tl.tensor,
    AXIS: tl.constexpr,
    WHOLE: tl.constexpr,
) -> tl.tensor:
    """Load a tile of rows, which are along an axis, with zeros beyond their last ``rest`` numbers."""
    inside = (steps < rest) | WHOLE
    mask = inside[:, None] & in_rows[None, :] if AXIS == 1 else in_rows[:, None] & inside[None, :]
    return tl.load(at, mask=mask, other=0.0)


@triton.jit
def _finish(
    total: tl.tensor,
    place: tl.tensor,
    inside: tl.tensor,
    sums: tl.tensor,
    arrived: tl.tensor,
    out: tl.tensor,
    size: tl.tensor,
    split: tl.tensor,
    splits: tl.tensor,
    SPLIT: tl.constexpr,
) -> None:
    """Write a tile of a product, or its sums over a part of the inputs; the last part adds them up.

    Args:
        total: the sums.
        place: where they belong in ``out``.
        inside: which of them are written.
        sums: ``[splits, size]`` the sums of all parts.
        arrived: counts the parts of the tile that are stored, and is zero again afterwards.
        out: ``[size]`` the product.
        size: number of results of the product.
        split: the part's number.
        splits: number of parts.
        SPLIT: whether there is more than one.
    """
    if not SPLIT:
        tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(sums + split * size + place, total, mask=inside)
        tl.debug_barrier()  # all threads have stored before one of them counts the part
        if tl.atomic_add(arrived, 1, sem="acq_rel") == splits - 1:
            whole = tl.zeros_like(total)
            for part in range(splits):
                own = sums + part * size + place
                whole += tl.load(own, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(out + place, whole.to(out.dtype.element_ty), mask=inside)
            tl.store(arrived, 0)


@triton.jit(do_not_specialize=["rows"])
def int4_product_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    scale: tl.tensor,
    sums: tl.tensor,
    arrived: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    width: tl.tensor,
    pairs: tl.tensor,
    part: tl.tensor,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    QUARTER: tl.constexpr,
    WEIGHT_LEFT: tl.constexpr,
    SPLIT: tl.constexpr,
    WHOLE: tl.constexpr,
) -> None:
    """Multiply a tile of bfloat16 rows by a part of an int4 weight.

    A step reads the integers of two groups of weights; see ``int4_weights``. ``WHOLE`` tells that all tiles
    and steps are full, so that nothing is masked.
    """
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    index = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    steps = tl.arange(0, QUARTER)
    in_rows = (index < rows) | WHOLE
    in_columns = (columns < outputs) | WHOLE
    at = index.to(tl.int64) * outputs
    if WEIGHT_LEFT:
        left = x + index[None, :].to(tl.int64) * width + steps[:, None]
        total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    else:
        left = x + index[:, None].to(tl.int64) * width + steps[None, :]
        total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    right = weight + columns[:, None].to(tl.int64) * (pairs * QUARTER) + steps[None, :]
    begin = split * part
    for pair in range(begin, tl.minimum(begin + part, pairs)):
        first = pair * 4 * QUARTER
        numbers = tl.load(right + pair * QUARTER, mask=in_columns[:, None], other=0)
        a, b, c, d = _widen_int4(numbers)
        rest = width - first
        scales = scale + 2 * pair * outputs + columns
        low_scale = tl.load(scales, mask=in_columns, other=0.0).to(tl.float32)
        high_scale = tl.load(scales + outputs, mask=in_columns, other=0.0).to(tl.float32)
        if WEIGHT_LEFT:
            low = tl.dot(a, _rows(left + first, steps, rest, in_rows, 1, WHOLE))
            own = _rows(left + first + QUARTER, steps, rest - QUARTER, in_rows, 1, WHOLE)
            total += tl.dot(b, own, low) * low_scale[:, None]
            own = _rows(left + first + 2 * QUARTER, steps, rest - 2 * QUARTER, in_rows, 1, WHOLE)
            high = tl.dot(c, own)
            own = _rows(left + first + 3 * QUARTER, steps, rest - 3 * QUARTER, in_rows, 1, WHOLE)
            total += tl.dot(d, own, high) * high_scale[:, None]
        else:
            low = tl.dot(_rows(left + first, steps, rest, in_rows, 0, WHOLE), tl.trans(a))
            own = _rows(left + first + QUARTER, steps, rest - QUARTER, in_rows, 0, WHOLE)
            total += tl.dot(own, tl.trans(b), low) * low_scale[None, :]
            own = _rows(left + first + 2 * QUARTER, steps, rest - 2 * QUARTER, in_rows, 0, WHOLE)
            high = tl.dot(own, tl.trans(c))
            own = _rows(left + first + 3 * QUARTER, steps, rest - 3 * QUARTER, in_rows, 0, WHOLE)
            total += tl.dot(own, tl.trans(d), high) * high_scale[None, :]
    if WEIGHT_LEFT:
        place, inside = at[None, :] + columns[:, None], in_rows[None, :] & in_columns[:, None]
    else:
        place, inside = at[:, None] + columns[None, :], in_rows[:, None] & in_columns[None, :]
    size, tile = rows.to(tl.int64) * outputs, tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    _finish(total, place, inside, sums, arrived + tile, out, size, split, tl.num_programs(1), SPLIT)


@triton.jit(do_not_specialize=["rows"])
def int8_product_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    scale: tl.tensor,
    sums: tl.tensor,
    arrived: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    width: tl.tensor,
    part: tl.tensor,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WEIGHT_LEFT: tl.constexpr,
    SPLIT: tl.constexpr,
    WHOLE: tl.constexpr,
) -> None:
    """Multiply a tile of bfloat16 rows by a part of an int8 weight with one scale per output.

    ``WHOLE`` as in :func:`int4_product_kernel`.
    """
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    index = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    steps = tl.arange(0, BLOCK_K)
    in_rows = (index < rows) | WHOLE
    in_columns = (columns < outputs) | WHOLE
    at = index.to(tl.int64) * outputs
    right = weight + columns[:, None].to(tl.int64) * width + steps[None, :]
    scales = tl.load(scale + columns, mask=in_columns, other=0.0).to(tl.float32)
    begin = split * part
    end = tl.minimum(begin + part, width)
    if WEIGHT_LEFT:
        left = x + index[None, :].to(tl.int64) * width + steps[:, None]
        total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
        for step in range(begin, end, BLOCK_K):
            inside = (steps < end - step) | WHOLE
            held = tl.load(right + step, mask=in_columns[:, None] & inside[None, :], other=0)
            own = tl.load(left + step, mask=inside[:, None] & in_rows[None, :], other=0.0)
            total = tl.dot(_widen_int8(held), own, total)
        total = total * scales[:, None]
        place, kept = at[None, :] + columns[:, None], in_rows[None, :] & in_columns[:, None]
    else:
        left = x + index[:, None].to(tl.int64) * width + steps[None, :]
        total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for step in range(begin, end, BLOCK_K):
            inside = (steps < end - step) | WHOLE
            held = tl.load(right + step, mask=in_columns[:, None] & inside[None, :], other=0)
            own = tl.load(left + step, mask=in_rows[:, None] & inside[None, :], other=0.0)
            total = tl.dot(own, tl.trans(_widen_int8(held)), total)
        total = total * scales[None, :]
        place, kept = at[:, None] + columns[None, :], in_rows[:, None] & in_columns[None, :]
    size, tile = rows.to(tl.int64) * outputs, tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    _finish(total, place, kept, sums, arrived + tile, out, size, split, tl.num_programs(1), SPLIT)
