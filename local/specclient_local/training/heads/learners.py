"""Trainable heads: their logits at each depth, the training loss and the acceptance on greedy answers.

Depth k at position t predicts token t + 2 + k from hidden states up to position t. Its training target is the
target's distribution after token t + 1 + k. EAGLE heads are trained on their own predictions of earlier
depths: EAGLE-3's training-time test (arXiv 2503.01840 §3.2), which improves EAGLE-1 heads as well (HASS,
arXiv 2408.15766 §3.2). Medusa's depths are its heads (arXiv 2401.10774 §2.2.1). For P-EAGLE, see
:mod:`specclient_local.training.heads.parallel_learner`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specclient_local.model.heads.eagle import EagleHead
from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.medusa import MedusaHeads
from specclient_local.model.heads.medusa_weights import MedusaShape, MedusaWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.rope import turns
from specclient_local.training.heads.dataset import HeadsTrainingRows
from specclient_local.training.heads.initialization import initial_eagle_weights

MOST_DEPTH = 8
"""Number of depths beyond the trained ones that an EAGLE head's rotation table has room for."""

_DEPTH_DECAY = 0.8
"""Weight of a depth's loss relative to that of the depth before it: a token is used only if that was
accepted.
"""

_SOFT = 0.5
"""Weight of the target's whole distribution in the loss; the rest is the weight of its most likely token."""

_INDEPENDENT_SOFT = 0.7
"""The same for independent heads, whose trees use the ranking of all their tokens."""

_NOISE = 0.3
"""Size of the noise added to the hidden states of Medusa heads, relative to the states."""

_POSITIONS_SHARE = 0.3
"""Share of a row's positions in the loss; logits at all of them would cost more than they gain."""


