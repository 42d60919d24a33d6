"""Triton kernels that cut distributions over the vocabulary to their top-k and top-p tokens without a sort.

The order of half-precision logits is that of 16-bit integers, their keys. The key of the last token that
stays is found digit by digit, four bits at a time: a pass over the logits adds up the weights from each of 15
keys on, and the next pass continues between two of them. Weights are integers, so that sums do not depend on
their order, and the tokens that stay are those of the sorted rule in
:func:`~specclient_local.model.cuda_graphs.device_verify.batch_probabilities`. A row needs memory for its sums
only.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton import language as tl

from specclient_local.model.cuda_graphs.device_verify import SamplingTensors, weight_bits
from specclient_local.model.cuda_graphs.triton_sampling import largest

_BLOCK = 4096
"""Tokens per program."""

_WARPS = 8

_DIGITS = 16
"""Values of a digit; a pass compares keys with all but the first, and adds up all weights besides."""

_STEPS = (4096, 256, 16, 1)
"""The step between the keys that each pass compares with."""


@triton.jit
def _key(x: tl.tensor) -> tl.tensor:
    """Return integers from -32,768 to 32,767 in the order of half-precision numbers; 0 and -0 are equal."""
    bits = tl.where(x == 0.0, 0.0, x).to(x.dtype).to(tl.int16, bitcast=True).to(tl.int32)
    return bits ^ ((bits >> 31) & 0x7FFF)


@triton.jit
def _weight(x: tl.tensor, top: tl.tensor, heat: tl.tensor, SCALE: tl.constexpr) -> tl.tensor:
    """Return exp((x - top) / heat) in units of 1 / SCALE, rounded down; 0 at -inf."""
    return (tl.exp((x.to(tl.float32) - top) / heat) * SCALE).to(tl.int64)


@triton.jit
def _narrowed(
    state: tl.tensor,
    sums: tl.tensor,
    row: tl.tensor,
    limit: tl.tensor,
    STEP: tl.constexpr,
    BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Return the least key that is possible after a pass, and the weights above the keys up to the next."""
    each = tl.arange(0, PADDED)[:, None]
    digits = tl.arange(0, 16)
    at = (row * BLOCKS + each) * 16 + digits[None, :]
    own = tl.sum(tl.load(sums + at, mask=each < BLOCKS, other=0), axis=0)
    digit = tl.sum(((own >= limit) & (digits < 15)).to(tl.int32), axis=0)
    above = tl.load(state + 2 * row + 1)
    found = tl.sum(tl.where(digits == digit, own, 0), axis=0)
    return tl.load(state + 2 * row) + digit * STEP, tl.where(digit < 15, found, above)


@triton.jit
def _all_weights(sums: tl.tensor, row: tl.tensor, BLOCKS: tl.constexpr, PADDED: tl.constexpr) -> tl.tensor:
    """Return the sum of all weights of a row that a first pass found."""
    each = tl.arange(0, PADDED)
    return tl.sum(tl.load(sums + (row * BLOCKS + each) * 16 + 15, mask=each < BLOCKS, other=0), axis=0)


@triton.jit
def _share(top_p: tl.tensor, total: tl.tensor) -> tl.tensor:
    """Return the least weight that reaches a share of all weights."""
    return tl.maximum(tl.ceil(top_p * total.to(tl.float64)).to(tl.int64), 1)


@triton.jit
def _store_sums(
    key: tl.tensor, weight: tl.tensor, base: tl.tensor, out: tl.tensor, STEP: tl.constexpr
) -> None:
    """Store the sums of a block's weights from 15 keys on, and of all of them."""
    for digit in tl.static_range(15):
        tl.store(out + digit, tl.sum(tl.where(key >= base + (digit + 1) * STEP, weight, 0), axis=0))
    tl.store(out + 15, tl.sum(weight, axis=0))


