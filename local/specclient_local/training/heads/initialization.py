"""Initial weights of EAGLE and P-EAGLE heads; EAGLE-3 heads copy repeated text before any training.

Greedy text repeats itself, and a single layer takes longest to learn to copy. An EAGLE-3 head that
reads the target's embedding (tap 0) therefore starts as an induction head (Olsson et al., arXiv 2209.11895).
The state of a row holds the token before it. A query made from the row's own token thus matches the positions
after earlier occurrences of that token, and attention copies the tokens at these positions.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.layer_weights import LayerWeights

_QUERY_KEY_SCALE = 4.0
"""Scale of queries and keys: a match outweighs some hundreds of other positions."""

_MAX_SPEED = 0.02
"""Rotation per position, in radians, above which a pair of channels encodes position rather than tokens."""

_ATTENTION_SCALE = 3.0
"""Size of the attention output, relative to a state of size one."""

_OWN_TOKEN_SHARE = 0.3
"""Share of the row's own token in the attention output."""

_NOISE_SCALE = 0.05
"""Size of random weights, and of the target's later hidden states within a state."""

_MARGIN = 9.0
"""Initial distance between the logit of a copied token and the mean logit. It keeps the initial loss and the
copied logits from growing too large."""


def initial_eagle_weights(shape: EagleShape, shared: SharedTargetWeights, ids: Tensor | None) -> EagleWeights:
    """Return the initial parameters of a head.

    Args:
        shape: the shape of the head.
        shared: the target's shared weights; the head's output head starts as the target's rows of ``ids``.
        ids: ``[draft_vocab]`` the target's ids of the head's tokens (``eagle3``).
    """
    weights = _random_weights(shape, shared, ids)
    taps = shape.taps or ()
    if shape.kind == "eagle3" and taps[0] == 0 and shape.width == shape.target_hidden:
        _make_induction_head(shape, shared, weights)
    return weights


def initial_parallel_weights(
    shape: EagleShape, shared: SharedTargetWeights, ids: Tensor, start: EagleWeights | None = None
) -> EagleWeights:
    """Return the initial parameters of a P-EAGLE head.

    The further layers change the first one's output little, so that its first token is drafted as well as
    before.

    Args:
        shape: the shape of the head.
        shared, ids: as in :func:`initial_eagle_weights`.
        start: an EAGLE-3 head of the same shape, with whose parameters the head starts.
    """
    weights = initial_eagle_weights(shape, shared, ids) if start is None else _copied(start)
    c, width, device = shape.config, shape.width, shared.embedding.device
    heads = (c.heads + 2 * c.kv_heads) * c.head_dim
    size = shared.embedding.float().pow(2).mean().sqrt()
    weights.mask_states = torch.randn(shape.depths * shape.target_hidden, device=device) * size
    weights.further = tuple(
        LayerWeights(
            input_norm=torch.ones(width, device=device),
            qkv=_random(heads, width, device),
            qkv_bias=None,
            qk_norm=None,
            o=_random(width, c.heads * c.head_dim, device, 0.1),
            o_bias=None,
            post_norm=torch.ones(width, device=device),
            gate_up=_random(2 * c.intermediate_size, width, device),
            gate_up_bias=None,
            down=_random(width, c.intermediate_size, device, 0.1),
            down_bias=None,
        )
        for _ in range(1, c.layers)
    )
    return weights


def _copied(weights: EagleWeights) -> EagleWeights:
    """Return parameters that autograd can use; those of a checkpoint may be inference tensors."""
    values = {field.name: getattr(weights, field.name) for field in dataclasses.fields(weights)}
    cloned: dict[str, Any] = {n: v.clone() for n, v in values.items() if isinstance(v, Tensor)}
    return replace(weights, **cloned)


def _random_weights(shape: EagleShape, shared: SharedTargetWeights, ids: Tensor | None) -> EagleWeights:
    """Return random parameters whose ``fc`` passes the last of the states that it reads unchanged."""
    c, width = shape.config, shape.width
    three, device = shape.kind == "eagle3", shared.embedding.device
    inputs = shape.depths * shape.target_hidden if three else 2 * width
    fc = torch.zeros(width, inputs, device=device)
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
        weights.norm, weights.head = shared.norm.float().clone(), shared.head[ids].float().clone()
        weights.ids = ids
    return weights


