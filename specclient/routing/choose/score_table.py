"""Turn options whose estimates change one at a time into decisions, each for the price of one sum an option.

What a policy makes of an option is a line in the tokens of the prompt and of the answer: worked out once, and
again when its estimate changes. A decision adds those lines up and takes the least. The words of it are for
:mod:`specclient.routing.choose.explanation`, when somebody reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from specclient.routing.choose.constraints import excluded, expected_attempts, trust_rank
from specclient.routing.choose.explanation import DecisionSnapshot, no_route_error
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.route import Decision, Policy, PromptTask

__all__ = ["ScoreTable"]

_NEVER = math.inf
#: How far a sum of floats may be from the exact dollars, as a share of them.
_NEAR = 1e-9
#: Options of which little is known that are looked at for one to try.
_LOOKED_AT = 32
#: The share of decisions that look for a route that was never called and could well be the best.
_UNTRIED_SHARE = 0.25

#: In which order options are looked at: how far they are trusted, and whether what is made small is unknown.
_RankKey = tuple[int, bool]


class _LinearScore(NamedTuple):
    """A sum in the tokens of the prompt and of the answer: ``base + by_p·p + by_n·n``."""

    base: float
    by_p: float
    by_n: float


class _ScoreRow(NamedTuple):
    """An option as a decision reads it; ``p`` and ``n`` stand for tokens of the prompt and of the answer.

    Attributes:
        base, by_p, by_n: what it scores is ``base + by_p·p + by_n·n``.
        slow, slow_n: ``slow + slow_n·n`` seconds are kept, as the policy counts, which are to be at most
            ``limit``.
        cost, cost_p, cost_n: its dollars, likewise.
    """

    base: float
    by_p: float
    by_n: float
    slow: float
    slow_n: float
    limit: float
    cost: float
    cost_p: float
    cost_n: float


class _TableState(NamedTuple):
    """What a slate knows at one time; never changed, so that a decision may keep it.

    Attributes:
        fresh: the estimates that it was laid out for.
        estimates: of every option; ``drafting``: of what drafts for it.
        placed: of every option its group, None where it is in none.
        open: the options that may be tried to learn more of them; ``retries``, ``untried``: of these, who was
            left for being slow or failing and is to be tried again, and who has never been called.
        hopes: what such an option could well score once more is known of it; of those that are a line.
        groups: by key, in the order of keys: the options of each, and their rows.
        share: of calls that keep what the estimates give as limits.
    """

    fresh: list[RouteEstimate]
    estimates: tuple[RouteEstimate, ...]
    drafting: tuple[RouteEstimate | None, ...]
    placed: tuple[_RankKey | None, ...]
    open: tuple[int, ...]
    retries: tuple[int, ...]
    untried: tuple[int, ...]
    hopes: Mapping[int, _LinearScore]
    groups: Mapping[_RankKey, tuple[tuple[int, ...], list[_ScoreRow]]]
    share: float


class ScoreTable:
    """The options of one policy, for prompts of one task.

    Args:
        options: in the order of preference.
        task: what their estimates are of.
    """

    def __init__(self, policy: Policy, options: Sequence[RouteOption], task: PromptTask) -> None:
        self.policy = policy
        self.options = tuple(options)
        self.task = task
        routes = dict.fromkeys(option.route for option in self.options)
        routes |= dict.fromkeys(option.played.route for option in self.options if option.played is not None)
        #: Whose estimates it needs, in this order.
        self.routes = tuple(routes)
        self._at = {route: index for index, route in enumerate(self.routes)}
        self._cap = _NEVER if policy.max_cost_usd is None else float(policy.max_cost_usd) * (1 + _NEAR)
        self._sure = _NEVER if policy.max_cost_usd is None else float(policy.max_cost_usd) * (1 - _NEAR)
        self._limited = (
            policy.max_cost_usd is not None
            or policy.max_latency_s is not None
            or policy.deadline_s is not None
        )
        self._open = [excluded(policy, option) is None and _good(policy, option) for option in self.options]
        contexts = [option.context for option in self.options if option.context is not None]
        self._least_context = min(contexts, default=_NEVER)
        #: Options whose figures are no line in the tokens: they are predicted one by one.
        self._bent = tuple(
            index for index, option in enumerate(self.options) if self._open[index] and option.bent
        )
        self._state = _TableState([], (), (), (), (), (), (), {}, {}, policy.percentile)

    def update(self, fresh: list[RouteEstimate], *, share: float | None = None) -> None:
        """Take in what is estimated now; cheap where nothing has changed.

        Args:
            fresh: of each of :attr:`routes`, for this task and ``share``.
            share: of calls that keep what the estimates give as limits; None for the policy's percentile.
        """
        if fresh != self._state.fresh:
            self._state = self._laid(fresh, self.policy.percentile if share is None else share)

    def decide(self, asked: RouteRequest, explorer: Explorer | None = None) -> Decision:
        """Choose an option for a call.

        Args:
            explorer: decides when somebody is tried to learn more of them; None never does.

        Raises:
            NoRouteError: none meets the policy; see :func:`specclient.routing.choose.decisions.choose`.
        """
        state, policy = self._state, self.policy
        snapshot = DecisionSnapshot(
            policy, self.options, state.estimates, state.drafting, asked, share=state.share
        )
        chosen, least = self._best(state, snapshot, asked)
        if chosen is None:
            chosen = self._likeliest(state, snapshot) if explorer is not None and policy.explore else None
            if chosen is None:
                raise no_route_error(snapshot)
            return snapshot.decision(chosen, "tried")
        if explorer is not None and policy.explore:
            tried = self._tried(state, snapshot, chosen, least, explorer)
            if tried is not None:
                explorer.trying(self.options[tried].route, state.estimates[tried])
                return snapshot.decision(tried, "tried")
        return snapshot.decision(chosen)

    def _best(
        self, state: _TableState, snapshot: DecisionSnapshot, asked: RouteRequest
    ) -> tuple[int | None, float]:
        """Return the best option and what it scores."""
        p, n, cap = asked.prompt_tokens, asked.length.middle, self._cap
        bent = self._judged(snapshot) if self._bent else {}
        for key in state.groups if not bent else sorted({*state.groups, *bent}):
            members, rows = state.groups.get(key, ((), ()))
            if self._limited:
                sums = [
                    base + by_p * p + by_n * n
                    if slow + slow_n * n <= limit and cost + cost_p * p + cost_n * n <= cap
                    else _NEVER
                    for base, by_p, by_n, slow, slow_n, limit, cost, cost_p, cost_n in rows
                ]
            else:
                sums = [base + by_p * p + by_n * n for base, by_p, by_n, _, _, _, _, _, _ in rows]
            if key in bent:
                members = (*members, *(index for index, _ in bent[key]))
                sums += [found for _, found in bent[key]]
            if p + max(n, asked.room) > self._least_context:
                sums = [
                    found if snapshot.fits(index) else _NEVER
                    for index, found in zip(members, sums, strict=True)
                ]
            while sums and (least := min(sums)) < _NEVER:
                place = sums.index(least)
                if sums.count(least) > 1:
                    place = snapshot.first_of(members, sums, least)
                if place < len(rows) and _spent(rows[place], p, n) < self._sure:
                    return members[place], least
                if not snapshot.judged(members[place]).broken:
                    return members[place], least
                sums[place] = _NEVER  # by less than floats tell
        return None, _NEVER

    def _likeliest(self, state: _TableState, snapshot: DecisionSnapshot) -> int | None:
        """Return, where none is expected to keep the limits of time, who could well keep them and is nearest.

        Without it nobody would be called any more, and so nobody could be found to be fast again.
        """
        able = [index for index in state.open if snapshot.could_beat(index, _NEVER)]

        def missed(index: int) -> tuple[_RankKey, float]:
            judged = snapshot.judged(index)
            return judged.key, max(((each.over or 0.0) / each.limit for each in judged.broken), default=0.0)

        return min(able, key=missed, default=None)

    def _judged(self, snapshot: DecisionSnapshot) -> dict[_RankKey, list[tuple[int, float]]]:
        """Predict the options that are no line, and return where they stand and what they score."""
        found: dict[_RankKey, list[tuple[int, float]]] = {}
        for index in self._bent:
            judged = snapshot.judged(index)
            if judged.open:
                found.setdefault(judged.key, []).append((index, judged.score))
        return found

    def _tried(
        self, state: _TableState, snapshot: DecisionSnapshot, chosen: int, least: float, explorer: Explorer
    ) -> int | None:
        """Return whom to learn more of, least known first: who could well be better than the chosen one.

        Limits of time stand for what a call could well take, as far as that is known, and not for what it is
        expected to take: a route that a few bad calls have ruled out would never be found to be better.
        """
        estimates, drawn = state.estimates, explorer.draw()
        p, n = snapshot.asked.prompt_tokens, snapshot.asked.length.middle

        def hopeful(index: int) -> bool:
            hope = state.hopes.get(index)
            if hope is not None and hope.base + hope.by_p * p + hope.by_n * n >= least:
                return False  # as most are, and told a tenth as fast
            return snapshot.could_beat(index, least)

        waiting = state.retries if drawn >= _UNTRIED_SHARE else (*state.retries, *state.untried[:_LOOKED_AT])
        for index in waiting:
            due = index != chosen and explorer.due(self.options[index].route, estimates[index])
            if due and hopeful(index):
                return index
        if drawn >= self.policy.explore:
            return None
        others = sorted(state.open, key=lambda index: estimates[index].evidence)[:_LOOKED_AT]
        return next((index for index in others if index != chosen and hopeful(index)), None)

    def _laid(self, fresh: list[RouteEstimate], share: float) -> _TableState:
        """Work out the rows of options whose estimate has changed, and keep the others."""
        old, at = self._state, self._at
        estimates = tuple(fresh[at[option.route]] for option in self.options)
        drafting = tuple(
            None if option.played is None else fresh[at[option.played.route]] for option in self.options
        )
        known = {
            index: row
            for key, (members, rows) in old.groups.items()
            for index, row in zip(members, rows, strict=True)
            if estimates[index] is old.estimates[index]
        }
        placed: list[_RankKey | None] = []
        hopes: dict[int, _LinearScore] = {}
        groups: dict[_RankKey, tuple[list[int], list[_ScoreRow]]] = {}
        for index, (option, estimate) in enumerate(zip(self.options, estimates, strict=True)):
            key: _RankKey | None = None
            if self._open[index] and not option.bent:
                same = index in old.hopes and estimate is old.estimates[index]
                hopes[index] = old.hopes[index] if same else _hope(self.policy, option, estimate)
                row = known.get(index)
                if row is not None:
                    key = old.placed[index]
                elif (laid := _row(self.policy, option, estimate)) is not None:
                    key, row = laid
                if key is not None and row is not None:
                    members, rows = groups.setdefault(key, ([], []))
                    members.append(index)
                    rows.append(row)
            placed.append(key)
        ordered = {key: (tuple(groups[key][0]), groups[key][1]) for key in sorted(groups)}
        may = tuple(i for i, open_ in enumerate(self._open) if open_)
        retries = tuple(i for i in may if estimates[i].retry)
        untried = tuple(i for i in may if not estimates[i].calls)
        return _TableState(
            fresh, estimates, drafting, tuple(placed), may, retries, untried, hopes, ordered, share
        )


def _spent(row: _ScoreRow, p: int, n: int) -> float:
    return row.cost + row.cost_p * p + row.cost_n * n


def _good(policy: Policy, option: RouteOption) -> bool:
    """Tell whether an option is known to be as good as the policy wants."""
    return policy.min_quality is None or (option.quality is not None and option.quality >= policy.min_quality)


def _row(policy: Policy, option: RouteOption, estimate: RouteEstimate) -> tuple[_RankKey, _ScoreRow] | None:
    """Return where an option stands and its row, None where no call of it would keep the policy."""
    by_cost, by_time = policy.weights
    ttft, token, limit_s = estimate.ttft_s, estimate.token_s, policy.max_latency_s
    timed = ttft is not None and token is not None
    spent = _spent_on(option, estimate)
    first_slow = estimate.ttft_limit_s if timed else None
    if policy.max_cost_usd is not None and spent is None:
        return None
    if policy.max_ttft_s is not None and first_slow is not None and first_slow > policy.max_ttft_s:
        return None
    start, step = (ttft or 0.0, token or 0.0) if timed else (0.0, 0.0)
    cost, cost_p, cost_n = spent or (0.0, 0.0, 0.0)
    base, by_p, by_n = by_cost * cost, by_cost * cost_p, by_cost * cost_n
    unknown = (bool(by_cost) and spent is None) or (bool(by_time) and not timed)
    if by_time:
        seconds = by_time * expected_attempts(estimate.failure_rate)
        base, by_n = base + seconds * start, by_n + seconds * step
    late = estimate.late
    limit = _NEVER if limit_s is None else float(limit_s)
    if policy.deadline_s is not None:
        limit = min(limit, late * policy.deadline_s)
    key = trust_rank(policy, estimate, late * start if timed else None, first_slow), unknown
    return key, _ScoreRow(base, by_p, by_n, late * start, late * step, limit, cost, cost_p, cost_n)


def _hope(policy: Policy, option: RouteOption, estimate: RouteEstimate) -> _LinearScore:
    """Return what :meth:`DecisionSnapshot.could_beat` compares, as a sum in the tokens."""
    by_cost, by_time = policy.weights
    if by_cost and option.tariff is None:
        return _LinearScore(_NEVER, 0.0, 0.0)
    cost, cost_p, cost_n = _spent_on(option, estimate) or (0.0, 0.0, 0.0)
    seconds = by_time / estimate.hopeful
    if estimate.ttft_s is None or estimate.token_s is None:
        seconds = 0.0
    start, step = seconds * (estimate.ttft_s or 0.0), seconds * (estimate.token_s or 0.0)
    return _LinearScore(by_cost * cost + start, by_cost * cost_p, by_cost * cost_n + step)


def _spent_on(option: RouteOption, estimate: RouteEstimate) -> _LinearScore | None:
    """Return the dollars of a call on an option, None where they are not known."""
    tariff, engine = option.tariff, estimate.engine_token_s
    if tariff is None:
        return None
    call, step = tariff.call, tariff.output
    if tariff.second and engine is not None:
        step += tariff.second * engine
    elif tariff.second:
        if estimate.ttft_s is None or estimate.token_s is None:
            return None
        call, step = call + tariff.second * estimate.ttft_s, step + tariff.second * estimate.token_s
    return _LinearScore(call, tariff.prompt * option.scale, step)
