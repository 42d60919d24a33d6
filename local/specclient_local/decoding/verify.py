"""The acceptance rules: which drafted tokens are kept, and the target's token after them.

Token by token, a chain is verified as in Leviathan et al. (arXiv 2211.17192, Algorithm 1; proof in Appendix
A.1) and Chen et al. (arXiv 2302.01318, Algorithm 2); siblings of a tree are tried in order as in SpecInfer
(arXiv 2305.09781, Algorithm 2). As a block, the prefixes of a chain are tried, longer ones first (Sun et al.,
arXiv 2403.10444, Algorithm 2). Either way the emitted tokens have the target's distribution, whatever the
drafter proposes; as a block, at least as many drafted tokens are accepted on average (Theorem 2 there).

This module is the one statement of the rules. The general path of :mod:`specclient_local.decoding.speculate`
calls :func:`verify`, and the acceptance rate that training reports is :func:`expected_acceptance`. The
following places repeat the rules or a part of them. They do not follow a change made here, because a lower
layer cannot import this module, and neither compiled code nor a recorded CUDA graph can call it. Paths are
relative to ``specclient_local``.

The rules themselves, to be changed together with this module:

- ``model/cuda_graphs/device_verify.py``: ``accept_sampled``, ``_try_tokens``, ``_prefix_chances``,
  ``_block_probability``, ``_try_prefixes`` and ``_residual`` (chains, any temperature, either rule) and
  ``accept_greedy`` (chains, temperature 0). Tensors only: a recorded round cannot wait for a value on the
  host.
- ``model/native/entry_points.c``: ``accept_greedy``, called by ``specclient_verify`` and ``specclient_round``
  (chains, temperature 0). It needs a change only if the rule for one-hot distributions changes: there p(x) /
  q(x) is 0 or 1, so acceptance is equality with the target's argmax, by either rule.

Parts on which the rules rest, to be changed only if that part changes:

- ``model/native/row_ops.h``: ``argmax``, and ``model/sampling.py``: ``_largest``: the greedy token is the
  first of equal logits, and NaN is larger than any number.
- ``request/sequence.py``: ``accept`` and ``draw`` of the random stream: draws invert the cumulative
  distribution, and a certain outcome consumes no random number. ``draw_tokens`` and ``accept_sampled`` of
  ``device_verify.py`` repeat both, so that a seed gives the same answer on either path.
- ``request/token_tree.py``: ``branch`` draws siblings one after another, each without the earlier ones, and
  ``drafting/union.py``: ``add_to_union`` leaves out a picked token that equals an earlier sibling. Both are
  exact because the choice of a sibling depends only on the earlier siblings, and each is verified against
  the distribution from which it was chosen, given those. They hold for every rule of acceptance that is exact
  for one token.
- ``drafting/drafter.py``: ``is_chain_shape``, and ``decoding/round_entry.py``: ``verification``: which drafts
  are verified as a block.

Statistics that replay greedy answers, and need a change only if the rule for one-hot distributions changes:
``replay_greedy`` in ``training/losses.py``, ``replayed_acceptance`` in ``training/heads/learners.py``, and
``_try`` in ``drafting/layer_skip.py``.

``tests/local/decoding/test_acceptance_everywhere.py`` runs the first two lists and ``training/losses.py`` on
the same inputs as this module, and compares the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specclient_local.request.params import Verification
from specclient_local.request.sequence import NO_TOKEN
from specclient_local.request.token_tree import ROOT, Distribution, TokenTree, probability_of


class RandomSource(Protocol):
    """A source of random outcomes. Tests substitute one that enumerates all outcomes."""

    def accept(self, probability: float) -> bool:
        """Return True with the given probability."""
        ...

    def draw(self, distribution: Distribution) -> int:
        """Return a token drawn from the distribution."""
        ...


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """The result of a verification.

    Attributes:
        path: indices of the accepted nodes, first level first; each is the parent of the next.
        token: the target's token after them. At least one token is thus emitted per verification.
    """

    path: list[int]
    token: int


def verify(
    tree: TokenTree, target: Sequence[Distribution], random: RandomSource, rule: Verification = "token"
) -> AcceptedPath:
    """Return the accepted nodes of a draft, and the target's token after them.

    Args:
        tree: N drafted tokens, each with the distribution from which it was drawn.
        target: the target's distributions after the root and after each node, ``[N + 1]``, each ``[V]`` or
            one-hot.
        random: the request's random stream.
        rule: ``token`` fits every tree. ``block`` is for drafts that are a chain whatever tokens are drawn:
            it is not exact for a tree that is a chain by chance, because it averages over all tokens that may
            be drawn next. A chain whose tokens were all picked is verified by ``token`` in any case: both
            rules accept equally many of them, and ``token`` sums less.

    Raises:
        EngineError: no token may follow the root.
    """
    if rule == "block" and any(isinstance(q, np.ndarray) for q in tree.q):
        return _verify_block(tree, target, random)
    return _verify_tokens(tree, target, random)


def _verify_tokens(tree: TokenTree, target: Sequence[Distribution], random: RandomSource) -> AcceptedPath:
    """Descend the tree: at each node try the children in order, then draw from the remaining distribution.

    After each rejected child, p is replaced by its :func:`residual`, against which the next child is tried
    (SpecInfer, Algorithm 2). The walk ends where no child is accepted.
    """
    path: list[int] = []
    node = ROOT
    while True:
        p = target[node + 1]
        for child in tree.children(node):
            token, q = tree.tokens[child], _drawn_from(tree, child)
            if random.accept(acceptance_probability(p, q, token)):
                path.append(child)
                node = child
                break
            p = residual(p, q)
        else:
            return _ended(tree, path, p, random)


def _verify_block(tree: TokenTree, target: Sequence[Distribution], random: RandomSource) -> AcceptedPath:
    """Try the prefixes of a chain, the longest first, then draw from what remains after the accepted one.

    With the :func:`prefix_chances` p_0, …, p_K, the whole chain is accepted with probability p_K, and a
    shorter prefix of i tokens, if no longer one was accepted, with :func:`prefix_acceptance` of p_i and the
    sum of (p_i p − q)+, where p and q are the distributions of the token after the prefix. The next token is
    drawn from (p_i p − q)+ normalised, or from p after the whole chain (Sun et al., arXiv 2403.10444,
    Algorithm 2, equations 4 and 5).

    Then at least i tokens are accepted with probability p_i, given the first i drafted ones, however long the
    chain is. So a chain may end at any token if that depends only on the tokens up to there.
    """
    chances = prefix_chances(tree, target)
    kept = len(chances) - 1
    left = target[kept]
    accepted = random.accept(chances[kept])
    while not accepted:
        kept -= 1
        if chances[kept] == 0.0:
            continue  # certainly not accepted
        remaining, total = excess(target[kept], _drawn_from(tree, kept), chances[kept])
        accepted = not kept or random.accept(prefix_acceptance(chances[kept], total))
        left = _normalised(remaining, total, target[kept]) if accepted else left
    return _ended(tree, list(range(kept)), left, random)


def _drawn_from(tree: TokenTree, node: int) -> Distribution:
    """Return the distribution from which a node was drawn; its own token if it was picked."""
    q = tree.q[node]
    return tree.tokens[node] if q is None else q


def _ended(tree: TokenTree, path: list[int], p: Distribution, random: RandomSource) -> AcceptedPath:
    """Return the accepted path with a token drawn from p after it."""
    if path and isinstance(p, int) and p == NO_TOKEN:
        # No token may follow the last accepted node because a grammar is complete. That node's token
        # is then returned as the final token, so that a verification always emits one.
        return AcceptedPath(path[:-1], tree.tokens[path[-1]])
    return AcceptedPath(path, random.draw(p))


def acceptance_probability(p: Distribution, q: Distribution, token: int) -> float:
    """Return min(1, p(x) / q(x)), the probability of accepting a token x that was drawn from q."""
    p_token, q_token = probability_of(p, token), probability_of(q, token)
    return p_token / q_token if p_token < q_token else 1.0


def prefix_chances(tree: TokenTree, target: Sequence[Distribution]) -> list[float]:
    """Return p_0 = 1 and p_i = min(1, p_{i−1} p(x_i) / q(x_i)) for the tokens x_i of a chain, ``[K + 1]``.

    The chain ends before a token that may not follow because a grammar is complete: K is then smaller.
    """
    chances = [1.0]
    for node, token in enumerate(tree.tokens):
        p = target[node]
        if isinstance(p, int) and p == NO_TOKEN:
            break
        p_token, q_token = probability_of(p, token), probability_of(_drawn_from(tree, node), token)
        chances.append(min(1.0, chances[-1] * (p_token / q_token if q_token else 1.0)))
    return chances


def prefix_acceptance(chance: float, remaining: float) -> float:
    """Return the probability of accepting a prefix after all longer ones were rejected.

    R / (R + 1 − p_i), where R is the sum of (p_i p − q)+ (Sun et al., arXiv 2403.10444, equation 5).

    Args:
        chance: p_i.
        remaining: R.
    """
    return remaining / (remaining + (1.0 - chance)) if chance < 1.0 else 1.0


def expected_acceptance(p: Tensor, q: Tensor) -> Tensor:
    """Return Σ min(p, q), the probability ``[N]`` that a token drawn from q is accepted by itself.

    It is the mean of :func:`acceptance_probability` over the tokens of q (Leviathan et al., corollary 3.6),
    and that of the first token of a chain by either rule.

    Args:
        p: ``[N, V]`` distributions of the target.
        q: ``[N, V]`` distributions of the draft.
    """
    return torch.minimum(p, q).sum(dim=-1)


def residual(p: Distribution, q: Distribution) -> Distribution:
    """Return (p − q)+ normalised: the target's distribution after a draw from q was rejected.

    A one-hot p is unchanged: the rejected token was not p's, so all of its probability remains.
    """
    return _normalised(*excess(p, q, 1.0), p)


def excess(p: Distribution, q: Distribution, scale: float) -> tuple[Distribution, float]:
    """Return (s p − q)+, which is not normalised, and its sum. A one-hot p stays one-hot.

    Args:
        p: distribution of the target.
        q: distribution of the draft.
        scale: s, above 0 and at most 1.
    """
    if isinstance(p, int):
        return p, max(scale - probability_of(q, p), 0.0)
    remaining = scale * p
    if isinstance(q, int):
        remaining[q] = 0.0
    else:
        np.subtract(remaining, q, out=remaining)
        np.maximum(remaining, 0.0, out=remaining)
    return remaining, float(remaining.sum())


def _normalised(remaining: Distribution, total: float, p: Distribution) -> Distribution:
    """Return an excess normalised; p if it is zero."""
    if isinstance(remaining, int):
        return remaining
    # The total is zero only if s p equals q up to rounding; the rejection then was itself a rounding effect.
    return remaining / total if total > 0.0 else p
