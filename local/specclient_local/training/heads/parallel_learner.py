"""A trainable P-EAGLE head: one pass predicts the tokens of all depths.

P-EAGLE (arXiv 2602.01469 §3): the rows of a block are those of EAGLE-3 up to the last token, then one row for
each further token, whose input is a mask token and a learned state instead of the token before it and the
target's state. A row of the block sees the rows of the text up to the last token and the block's rows before
it. In training, every selected position has a block of its own, and all blocks share one pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specclient_local.model.heads.eagle import EagleHead
from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.layer_weights import LayerWeights
from specclient_local.model.rope import turns
from specclient_local.training.heads.dataset import HeadsTrainingRows
from specclient_local.training.heads.initialization import initial_parallel_weights
from specclient_local.training.heads.learners import MOST_DEPTH, HeadsLearner


class ParallelEagleLearner(HeadsLearner):
    """A P-EAGLE head in training.

    Args:
        shape: its shape.
        shared: the target's shared weights; frozen.
        ids: ``[draft_vocab]`` the target's ids of its tokens.
        depth: number of depths to train.
        length: maximum number of tokens in a row.
        start: an EAGLE-3 head of the same shape, whose parameters the first layer starts with; None to start
            as an EAGLE-3 head does.
    """

    def __init__(
        self,
        shape: EagleShape,
        shared: SharedTargetWeights,
        ids: Tensor,
        *,
        depth: int,
        length: int,
        start: EagleWeights | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.depth, self.ids, self.independent = shape, depth, ids, True
        weights = initial_parallel_weights(shape, shared, ids, start)
        for name, value in _tensors(weights).items():
            parameter = nn.Parameter(value)
            self.register_parameter("lm_head" if name == "head" else name, parameter)
            setattr(weights, name, parameter)
        weights.further = tuple(self._registered(i, layer) for i, layer in enumerate(weights.further))
        self._weights, self._head = weights, EagleHead(shape, weights, shared)
        table = turns(shape.config.rope, shape.config.head_dim, length + depth + MOST_DEPTH)
        self._turns = table.to(shared.embedding.device)

    def weights(self) -> EagleWeights:
        """Return the current parameters."""
        return self._weights

    def depths(
        self, rows: HeadsTrainingRows, depth: int, positions: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield the states of each depth, all of which one pass computes."""
        ids, device = rows.ids[:, 1:], rows.ids.device
        batch, count = ids.shape
        every = torch.arange(count, device=device)
        last = every if positions is None else positions
        ahead = torch.arange(1, depth, device=device)
        root = torch.cat((every, last.repeat_interleave(len(ahead))))
        place = torch.cat((torch.zeros_like(every), ahead.repeat(len(last))))
        masks = len(root) - count
        features = rows.features[:, :-1, : rows.features.shape[2] - 1].to(self._weights.fc.dtype)
        states = torch.cat(
            (self._head.read(features), self._head.mask_state().expand(batch, masks, -1)), dim=1
        )
        tokens = F.pad(ids, (0, masks), value=self.shape.mask_token)
        attend = _BlockAttention(self.shape.config.heads, self.shape.config.kv_heads, root, place)
        hidden = self._head.step(tokens, states, self._turns[root + place], attend)
        yield hidden[:, last]
        if masks:
            yield from hidden[:, count:].reshape(batch, len(last), len(ahead), -1).unbind(2)

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of states."""
        return self._head.logits(states)

    def _registered(self, number: int, layer: LayerWeights) -> LayerWeights:
        """Register the tensors of a further layer as parameters, and return the layer with them."""
        found: dict[str, Any] = {}
        for name, value in _tensors(layer).items():
            found[name] = nn.Parameter(value)
            self.register_parameter(f"further_{number}_{name}", found[name])
        return replace(layer, **found)


class _BlockAttention:
    """Attention over the rows of the text up to a block's last token, and over the block's earlier rows.

    Args:
        heads: number of query heads of a layer.
        kv_heads: number of its key and value heads.
        root: ``[T]`` position of the last token before each row's block; a row of the text is its own.
        place: ``[T]`` number of each row in its block; 0 for a row of the text.
    """

    def __init__(self, heads: int, kv_heads: int, root: Tensor, place: Tensor) -> None:
        self._sizes = [heads, kv_heads, kv_heads]
        text = (place == 0) & (root <= root[:, None])
        own = (root == root[:, None]) & (place <= place[:, None])
        self._mask = text | own

    def __call__(self, qkv: Tensor) -> Tensor:
        """Return the attention output ``[B, T, H D]`` from ``[B, T, H + 2 KV, D]``."""
        q, k, v = torch.split(qkv.transpose(1, 2), self._sizes, dim=1)
        groups = self._sizes[0] // self._sizes[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask)
        return out.transpose(1, 2).flatten(2)


def _tensors(weights: EagleWeights | LayerWeights) -> dict[str, Tensor]:
    """Return the tensors that are trained, by name."""
    values = {field.name: getattr(weights, field.name) for field in dataclasses.fields(weights)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor) and name != "ids"}