def _make_induction_head(shape: EagleShape, shared: SharedTargetWeights, weights: EagleWeights) -> None:
    """Make an induction head of the weights, in place.

    The first key head attends to occurrences of the row's own token (if there is more than one key head),
    all others to positions whose previous token equals it.
    """
    c, width = shape.config, shape.width
    tokens, device = shared.embedding.float(), shared.embedding.device
    size = tokens.pow(2).mean().sqrt()
    normed = tokens * (tokens.pow(2).mean(-1, keepdim=True) + 1e-12).rsqrt()
    common = normed.mean(0)
    common = common / common.norm()
    rotation, value_basis = _orthogonal(width, device), _orthogonal(width, device)
    weights.fc[:, :width] = rotation / size
    weights.fc[:, width:] = _random(width, weights.fc.shape[1] - width, device, _NOISE_SCALE)
    slow = _slow_channels(shape).to(device)
    query, key, value = torch.split(weights.qkv, [n * c.head_dim for n in (c.heads, c.kv_heads, c.kv_heads)])
    for part in (query, key, value):
        part.mul_(_NOISE_SCALE)
    weights.o.zero_()
    to_output = _embedding_to_output(normed, shared)
    group = c.heads // c.kv_heads
    for i in range(c.kv_heads):
        own = i == 0 and c.kv_heads > 1
        rows = slice(i * c.head_dim, (i + 1) * c.head_dim)
        scale = _QUERY_KEY_SCALE * math.sqrt(1 / slow.mean().item())
        match = _random(c.head_dim, width, device, scale) * slow[:, None]
        match = match - (match @ common)[:, None] * common  # the mean of all tokens distinguishes none
        key[rows, slice(0, width) if own else slice(width, None)] += match if own else match @ rotation.T
        copied = value_basis[[j % width for j in range(rows.start, rows.stop)]]
        value[rows, :width] += copied
        for head in range(i * group, (i + 1) * group):
            rows = slice(head * c.head_dim, (head + 1) * c.head_dim)
            query[rows, :width] += match
            share = _OWN_TOKEN_SHARE if own else 1.0
            weights.o[:, rows] = to_output @ copied.T * (_ATTENTION_SCALE * share / group)
    assert weights.norm is not None
    weights.norm *= _MARGIN / _mean_margin(normed @ to_output.T, shared)


def _random(out: int, size: int, device: torch.device, scale: float = 1.0) -> Tensor:
    return torch.randn(out, size, device=device) * (scale / math.sqrt(size))


def _orthogonal(size: int, device: torch.device) -> Tensor:
    matrix: Tensor = torch.linalg.qr(torch.randn(size, size, device=device))[0]
    return matrix


def _slow_channels(shape: EagleShape) -> Tensor:
    """Return a mask ``[D]`` of the channels that rotary embeddings change little over a context."""
    pairs = shape.config.head_dim // 2
    speed = shape.config.rope.theta ** (-torch.arange(pairs) / pairs)
    slow = (speed < max(_MAX_SPEED, speed.min().item() * 1.01)).float()
    return slow.repeat_interleave(2)


def _embedding_to_output(normed: Tensor, shared: SharedTargetWeights) -> Tensor:
    """Return the least-squares map ``[width, width]`` from a token's embedding to its row of the output head.

    It is scaled so that its results have size one.
    """
    square = normed.T @ normed
    square += torch.eye(len(square), device=square.device) * square.diagonal().mean() * 1e-3
    matrix: Tensor = torch.linalg.solve(square, normed.T @ shared.head.float()).T
    return matrix / (normed @ matrix.T).pow(2).mean().sqrt()


def _mean_margin(copied: Tensor, shared: SharedTargetWeights) -> float:
    """Return the mean distance between the logit of a copied token and the mean logit.

    Args:
        copied: ``[V, width]`` the attention output for each token.
        shared: the target's shared weights.
    """
    some = torch.linspace(0, len(copied) - 1, min(256, len(copied)), device=copied.device).long()
    states = copied[some]
    states = states * (states.pow(2).mean(-1, keepdim=True) + 1e-12).rsqrt() * shared.norm.float()
    logits = states @ shared.head.float().T
    return (logits[torch.arange(len(some)), some] - logits.mean(-1)).mean().clamp(min=1e-3).item()
