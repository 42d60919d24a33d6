"""Attention of a request's rows over its cache, by PyTorch; a row's bits do not depend on the other rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.architecture import DecoderConfig
from specclient_local.model.kv_cache import LayerPages
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.model.pass_spans import PassSpan


def store_and_attend(
    config: DecoderConfig,
    qkv: Tensor,
    kv: Tensor | LayerPages,
    span: PassSpan,
    mask: Tensor,
    *,
    sinks: Tensor | None = None,
) -> Tensor:
    """Store a request's keys and values, and attend over its first L positions; return ``[N, H D]``.

    Args:
        config: the model's configuration.
        qkv: ``[N, H + 2 KV, D]``.
        kv: the request's cache of this layer, ``[2 KV, capacity, D]``, or in pages.
        span: the request's rows.
        mask: ``[N, L]`` additive mask for this layer.
        sinks: ``[H]`` scores of the heads' sinks, if the model has them.
    """
    heads, groups = config.heads, config.kv_heads
    rows, dim, length = qkv.shape[0], qkv.shape[2], mask.shape[1]
    written = qkv[:, heads:].transpose(0, 1)
    if isinstance(kv, Tensor):
        kv[:, span.start : span.start + rows].copy_(written)
    else:
        kv.write(span.start, written)
        kv = kv.read(length)
    q, keys, values = qkv[:, :heads], kv[:groups, :length], kv[groups:, :length]
    if sinks is not None or config.attention_cap is not None:
        return _attend_explicitly(config, q, (keys, values), mask, sinks)
    scale = config.attention_scale
    if rows <= MAX_ROWS_PER_REQUEST:
        # The N rows are the batch, and the query heads that share a key head are its rows.
        out = F.scaled_dot_product_attention(
            q.reshape(rows, groups, heads // groups, dim),
            keys.expand(rows, -1, -1, -1),
            values.expand(rows, -1, -1, -1),
            attn_mask=mask[:, None, None, :],
            scale=scale,
        )
        return out.reshape(rows, heads * dim)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=mask,
        scale=scale,
        enable_gqa=groups < heads,
    )
    return out[0].transpose(0, 1).reshape(rows, heads * dim)


def _attend_explicitly(
    config: DecoderConfig, q: Tensor, kv: tuple[Tensor, Tensor], mask: Tensor, sinks: Tensor | None
) -> Tensor:
    """Attend with bounded scores or sinks, which the library's attention does not have.

    Few rows are multiplied one by one, so that a row's bits do not depend on the others. The library's
    product of one row and of several would use other summation orders.

    Args:
        config: the model's configuration.
        q: ``[N, H, D]`` queries.
        kv: keys and values, ``[KV, L, D]`` each.
        mask: ``[N, L]`` additive mask.
        sinks: ``[H]`` scores of the heads' sinks.
    """
    (rows, heads, dim), (keys, values) = q.shape, kv
    groups = config.kv_heads
    shared = q.reshape(rows, groups, heads // groups, dim)
    scale = dim**-0.5 if config.attention_scale is None else config.attention_scale
    few = rows <= MAX_ROWS_PER_REQUEST
    scores = (_by_row if few else _together)(shared, keys.transpose(1, 2)).float() * scale
    if config.attention_cap is not None:
        scores = torch.tanh(scores / config.attention_cap) * config.attention_cap
    scores = scores + mask[:, None, None, :]
    if sinks is not None:
        own = sinks.float().view(1, groups, -1, 1).expand(rows, -1, -1, 1)
        shares = torch.cat((scores, own), dim=-1).softmax(dim=-1)[..., :-1]
    else:
        shares = scores.softmax(dim=-1)
    out = (_by_row if few else _together)(shares.to(values.dtype), values)
    return out.reshape(rows, heads * dim)


def _by_row(left: Tensor, right: Tensor) -> Tensor:
    """Return the products of each row ``[KV, G, A]`` of ``left`` with ``right`` ``[KV, A, B]``."""
    return torch.stack([torch.bmm(row, right) for row in left])


def _together(left: Tensor, right: Tensor) -> Tensor:
    """Return the same by one product for each key head, ``[N, KV, G, B]``."""
    rows, groups, shared, size = left.shape
    joined = left.transpose(0, 1).reshape(groups, rows * shared, size)
    return torch.bmm(joined, right).view(groups, rows, shared, -1).transpose(0, 1)
