"""Triton kernels of a layer's operations between matrix products; ``triton_ops`` launches them.

Triton is imported in modules of kernels alone, because it is installed with CUDA builds of torch only.
"""

from __future__ import annotations

import triton
from triton import language as tl


@triton.jit
def add_norm_kernel(
    x: tl.tensor,
    delta: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    eps: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
) -> None:
    """Add ``delta`` to ``x`` in place, and write the sum's RMS norm; one program per row."""
    row = tl.program_id(0).to(tl.int64) * SIZE
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    value = tl.load(x + row + columns, mask=inside, other=0.0)
    if ADD:
        more = tl.load(delta + row + columns, mask=inside, other=0.0)
        value = (value.to(tl.float32) + more.to(tl.float32)).to(x.dtype.element_ty)
        tl.store(x + row + columns, value, mask=inside)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / SIZE + eps)
    weights = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + columns, (wide * scale * weights).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotate_kernel(
    qkv: tl.tensor,
    queries: tl.tensor,
    kv: tl.tensor,
    norm: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    slots: tl.tensor,
    places: tl.tensor,
    rows: tl.tensor,
    slot_stride: tl.tensor,
    head_stride: tl.tensor,
    eps: tl.tensor,
    HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    DIM: tl.constexpr,
    PAIRS: tl.constexpr,
    NORM: tl.constexpr,
) -> None:
    """Normalise and rotate one head of one row; write a query, or a key or value to the cache.

    In a cache of pages, ``slots`` are the pages of the rows, ``places`` places in these, and ``rows`` is 1.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pairs = tl.arange(0, PAIRS)
    inside = pairs < DIM // 2
    at = qkv + (row * (HEADS + 2 * SHARED) + head) * DIM + 2 * pairs
    a = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + 1, mask=inside, other=0.0).to(tl.float32)
    if head < HEADS + SHARED:
        if NORM:
            scale = 1.0 / tl.sqrt(tl.sum(a * a + b * b, axis=0) / DIM + eps)
            weights = norm + head * DIM + 2 * pairs
            a = a * scale * tl.load(weights, mask=inside, other=0.0).to(tl.float32)
            b = b * scale * tl.load(weights + 1, mask=inside, other=0.0).to(tl.float32)
        c = tl.load(cos + row * (DIM // 2) + pairs, mask=inside, other=0.0)
        s = tl.load(sin + row * (DIM // 2) + pairs, mask=inside, other=0.0)
        turned = a * c - b * s
        b = a * s + b * c
        a = turned
    if head < HEADS:
        target = queries + (row * HEADS + head) * DIM + 2 * pairs
        tl.store(target, a.to(queries.dtype.element_ty), mask=inside)
        tl.store(target + 1, b.to(queries.dtype.element_ty), mask=inside)
    else:
        slot = tl.load(slots + row // rows).to(tl.int64)
        place = tl.load(places + row)
        held = kv + slot * slot_stride + (head - HEADS) * head_stride + place * DIM + 2 * pairs
        tl.store(held, a.to(kv.dtype.element_ty), mask=inside)
        tl.store(held + 1, b.to(kv.dtype.element_ty), mask=inside)


@triton.jit
def attend_kernel(
    queries: tl.tensor,
    kv: tl.tensor,
    partial: tl.tensor,
    stats: tl.tensor,
    slots: tl.tensor,
    block_table: tl.tensor,
    positions: tl.tensor,
    origins: tl.tensor,
    words: tl.tensor,
    ends: tl.tensor,
    scale: tl.tensor,
    rows: tl.tensor,
    slot_stride: tl.tensor,
    head_stride: tl.tensor,
    table_stride: tl.tensor,
    window: tl.tensor,
    capacity: tl.tensor,
    splits: tl.tensor,
    HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT: tl.constexpr,
    WORDS: tl.constexpr,
    WINDOW: tl.constexpr,
    PAGED: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """Attend over one split of a slot's keys with a tile of its queries that share a key head.

    Splits and tiles have fixed sizes, so a row's result does not depend on the number of rows. The split's
    outputs, largest scores and sums are combined by :func:`combine_kernel`. If ``PAGED``, a slot's positions
    are in the pages of ``BLOCK_N`` positions that its row of the table names; the keys of a step are one
    page, and all sums have the same order as without pages.
    """
    split = tl.program_id(0) // TILES
    group = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    end = tl.minimum(tl.load(ends + batch), capacity)
    begin = split * SPLIT
    if begin >= end:
        return
    each: tl.constexpr = HEADS // SHARED
    index = (tl.program_id(0) % TILES) * BLOCK_M + tl.arange(0, BLOCK_M)
    row = index // each
    real = index < rows * each
    dims = tl.arange(0, BLOCK_D)
    in_head = dims < DIM
    head = group * each + index % each
    at = ((batch * rows + row) * HEADS + head) * DIM
    q = tl.load(queries + at[:, None] + dims[None, :], mask=real[:, None] & in_head[None, :], other=0.0)
    position = tl.load(positions + batch * rows + row, mask=real, other=0)
    if WORDS:
        word = tl.load(words + batch * rows + row, mask=real, other=1)
        origin = tl.load(origins + batch)
    slot = tl.load(slots + batch)
    pages = block_table + slot * table_stride
    keys = kv + slot * slot_stride + group * head_stride
    largest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    output = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for first in range(begin, tl.minimum(begin + SPLIT, end), BLOCK_N):
        columns = first + tl.arange(0, BLOCK_N)
        used = columns < end
        place = columns[:, None] * DIM + dims[None, :]
        if PAGED:
            page = tl.load(pages + first // BLOCK_N).to(tl.int64)
            keys = kv + page * slot_stride + group * head_stride
            place -= first * DIM
        held = used[:, None] & in_head[None, :]
        k = tl.load(keys + place, mask=held, other=0.0)
        v = tl.load(keys + SHARED * head_stride + place, mask=held, other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        if WORDS:
            offset = columns - origin
            bit = (word[:, None] >> tl.minimum(tl.maximum(offset, 0), 63)[None, :]) & 1
            seen = ((offset < 0)[None, :] | ((bit == 1) & (offset < 64)[None, :])) & used[None, :]
        else:
            seen = (columns[None, :] <= position[:, None]) & used[None, :]
        if WINDOW:
            seen = seen & (columns[None, :] > position[:, None] - window)
        score = tl.where(seen, score, float("-inf"))
        higher = tl.maximum(largest, tl.max(score, axis=1))
        # A row that has seen nothing yet has -inf here; the difference of two of them is NaN.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(score - base[:, None])
        shrink = tl.exp(largest - base)
        total = total * shrink + tl.sum(weight, axis=1)
        output = output * shrink[:, None]
        output = output + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        largest = higher
    slab = ((batch * SHARED + group) * splits + split) * (TILES * BLOCK_M) + index
    tl.store(stats + 2 * slab, largest)
    tl.store(stats + 2 * slab + 1, total)
    tl.store(partial + slab[:, None] * BLOCK_D + dims[None, :], output)


@triton.jit
def combine_kernel(
    partial: tl.tensor,
    stats: tl.tensor,
    out: tl.tensor,
    ends: tl.tensor,
    rows: tl.tensor,
    splits: tl.tensor,
    capacity: tl.tensor,
    HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    SPLIT: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Combine the splits of one query head in one row."""
    index = tl.program_id(0)
    group = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    each: tl.constexpr = HEADS // SHARED
    count = tl.cdiv(tl.minimum(tl.load(ends + batch), capacity), SPLIT)
    dims = tl.arange(0, BLOCK_D)
    largest = float("-inf")
    total = 0.0
    output = tl.zeros([BLOCK_D], tl.float32)
    for first in range(0, count, CHUNK):
        chunk = first + tl.arange(0, CHUNK)
        inside = chunk < count
        slab = ((batch * SHARED + group) * splits + chunk) * (TILES * BLOCK_M) + index
        scores = tl.load(stats + 2 * slab, mask=inside, other=float("-inf"))
        sums = tl.load(stats + 2 * slab + 1, mask=inside, other=0.0)
        parts = tl.load(partial + slab[:, None] * BLOCK_D + dims[None, :], mask=inside[:, None], other=0.0)
        higher = tl.maximum(largest, tl.max(scores, axis=0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(scores - base)
        shrink = tl.exp(largest - base)
        total = total * shrink + tl.sum(weight * sums, axis=0)
        output = output * shrink + tl.sum(weight[:, None] * parts, axis=0)
        largest = higher
    head = group * each + index % each
    at = ((batch * rows + index // each) * HEADS + head) * DIM
    tl.store(out + at + dims, (output / total).to(out.dtype.element_ty), mask=dims < DIM)


@triton.jit
def gate_kernel(gate_up: tl.tensor, out: tl.tensor, SIZE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Write ``silu(gate) * up``; one program per row and block of columns."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < SIZE
    gate = tl.load(gate_up + row * 2 * SIZE + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * SIZE + SIZE + columns, mask=inside, other=0.0)
    silu = (gate / (1.0 + tl.exp(-gate))).to(up.dtype).to(tl.float32)
    tl.store(out + row * SIZE + columns, (silu * up.to(tl.float32)).to(up.dtype), mask=inside)


@triton.jit
def fp8_rows_kernel(
    x: tl.tensor,
    out: tl.tensor,
    scale: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGEST: tl.constexpr,
    TINY: tl.constexpr,
) -> None:
    """Round a row to fp8, and store its scale."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    values = tl.load(x + row * SIZE + columns, mask=inside, other=0.0).to(tl.float32)
    own = tl.maximum(tl.max(tl.abs(values), axis=0), TINY) / LARGEST
    tl.store(scale + row, own)
    tl.store(out + row * SIZE + columns, (values / own).to(out.dtype.element_ty), mask=inside)
