"""Triton kernels over the vocabulary: largest logits, probabilities at a temperature, and draws.

PyTorch reduces a row of logits in one or two blocks, which leaves a device idle where a pass has few rows.
These kernels divide every row into blocks; a pass over the logits finds each block's largest logit and sum,
and the next one combines them and writes probabilities.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton import language as tl

_BLOCK = 4096
"""Tokens per program."""

_WARPS = 8


@triton.jit
def blocks_kernel(
    logits: tl.tensor,
    temperature: tl.tensor,
    tops: tl.tensor,
    places: tl.tensor,
    sums: tl.tensor,
    vocab: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    SUMS: tl.constexpr,
) -> None:
    """Find the largest logit of a block, its first place, and the sum of the exponentials below it."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    inside = columns < vocab
    x = tl.load(logits + row * stride + columns, mask=inside, other=float("-inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    place = tl.min(tl.where(x == top, columns, vocab), axis=0)
    bad = tl.max((x != x).to(tl.int32), axis=0)  # NaN differs from itself
    at = row * BLOCKS + block
    tl.store(tops + at, tl.where(bad > 0, float("nan"), top))
    tl.store(places + at, place)
    if SUMS:
        heat = tl.load(temperature + row // rows).to(tl.float32)
        heat = tl.where(heat == 0.0, 1.0, heat)
        base = tl.where(top == float("-inf"), 0.0, top)
        tl.store(sums + at, tl.sum(tl.where(inside, tl.exp((x - base) / heat), 0.0), axis=0))


@triton.jit
def probabilities_kernel(
    logits: tl.tensor,
    temperature: tl.tensor,
    tops: tl.tensor,
    places: tl.tensor,
    sums: tl.tensor,
    best: tl.tensor,
    highest: tl.tensor,
    out: tl.tensor,
    vocab: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    WRITE: tl.constexpr,
) -> None:
    """Combine a row's blocks: store its largest logit and place, and write a block's probabilities."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    each = tl.arange(0, PADDED)
    known = each < BLOCKS
    own = tl.load(tops + row * BLOCKS + each, mask=known, other=float("-inf"))
    where = tl.load(places + row * BLOCKS + each, mask=known, other=vocab)
    top = tl.max(own, axis=0)
    bad = tl.max((own != own).to(tl.int32), axis=0)  # as above
    first = tl.min(tl.where(own == top, where, vocab), axis=0)
    first = tl.minimum(first, vocab - 1)
    if block == 0:
        tl.store(best + row, first.to(tl.int64))
        tl.store(highest + row, tl.where(bad > 0, float("nan"), top))
    if WRITE:
        heat = tl.load(temperature + row // rows).to(tl.float32)
        greedy = heat == 0.0
        heat = tl.where(greedy, 1.0, heat)
        part = tl.load(sums + row * BLOCKS + each, mask=known, other=0.0)
        total = tl.sum(tl.where(part > 0.0, part * tl.exp((own - top) / heat), 0.0), axis=0)
        columns = block * BLOCK + tl.arange(0, BLOCK)
        inside = columns < vocab
        x = tl.load(logits + row * stride + columns, mask=inside, other=float("-inf")).to(tl.float32)
        p = tl.exp((x - top) / heat) / total
        p = tl.where(greedy, (columns == first).to(tl.float32), p)
        tl.store(out + row * vocab + columns, p, mask=inside)


@triton.jit
def block_sums_kernel(
    p: tl.tensor, sums: tl.tensor, vocab: tl.tensor, BLOCKS: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """Sum a block of probabilities in float64."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(p + row * vocab + columns, mask=columns < vocab, other=0.0)
    tl.store(sums + row * BLOCKS + tl.program_id(1), tl.sum(values.to(tl.float64), axis=0))


@triton.jit
def draw_kernel(
    p: tl.tensor,
    sums: tl.tensor,
    uniform: tl.tensor,
    out: tl.tensor,
    vocab: tl.tensor,
    stride: tl.tensor,
    BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Draw a token by inversion: find the block that the number falls into, then the token in it."""
    row = tl.program_id(0).to(tl.int64)
    each = tl.arange(0, PADDED)
    parts = tl.load(sums + row * BLOCKS + each, mask=each < BLOCKS, other=0.0)
    ends = tl.cumsum(parts, axis=0)
    number = tl.load(uniform + row * stride) * tl.sum(parts, axis=0)
    # The last block with a probability, if rounding leaves the number beyond all of them.
    last = tl.max(tl.where(parts > 0.0, each, 0), axis=0)
    block = tl.minimum(tl.sum((ends <= number).to(tl.int32), axis=0), last)
    rest = number - tl.sum(tl.where(each < block, parts, 0.0), axis=0)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(p + row * vocab + columns, mask=columns < vocab, other=0.0).to(tl.float64)
    inner = tl.cumsum(values, axis=0)
    at = tl.min(tl.where((inner > rest) & (values > 0.0), columns, vocab), axis=0)
    final = tl.max(tl.where(values > 0.0, columns, 0), axis=0)
    tl.store(out + row, tl.where(at < vocab, at, final).to(tl.int64))


def largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the id of each row's largest logit, the first of equal ones, and that logit (NaN if any is).

    Args:
        logits: ``[S, N, V]``; the last dimension is contiguous.
    """
    return _combined(logits, None)[:2]


def probabilities(logits: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Return probabilities ``[S, N, V]`` in float32, and each row's largest logit ``[S, N]``.

    Args:
        logits: ``[S, N, V]``; the last dimension is contiguous.
        temperature: ``[S]``; 0 gives the one-hot of the largest logit.
    """
    _, highest, p = _combined(logits, temperature)
    assert p is not None
    return p, highest


def _combined(logits: Tensor, temperature: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    slots, rows, vocab = logits.shape
    flat = logits.reshape(slots * rows, vocab)
    count, blocks = len(flat), -(-vocab // _BLOCK)

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=logits.device)

    tops, places = empty(count, blocks), empty(count, blocks, dtype=torch.int32)
    best, highest = empty(slots, rows, dtype=torch.int64), empty(slots, rows)
    sums = tops if temperature is None else empty(count, blocks)
    p = None if temperature is None else empty(slots, rows, vocab)
    heat = (tops if temperature is None else temperature).contiguous()
    writes = temperature is not None
    shape = {"BLOCKS": blocks, "BLOCK": _BLOCK, "num_warps": _WARPS}
    blocks_kernel[(count, blocks)](
        flat, heat, tops, places, sums, vocab, flat.stride(0), rows, SUMS=writes, **shape
    )
    probabilities_kernel[(count, blocks if writes else 1)](
        flat,
        heat,
        tops,
        places,
        sums,
        best,
        highest,
        highest if p is None else p,
        vocab,
        flat.stride(0),
        rows,
        PADDED=triton.next_power_of_2(blocks),
        WRITE=writes,
        **shape,
    )
    return best, highest, p


def draw(p: Tensor, uniform: Tensor) -> Tensor:
    """Draw one token per row; see :func:`~specclient_local.model.cuda_graphs.device_verify.draw_tokens`.

    Args:
        p: ``[S, V]`` float32.
        uniform: ``[S]`` float64.
    """
    p = p.contiguous()
    count, vocab = p.shape
    blocks = -(-vocab // _BLOCK)
    sums = torch.empty((count, blocks), dtype=torch.float64, device=p.device)
    out = torch.empty((count,), dtype=torch.int64, device=p.device)
    block_sums_kernel[(count, blocks)](p, sums, vocab, BLOCKS=blocks, BLOCK=_BLOCK, num_warps=_WARPS)
    draw_kernel[(count,)](
        p,
        sums,
        uniform,
        out,
        vocab,
        uniform.stride(0),
        BLOCKS=blocks,
        PADDED=triton.next_power_of_2(blocks),
        BLOCK=_BLOCK,
        num_warps=_WARPS,
    )
    return out
