"""Length policies: how many tokens, and which tree widths, to draft next.

If each draft token is accepted with probability α, a round of K drafted tokens emits (1 − α^(K+1)) / (1 − α)
tokens on average, for K draft passes and one verification (Leviathan et al., arXiv 2211.17192 §3.5, equation
1). Their verification costs as much as a plain step; here it costs what K + 1 rows were measured to cost,
alone and in a batch. With w siblings at a position, of which the later ones are each accepted with
probability β after the earlier ones were rejected, α is replaced by 1 − (1 − α)(1 − β)^(w − 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Protocol

from specclient_local.drafting.drafter import (
    DrafterChosenChain,
    DraftShape,
    TreeWidths,
    UnionShape,
    chain,
    shape_size,
)
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.request.params import MAX_DRAFT_LENGTH, MAX_PREDICTED_LENGTH
from specclient_local.request.token_tree import ROOT, TokenTree

_DECAY = 0.98
_PROBE_EVERY = 16
_PROBE_LENGTH = 2
_STEP_RANGE = (3, 10)
_GOOD, _BAD = 0.7, 0.4
_TREE_ADVANTAGE = 1.05
"""Factor by which a tree must beat the best chain, because β rests on few observations."""

_ACCEPTANCE_STEPS = 64
"""Steps from 0 to 1 to which acceptance is rounded when a shape is chosen, so that choices can be cached."""

ASSUMED_COSTS = RoundCosts(0.0, tuple(1.0 + 0.05 * k for k in range(MAX_PREDICTED_LENGTH + 1)))
"""Costs of free drafts where measurements must not be used: each row costs a twentieth of a plain step."""


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


class LengthPolicy(Protocol):
    """Chooses a request's draft shapes from the acceptance of its earlier drafts."""

    def next(self, load: RoundLoad) -> DraftShape:
        """Return the shape to draft in a round."""
        ...

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Record which nodes of a draft were accepted."""
        ...


def expected_tokens(alpha: float, length: int) -> float:
    """Return the mean number of tokens that a round of K = ``length`` drafted tokens emits, the target's own
    included.

    (1 − α^(K+1)) / (1 − α), Leviathan et al. (arXiv 2211.17192 §3.1, equation 1).
    """
    if alpha >= 1.0:
        return length + 1.0
    return (1.0 - alpha ** (length + 1)) / (1.0 - alpha)


def best_length(
    alpha: float, cost: RoundCosts, drafting: int = 1, others: int = 0, most: int = MAX_DRAFT_LENGTH
) -> int:
    """Return the K with the most tokens per cost; 0 if drafting does not pay off. Of equal ones the smallest.

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
    return speed.index(max(speed))


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
    tokens = reached = 1.0
    for width in widths:
        reached *= 1.0 - (1.0 - alpha) * (1.0 - beta) ** (width - 1)
        tokens += reached
    return (load.drafting * tokens + load.others) / cost.tree(widths, load.drafting, load.others)


_chosen = lru_cache(maxsize=4096)(best_widths)


@lru_cache(maxsize=4096)
def _worth(alpha: float, cost: RoundCosts, load: RoundLoad) -> int:
    return best_length(alpha, cost, load.drafting, load.others, MAX_PREDICTED_LENGTH)


def _rounded(share: float) -> float:
    return round(share * _ACCEPTANCE_STEPS) / _ACCEPTANCE_STEPS


class AdaptiveLength:
    """Chooses shapes from a request's own estimates of α and β; older rounds fade.

    The estimates are accepted over tried nodes of this request. The shape also depends on the other requests'
    load.

    Args:
        cost: measured costs.
        prior: α before any observation, worth ``weight`` observations.
        weight: number of observations that the prior counts as.
        widths: whether to draft siblings where they pay off; if not, α counts any node at a position.
    """

    def __init__(
        self, cost: RoundCosts, prior: float = 0.7, weight: float = 4.0, *, widths: bool = False
    ) -> None:
        self._cost = cost
        self._accepted, self._tried = prior * weight, weight
        self._later, self._later_tried = 0.25 * weight, weight
        self._widths = widths
        self._idle = 0

    @property
    def alpha(self) -> float:
        """Estimated probability that the first node at a position is accepted."""
        return self._accepted / self._tried

    @property
    def beta(self) -> float:
        """Estimated probability that a later sibling is accepted after the earlier ones were rejected."""
        return self._later / self._later_tried

    def next(self, load: RoundLoad) -> TreeWidths:
        """Return the shape to draft in a round; see :func:`best_widths`.

        If drafting does not pay off even for this request alone, it is probed with a short chain now and
        then. If only the load of other requests prevents it, it waits until that falls.
        """
        cost = self._cost.at(load.context)
        best = self._best(cost, RoundLoad(load.drafting, load.others))
        if best or self._best(cost, RoundLoad()):
            return best
        self._idle += 1
        return chain(_PROBE_LENGTH) if self._idle % _PROBE_EVERY == 0 else ()

    def _best(self, cost: RoundCosts, load: RoundLoad) -> TreeWidths:
        beta = _rounded(self.beta) if self._widths else 0.0
        return _chosen(_rounded(self.alpha), beta, cost, load)

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Record which nodes of a draft were accepted."""
        if not len(tree):
            return
        first = tried = later = later_tried = 0
        for node in (ROOT, *path):
            siblings = tree.children(node)
            if not siblings:
                break
            kept = next((i for i, child in enumerate(siblings) if child in path), None)
            tried += 1
            first += kept is not None and (kept == 0 or not self._widths)
            if kept != 0:
                later += kept is not None
                later_tried += (len(siblings) - 1) if kept is None else kept
        self._accepted = self._accepted * _DECAY + first
        self._tried = self._tried * _DECAY + tried
        if later_tried:
            self._later = self._later * _DECAY + later
            self._later_tried = self._later_tried * _DECAY + later_tried


class FixedLength:
    """Chains of a fixed length."""

    def __init__(self, length: int) -> None:
        self._length = length

    def next(self, load: RoundLoad) -> TreeWidths:  # noqa: ARG002 - does not depend on the load
        """Return the shape of the chain."""
        return chain(self._length)

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Do nothing."""


