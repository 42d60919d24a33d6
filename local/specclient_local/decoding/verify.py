"""Turn a tree of guesses and the target's probabilities into the accepted path and one token more.

Leviathan et al. (arXiv 2211.17192, Alg. 1 and App. A.1) and Chen et al. (arXiv 2302.01318, Alg. 2)
for a chain; siblings tried in turn as in SpecInfer (arXiv 2305.09781, Alg. 2). Whatever the drafter
proposes, the tokens that leave here are distributed as the target alone would draw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specclient_local.request.sequence import NO_TOKEN
from specclient_local.request.token_tree import ROOT, Distribution, TokenTree, probability_of


class RandomSource(Protocol):
    """Where randomness comes from; a test puts every outcome in its place."""

    def accept(self, probability: float) -> bool:
        """Return True with this probability."""
        ...

    def draw(self, distribution: Distribution) -> int:
        """Return a token drawn from the distribution."""
        ...


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """What a verification keeps.

    Attributes:
        path: accepted nodes, from the first level down; each the parent of the next.
        token: the target's own token after them.
    """

    path: list[int]
    token: int


def verify(tree: TokenTree, target: Sequence[Distribution], choose: RandomSource) -> AcceptedPath:
    """Walk down the tree: try siblings in order, then draw from what is left.

    Args:
        tree: the guesses.
        target: ``[N + 1]`` the target's distribution after the root and after each node.
        choose: the request's random stream.
    """
    path: list[int] = []
    node = ROOT
    while True:
        p = target[node + 1]
        for child in tree.children(node):
            token, q = tree.tokens[child], tree.q[child]
            drawn_from: Distribution = token if q is None else q
            if choose.accept(acceptance_probability(p, drawn_from, token)):
                path.append(child)
                node = child
                break
            p = residual(p, drawn_from)
        else:
            if path and isinstance(p, int) and p == NO_TOKEN:
                # No token may follow the last guess (a grammar is fulfilled): it is the round's own token.
                return AcceptedPath(path[:-1], tree.tokens[path[-1]])
            return AcceptedPath(path, choose.draw(p))


def acceptance_probability(p: Distribution, q: Distribution, token: int) -> float:
    """Return min(1, p(x) / q(x)) for a token x drawn from q."""
    wanted, drawn = probability_of(p, token), probability_of(q, token)
    return wanted / drawn if wanted < drawn else 1.0


def residual(p: Distribution, q: Distribution) -> Distribution:
    """Return (p − q)+ normalised: the target's distribution once a draw from q was refused.

    A one-hot p stays as it is: a refused token was not p's, so all of p is left.
    """
    if isinstance(p, int):
        return p
    if isinstance(q, int):
        rest = p.copy()
        rest[q] = 0.0
    else:
        rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    # Zero only where p equals q up to rounding; a refusal then had a chance of rounding size as well.
    return rest / total if total > 0.0 else p
