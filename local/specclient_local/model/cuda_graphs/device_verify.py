"""Sampling and verification of a batch of chains by tensors alone, on any device.

This repeats the acceptance rules of :mod:`specclient_local.decoding.verify` for chains, and the transform of
:mod:`specclient_local.model.sampling`. No step waits for a value on the host: both sides of each decision are
computed and selected by masks, so that a round can be recorded as a CUDA graph. Random numbers come from the
request's own stream in the order in which the host takes them, so a seed gives the same answer on either
path.

Shapes: S requests, K drafted tokens, V tokens in the vocabulary.

Distributions are float64 for float32 logits, as on the host. For half-precision logits, which are rounded far
more coarsely, they are float32: each token's probability then has a relative error of about 2⁻²³. Sums over
the vocabulary are float64 in both cases, so errors do not add up, and the memory per row is halved.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_BLOCK = 256
"""Tokens whose probabilities are summed together when a token is drawn from a float32 distribution."""

_BELOW_ONE = 1.0 - 2.0**-52

SORTED_AT_ONCE = 1 << 22
"""Logits that are sorted at a time for top-k and top-p, which bounds the memory for it."""


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """The sampling parameters of a batch, ``[S]`` each.

    Attributes:
        temperature: 0 for greedy.
        top_p: share of the probability to keep.
        top_k: number of tokens to keep; 0 keeps all.
        cuts: whether any request sets top-p or top-k, which need sorted logits.
    """

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    cuts: bool


@dataclass(frozen=True, slots=True)
class DraftTensors:
    """Drafted chains. Tokens beyond a request's depth are padding.

    Attributes:
        tokens: ``[S, K]`` ids.
        picked: ``[S, K]`` bool, true for tokens that were picked instead of drawn (q is one-hot).
        depth: ``[S]`` number of tokens that count.
    """

    tokens: Tensor
    picked: Tensor
    depth: Tensor


@dataclass(frozen=True, slots=True)
class AcceptanceResult:
    """The result of a verification, ``[S]`` each.

    Attributes:
        accepted: number of accepted tokens.
        token: the target's own token after them.
        used: number of random numbers that draft and verification consumed.
    """

    accepted: Tensor
    token: Tensor
    used: Tensor


def batch_probabilities(logits: Tensor, shaping: SamplingTensors) -> Tensor:
    """Apply temperature, then top-k, then top-p, and normalise.

    Equal to :func:`specclient_local.model.sampling.probabilities` of each request's rows. At temperature 0
    the result is the one-hot of the largest logit, the first of equal ones.

    Args:
        logits: ``[S, N, V]``.
        shaping: the requests' parameters.

    Returns:
        ``[S, N, V]`` float64 for float32 logits, else float32.
    """
    best = logits.argmax(dim=-1, keepdim=True)
    greedy = (shaping.temperature == 0.0)[:, None, None]
    wide = logits.to(torch.float64 if logits.dtype == torch.float32 else torch.float32)
    temperature = torch.where(greedy, 1.0, shaping.temperature[:, None, None]).to(wide.dtype)
    scaled = (wide - wide.amax(dim=-1, keepdim=True)).div_(temperature)
    p = _cut(logits, scaled, shaping) if shaping.cuts else torch.softmax(scaled, dim=-1)
    return p.masked_fill_(greedy, 0.0).scatter_add_(-1, best, greedy.to(p.dtype).expand(best.shape))


def weight_bits(vocab: int) -> int:
    """Return the number of bits after the point of a token's weight, so that the sum of all fits 63 bits."""
    return 62 - (vocab - 1).bit_length()