@triton.jit
def count_kernel(
    logits: tl.tensor,
    top_k: tl.tensor,
    before: tl.tensor,
    counts: tl.tensor,
    state: tl.tensor,
    sums: tl.tensor,
    vocab: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    LAST: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Count a block's tokens from each of 15 keys on, to find the key of the k-th largest logit.

    ``before`` and ``counts`` are the ``state`` and ``sums`` of the last pass, whose step ``LAST`` is 0 for
    the first pass.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    k = tl.load(top_k + row // rows)
    if (k <= 0) | (k >= vocab):
        return
    base = tl.full([], -32768, tl.int64)
    above = tl.full([], 0, tl.int64)
    if LAST:
        base, above = _narrowed(before, counts, row, k, LAST, BLOCKS, PADDED)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    inside = columns < vocab
    key = _key(tl.load(logits + row * stride + columns, mask=inside, other=float("-inf")))
    _store_sums(key, inside.to(tl.int32), base, sums + (row * BLOCKS + block) * 16, STEP)
    if block == 0:
        tl.store(state + 2 * row, base)
        tl.store(state + 2 * row + 1, above)


@triton.jit
def mass_kernel(
    logits: tl.tensor,
    temperature: tl.tensor,
    highest: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    k_state: tl.tensor,
    k_sums: tl.tensor,
    first_sums: tl.tensor,
    before: tl.tensor,
    weights: tl.tensor,
    state: tl.tensor,
    sums: tl.tensor,
    least: tl.tensor,
    vocab: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    LAST: tl.constexpr,
    STEP: tl.constexpr,
    SCALE: tl.constexpr,
) -> None:
    """Add up a block's weights from each of 15 keys on, to find the key of the last token of the top-p.

    The first pass, whose ``LAST`` is 0, adds up all weights from the k-th largest logit on as well, and
    stores that logit's key in ``least``. ``before`` and ``weights`` are as in :func:`count_kernel`.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    heat = tl.load(temperature + row // rows).to(tl.float32)
    share = tl.load(top_p + row // rows)
    if heat == 0.0:
        return
    base = tl.full([], -32768, tl.int64)
    above = tl.full([], 0, tl.int64)
    if LAST:
        if share >= 1.0:
            return
        limit = _share(share, _all_weights(first_sums, row, BLOCKS, PADDED))
        base, above = _narrowed(before, weights, row, limit, LAST, BLOCKS, PADDED)
        floor = tl.load(least + row)
    else:
        floor = tl.full([], -32768, tl.int64)
        k = tl.load(top_k + row // rows)
        if (k > 0) & (k < vocab):
            floor = _narrowed(k_state, k_sums, row, k, 1, BLOCKS, PADDED)[0]
        if block == 0:
            tl.store(least + row, floor)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    inside = columns < vocab
    x = tl.load(logits + row * stride + columns, mask=inside, other=float("-inf"))
    key = _key(x)
    weight = _weight(x, tl.load(highest + row), heat, SCALE)
    weight = tl.where(inside & (key >= floor), weight, 0)
    _store_sums(key, weight, base, sums + (row * BLOCKS + block) * 16, STEP)
    if block == 0:
        tl.store(state + 2 * row, base)
        tl.store(state + 2 * row + 1, above)


@triton.jit
def ties_kernel(
    logits: tl.tensor,
    temperature: tl.tensor,
    top_p: tl.tensor,
    first_sums: tl.tensor,
    before: tl.tensor,
    weights: tl.tensor,
    bounds: tl.tensor,
    ties: tl.tensor,
    vocab: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Store the key of the last token of the top-p, the weights above it, and its number in each block."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    share = tl.load(top_p + row // rows)
    if (share >= 1.0) | (tl.load(temperature + row // rows) == 0.0):
        return
    limit = _share(share, _all_weights(first_sums, row, BLOCKS, PADDED))
    last, above = _narrowed(before, weights, row, limit, 1, BLOCKS, PADDED)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    inside = columns < vocab
    key = _key(tl.load(logits + row * stride + columns, mask=inside, other=float("-inf")))
    tl.store(ties + row * BLOCKS + block, tl.sum((inside & (key == last)).to(tl.int32), axis=0))
    if block == 0:
        tl.store(bounds + 2 * row, last)
        tl.store(bounds + 2 * row + 1, above)


@triton.jit
def cut_kernel(
    logits: tl.tensor,
    temperature: tl.tensor,
    best: tl.tensor,
    highest: tl.tensor,
    top_p: tl.tensor,
    first_sums: tl.tensor,
    least: tl.tensor,
    bounds: tl.tensor,
    ties: tl.tensor,
    out: tl.tensor,
    vocab: tl.tensor,
    stride: tl.tensor,
    rows: tl.tensor,
    BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    SCALE: tl.constexpr,
) -> None:
    """Write a block's probabilities. Of tokens that tie with the last one, the first ones stay."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    inside = columns < vocab
    heat = tl.load(temperature + row // rows).to(tl.float32)
    if heat == 0.0:
        one = (columns == tl.load(best + row)).to(tl.float32)
        tl.store(out + row * vocab + columns, one, mask=inside)
        return
    x = tl.load(logits + row * stride + columns, mask=inside, other=float("-inf"))
    key = _key(x)
    top = tl.load(highest + row)
    share = tl.load(top_p + row // rows)
    mass = _all_weights(first_sums, row, BLOCKS, PADDED)
    if share >= 1.0:
        kept = key >= tl.load(least + row)
    else:
        last = tl.load(bounds + 2 * row)
        above = tl.load(bounds + 2 * row + 1)
        tied = inside & (key == last)
        # The same weight as that of each token with this key; 0 elsewhere, and in blocks without one.
        bits = last.to(tl.int32)
        value = (bits ^ ((bits >> 31) & 0x7FFF)).to(tl.int16).to(x.dtype, bitcast=True)
        each = tl.maximum(_weight(value, top, heat, SCALE), 1)
        room = (_share(share, mass) - above + each - 1) // each
        blocks = tl.arange(0, PADDED)
        counts = tl.load(ties + row * BLOCKS + blocks, mask=blocks < BLOCKS, other=0).to(tl.int64)
        earlier = tl.sum(tl.where(blocks < block, counts, 0), axis=0)
        place = earlier + tl.cumsum(tied.to(tl.int32), axis=0)
        kept = (key > last) | (tied & (place <= room))
        mass = above + tl.minimum(room, tl.sum(counts, axis=0)) * each
    total = (mass.to(tl.float64) / SCALE).to(tl.float32)
    p = tl.exp((x.to(tl.float32) - top) / heat) / total
    tl.store(out + row * vocab + columns, tl.where(kept, p, 0.0), mask=inside)


def cut_probabilities(logits: Tensor, shaping: SamplingTensors) -> tuple[Tensor, Tensor]:
    """Return :func:`~specclient_local.model.cuda_graphs.device_verify.batch_probabilities` ``[S, N, V]`` in
    float32, and each row's largest logit ``[S, N]``.

    Args:
        logits: ``[S, N, V]`` in half precision; the last dimension is contiguous.
        shaping: the requests' parameters.
    """
    slots, rows, vocab = logits.shape
    best, highest = largest(logits)
    flat = logits.reshape(slots * rows, vocab)
    count, blocks = len(flat), -(-vocab // _BLOCK)
    heat, top_k, top_p = (each.contiguous() for each in (shaping.temperature, shaping.top_k, shaping.top_p))
    size = {"BLOCKS": blocks, "PADDED": triton.next_power_of_2(blocks), "BLOCK": _BLOCK, "num_warps": _WARPS}
    scale, grid, shape = 2.0 ** weight_bits(vocab), (count, blocks), (vocab, flat.stride(0), rows)

    def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=logits.device)

    def buffers() -> list[tuple[Tensor, Tensor]]:
        """Return states and sums for each pass; a pass reads those of the one before it."""
        pair = [(empty(count, 2), empty(count, blocks, _DIGITS)) for _ in range(2)]
        return [pair[turn % 2] for turn in range(len(_STEPS))]

    before, last = (top_k, top_k), 0
    for own, step in zip(buffers(), _STEPS, strict=True):
        count_kernel[grid](flat, top_k, *before, *own, *shape, LAST=last, STEP=step, **size)
        before, last = own, step
    first, least = empty(count, blocks, _DIGITS), empty(count)
    given = flat, heat, highest, top_k, top_p, *before, first
    held, last = buffers(), 0
    held[0] = held[0][0], first  # all passes read the sums of the first
    for own, step in zip(held, _STEPS, strict=True):
        mass_kernel[grid](*given, *before, *own, least, *shape, LAST=last, STEP=step, SCALE=scale, **size)
        before, last = own, step
    bounds, ties = empty(count, 2), empty(count, blocks, dtype=torch.int32)
    ties_kernel[grid](flat, heat, top_p, first, *before, bounds, ties, *shape, **size)
    p = empty(slots, rows, vocab, dtype=torch.float32)
    cut_kernel[grid](
        flat, heat, best, highest, top_p, first, least, bounds, ties, p, *shape, SCALE=scale, **size
    )
    return p, highest
