"""Length policies, which choose the number of tokens or the tree widths to draft next.

An adaptive policy learns from the drafts of its request how many tokens are accepted, and chooses the shape
that is best at that acceptance (:mod:`specclient_local.drafting.best_shape`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Protocol

from specclient_local.drafting.best_shape import (
    RoundLoad,
    cached_best_length,
    cached_best_widths,
    common_speeds,
    rounded_acceptance,
)
from specclient_local.drafting.drafter import (
    DrafterChosenChain,
    DraftShape,
    TreeWidths,
    UnionShape,
    chain,
    shape_size,
)
from specclient_local.drafting.measured_rounds import MeasuredRounds
from specclient_local.drafting.round_costs import CONTEXT_STEP, RoundCosts
from specclient_local.request.params import MAX_DRAFT_LENGTH, MAX_PREDICTED_LENGTH
from specclient_local.request.token_tree import ROOT, TokenTree

_DECAY = 0.98
"""Factor by which earlier observations fade with each draft."""

_PROBE_EVERY = 16
_PROBE_LENGTH = 2
"""While drafting does not pay off, every 16th round drafts 2 tokens, to notice when it does again."""

_STEP_RANGE = (3, 10)
"""Least and greatest draft length of :class:`StepLength`."""

_GOOD, _BAD = 0.7, 0.4
"""Accepted shares of a draft from which on it is lengthened, and below which it is shortened."""

ASSUMED_COSTS = RoundCosts(0.0, tuple(1.0 + 0.05 * k for k in range(MAX_PREDICTED_LENGTH + 1)))
"""Costs of free drafts where measurements must not be used: each row costs a twentieth of a plain step."""


_LEAST_GAIN = 1.02
"""Expected speed-up from which requests draft together: estimates and times are not more exact."""


class RecentAcceptance:
    """The mean acceptance of a method's latest drafts, of all requests: the prior of the next request.

    It is not below ``LEAST``, so that requests after some whose drafts were rejected still try their own
    where that costs little.
    """

    LEAST = 0.4
    _DECAY = 0.998

    def __init__(self, prior: float = 0.7, weight: float = 16.0) -> None:
        self._accepted, self._tried = prior * weight, weight

    @property
    def prior(self) -> float:
        """The prior of a request that begins now."""
        return max(self.LEAST, self._accepted / self._tried)

    def add(self, accepted: int, tried: int) -> None:
        """Add the observations of a draft."""
        self._accepted = self._accepted * self._DECAY + accepted
        self._tried = self._tried * self._DECAY + tried


class LengthPolicy(Protocol):
    """Chooses a request's draft shapes from the acceptance of its earlier drafts."""

    def next(self, load: RoundLoad) -> DraftShape:
        """Return the shape to draft in a round."""
        ...

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Record which nodes of a draft were accepted."""
        ...


class AdaptiveLength:
    """Chooses shapes from a request's own estimates of α and β; older rounds fade.

    An estimate is the ratio of accepted to tried nodes of this request. The shape also depends on the load by
    other requests.

    Args:
        cost: measured costs.
        prior: α before any observation, worth ``weight`` observations.
        weight: number of observations that the prior counts as.
        widths: whether to draft siblings where they pay off; if not, α counts any node at a position.
        recent: gives the prior instead, and gets the observations of α.
    """

    def __init__(
        self,
        cost: RoundCosts,
        prior: float = 0.7,
        weight: float = 4.0,
        *,
        widths: bool = False,
        recent: RecentAcceptance | None = None,
    ) -> None:
        self._cost, self._recent = cost, recent
        prior = prior if recent is None else recent.prior
        self._accepted, self._tried = prior * weight, weight
        self._later, self._later_tried = 0.25 * weight, weight
        self._widths = widths
        self._idle = 0
        self._chosen_for: tuple[int, int, int, float, float] | None = None
        self._choice: tuple[TreeWidths, TreeWidths] = (), ()

    @property
    def alpha(self) -> float:
        """Estimated probability that the first node at a position is accepted."""
        return self._accepted / self._tried

    def cost_at(self, context: int) -> RoundCosts:
        """Return the measured costs with so many tokens before the draft."""
        return self._cost.at(context)

    @property
    def beta(self) -> float:
        """Estimated probability that a later sibling is accepted after the earlier ones were rejected."""
        return self._later / self._later_tried

    def next(self, load: RoundLoad) -> TreeWidths:
        """Return the shape to draft in a round; see
        :func:`specclient_local.drafting.best_shape.best_widths`.

        If drafting does not pay off even for this request alone, it is probed with a short chain now and
        then. If only the load of other requests prevents it, it waits until that falls.
        """
        alpha, beta = rounded_acceptance(self.alpha), rounded_acceptance(self.beta) if self._widths else 0.0
        wanted = load.drafting, load.others, load.context // CONTEXT_STEP, alpha, beta
        if wanted != self._chosen_for:  # under load, this takes a tenth of a round's time for 64 requests
            cost = self._cost.at(load.context)
            best = cached_best_widths(alpha, beta, cost, RoundLoad(load.drafting, load.others))
            self._choice = best, best or cached_best_widths(alpha, beta, cost, RoundLoad())
            self._chosen_for = wanted
        best, alone = self._choice
        if alone:
            return best
        self._idle += 1
        return chain(_PROBE_LENGTH) if self._idle % _PROBE_EVERY == 0 else ()

    def update(self, tree: TokenTree, path: list[int]) -> None:
        """Record which nodes of a draft were accepted."""
        if not len(tree):
            return
        first = tried = later = later_tried = 0
        # Each accepted node, and the root, has one observation of α: whether its first child was accepted.
        # (Any child, if the policy drafts no siblings itself.) Otherwise the later children up to the
        # accepted one, or all if none was accepted, are observations of β.
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
        if self._recent is not None:
            self._recent.add(first, tried)
        if later_tried:
            self._later = self._later * _DECAY + later
            self._later_tried = self._later_tried * _DECAY + later_tried


class CommonLength:
    """Chooses one length for all requests of a recorded round, whose slots all have as many rows.

    Attributes:
        measured: the times of rounds, which correct the calibrated costs.
    """

    def __init__(self) -> None:
        self.measured = MeasuredRounds()
        self._idle = 0

    def next(
        self, policies: Sequence[AdaptiveLength], context: int, others: int, kind: Hashable = None
    ) -> int:
        """Return the number of tokens to draft: the one with the most tokens per cost; 0 if it gains little.

        While drafting does not pay off, all requests probe a short draft in the same round now and then; if
        each chose a round of its own, hardly any round would be without drafts. While it gains little, a
        plain round is measured now and then.

        Args:
            policies: of the requests that may draft, at least one.
            context: the mean number of tokens before the drafts.
            others: sequences of the round that do not draft.
            kind: of the round, see :class:`MeasuredRounds`.
        """
        cost = policies[0].cost_at(context)
        lengths = range(min(len(cost.verify), MAX_DRAFT_LENGTH + 1))
        calibrated = [cost.round(length, len(policies), others) for length in lengths]
        costs = self.measured.costs(kind, calibrated)
        speeds = common_speeds([each.alpha for each in policies], costs, others)
        best = speeds.index(max(speeds))
        if speeds[best] > _LEAST_GAIN * speeds[0]:
            return 0 if self.measured.wants_plain(kind, speeds[best] / speeds[0]) else best
        self._idle += 1
        return _PROBE_LENGTH if self._idle % _PROBE_EVERY == 0 else 0


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
    """Chains for drafts that cost nothing and are right or wrong for long stretches, as predictions are.

    The draft after a fully accepted one is twice as long, the draft after a rejected one is short. Neither is
    longer than pays off at the measured acceptance.

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
        alpha, cost = rounded_acceptance(self._estimate.alpha), self._cost.at(load.context)
        pays = cached_best_length(alpha, cost, _without_context(load))
        if not pays and not cached_best_length(alpha, cost, RoundLoad()):
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
    """Leaves the length to the drafter, and gives it the function that returns how many tokens pay off.

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
    return cached_best_length(rounded_acceptance(alpha), cost, load)


def _without_context(load: RoundLoad) -> RoundLoad:
    """Return a load without its context, which ``cost`` accounts for already. Improves caching."""
    return RoundLoad(load.drafting, load.others)
