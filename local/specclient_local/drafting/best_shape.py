"""The best shape of a draft: the number of tokens, or the tree widths, with the most tokens per cost.

If each draft token is accepted with probability α, a round of K drafted tokens emits (1 − α^(K+1)) / (1 − α)
tokens on average, for K draft passes and one verification (Leviathan et al., arXiv 2211.17192 §3.1, equation
1; §3.5 chooses K by it). The paper assumes that a verification costs one plain step. Here its cost is the
measured cost of a pass over K + 1 rows, alone and in a batch. With w siblings at a position, each later one
of which is accepted with probability β after the earlier ones were rejected, α is replaced by
1 − (1 − α)(1 − β)^(w − 1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from specclient_local.drafting.drafter import TreeWidths, chain, shape_size
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.request.params import MAX_DRAFT_LENGTH, MAX_PREDICTED_LENGTH

_TREE_ADVANTAGE = 1.05
"""Factor by which a tree must beat the best chain, because β rests on few observations."""

DRAFT_ADVANTAGE = 1.05
"""Factor by which drafting must beat a round without drafts: costs and acceptance are measured with errors,
and where arithmetic is the limit, as in large batches, gain and loss are close."""

_ACCEPTANCE_STEPS = 64
"""Steps from 0 to 1 to which acceptance is rounded when a shape is chosen, so that choices can be cached."""


@dataclass(frozen=True, slots=True)
class RoundLoad:
    """The properties of a round on which a draft's cost depends.

    Attributes:
        drafting: number of sequences that may draft; assumed to be alike.
        others: number of sequences that do not draft.
        context: number of tokens before the draft.
    """

    drafting: int = 1
    others: int = 0
    context: int = 0


def expected_tokens(alpha: float, length: float) -> float:
    """Return the mean number of tokens that a round of K = ``length`` drafted tokens emits, the target's own
    included.

    (1 − α^(K+1)) / (1 − α), Leviathan et al. (arXiv 2211.17192 §3.1, equation 1).

    Args:
        alpha: probability that a drafted token is accepted, 0 to 1.
        length: K; a mean if drafts vary in length.
    """
    return length + 1.0 if alpha >= 1.0 else (1.0 - alpha ** (length + 1)) / (1.0 - alpha)


def best_length(
    alpha: float, cost: RoundCosts, drafting: int = 1, others: int = 0, most: int = MAX_DRAFT_LENGTH
) -> int:
    """Return the K with the most tokens per cost, the smallest of equal ones.

    0 if drafting is not clearly faster than a round without drafts.

    Args:
        alpha: probability that a drafted token is accepted.
        cost: measured costs.
        drafting: sequences of the round that may draft; assumed to be alike.
        others: sequences of the round that do not draft.
        most: largest K to consider.
    """
    speed = [
        (drafting * expected_tokens(alpha, k) + others) / cost.round(k, drafting, others)
        for k in range(min(len(cost.verify), most + 1))
    ]
    return speed.index(max(speed)) if max(speed) > DRAFT_ADVANTAGE * speed[0] else 0


def common_speeds(alphas: Sequence[float], costs: Sequence[float], others: int = 0) -> list[float]:
    """Return the tokens per cost of rounds whose requests all have K = 0, 1, … drafted tokens.

    In a recorded round all slots have as many rows as the longest draft, so a shorter one saves nothing.

    Args:
        alphas: for each request that may draft, the probability that a drafted token is accepted.
        costs: of the rounds.
        others: sequences of the round that do not draft.
    """
    alike = Counter(map(rounded_acceptance, alphas))  # many requests have the same few
    reached, tokens = [*map(float, alike.values())], float(len(alphas) + others)
    found = [tokens / costs[0]]
    for cost in costs[1:]:
        reached = [alpha * before for alpha, before in zip(alike, reached, strict=True)]
        tokens += sum(reached)
        found.append(tokens / cost)
    return found


def _trees() -> list[TreeWidths]:
    """Return the tree widths to compare with chains: wide at the top, with as many rows as a long chain."""
    tops = [top for depth in (1, 2, 3) for top in product((4, 3, 2), repeat=depth)]
    falling = [top for top in tops if list(top) == sorted(top, reverse=True)]
    found = [(*top, *chain(tail)) for top in falling for tail in range(MAX_DRAFT_LENGTH)]
    return [widths for widths in found if shape_size(widths) <= MAX_PREDICTED_LENGTH]


_TREES = _trees()


def best_widths(alpha: float, beta: float, cost: RoundCosts, load: RoundLoad) -> TreeWidths:
    """Return the widths with the most tokens per cost: a chain, unless a tree clearly beats it.

    Args:
        alpha: probability that the first node at a position is accepted.
        beta: probability that a later sibling is accepted after the earlier ones were rejected.
        cost: costs at this position of the context.
        load: the round.
    """
    length = best_length(alpha, cost, load.drafting, load.others)
    best = chain(length)
    if not length:
        return best
    most = _TREE_ADVANTAGE * _speed(best, alpha, beta, cost, load)
    for widths in _TREES:
        speed = _speed(widths, alpha, beta, cost, load)
        if len(widths) <= len(cost.verify) - 1 and speed > most:
            best, most = widths, speed
    return best


def _speed(widths: TreeWidths, alpha: float, beta: float, cost: RoundCosts, load: RoundLoad) -> float:
    """Return the tokens per plain step's time of a round with drafts of these widths."""
    tokens = reached = 1.0  # the target's own token, and the probability that all levels so far are accepted
    for width in widths:
        reached *= 1.0 - (1.0 - alpha) * (1.0 - beta) ** (width - 1)
        tokens += reached
    return (load.drafting * tokens + load.others) / cost.tree(widths, load.drafting, load.others)


cached_best_widths = lru_cache(maxsize=4096)(best_widths)
"""The same as :func:`best_widths`, from a cache; for rounded acceptance."""


@lru_cache(maxsize=4096)
def cached_best_length(alpha: float, cost: RoundCosts, load: RoundLoad) -> int:
    """Return the best length of a predicted chain, from a cache; for rounded acceptance."""
    return best_length(alpha, cost, load.drafting, load.others, MAX_PREDICTED_LENGTH)


def rounded_acceptance(share: float) -> float:
    """Return a probability rounded to steps, of which the caches have one entry each."""
    return round(share * _ACCEPTANCE_STEPS) / _ACCEPTANCE_STEPS
