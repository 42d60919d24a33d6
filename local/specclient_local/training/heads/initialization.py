"""Turn what a target lends into an EAGLE head to begin with: one that already repeats what it has read.

Greedy text repeats itself, and what a single layer takes longest to find out is how to copy. So an EAGLE-3
head that reads the target's embeddings (tap 0) begins as an induction head (Olsson et al., arXiv 2209.11895):
a row's state holds the token before it, so that a query made of the row's own token finds the places after
its earlier occurrences, and passes on the tokens that stand there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights

_SHARP = 4.0
"""Scale of queries and of keys: a match outweighs some hundreds of other places."""

_NEAR = 0.02
"""Turns of a place, in radians, above which a pair of numbers would tell places more than tokens."""

_LOUD = 3.0
"""What attention passes on, beside a state of size one."""

_OWN = 0.3
"""What the row's own token has of that."""

_FAINT = 0.05
"""Size of the target's later states in a state."""

_CERTAIN = 9.0
"""How far the logit of a token passed on stands above the mean of all, so that neither loss nor copies
blow up at once."""


def initial_eagle_weights(shape: EagleShape, lent: SharedTargetWeights, ids: Tensor | None) -> EagleWeights:
    """Return parameters to begin with.

    Args:
        shape: what the head is like.
        lent: what the target lends; its own head begins as the rows of its tokens.
        ids: those tokens (``eagle3``).
    """
    weights = _drawn(shape, lent, ids)
    taps = shape.taps or ()
    if shape.kind == "eagle3" and taps[0] == 0 and shape.width == shape.target_hidden:
        _copying(shape, lent, weights)
    return weights


def _drawn(shape: EagleShape, lent: SharedTargetWeights, ids: Tensor | None) -> EagleWeights:
    """Return random parameters that pass the last state read on, unchanged."""
    c, width = shape.config, shape.width
    three, device = shape.kind == "eagle3", lent.embedding.device
    seen = shape.depths * shape.target_hidden if three else 2 * width
    fc = torch.zeros(width, seen, device=device)
    fc[:, -width:] = torch.eye(width, device=device)
    ones = torch.ones(width, device=device)
    heads = (c.heads + 2 * c.kv_heads) * c.head_dim
    weights = EagleWeights(
        fc=fc,
        qkv=_random(heads, 2 * width if three else width, device),
        o=_random(width, c.heads * c.head_dim, device, 0.1),
        post_norm=ones.clone(),
        gate_up=_random(2 * c.intermediate_size, width, device),
        down=_random(width, c.intermediate_size, device, 0.1),
    )
    if three:
        assert ids is not None
        weights.token_norm, weights.state_norm = ones.clone(), ones.clone()
        weights.norm, weights.head = lent.norm.float().clone(), lent.head[ids].float().clone()
        weights.ids = ids
    return weights


def _copying(shape: EagleShape, lent: SharedTargetWeights, weights: EagleWeights) -> None:
    """Turn the first key head to the row's own token, and all others to what followed it before."""
    c, width = shape.config, shape.width
    tokens, device = lent.embedding.float(), lent.embedding.device
    size = tokens.pow(2).mean().sqrt()
    normed = tokens * (tokens.pow(2).mean(-1, keepdim=True) + 1e-12).rsqrt()
    common = normed.mean(0)
    common = common / common.norm()
    turned, spread = _orthogonal(width, device), _orthogonal(width, device)
    weights.fc[:, :width] = turned / size
    weights.fc[:, width:] = _random(width, weights.fc.shape[1] - width, device, _FAINT)
    slow = _slow(shape).to(device)
    query, key, value = torch.split(weights.qkv, [n * c.head_dim for n in (c.heads, c.kv_heads, c.kv_heads)])
    for part in (query, key, value):
        part.mul_(_FAINT)
    weights.o.zero_()
    said = _as_said(normed, lent)
    group = c.heads // c.kv_heads
    for i in range(c.kv_heads):
        own = i == 0 and c.kv_heads > 1
        rows = slice(i * c.head_dim, (i + 1) * c.head_dim)
        asked = _random(c.head_dim, width, device, _SHARP * math.sqrt(1 / slow.mean().item())) * slow[:, None]
        asked = asked - (asked @ common)[:, None] * common  # what all tokens share tells none from another
        key[rows, slice(0, width) if own else slice(width, None)] += asked if own else asked @ turned.T
        passed = spread[[j % width for j in range(rows.start, rows.stop)]]
        value[rows, :width] += passed
        for head in range(i * group, (i + 1) * group):
            rows = slice(head * c.head_dim, (head + 1) * c.head_dim)
            query[rows, :width] += asked
            weights.o[:, rows] = said @ passed.T * (_LOUD * (_OWN if own else 1.0) / group)
    assert weights.norm is not None
    weights.norm *= _CERTAIN / _margin(normed @ said.T, lent)


def _random(out: int, size: int, device: torch.device, scale: float = 1.0) -> Tensor:
    return torch.randn(out, size, device=device) * (scale / math.sqrt(size))


def _orthogonal(size: int, device: torch.device) -> Tensor:
    found: Tensor = torch.linalg.qr(torch.randn(size, size, device=device))[0]
    return found


def _slow(shape: EagleShape) -> Tensor:
    """Return which numbers of a head, ``[D]``, rotations leave nearly as they are over a context."""
    pairs = shape.config.head_dim // 2
    speed = shape.config.rope.theta ** (-torch.arange(pairs) / pairs)
    found = (speed < max(_NEAR, speed.min().item() * 1.01)).float()
    return found.repeat_interleave(2)


def _as_said(normed: Tensor, lent: SharedTargetWeights) -> Tensor:
    """Return what turns a token's embedding into its row of the target's head, ``[width, width]``, by least
    squares; of size one."""
    square = normed.T @ normed
    square += torch.eye(len(square), device=square.device) * square.diagonal().mean() * 1e-3
    found: Tensor = torch.linalg.solve(square, normed.T @ lent.head.float()).T
    return found / (normed @ found.T).pow(2).mean().sqrt()


def _margin(said: Tensor, lent: SharedTargetWeights) -> float:
    """Return how far, on average, the logit of a token that is passed on stands above the mean."""
    some = torch.linspace(0, len(said) - 1, min(256, len(said)), device=said.device).long()
    states = said[some]
    states = states * (states.pow(2).mean(-1, keepdim=True) + 1e-12).rsqrt() * lent.norm.float()
    logits = states @ lent.head.float().T
    return (logits[torch.arange(len(some)), some] - logits.mean(-1)).mean().clamp(min=1e-3).item()