class StepLength:
    """Chains of one more token after a mostly accepted draft, and one less after a mostly rejected one."""

    def __init__(self) -> None:
        self._next = 5

    def next(self, load: RoundLoad) -> TreeWidths:  # noqa: ARG002 - does not depend on the load
        """Return a chain of 3 to 10 tokens."""
        return chain(self._next)

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Record which nodes of a draft were accepted."""
        if len(tree):
            kept = len(path) / tree.depth
            self._next = min(
                max(self._next + (kept >= _GOOD) - (kept < _BAD), _STEP_RANGE[0]), _STEP_RANGE[1]
            )


class DoublingLength:
    """Chains for drafts that cost nothing and are right or wrong for long stretches, as a prediction is.

    A fully accepted draft is followed by one twice as long, a rejected one by a short one; neither exceeds
    what pays off at the measured acceptance.

    Args:
        cost: measured costs; None if measurements must not be used, so that a seed gives the same answer on
            every machine.
    """

    def __init__(self, cost: RoundCosts | None = None) -> None:
        self._cost = cost
        self._estimate = None if cost is None else AdaptiveLength(cost, prior=0.9)
        self._next = 7
        self._idle = 0

    def next(self, load: RoundLoad) -> TreeWidths:
        """Return the chain to draft; if drafting does not pay off even alone, a short one now and then."""
        if self._cost is None or self._estimate is None:
            return chain(self._next)
        alpha, cost = _rounded(self._estimate.alpha), self._cost.at(load.context)
        pays = _worth(alpha, cost, _without_context(load))
        if not pays and not _worth(alpha, cost, RoundLoad()):
            self._idle += 1
            pays = _PROBE_LENGTH if self._idle % _PROBE_EVERY == 0 else 0
        return chain(min(self._next, pays))

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Record which nodes of a draft were accepted."""
        if not len(tree):
            return
        if len(path) == len(tree):
            self._next = min(2 * self._next + 1, MAX_PREDICTED_LENGTH)
        else:
            self._next = 3 if path else 1
        if self._estimate is not None:
            self._estimate.update(tree, path)


class DrafterChosenLength:
    """Leaves the length to the drafter, and provides the function that says what pays off.

    Args:
        cost: measured costs; None if measurements must not be used.
    """

    def __init__(self, cost: RoundCosts | None = None) -> None:
        self._cost = cost

    def next(self, load: RoundLoad) -> DrafterChosenChain:
        """Return the shape to draft in a round."""
        if self._cost is None:
            return DrafterChosenChain(
                MAX_PREDICTED_LENGTH, partial(_pays, cost=ASSUMED_COSTS, load=RoundLoad())
            )
        cost = self._cost.at(load.context)
        return DrafterChosenChain(
            MAX_PREDICTED_LENGTH, partial(_pays, cost=cost, load=_without_context(load))
        )

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Do nothing: the drafter records acceptance itself."""


class UnionLength:
    """Shapes for several drafters at once: chains that pay off for the models, and the lookup's own choice.

    Args:
        models: policy for each draft model.
        drafts: number of draft models.
        lookup: policy for the n-gram lookup.
    """

    def __init__(self, models: LengthPolicy, drafts: int, lookup: LengthPolicy) -> None:
        self._models, self._lookup, self._drafts = models, lookup, drafts

    def next(self, load: RoundLoad) -> UnionShape:
        """Return shapes with as many rows in total as a long chain."""
        each, lookup = self._models.next(load), self._lookup.next(load)
        spare = max(0, MAX_PREDICTED_LENGTH - self._drafts * shape_size(each))
        if isinstance(lookup, DrafterChosenChain):
            lookup = DrafterChosenChain(min(lookup.depth, spare), lookup.worth)
        return UnionShape(each, lookup, self._drafts)

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Record which nodes of a draft were accepted."""
        self._models.update(tree, path)


def _pays(alpha: float, cost: RoundCosts, load: RoundLoad) -> int:
    return _worth(_rounded(alpha), cost, load)


def _without_context(load: RoundLoad) -> RoundLoad:
    """Return a load without its context, which ``cost`` accounts for already. Improves caching."""
    return RoundLoad(load.drafting, load.others)
