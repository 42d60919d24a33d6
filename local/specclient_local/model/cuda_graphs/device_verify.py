"""Turn logits of drafts and target into accepted tokens by tensors alone, for a batch at once, on any device.

It is the walk of :mod:`specclient_local.decoding.verify` down a chain, and the transform of
:mod:`specclient_local.model.sampling`, without a step that waits for a value: what the host would branch on
is computed for all and chosen by masks. It takes its random numbers from the request's own stream, in the
order in which the host's walk takes them, so a seed's answer does not depend on which of the two walked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """How the requests of a batch shape their logits, ``[S]`` each.

    Attributes:
        temperature: 0 for the one-hot of the largest logit.
        top_p: share of the probability kept.
        top_k: tokens kept; 0 for all.
        cuts: whether any request has a top-p or top-k: they need the logits sorted.
    """

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    cuts: bool


@dataclass(frozen=True, slots=True)
class DraftTensors:
    """Chains of guesses; those of a request beyond its depth are there for the shape alone.

    Attributes:
        tokens: ``[S, K]``.
        picked: ``[S, K]`` bool, those that were not drawn: their q is the one-hot.
        depth: ``[S]`` how many count.
    """

    tokens: Tensor
    picked: Tensor
    depth: Tensor


@dataclass(frozen=True, slots=True)
class AcceptanceResult:
    """What a walk won, ``[S]`` each.

    Attributes:
        accepted: how many tokens of the draft.
        token: the target's own token after them.
        used: how many uniform numbers draft and walk took.
    """

    accepted: Tensor
    token: Tensor
    used: Tensor


def batch_probabilities(logits: Tensor, shaping: SamplingTensors) -> Tensor:
    """Apply temperature, then top-k, then top-p, and normalise: ``[S, N, V]`` to the same in float64.

    Equal to :func:`specclient_local.model.sampling.probabilities` of each request's rows; at temperature 0
    it is the one-hot of the largest logit, the first of equal ones.
    """
    best = logits.argmax(dim=-1, keepdim=True)
    greedy = (shaping.temperature == 0.0)[:, None, None]
    scaled = logits.double()
    scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / torch.where(
        greedy, 1.0, shaping.temperature[:, None, None]
    )
    p = _cut(scaled, shaping) if shaping.cuts else torch.softmax(scaled, dim=-1)
    return torch.where(greedy, torch.zeros_like(p).scatter_(-1, best, 1.0), p)


def _cut(scaled: Tensor, shaping: SamplingTensors) -> Tensor:
    """Turn scaled logits into probabilities of the k likeliest, then of the fewest that reach top-p."""
    vocab = scaled.shape[-1]
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    k = shaping.top_k[:, None, None].expand(-1, scaled.shape[1], 1)
    kth = ordered.gather(-1, (torch.where(k > 0, k, vocab) - 1).clamp(max=vocab - 1))
    p = torch.softmax(ordered.masked_fill(ordered < kth, -torch.inf), dim=-1)
    kept = p.masked_fill(p.cumsum(-1) - p >= shaping.top_p[:, None, None], 0.0)
    # A top-p of 1 cuts nothing, not even what rounding puts beyond it.
    kept = torch.where((shaping.top_p >= 1.0)[:, None, None], p, kept)
    return torch.zeros_like(p).scatter_(-1, order, kept / kept.sum(-1, keepdim=True))


def draw_tokens(p: Tensor, uniform: Tensor) -> Tensor:
    """Draw a token from each ``[S, V]`` by inversion of the cumulative distribution, with ``[S]`` numbers."""
    cumulative = p.cumsum(dim=-1)
    at = uniform[:, None] * cumulative[:, -1:]
    # right=True steps over tokens of probability zero; not a number gives an id beyond the last.
    found = torch.searchsorted(cumulative, at, right=True)[:, 0]
    return found.clamp(max=p.shape[-1] - 1)


def accept_greedy(best: Tensor, drafts: DraftTensors) -> AcceptanceResult:
    """Accept drafts as long as each is the target's own greedy choice.

    Args:
        best: ``[S, K + 1]`` the target's tokens after the root and after each draft.
        drafts: what is to be verified.
    """
    steps = torch.arange(drafts.tokens.shape[1], device=best.device)
    right = (best[:, :-1] == drafts.tokens) & (steps < drafts.depth[:, None])
    accepted = right.long().cumprod(-1).sum(-1)
    return AcceptanceResult(accepted, best.gather(1, accepted[:, None])[:, 0], torch.zeros_like(accepted))


def accept_sampled(
    p: Tensor, q: Tensor | None, drafts: DraftTensors, certain: Tensor, uniform: Tensor
) -> AcceptanceResult:
    """Accept each draft with probability min(1, p / q); after a refusal draw from (p − q)+, else from p.

    Args:
        p: ``[S, K + 1, V]`` the target's distributions.
        q: ``[S, K, V]`` what drafts were drawn from; None where all were picked.
        drafts: what is to be verified.
        certain: ``[S]`` bool, requests at temperature 0: nothing of theirs takes a number.
        uniform: ``[S, 2 K + 1]`` the requests' next numbers, of which their drafts took the first ones.
    """
    depth, picked, count = drafts.depth, drafts.picked, drafts.tokens.shape[1]
    steps = torch.arange(count, device=depth.device)
    counts = steps < depth[:, None]
    drawn = torch.where(certain, 0, (counts & ~picked).sum(-1))
    wanted = p[:, :-1].gather(-1, drafts.tokens[..., None])[..., 0]
    claimed = torch.ones_like(wanted) if q is None else q.gather(-1, drafts.tokens[..., None])[..., 0]
    claimed = torch.where(picked, 1.0, claimed)
    chance = torch.where(wanted < claimed, wanted / claimed, 1.0)
    # Certain outcomes take no number. Which one an outcome takes is right where all before it were accepted.
    unsure = (chance > 0.0) & (chance < 1.0) & counts
    number = drawn[:, None] + unsure.long().cumsum(-1) - unsure.long()
    kept = counts & torch.where(unsure, uniform.gather(1, number) < chance, chance >= 1.0)
    accepted = kept.long().cumprod(-1).sum(-1)
    at = accepted[:, None]
    left = p.gather(1, at[..., None].expand(-1, -1, p.shape[-1]))[:, 0]
    if count:
        rest = _residual(left, q, drafts, at.clamp(max=count - 1))
        left = torch.where((accepted < depth)[:, None], rest, left)
    tried = (unsure & (steps <= at)).sum(-1)
    token = draw_tokens(left, uniform.gather(1, (drawn + tried)[:, None])[:, 0])
    return AcceptanceResult(accepted, token, drawn + tried + ~certain)


def _residual(p: Tensor, q: Tensor | None, drafts: DraftTensors, at: Tensor) -> Tensor:
    """Return (p − q)+ normalised for the draft at step ``at`` ``[S, 1]``, or p ``[S, V]`` if that is zero."""
    rest = p.scatter(1, drafts.tokens.gather(1, at), 0.0)
    if q is not None:
        own = q.gather(1, at[..., None].expand(-1, -1, q.shape[-1]))[:, 0]
        rest = torch.where(drafts.picked.gather(1, at), rest, (p - own).clamp(min=0.0))
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0.0, rest / total, p)