class HeadsLearner(nn.Module):
    """Heads in training.

    Attributes:
        depth: number of depths that are trained.
        ids: ``[draft_vocab]`` the target's ids of the head's tokens; None for all.
        matches_states: whether the loss also compares its states with the target's.
        independent: whether a depth ignores the drafted tokens before it. The heads are then trained only
            where the answer has the target's most likely tokens.
        noise: size of the noise added to the hidden states, relative to the states, so that heads do not
            memorize the texts.
    """

    depth: int
    ids: Tensor | None = None
    matches_states: bool = False
    independent: bool = False
    noise: float = 0.0

    def depths(
        self, rows: HeadsTrainingRows, depth: int, positions: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield the states of each depth, ``[B, P, width]``.

        Args:
            rows: the answers and hidden states to read.
            depth: number of depths.
            positions: ``[P]`` positions at which states are computed; all ``L - 1`` by default.
        """
        raise NotImplementedError

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits ``[…, draft_vocab]`` of states from :meth:`depths`."""
        raise NotImplementedError

    def weights(self) -> EagleWeights | MedusaWeights:
        """Return the current parameters."""
        raise NotImplementedError


class EagleLearner(HeadsLearner):
    """An EAGLE head in training.

    Args:
        shape: its shape.
        shared: the target's shared weights; frozen.
        ids: ``[draft_vocab]`` the target's ids of its tokens (``eagle3``).
        depth: number of depths to train.
        length: maximum number of tokens in a row.
    """

    def __init__(
        self, shape: EagleShape, shared: SharedTargetWeights, ids: Tensor | None, *, depth: int, length: int
    ) -> None:
        super().__init__()
        self.shape, self.depth, self.ids = shape, depth, ids
        self.matches_states = shape.kind == "eagle"
        self._weights = initial_eagle_weights(shape, shared, ids)
        for name, value in _trainable(self._weights).items():
            parameter = nn.Parameter(value)
            self.register_parameter("lm_head" if name == "head" else name, parameter)
            setattr(self._weights, name, parameter)
        self._head = EagleHead(shape, self._weights, shared)
        table = turns(shape.config.rope, shape.config.head_dim, length + depth + MOST_DEPTH)
        self._turns = table.to(shared.embedding.device)

    def weights(self) -> EagleWeights:
        """Return the current parameters."""
        return self._weights

    def depths(
        self, rows: HeadsTrainingRows, depth: int, positions: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield the states of each depth, computed from those of the depths before it."""
        count = rows.ids.shape[1] - 1
        every = torch.arange(count, device=rows.ids.device)
        current, selected = every, every if positions is None else positions
        last = rows.features.shape[2] - 1
        read = rows.features[:, :-1, last:] if self.shape.kind == "eagle" else rows.features[:, :-1, :last]
        states = self._head.read(read.to(self._weights.fc.dtype))
        attend = _TrainingTimeTest(self.shape.config.heads, self.shape.config.kv_heads, selected)
        for k in range(depth):
            ids = F.pad(rows.ids[:, 1 + k :], (0, k))[:, current]
            hidden = self._head.step(ids, states, self._turns[current + k], attend)
            if k == 0:  # all positions have keys and values, but only the selected ones continue
                current, hidden = selected, hidden[:, selected]
            states = self._head.fed(hidden)
            yield hidden

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of states."""
        return self._head.logits(states)


class _TrainingTimeTest:
    """Attention over the real tokens up to a position and over the head's own predictions at that position.

    Args:
        heads: number of query heads of the layer.
        kv_heads: number of its key and value heads.
        positions: ``[P]`` positions of all passes after the first; the first pass has all positions.
    """

    def __init__(self, heads: int, kv_heads: int, positions: Tensor) -> None:
        self._heads, self._kv, self._positions = heads, kv_heads, positions
        self._past: list[tuple[Tensor, Tensor]] = []

    def __call__(self, qkv: Tensor) -> Tensor:
        """Return the attention output ``[B, T, H D]`` from ``[B, T, H + 2 KV, D]``."""
        q, k, v = torch.split(qkv.transpose(1, 2), [self._heads, self._kv, self._kv], dim=1)
        groups = self._heads // self._kv
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        if not self._past:
            self._past.append((k, v))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return out.transpose(1, 2).flatten(2)
        self._past.append((k, v))
        keys, values = self._past[0]
        scale, count = q.shape[-1] ** -0.5, keys.shape[2]
        future = torch.arange(count, device=q.device) > self._positions[:, None]
        scores = (q @ keys.transpose(-1, -2) * scale).masked_fill(future, -torch.inf)
        own = [(q * key).sum(-1, keepdim=True) * scale for key, _ in self._past[1:]]
        shares = torch.softmax(torch.cat([scores, *own], dim=-1).float(), dim=-1).type_as(v)
        out = shares[..., :count] @ values
        for i, (_, value) in enumerate(self._past[1:]):
            out = out + shares[..., count + i : count + i + 1] * value
        return out.transpose(1, 2).flatten(2)


class MedusaLearner(HeadsLearner):
    """Medusa heads in training; they share the target's output head.

    Args:
        shape: their shape.
        shared: the target's shared weights; frozen.
    """

    def __init__(self, shape: MedusaShape, shared: SharedTargetWeights) -> None:
        super().__init__()
        self.shape, self.depth, self.independent, self.noise = shape, shape.heads, True, _NOISE
        new = shared.embedding.new_zeros
        self._blocks = nn.ParameterList(
            new(size, dtype=torch.float32)
            for _ in range(shape.heads * shape.blocks)
            for size in ((shape.hidden, shape.hidden), (shape.hidden,))
        )
        pairs = list(zip(self._blocks[::2], self._blocks[1::2], strict=True))
        each = range(0, len(pairs), shape.blocks)
        self._weights = MedusaWeights([pairs[i : i + shape.blocks] for i in each], [])
        self._heads, self._output_head = MedusaHeads(shape, self._weights, shared), shared.head

    def weights(self) -> MedusaWeights:
        """Return the current parameters."""
        return self._weights

    def depths(
        self, rows: HeadsTrainingRows, depth: int, positions: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield the states of each head."""
        features = rows.features[:, :-1, -1:]
        features = features if positions is None else features[:, positions]
        last = self._heads.read(features.to(self._blocks[0].dtype))
        for head in range(min(depth, self.depth)):
            yield self._heads.state(head, last)

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of states."""
        return F.linear(states, self._output_head)


@dataclass(frozen=True, slots=True)
class FrozenTarget:
    """The target's predictions, computed from its saved hidden states.

    Attributes:
        shared: the target's shared weights.
        ids: ``[draft_vocab]`` the target's ids of the head's tokens; None for all.
    """

    shared: SharedTargetWeights
    ids: Tensor | None = None

    @torch.no_grad()
    def states(self, rows: HeadsTrainingRows) -> Tensor:
        """Return the last hidden states after the last norm, ``[B, L, hidden]``."""
        last = rows.features[:, :, -1].float()
        return F.rms_norm(last, last.shape[-1:], self.shared.norm.float(), self.shared.eps)

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """Return the target's logits of the head's tokens after states, ``[…, draft_vocab]``."""
        head = self.shared.head if self.ids is None else self.shared.head[self.ids]
        return F.linear(states.to(head.dtype), head)

    def draft_ids(self, tokens: Tensor) -> Tensor:
        """Return the head's ids of the target's tokens, -1 for tokens that the head does not have."""
        if self.ids is None:
            return tokens
        index = tokens.new_full((len(self.shared.head),), -1)
        index[self.ids] = torch.arange(len(self.ids), device=tokens.device)
        return index[tokens]


def heads_loss(
    learner: HeadsLearner, teacher: FrozenTarget, rows: HeadsTrainingRows, generator: torch.Generator
) -> Tensor:
    """Return the loss of rows: the cross-entropy with the target's distribution and its most likely token.

    Losses are summed over depths with decreasing weights. Each depth's loss is a mean over randomly chosen
    positions at which the head has the target's most likely token. For an ``eagle`` head, the distance of its
    states from the target's is added (arXiv 2401.15077 §3.3).

    Args:
        learner: the heads.
        teacher: their target.
        rows: the answers and hidden states to learn from.
        generator: source of the positions and of the noise; on the CPU.
    """
    states, best = teacher.states(rows), teacher.draft_ids(rows.best)
    count = states.shape[1]
    chosen = torch.randperm(count - 1, generator=generator)[: max(1, round(_POSITIONS_SHARE * (count - 1)))]
    positions = chosen.sort().values.to(states.device)
    greedy = rows.ids[:, 1:] == rows.best[:, :-1]
    usable = greedy[:, positions] if learner.independent else torch.ones_like(greedy[:, positions])
    total, soft = states.new_zeros(()), _INDEPENDENT_SOFT if learner.independent else _SOFT
    inputs = (
        replace(rows, features=_noisy(rows.features, learner.noise, generator)) if learner.noise else rows
    )
    for k, hidden in enumerate(learner.depths(inputs, learner.depth, positions)):
        predicted = (positions + 1 + k).clamp(max=count - 1)
        counted = usable & (positions + 1 + k < rows.lengths[:, None]) & best[:, predicted].ge(0)
        if learner.independent:  # it cannot know that a token other than the most likely one was chosen
            usable = usable & greedy[:, predicted.clamp(max=count - 2)]
        truth, own, answer = states[:, predicted][counted], hidden[counted], best[:, predicted][counted]
        wanted = F.softmax(teacher.logits(truth).float(), dim=-1).mul_(soft)
        wanted.scatter_add_(1, answer[:, None], torch.full_like(wanted[:, :1], 1 - soft))
        loss = F.cross_entropy(learner.logits(own).float(), wanted, reduction="sum")
        if learner.matches_states:
            loss = loss + F.smooth_l1_loss(own.float(), truth, reduction="sum") / truth.shape[-1]
        total = total + _DEPTH_DECAY**k * loss / max(1, len(answer))  # no position may be left
    return total


def _noisy(features: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """Return hidden states with noise of a size relative to that of each."""
    wide = features.float()
    noise = torch.randn(wide.shape, generator=generator).to(wide.device)
    return wide + size * wide.pow(2).mean(-1, keepdim=True).sqrt() * noise


@torch.inference_mode()
def replayed_acceptance(learner: HeadsLearner, rows: HeadsTrainingRows, begin: int, depth: int) -> Tensor:
    """Replay rounds of speculation over greedy answers, without running the target.

    As long as a head's most likely token is the target's, the answer's next token is the one that the head
    would read next. A round begins where the one before it ended, so predictable text takes few rounds.

    Args:
        learner: the heads.
        rows: greedy answers.
        begin: position of the first token of the answers.
        depth: drafted tokens per round.

    Returns:
        ``[1 + depth]``: the number of rounds, then the number of rounds accepted up to each depth.
    """
    best = rows.best
    right = torch.ones(best.shape[0], best.shape[1] - 1, dtype=torch.bool, device=best.device)
    runs = torch.zeros_like(right, dtype=torch.int64)
    for k, hidden in enumerate(learner.depths(rows, depth)):
        token = learner.logits(hidden).argmax(-1)
        token = token if learner.ids is None else learner.ids[token]
        right = right & (token == F.pad(best[:, 1 + k :], (0, k), value=-1))
        runs += right
    counts = [0] * (1 + depth)
    for row, length in zip(runs.tolist(), rows.lengths.tolist(), strict=True):
        position = begin - 1
        while position + depth < length - 1:
            counts[0] += 1
            for k in range(row[position]):
                counts[1 + k] += 1
            position += row[position] + 1
    return torch.tensor(counts)


def _trainable(weights: EagleWeights) -> dict[str, Tensor]:
    """Return the parameters of an EAGLE head that are trained."""
    names = [field.name for field in dataclasses.fields(weights) if field.name != "ids"]
    values = {name: getattr(weights, name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
