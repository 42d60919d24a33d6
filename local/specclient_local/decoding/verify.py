"""The acceptance rule: which drafted tokens are kept, and the target's token after them.

A chain is verified as in Leviathan et al. (arXiv 2211.17192, Algorithm 1; proof in Appendix A.1) and Chen et
al. (arXiv 2302.01318, Algorithm 2); siblings of a tree are tried in order as in SpecInfer (arXiv 2305.09781,
Algorithm 2). The emitted tokens have the target's distribution, whatever the drafter proposes.

This module is the one statement of the rule. The general path of :mod:`specclient_local.decoding.speculate`
calls :func:`verify`, and the acceptance rate that training reports is :func:`expected_acceptance`. The
following places repeat the rule or a part of it. They do not follow a change made here, because a lower layer
cannot import this module, and neither compiled code nor a recorded CUDA graph can call it. Paths are relative
to ``specclient_local``.

The rule itself, to be changed together with this module:

- ``model/cuda_graphs/device_verify.py``: ``accept_sampled`` and ``_residual`` (chains, any temperature) and
  ``accept_greedy`` (chains, temperature 0). Tensors only: a recorded round cannot wait for a value on the
  host.
- ``model/native/entry_points.c``: ``accept_greedy``, called by ``specclient_verify`` and ``specclient_round``
  (chains, temperature 0). It needs a change only if the rule for one-hot distributions changes: there p(x) /
  q(x) is 0 or 1, so acceptance is equality with the target's argmax.

Parts on which the rule rests, to be changed only if that part changes:

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


def verify(tree: TokenTree, target: Sequence[Distribution], random: RandomSource) -> AcceptedPath:
    """Descend the tree: at each node try the children in order, then draw from the remaining distribution.

    After each rejected child, p is replaced by its :func:`residual`, against which the next child is tried
    (SpecInfer, Algorithm 2). The walk ends where no child is accepted.

    Args:
        tree: N drafted tokens, each with the distribution from which it was drawn.
        target: the target's distributions after the root and after each node, ``[N + 1]``, each ``[V]`` or
            one-hot.
        random: the request's random stream.

    Raises:
        EngineError: no token may follow the root.
    """
    path: list[int] = []
    node = ROOT
    while True:
        p = target[node + 1]
        for child in tree.children(node):
            token, q = tree.tokens[child], tree.q[child]
            drawn_from: Distribution = token if q is None else q
            if random.accept(acceptance_probability(p, drawn_from, token)):
                path.append(child)
                node = child
                break
            p = residual(p, drawn_from)
        else:
            if path and isinstance(p, int) and p == NO_TOKEN:
                # No token may follow the last accepted node because a grammar is complete. That node's token
                # is then returned as the final token, so that a verification always emits one.
                return AcceptedPath(path[:-1], tree.tokens[path[-1]])
            return AcceptedPath(path, random.draw(p))


def acceptance_probability(p: Distribution, q: Distribution, token: int) -> float:
    """Return min(1, p(x) / q(x)), the probability of accepting a token x that was drawn from q."""
    p_token, q_token = probability_of(p, token), probability_of(q, token)
    return p_token / q_token if p_token < q_token else 1.0


def expected_acceptance(p: Tensor, q: Tensor) -> Tensor:
    """Return Σ min(p, q), the probability ``[N]`` that a token drawn from q is accepted.

    It is the mean of :func:`acceptance_probability` over the tokens of q (Leviathan et al., corollary 3.6).

    Args:
        p, q: ``[N, V]`` distributions of the target and the draft.
    """
    return torch.minimum(p, q).sum(dim=-1)


def residual(p: Distribution, q: Distribution) -> Distribution:
    """Return (p − q)+ normalised: the target's distribution after a draw from q was rejected.

    A one-hot p is unchanged: the rejected token was not p's, so all of its probability remains.
    """
    if isinstance(p, int):
        return p
    if isinstance(q, int):
        remaining = p.copy()
        remaining[q] = 0.0
    else:
        remaining = np.maximum(p - q, 0.0)
    total = remaining.sum()
    # The total is zero only if p equals q up to rounding; the rejection then was itself a rounding effect.
    return remaining / total if total > 0.0 else p
