"""Turn measured acceptance and measured cost into how far, and how wide, to draft next.

Leviathan et al. (arXiv 2211.17192 §3.5): with each draft token accepted with chance α, a round wins
(1 − α^(K+1)) / (1 − α) tokens on average, for K draft passes and one verification. Their cost of a
verification is that of one plain step; here it is what K + 1 rows were measured to cost, alone and in the
company of others. With w siblings at a place, the later ones each accepted with chance β once those before
were refused, 1 − (1 − α)(1 − β)^(w − 1) takes the place of α.
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
_STEPS = (3, 10)
_GOOD, _BAD = 0.7, 0.4
_WINS = 1.05
"""How much faster than the best chain a tree must look: β rests on few observations."""

_FINE = 64
"""Parts of one in which acceptance is told apart when a shape is chosen."""

ASSUMED_COSTS = RoundCosts(0.0, tuple(1.0 + 0.05 * k for k in range(MAX_PREDICTED_LENGTH + 1)))
"""For drafts that cost nothing where no measurement may enter: each row a twentieth of a plain step."""


@dataclass(frozen=True, slots=True)
class RoundLoad:
    """A round, as far as it bears on what a draft costs.

    Attributes:
        drafting: sequences that may draft, taken to be alike.
        others: sequences that draft nothing.
        context: tokens before the draft.
    """

    drafting: int = 1
    others: int = 0
    context: int = 0


class LengthPolicy(Protocol):
    """What decides a request's drafts from how the earlier ones fared."""

    def next(self, load: RoundLoad) -> DraftShape:
        """Return what to draft in a round."""
        ...

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Learn which nodes of a draft were kept."""
        ...


def expected_tokens(alpha: float, length: int) -> float:
    """Return the mean number of tokens a round of K = ``length`` wins, the target's own included."""
    if alpha >= 1.0:
        return length + 1.0
    return (1.0 - alpha ** (length + 1)) / (1.0 - alpha)


def best_length(
    alpha: float, cost: RoundCosts, drafting: int = 1, others: int = 0, most: int = MAX_DRAFT_LENGTH
) -> int:
    """Return the K with most tokens per cost; 0 where drafting loses. The shorter of equal ones.

    Args:
        alpha: chance that a draft token is accepted.
        cost: as measured at load.
        drafting: sequences of the round that may draft, taken to be alike.
        others: sequences of the round that draft nothing.
        most: largest K.
    """
    speed = [
        (drafting * expected_tokens(alpha, k) + others) / cost.round(k, drafting, others)
        for k in range(min(len(cost.verify), most + 1))
    ]
    return speed.index(max(speed))


def _trees() -> list[TreeWidths]:
    """Return the trees that are tried against chains: wide at the top, as many rows as a long chain."""
    tops = [top for depth in (1, 2, 3) for top in product((4, 3, 2), repeat=depth)]
    falling = [top for top in tops if list(top) == sorted(top, reverse=True)]
    found = [(*top, *chain(tail)) for top in falling for tail in range(MAX_DRAFT_LENGTH)]
    return [widths for widths in found if shape_size(widths) <= MAX_PREDICTED_LENGTH]


_TREES = _trees()


def best_widths(alpha: float, beta: float, cost: RoundCosts, load: RoundLoad) -> TreeWidths:
    """Return the widths with most tokens per cost: a chain's unless a tree wins.

    Args:
        alpha: chance that the first guess at a place is accepted.
        beta: chance that a later sibling is, those before it refused.
        cost: of the place in the context.
        load: of the round.
    """
    length = best_length(alpha, cost, load.drafting, load.others)
    best = chain(length)
    if not length:
        return best
    most = _WINS * _speed(best, alpha, beta, cost, load)
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
    return round(share * _FINE) / _FINE


