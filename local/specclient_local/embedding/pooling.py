"""Pooling: one vector from the hidden states of a text's tokens, by the modes of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from specclient_local.embedding.layout import PoolingLayout

#: Minimum divisor of a mean, so that a text without pooled tokens gets a vector of zeros.
_LEAST = 1e-9


def pool(layout: PoolingLayout, hidden: Tensor, lengths: Tensor, prompts: Tensor) -> Tensor:
    """Return the pooled vectors.

    Args:
        layout: the modes.
        hidden: ``[B, L, H]`` hidden states; tokens come first, padding last.
        lengths: ``[B]`` number of tokens of each text.
        prompts: ``[B]`` number of prompt tokens at the beginning of each text. They are pooled only if
            ``layout.include_prompt``.

    Returns:
        ``[B, H × modes]``, in float32.
    """
    columns = torch.arange(hidden.shape[1], device=hidden.device)
    begins = torch.zeros_like(prompts) if layout.include_prompt else prompts
    pooled = (columns >= begins[:, None]) & (columns < lengths[:, None])
    states = hidden.float()
    return torch.cat([_MODES[mode](states, pooled) for mode in layout.modes], dim=-1)


def _first(states: Tensor, pooled: Tensor) -> Tensor:
    return _at(states, pooled.int().argmax(dim=1))


def _last(states: Tensor, pooled: Tensor) -> Tensor:
    last = pooled.shape[1] - 1 - pooled.flip(1).int().argmax(dim=1)
    return _at(states, last) * pooled.any(dim=1)[:, None]


def _at(states: Tensor, places: Tensor) -> Tensor:
    return states[torch.arange(len(states), device=states.device), places]


def _max(states: Tensor, pooled: Tensor) -> Tensor:
    most = states.masked_fill(~pooled[..., None], -torch.inf).amax(dim=1)
    return torch.where(pooled.any(dim=1)[:, None], most, 0.0)


def _mean(states: Tensor, pooled: Tensor) -> Tensor:
    return _sum(states, pooled) / _count(pooled)


def _mean_by_root(states: Tensor, pooled: Tensor) -> Tensor:
    return _sum(states, pooled) / _count(pooled).sqrt()


def _weighted_mean(states: Tensor, pooled: Tensor) -> Tensor:
    """Weigh each token by its position, from 1 (Muennighoff, arXiv 2202.08904, §3.1)."""
    positions = torch.arange(1, pooled.shape[1] + 1, device=states.device, dtype=states.dtype)
    weights = pooled * positions
    return (states * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True).clamp(min=_LEAST)


def _sum(states: Tensor, pooled: Tensor) -> Tensor:
    return (states * pooled[..., None]).sum(dim=1)


def _count(pooled: Tensor) -> Tensor:
    return pooled.sum(dim=1, keepdim=True).float().clamp(min=_LEAST)


_MODES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": _first,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}
