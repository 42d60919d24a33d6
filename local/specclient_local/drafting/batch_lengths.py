"""Draft lengths of the requests of a batch, which are chosen together.

Rows cost time where arithmetic is the limit, as in batches. A token is then drafted where its chance of being
accepted is the greatest, and only as long as the batch gains: a request that accepts much drafts, while
others beside it do not. The costs were measured when the engine was loaded, with other contexts and other
programs beside it, so the times of rounds that drafted are compared with those of rounds that did not.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from specclient_local.drafting.best_shape import DRAFT_ADVANTAGE, rounded_acceptance
from specclient_local.drafting.length_policy import AdaptiveLength
from specclient_local.drafting.round_costs import CONTEXT_STEP, RoundCosts
from specclient_local.request.params import MAX_DRAFT_LENGTH

_LEAST_CHANCE = 0.1
"""Chance of being accepted below which no token is drafted in a batch."""

_PROBE_EVERY = 16
_PROBE_LENGTH = 2
"""Every 16th round one request that does not draft tries 2 tokens, to notice when it should."""

_HOPED_ACCEPTANCE = 0.9
"""Acceptance at which a batch must gain for its requests to try drafts."""

_KEPT, _ENOUGH = 7, 3
"""Latest rounds whose median counts, and the number from which on it does."""

_AGAIN_EVERY = 64
"""Rounds after which rounds with, or without, drafts are measured again."""

_STEPS = 32
"""Steps to which the measured factor is rounded, so that choices can be cached."""

_CLEAR_GAIN = 1.3
"""Speed-up from which on rounds without drafts are not measured again."""


@dataclass(frozen=True, slots=True)
class TimedRound:
    """The lengths of a round's chains, and the function that gets the round's seconds when it has ended."""

    lengths: list[int]
    end: Callable[[float], None]


class BatchLengths:
    """Chooses the lengths of chains for all requests of a round, and learns from the times of rounds."""

    def __init__(self) -> None:
        self._times: dict[Hashable, _RoundTimes] = {}
        self._rounds = 0

    def next(
        self, policies: Sequence[AdaptiveLength], context: int, others: int, kind: Hashable = None
    ) -> TimedRound:
        """Return the number of tokens that each request drafts.

        Args:
            policies: of the requests that may draft, at least one; of one method.
            context: the mean number of tokens before the drafts.
            others: sequences of the round that do not draft.
            kind: what the time of a round depends on besides the drafts.
        """
        cost = policies[0].cost_at(context // CONTEXT_STEP * CONTEXT_STEP)
        alphas = tuple(rounded_acceptance(policy.alpha) for policy in policies)
        times = self._times.setdefault(kind, _RoundTimes())
        dearer = times.drafts_dearer()
        lengths, gain = best_lengths(alphas, cost, others, dearer)
        if gain <= DRAFT_ADVANTAGE or times.wants_plain(gain):
            hoped = best_lengths((_HOPED_ACCEPTANCE,) * len(alphas), cost, others, dearer)[1]
            lengths = self._probe(len(alphas)) if hoped > DRAFT_ADVANTAGE else (0,) * len(alphas)
        end = partial(times.add, cost.chains(lengths, others), sum(lengths) > _PROBE_LENGTH)
        return TimedRound([*lengths], end)

    def _probe(self, requests: int) -> tuple[int, ...]:
        """Return lengths of 0 but, now and then, for one of the requests in turn."""
        self._rounds += 1
        turn, due = divmod(self._rounds, _PROBE_EVERY)
        return tuple(0 if due or i != turn % requests else _PROBE_LENGTH for i in range(requests))


class _RoundTimes:
    """Seconds per calibrated cost of the latest rounds of a kind, with and without drafts."""

    def __init__(self) -> None:
        self._latest = {drafted: deque[float](maxlen=_KEPT) for drafted in (False, True)}
        self._since = {False: 0, True: 0}

    def add(self, cost: float, drafted: bool, seconds: float) -> None:
        """Keep the time of a round with a calibrated cost."""
        self._latest[drafted].append(seconds / cost)
        self._since[drafted] = 0
        self._since[not drafted] += 1
        if self._since[True] >= _AGAIN_EVERY:
            self._latest[True].clear()  # try again: the drafts may have been delayed by something else

    def drafts_dearer(self) -> float:
        """Return the factor by which drafts cost more than calibrated, relative to rounds without any."""
        plain, drafts = self._latest[False], self._latest[True]
        if min(len(plain), len(drafts)) < _ENOUGH:
            return 1.0
        factor = statistics.median(drafts) / statistics.median(plain)
        return max(round(_STEPS * factor), 1) / _STEPS  # not 0, even if the machine slept during the others

    def wants_plain(self, gain: float) -> bool:
        """Return whether the next round should have no drafts, to be compared with those that have some."""
        if len(self._latest[False]) < _ENOUGH:
            return True
        return gain < _CLEAR_GAIN and self._since[False] >= _AGAIN_EVERY


@lru_cache(maxsize=1024)
def best_lengths(
    alphas: tuple[float, ...], cost: RoundCosts, others: int = 0, dearer: float = 1.0
) -> tuple[tuple[int, ...], float]:
    """Return the lengths of chains with the most tokens per cost, and the gain over a round without drafts.

    Tokens are added one by one, the likeliest to be accepted first; the best number of them is chosen.

    Args:
        alphas: for each request that may draft, the probability that a drafted token is accepted.
        cost: measured costs.
        others: sequences of the round that do not draft.
        dearer: factor of the cost of rounds with drafts.
    """
    most = min(len(cost.verify) - 1, MAX_DRAFT_LENGTH)
    chances = [
        (chance, i)
        for i, alpha in enumerate(alphas)
        for length in range(1, most + 1)
        if (chance := alpha**length) >= _LEAST_CHANCE
    ]
    chances.sort(key=lambda each: -each[0])
    sequences = len(alphas) + others
    tokens, drafts, plain = float(sequences), 0.0, sequences / cost.target_pass(0, sequences)
    best, count = plain, 0
    depths, at_depth = [0] * len(alphas), [0] * (most + 1)
    for drafted, (chance, i) in enumerate(chances, start=1):
        tokens += chance
        depths[i] += 1
        at_depth[depths[i]] += 1
        before = at_depth[depths[i]] - 1
        drafts += cost.draft_step(before + 1) - (cost.draft_step(before) if before else 0.0)
        speed = tokens / (dearer * (drafts + cost.target_pass(drafted, sequences)))
        if speed > best:
            best, count = speed, drafted
    drafting = Counter(i for _, i in chances[:count])
    return tuple(drafting[i] for i in range(len(alphas))), best / plain
