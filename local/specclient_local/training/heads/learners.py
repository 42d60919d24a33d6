"""Turn hidden states of a target into what its heads say depth by depth, and that into a loss and acceptance.

Depth k of a row at place t is the guess at token t + 2 + k, made of hidden states up to place t; the right
answer is the target's own distribution after token t + 1 + k. Heads that follow their own guesses are trained
on them: EAGLE-3's training-time test (arXiv 2503.01840 §3.2), which EAGLE-1 heads gain from as well (HASS,
arXiv 2408.15766 §3.2). Medusa's depths are its heads (arXiv 2401.10774 §2.2.1).
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

_FADING = 0.8
"""What each further depth weighs beside the one before it: it counts only where that one is right."""

_SOFT = 0.5
"""Weight of the target's whole distribution; the rest is its likeliest token's."""

_BLIND_SOFT = 0.7
"""The same of a blind learner: a tree is made of its guesses' whole ranking."""


_NOISE = 0.3
"""Size of the noise on states that a blind learner reads, beside theirs."""

_SHARE = 0.3
"""Places of a row that count: what all of them say costs more than it teaches."""


class HeadsLearner(nn.Module):
    """Heads that learn.

    Attributes:
        depth: how many depths it learns.
        ids: ``[draft_vocab]`` tokens that it can say; None for all.
        follows: whether its states should be the target's own.
        blind: whether it reads no guess, so that it learns where the target's likeliest tokens stood alone;
            with noise on what it reads, or it learns the texts by heart.
    """

    depth: int
    ids: Tensor | None = None
    follows: bool = False
    blind: bool = False

    def depths(self, rows: HeadsTrainingRows, depth: int, places: Tensor | None = None) -> Iterator[Tensor]:
        """Yield each depth's states, ``[B, P, width]``.

        Args:
            rows: what is read.
            depth: how many depths.
            places: ``[P]`` of a row, whose guesses are followed; all ``L - 1`` by default.
        """
        raise NotImplementedError

    def say(self, states: Tensor) -> Tensor:
        """Return logits ``[…, draft_vocab]`` after states of :meth:`depths`."""
        raise NotImplementedError

    def weights(self) -> EagleWeights | MedusaWeights:
        """Return the parameters as they are now."""
        raise NotImplementedError


class EagleLearner(HeadsLearner):
    """An EAGLE head that learns.

    Args:
        shape: what it is like.
        lent: what the target lends; frozen.
        ids: tokens of its own head (``eagle3``).
        depth: depths it learns.
        length: most tokens of a row.
    """

    def __init__(
        self, shape: EagleShape, lent: SharedTargetWeights, ids: Tensor | None, *, depth: int, length: int
    ) -> None:
        super().__init__()
        self.shape, self.depth, self.ids, self.follows = shape, depth, ids, shape.kind == "eagle"
        self._weights = initial_eagle_weights(shape, lent, ids)
        for name, value in _trained(self._weights).items():
            parameter = nn.Parameter(value)
            self.register_parameter("lm_head" if name == "head" else name, parameter)
            setattr(self._weights, name, parameter)
        self._head = EagleHead(shape, self._weights, lent)
        table = turns(shape.config.rope, shape.config.head_dim, length + depth + MOST_DEPTH)
        self._turns = table.to(lent.embedding.device)

    def weights(self) -> EagleWeights:
        """Return the parameters as they are now."""
        return self._weights

    def depths(self, rows: HeadsTrainingRows, depth: int, places: Tensor | None = None) -> Iterator[Tensor]:
        """Yield each depth's states, those of a depth made of the ones before."""
        count = rows.ids.shape[1] - 1
        every = torch.arange(count, device=rows.ids.device)
        at, followed = every, every if places is None else places
        last = rows.features.shape[2] - 1
        seen = rows.features[:, :-1, last:] if self.shape.kind == "eagle" else rows.features[:, :-1, :last]
        states = self._head.read(seen.to(self._weights.fc.dtype))
        attend = _TrainingTimeTest(self.shape.config.heads, self.shape.config.kv_heads, followed)
        for k in range(depth):
            ids = F.pad(rows.ids[:, 1 + k :], (0, k))[:, at]
            hidden = self._head.step(ids, states, self._turns[at + k], attend)
            if k == 0:  # all places are attended to, but no more than these are followed
                at, hidden = followed, hidden[:, followed]
            states = self._head.fed(hidden)
            yield hidden

    def say(self, states: Tensor) -> Tensor:
        """Return logits after states."""
        return self._head.logits(states)