def _cut(logits: Tensor, scaled: Tensor, shaping: SamplingTensors) -> Tensor:
    """Return the probabilities of the top-k tokens, then of the fewest of them that reach top-p, ``[S, N,
    V]``.

    Tokens are in the order of their logits, and then of their ids. In float32, probabilities are added up as
    integers, whose sums do not depend on their order: the kernels of
    :mod:`specclient_local.model.cuda_graphs.triton_cuts` keep the same tokens without a sort.
    """
    slots, count, vocab = scaled.shape
    flat, rows = logits.flatten(0, 1), scaled.flatten(0, 1)
    top_k, top_p = (each[:, None].expand(-1, count).flatten() for each in (shaping.top_k, shaping.top_p))
    each = max(1, SORTED_AT_ONCE // vocab)
    out = torch.empty_like(rows)
    for first in range(0, slots * count, each):
        own = slice(first, first + each)
        out[own] = _cut_rows(flat[own], rows[own], top_k[own, None], top_p[own, None])
    return out.view(scaled.shape)


def _cut_rows(logits: Tensor, scaled: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Return the probabilities of rows ``[N, V]`` with parameters ``[N, 1]``."""
    vocab = scaled.shape[1]
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    kth = ordered.gather(-1, (torch.where(top_k > 0, top_k, vocab) - 1).clamp(max=vocab - 1))
    own = scaled.gather(-1, order).masked_fill_(ordered < kth, -torch.inf)
    if own.dtype == torch.float64:  # as on the host, so that a seed gives the same answer
        p = torch.softmax(own, dim=-1)
        gone = p.cumsum(-1) - p >= top_p
    else:
        p = own.exp_()
        weights = (p * 2.0 ** weight_bits(vocab)).long()
        limit = (top_p * weights.sum(-1, keepdim=True).double()).ceil_().long().clamp_(min=1)
        gone = weights.cumsum(-1).sub_(weights) >= limit
    # A top-p of 1 removes nothing, not even tokens that rounding puts beyond 1.
    p = p.masked_fill_(gone & (top_p < 1.0), 0.0)
    p = p.div_(p.sum(-1, keepdim=True, dtype=torch.float64).to(p.dtype))
    return torch.empty_like(p).scatter_(-1, order, p)


def draw_tokens(p: Tensor, uniform: Tensor) -> Tensor:
    """Draw one token per row by inversion of the cumulative distribution.

    Args:
        p: ``[S, V]`` probabilities.
        uniform: ``[S]`` numbers in [0, 1).

    Returns:
        ``[S]`` ids.
    """
    if p.dtype == torch.float32:
        return _draw_by_blocks(p, uniform)
    cumulative = p.cumsum(dim=-1)
    at = uniform[:, None] * cumulative[:, -1:]
    # right=True skips tokens of probability zero; NaN gives an id beyond the last, hence the clamp.
    found = torch.searchsorted(cumulative, at, right=True)[:, 0]
    return found.clamp(max=p.shape[-1] - 1)


def _draw_by_blocks(p: Tensor, uniform: Tensor) -> Tensor:
    """Draw as :func:`draw_tokens` does: first a block of tokens, then a token of the block.

    The sums are float64, but no float64 copy of the distribution is made.
    """
    vocab = p.shape[1]
    blocks = F.pad(p, (0, -vocab % _BLOCK)).view(len(p), -1, _BLOCK)
    ends = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    at = uniform[:, None] * ends[:, -1:]
    block = torch.searchsorted(ends, at, right=True).clamp(max=ends.shape[1] - 1)
    before = torch.where(block > 0, ends.gather(1, (block - 1).clamp(min=0)), 0.0)
    inner = blocks.gather(1, block[..., None].expand(-1, -1, _BLOCK))[:, 0].double().cumsum(-1)
    # The two sums round differently; a number beyond the last token of the block belongs to that token.
    rest = torch.minimum(at - before, inner[:, -1:] * _BELOW_ONE)
    found = block * _BLOCK + torch.searchsorted(inner, rest, right=True)
    return found[:, 0].clamp(max=vocab - 1)


def accept_greedy(best: Tensor, drafts: DraftTensors) -> AcceptanceResult:
    """Accept drafted tokens up to the first that is not the target's argmax.

    Args:
        best: ``[S, K + 1]`` the target's argmax after the root and after each drafted token.
        drafts: the chains to verify.
    """
    steps = torch.arange(drafts.tokens.shape[1], device=best.device)
    right = (best[:, :-1] == drafts.tokens) & (steps < drafts.depth[:, None])
    accepted = right.long().cumprod(-1).sum(-1)
    return AcceptanceResult(accepted, best.gather(1, accepted[:, None])[:, 0], torch.zeros_like(accepted))


def accept_sampled(
    p: Tensor,
    q: Tensor | None,
    drafts: DraftTensors,
    certain: Tensor,
    uniform: Tensor,
    *,
    block: Tensor | None = None,
) -> AcceptanceResult:
    """Accept drafted tokens one after another or as a block; then draw from what remains.

    As :func:`specclient_local.decoding.verify.verify` does for chains, with the same random numbers.

    Args:
        p: ``[S, K + 1, V]`` the target's distributions.
        q: ``[S, K, V]`` the distributions from which tokens were drawn; None if all were picked.
        drafts: the chains to verify.
        certain: ``[S]`` bool, requests at temperature 0, which consume no random number.
        uniform: ``[S, 2 K + 1]`` the requests' next random numbers; the drafts consumed the first ones.
        block: ``[S]`` bool, requests whose chains are verified as a block, none of whose tokens was picked;
            None if there are none.
    """
    depth, picked, count = drafts.depth, drafts.picked, drafts.tokens.shape[1]
    in_draft = torch.arange(count, device=depth.device) < depth[:, None]
    drawn = torch.where(certain, 0, (in_draft & ~picked).sum(-1))
    p_token = p[:, :-1].gather(-1, drafts.tokens[..., None])[..., 0]
    q_token = torch.ones_like(p_token) if q is None else q.gather(-1, drafts.tokens[..., None])[..., 0]
    q_token = torch.where(picked, 1.0, q_token)
    ratio = p_token / q_token
    probability = torch.where(p_token < q_token, ratio, 1.0)
    accepted, tried = _try_tokens(probability, in_draft, uniform, drawn)
    chance: Tensor | None = None
    if block is not None and q is not None and count:
        chances = _prefix_chances(ratio)
        longest, asked = _try_prefixes(_block_probability(p, q, depth, chances), uniform, drawn)
        accepted, tried = torch.where(block, longest, accepted), torch.where(block, asked, tried)
        chance = torch.where(block[:, None], chances.gather(1, accepted[:, None]), 1.0)
    at = accepted[:, None]
    left = p.gather(1, at[..., None].expand(-1, -1, p.shape[-1]))[:, 0]
    if count:
        scaled = left if chance is None else left * chance.to(left.dtype)
        remaining = _residual(scaled, q, drafts, at.clamp(max=count - 1))
        left = torch.where((accepted < depth)[:, None], remaining, left)
    token = draw_tokens(left, uniform.gather(1, (drawn + tried)[:, None])[:, 0])
    return AcceptanceResult(accepted, token, drawn + tried + ~certain)


def _try_tokens(
    probability: Tensor, in_draft: Tensor, uniform: Tensor, drawn: Tensor
) -> tuple[Tensor, Tensor]:
    """Accept the tokens of each chain with these probabilities, until one is rejected.

    Leviathan et al. (arXiv 2211.17192, Algorithm 1).

    Args:
        probability: ``[S, K]`` min(1, p / q).
        in_draft: ``[S, K]`` bool, tokens that are no padding.
        uniform: ``[S, 2 K + 1]`` random numbers.
        drawn: ``[S]`` number of them that the drafts consumed.

    Returns:
        The number of accepted tokens, and that of consumed random numbers, ``[S]`` each.
    """
    # Certain outcomes consume no number. The index is right for a token if all tokens before it were
    # accepted, and other tokens do not matter.
    uncertain = (probability > 0.0) & (probability < 1.0) & in_draft
    number = drawn[:, None] + uncertain.long().cumsum(-1) - uncertain.long()
    kept = in_draft & torch.where(uncertain, uniform.gather(1, number) < probability, probability >= 1.0)
    accepted = kept.long().cumprod(-1).sum(-1)
    steps = torch.arange(probability.shape[1], device=drawn.device)
    return accepted, (uncertain & (steps <= accepted[:, None])).sum(-1)


def _prefix_chances(ratio: Tensor) -> Tensor:
    """Return p_0 = 1 and p_i = min(1, p_{i−1} r_i) ``[S, K + 1]`` float64, given r = p / q ``[S, K]``.

    Ratios of padding may be NaN; so are the chances after it, which nothing uses.
    """
    chances = [torch.ones_like(ratio[:, 0], dtype=torch.double)]
    for each in ratio.double().unbind(1):
        chances.append((chances[-1] * each).clamp_(max=1.0))
    return torch.stack(chances, dim=1)


def _block_probability(p: Tensor, q: Tensor, depth: Tensor, chances: Tensor) -> Tensor:
    """Return the probability of accepting each prefix if all longer ones were rejected, ``[S, K + 1]``.

    It is p_K for the whole chain, R / (R + 1 − p_i) with R = Σ (p_i p − q)+ for a shorter one, and zero
    beyond the chain's end (Sun et al., arXiv 2403.10444, equation 5).
    """
    shorter = chances[:, :-1]
    scaled = p[:, :-1] * shorter[..., None].to(p.dtype)
    remaining = scaled.sub_(q).clamp_(min=0.0).sum(-1, dtype=torch.double)
    own = torch.where(shorter < 1.0, remaining / (remaining + (1.0 - shorter)), 1.0)
    lengths, whole = torch.arange(chances.shape[1], device=depth.device), depth[:, None]
    beyond = torch.where(lengths == whole, chances, 0.0)
    return torch.where(lengths < whole, F.pad(own, (0, 1)), beyond)


def _try_prefixes(probability: Tensor, uniform: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """Try the prefixes of each chain, the longest first, until one is accepted; the empty one certainly is.

    Sun et al. (arXiv 2403.10444, Algorithm 2).

    Args:
        probability: ``[S, K + 1]`` of :func:`_block_probability`.
        uniform: ``[S, 2 K + 1]`` random numbers.
        drawn: ``[S]`` number of them that the drafts consumed.

    Returns:
        The number of accepted tokens, and that of consumed random numbers, ``[S]`` each.
    """
    # As above; the index is right for a prefix if all longer ones were rejected.
    uncertain = (probability > 0.0) & (probability < 1.0)
    before = uncertain.long().flip(-1).cumsum(-1).flip(-1) - uncertain.long()
    asked = uniform.gather(1, drawn[:, None] + before) < probability
    kept = torch.where(uncertain, asked, probability >= 1.0)
    lengths = torch.arange(probability.shape[1], device=drawn.device)
    accepted = torch.where(kept, lengths, 0).amax(-1)
    return accepted, (uncertain & (lengths >= accepted[:, None])).sum(-1)


def _residual(p: Tensor, q: Tensor | None, drafts: DraftTensors, at: Tensor) -> Tensor:
    """Return (p − q)+ normalised for the token at step ``at`` ``[S, 1]``, or p ``[S, V]`` if that is zero.

    For a chain that is verified as a block, p is scaled by the chance of the accepted prefix.
    """
    remaining = p.scatter(1, drafts.tokens.gather(1, at), 0.0)
    if q is not None:
        own = q.gather(1, at[..., None].expand(-1, -1, q.shape[-1]))[:, 0]
        remaining = torch.where(drafts.picked.gather(1, at), remaining, (p - own).clamp(min=0.0))
    total = remaining.sum(-1, keepdim=True)
    return torch.where(total > 0.0, remaining / total, p)