class AdaptiveLength:
    """One request's estimates of α and β: accepted over accepted and refused, older rounds fading.

    The estimates are the request's own; how far it drafts depends on the others, too.

    Args:
        cost: as measured at load.
        prior: α before anything is known, worth ``weight`` observations.
        widths: whether siblings may be drafted where they pay; else α is of any guess at a place.
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
        """The estimate for a first guess."""
        return self._accepted / self._tried

    @property
    def beta(self) -> float:
        """The estimate for a sibling whose elder ones were refused."""
        return self._later / self._later_tried

    def next(self, load: RoundLoad) -> TreeWidths:
        """Return what to draft in a round; see :func:`best_widths`.

        A request whose drafts are refused too often to draft even when alone tries again now and then;
        one that is kept from it by the others' load waits until that falls.
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
        """Learn which nodes of a draft were kept."""
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
    """The same length every round."""

    def __init__(self, length: int) -> None:
        self._length = length

    def next(self, load: RoundLoad) -> TreeWidths:  # noqa: ARG002 - whatever the load
        """Return the chain."""
        return chain(self._length)

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Learn nothing."""


class StepLength:
    """One more token after a draft most of which was kept, one less after one most of which was refused."""

    def __init__(self) -> None:
        self._next = 5

    def next(self, load: RoundLoad) -> TreeWidths:  # noqa: ARG002 - whatever the load
        """Return a chain of 3 to 10 tokens."""
        return chain(self._next)

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Learn which nodes of a draft were kept."""
        if len(tree):
            kept = len(path) / tree.depth
            self._next = min(max(self._next + (kept >= _GOOD) - (kept < _BAD), _STEPS[0]), _STEPS[1])


class DoublingLength:
    """How far to draft where drafts cost nothing and are right or wrong for stretches at a time.

    A draft kept whole is followed by one twice as long, a refused one by a short one; neither is longer
    than pays at the measured acceptance.

    Args:
        cost: as measured at load; None where nothing measured may enter, so that a seeded request draws
            the same on every machine.
    """

    def __init__(self, cost: RoundCosts | None = None) -> None:
        self._cost = cost
        self._estimate = None if cost is None else AdaptiveLength(cost, prior=0.9)
        self._next = 7
        self._idle = 0

    def next(self, load: RoundLoad) -> TreeWidths:
        """Return what to draft in a round; where drafting loses even alone, a short one now and then."""
        if self._cost is None or self._estimate is None:
            return chain(self._next)
        alpha, cost = _rounded(self._estimate.alpha), self._cost.at(load.context)
        pays = _worth(alpha, cost, _alike(load))
        if not pays and not _worth(alpha, cost, RoundLoad()):
            self._idle += 1
            pays = _PROBE_LENGTH if self._idle % _PROBE_EVERY == 0 else 0
        return chain(min(self._next, pays))

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Learn which nodes of a draft were kept."""
        if not len(tree):
            return
        if len(path) == len(tree):
            self._next = min(2 * self._next + 1, MAX_PREDICTED_LENGTH)
        else:
            self._next = 3 if path else 1
        if self._estimate is not None:
            self._estimate.update(tree, path)


class DrafterChosenLength:
    """Leaves it to the drafter, and tells it what pays.

    Args:
        cost: as measured at load; None where nothing measured may enter.
    """

    def __init__(self, cost: RoundCosts | None = None) -> None:
        self._cost = cost

    def next(self, load: RoundLoad) -> DrafterChosenChain:
        """Return what to draft in a round."""
        if self._cost is None:
            return DrafterChosenChain(
                MAX_PREDICTED_LENGTH, partial(_pays, cost=ASSUMED_COSTS, load=RoundLoad())
            )
        cost = self._cost.at(load.context)
        return DrafterChosenChain(MAX_PREDICTED_LENGTH, partial(_pays, cost=cost, load=_alike(load)))

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Learn nothing: the drafter does."""


class UnionLength:
    """For several drafters at once: the models draft chains that pay, the look-up what it trusts.

    Args:
        models: what decides for each draft model.
        drafts: how many of them there are.
        lookup: what decides for the look-up.
    """

    def __init__(self, models: LengthPolicy, drafts: int, lookup: LengthPolicy) -> None:
        self._models, self._lookup, self._drafts = models, lookup, drafts

    def next(self, load: RoundLoad) -> UnionShape:
        """Return what to draft in a round, with as many rows as a long chain."""
        each, lookup = self._models.next(load), self._lookup.next(load)
        spare = max(0, MAX_PREDICTED_LENGTH - self._drafts * shape_size(each))
        if isinstance(lookup, DrafterChosenChain):
            lookup = DrafterChosenChain(min(lookup.depth, spare), lookup.worth)
        return UnionShape(each, lookup, self._drafts)

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Learn which nodes of a draft were kept."""
        self._models.update(tree, path)


def _pays(alpha: float, cost: RoundCosts, load: RoundLoad) -> int:
    return _worth(_rounded(alpha), cost, load)


def _alike(load: RoundLoad) -> RoundLoad:
    """Leave out the context, which the costs have in them already."""
    return RoundLoad(load.drafting, load.others)