MOST_DEPTH = 8
"""Depths that are measured at most, whatever was learnt."""


class _TrainingTimeTest:
    """Attention of a head that follows its own guesses: over what a row stands below, then over those.

    Args:
        heads, kv_heads: of the layer.
        places: ``[P]`` whose guesses are followed after the first pass, which has all.
    """

    def __init__(self, heads: int, kv_heads: int, places: Tensor) -> None:
        self._heads, self._kv, self._places = heads, kv_heads, places
        self._past: list[tuple[Tensor, Tensor]] = []

    def __call__(self, qkv: Tensor) -> Tensor:
        """Attend; ``[B, T, H + 2 KV, D]`` to ``[B, T, H D]``."""
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
        ahead = torch.arange(count, device=q.device) > self._places[:, None]
        scores = (q @ keys.transpose(-1, -2) * scale).masked_fill(ahead, -torch.inf)
        own = [(q * guessed).sum(-1, keepdim=True) * scale for guessed, _ in self._past[1:]]
        shares = torch.softmax(torch.cat([scores, *own], dim=-1).float(), dim=-1).type_as(v)
        out = shares[..., :count] @ values
        for i, (_, said) in enumerate(self._past[1:]):
            out = out + shares[..., count + i : count + i + 1] * said
        return out.transpose(1, 2).flatten(2)


class MedusaLearner(HeadsLearner):
    """Medusa heads that learn; they read tokens by the target's own head.

    Args:
        shape: what they are like.
        lent: what the target lends; frozen.
    """

    def __init__(self, shape: MedusaShape, lent: SharedTargetWeights) -> None:
        super().__init__()
        self.shape, self.depth, self.blind = shape, shape.heads, True
        new = lent.embedding.new_zeros
        self._blocks = nn.ParameterList(
            new(size, dtype=torch.float32)
            for _ in range(shape.heads * shape.blocks)
            for size in ((shape.hidden, shape.hidden), (shape.hidden,))
        )
        pairs = list(zip(self._blocks[::2], self._blocks[1::2], strict=True))
        each = range(0, len(pairs), shape.blocks)
        self._weights = MedusaWeights([pairs[i : i + shape.blocks] for i in each], [])
        self._heads, self._read = MedusaHeads(shape, self._weights, lent), lent.head

    def weights(self) -> MedusaWeights:
        """Return the parameters as they are now."""
        return self._weights

    def depths(self, rows: HeadsTrainingRows, depth: int, places: Tensor | None = None) -> Iterator[Tensor]:
        """Yield each head's states."""
        features = rows.features[:, :-1, -1:]
        features = features if places is None else features[:, places]
        last = self._heads.read(features.to(self._blocks[0].dtype))
        for head in range(min(depth, self.depth)):
            yield self._heads.state(head, last)

    def say(self, states: Tensor) -> Tensor:
        """Return logits after states."""
        return F.linear(states, self._read)


@dataclass(frozen=True, slots=True)
class FrozenTarget:
    """The target, as far as its last hidden states tell.

    Attributes:
        lent: what it lends.
        ids: ``[draft_vocab]`` the tokens that a learner can say; None for all.
    """

    lent: SharedTargetWeights
    ids: Tensor | None = None

    @torch.no_grad()
    def states(self, rows: HeadsTrainingRows) -> Tensor:
        """Return the last states as its head reads them, ``[B, L, hidden]``."""
        last = rows.features[:, :, -1].float()
        return F.rms_norm(last, last.shape[-1:], self.lent.norm.float(), self.lent.eps)

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """Return what it says of the learner's tokens after states, ``[…, draft_vocab]``."""
        head = self.lent.head if self.ids is None else self.lent.head[self.ids]
        return F.linear(states.to(head.dtype), head)

    def placed(self, tokens: Tensor) -> Tensor:
        """Return where tokens are among the learner's, -1 for those that it cannot say."""
        if self.ids is None:
            return tokens
        place = tokens.new_full((len(self.lent.head),), -1)
        place[self.ids] = torch.arange(len(self.ids), device=tokens.device)
        return place[tokens]


