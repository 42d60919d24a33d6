"""Rows of a score table: an option's score, and its value for each limit, as sums in tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from specclient.routing.choose.constraints import expected_attempts, failing
from specclient.routing.choose.evaluation import RankKey
from specclient.routing.choose.policy_terms import PolicyTerms
from specclient.routing.choose.route_options import RouteOption, token_sums
from specclient.routing.choose.token_sum import as_token_sum
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.criterion import PromptTask

#: The score of an option that cannot be chosen.
NEVER = math.inf

#: An option's score as ``base + by_prompt * prompt_tokens + by_answer * completion_tokens``.
Score = tuple[float, float, float]


class LimitSum(NamedTuple):
    """A value that must keep a limit, as a sum in tokens; ``low``, ``high``: see :class:`LimitedBound`."""

    base: float
    by_prompt: float
    by_answer: float
    low: float
    high: float


#: An unknown value that does not refuse its option.
_NO_LIMIT = LimitSum(0.0, 0.0, 0.0, NEVER, NEVER)


class ScoreRow(NamedTuple):
    """An option whose values are sums in tokens, with its value for each limit of the policy."""

    rank: RankKey
    score: Score
    limits: tuple[LimitSum, ...]


class ScoreGroup(NamedTuple):
    """The options of one rank; ``columns`` has, for each limit of the policy, the values of all of them."""

    members: tuple[int, ...]
    scores: list[Score]
    columns: tuple[list[LimitSum], ...]


EMPTY_GROUP = ScoreGroup((), [], ())


class TableState(NamedTuple):
    """The contents of a table at one time; immutable, so that a decision may keep it.

    Attributes:
        fresh: the estimates that it was computed from, by route.
        estimates: of every option.
        drafting: of every option's client-side draft.
        rows: of the options whose values are sums in tokens; None where no call can keep the limits.
        nonlinear: the other options that may be taken; they are evaluated for each call.
        retries: the options that were left as slow or failing and are due to be tried again.
        untried: the options that were never called.
        expected: those of them for which something is expected, such as a published speed.
        reachable: the score that each option could reach once more is known about it.
        groups: by rank, in order.
        share: the share of calls that keep the limits in the estimates.
        warm: the options whose rows do not hold for this call; they are among ``nonlinear``.
    """

    fresh: list[RouteEstimate]
    estimates: tuple[RouteEstimate, ...]
    drafting: tuple[RouteEstimate | None, ...]
    rows: Mapping[int, ScoreRow | None]
    nonlinear: tuple[int, ...]
    retries: tuple[int, ...]
    untried: tuple[int, ...]
    expected: tuple[int, ...]
    reachable: Mapping[int, Score]
    groups: Mapping[RankKey, ScoreGroup]
    share: float
    warm: frozenset[int] = frozenset()


def score_row(
    terms: PolicyTerms, option: RouteOption, estimate: RouteEstimate, task: PromptTask
) -> ScoreRow | None:
    """Return an option's row, None if no call on it keeps the limits.

    Raises:
        TypeError: a value is not a sum in tokens.
    """
    call = token_sums(option, estimate, task)
    attempts = expected_attempts(estimate.failure_rate)
    base = by_prompt = by_answer = 0.0
    complete, unproven = True, False
    for criterion, weight in terms.weights:
        value = as_token_sum(criterion.predict(call))
        if value is None:
            complete = False
            continue
        factor = weight * attempts if criterion.per_attempt else weight
        base += factor * value.base
        by_prompt += factor * value.by_prompt
        by_answer += factor * value.by_answer
    limits = []
    for each in terms.bounds:
        value = as_token_sum(each.value(call))
        if value is None:
            if each.bound.unknown == "refuse":
                return None
            unproven = unproven or each.bound.unknown == "rank_last"
            limits.append(_NO_LIMIT)
            continue
        sign = each.sign
        if not (value.by_prompt or value.by_answer) and sign * value.base > each.high:
            return None
        limits.append(
            LimitSum(sign * value.base, sign * value.by_prompt, sign * value.by_answer, each.low, each.high)
        )
    trust = 2 if failing(terms.policy, estimate) else 1 if unproven else 0
    return ScoreRow((trust, not complete), (base, by_prompt, by_answer), tuple(limits))


def reachable_score(
    terms: PolicyTerms, option: RouteOption, estimate: RouteEstimate, task: PromptTask
) -> Score:
    """Return the score that an option could reach, as :meth:`DecisionSnapshot.could_beat` computes it."""
    call = token_sums(option, estimate, task, optimistic=True)
    base = by_prompt = by_answer = 0.0
    for criterion, weight in terms.weights:
        value = as_token_sum(criterion.predict(call))
        if value is None:
            return NEVER, 0.0, 0.0
        base += weight * value.base
        by_prompt += weight * value.by_prompt
        by_answer += weight * value.by_answer
    return base, by_prompt, by_answer


def group_rows(rows: Mapping[int, ScoreRow | None], limits: int) -> dict[RankKey, ScoreGroup]:
    """Return rows by their rank, in order."""
    ranked: dict[RankKey, list[int]] = {}
    for index, row in rows.items():
        if row is not None:
            ranked.setdefault(row.rank, []).append(index)
    groups = {}
    for rank in sorted(ranked):
        members = [row for index in ranked[rank] if (row := rows[index]) is not None]
        columns = tuple([row.limits[place] for row in members] for place in range(limits))
        groups[rank] = ScoreGroup(tuple(ranked[rank]), [row.score for row in members], columns)
    return groups


def kept_places(
    columns: Sequence[Sequence[LimitSum]], places: Sequence[int], rows: int, p: int, n: int
) -> list[int]:
    """Return the places whose options keep all limits, up to the rounding of float sums."""
    kept = []
    for place in places:
        if place < rows:
            for column in columns:
                base, by_prompt, by_answer, _, high = column[place]
                if base + by_prompt * p + by_answer * n > high:
                    break
            else:
                kept.append(place)
        else:
            kept.append(place)  # evaluated before
    return kept


def kept_scores(
    scores: Sequence[float], columns: Sequence[Sequence[LimitSum]], p: int, n: int
) -> list[float]:
    """Return the scores, infinite for options that break a limit."""
    kept = list(scores)
    for column in columns:
        kept = [
            score if base + by_prompt * p + by_answer * n <= high else NEVER
            for score, (base, by_prompt, by_answer, _, high) in zip(kept, column, strict=True)
        ]
    return kept


def is_near_limit(columns: Sequence[Sequence[LimitSum]], place: int, rows: int, p: int, n: int) -> bool:
    """Return whether a value is so near to its limit that only its exact value decides."""
    return place < rows and any(
        base + by_prompt * p + by_answer * n > low
        for base, by_prompt, by_answer, low, _ in (column[place] for column in columns)
    )