def heads_loss(
    learner: HeadsLearner, teacher: FrozenTarget, rows: HeadsTrainingRows, dice: torch.Generator
) -> Tensor:
    """Return the loss of rows: cross-entropy to the target, softly and to its likeliest token, by depth.

    Some places count, drawn anew each time, and at each depth those whose right answer the learner can say.
    An ``eagle`` head's states are drawn to the target's, too (arXiv 2401.15077 §3.3).
    """
    states, best = teacher.states(rows), teacher.placed(rows.best)
    count = states.shape[1]
    chosen = torch.randperm(count - 1, generator=dice)[: max(1, round(_SHARE * (count - 1)))]
    places = chosen.sort().values.to(states.device)
    said = rows.ids[:, 1:] == rows.best[:, :-1]
    told = said[:, places] if learner.blind else torch.ones_like(said[:, places])
    total, soft = states.new_zeros(()), _BLIND_SOFT if learner.blind else _SOFT
    read = replace(rows, features=_noisy(rows.features, dice)) if learner.blind else rows
    for k, own in enumerate(learner.depths(read, learner.depth, places)):
        right = (places + 1 + k).clamp(max=count - 1)
        real = told & (places + 1 + k < rows.lengths[:, None]) & best[:, right].ge(0)
        if learner.blind:  # what follows a token that another was likelier than is none of its business
            told = told & said[:, right.clamp(max=count - 2)]
        truth, near, answer = states[:, right][real], own[real], best[:, right][real]
        wanted = F.softmax(teacher.logits(truth).float(), dim=-1).mul_(soft)
        wanted.scatter_add_(1, answer[:, None], torch.full_like(wanted[:, :1], 1 - soft))
        loss = F.cross_entropy(learner.say(near).float(), wanted, reduction="sum")
        if learner.follows:
            loss = loss + F.smooth_l1_loss(near.float(), truth, reduction="sum") / truth.shape[-1]
        total = total + _FADING**k * loss / max(1, len(answer))  # there may be nothing to learn from
    return total


def _noisy(features: Tensor, dice: torch.Generator) -> Tensor:
    """Return states with noise in proportion to each one's size."""
    wide = features.float()
    noise = torch.randn(wide.shape, generator=dice).to(wide.device)
    return wide + _NOISE * wide.pow(2).mean(-1, keepdim=True).sqrt() * noise


@torch.inference_mode()
def replayed_acceptance(learner: HeadsLearner, rows: HeadsTrainingRows, begin: int, depth: int) -> Tensor:
    """Replay rounds over greedy answers: return how many, then how many go right up to each depth.

    As long as a head's likeliest token is the target's, what follows is what it would have been fed. A round
    begins where the one before it ended, so easy stretches take few of them.

    Args:
        rows: greedy answers.
        begin: their first own token's place.
        depth: guesses of a round.

    Returns:
        ``[1 + depth]`` counts.
    """
    best = rows.best
    right = torch.ones(best.shape[0], best.shape[1] - 1, dtype=torch.bool, device=best.device)
    runs = torch.zeros_like(right, dtype=torch.int64)
    for k, own in enumerate(learner.depths(rows, depth)):
        token = learner.say(own).argmax(-1)
        token = token if learner.ids is None else learner.ids[token]
        right = right & (token == F.pad(best[:, 1 + k :], (0, k), value=-1))
        runs += right
    found = [0] * (1 + depth)
    for row, length in zip(runs.tolist(), rows.lengths.tolist(), strict=True):
        place = begin - 1
        while place + depth < length - 1:
            found[0] += 1
            for k in range(row[place]):
                found[1 + k] += 1
            place += row[place] + 1
    return torch.tensor(found)


def _trained(weights: EagleWeights) -> dict[str, Tensor]:
    """Return the parameters of an EAGLE head that learn."""
    names = [field.name for field in dataclasses.fields(weights) if field.name != "ids"]
    found = {name: getattr(weights, name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}
