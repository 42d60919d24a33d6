"""Score tables: the scores of a policy's options as sums in tokens, so that a decision only adds numbers up.

An option's score is a sum in the tokens of the prompt and of the answer. It is computed when the option's
estimate changes. A decision adds the sums up, takes the least, and checks the limits of that option only.
:mod:`specclient.routing.choose.explanation` makes the reasons when they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from specclient.routing.choose.constraints import exclusion
from specclient.routing.choose.evaluation import DecisionSnapshot, RankKey
from specclient.routing.choose.explanation import decision_for, no_route_error
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.policy_terms import PolicyTerms, policy_terms
from specclient.routing.choose.route_options import RouteOption, RouteRequest, predict_call
from specclient.routing.choose.score_rows import (
    EMPTY_GROUP,
    NEVER,
    Score,
    ScoreRow,
    TableState,
    group_rows,
    is_near_limit,
    kept_places,
    kept_scores,
    reachable_score,
    score_row,
)
from specclient.routing.learn.route_estimate import AnswerLength, RouteEstimate
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy
from specclient.types.route import Decision

__all__ = ["ScoreTable"]

#: Number of options, those with the least evidence, among which exploration searches.
_EXPLORATION_CANDIDATES = 32
#: The share of decisions that look for a route of which nothing is known and that could well be the best.
_UNTRIED_SHARE = 0.25
#: Best options in a row that break a limit, after which all options are checked at once.
_MISSES = 4
#: The most options that are passed over because they are little known and have unfinished calls.
_SKIPPED = 12
_COLD: Mapping[str, RouteEstimate] = {}


class ScoreTable:
    """The scores of all options of one policy, for prompts of one task.

    Args:
        options: in the order of preference.
        task: the kind of prompt that the estimates are for.

    Attributes:
        routes: the routes whose estimates :meth:`update` takes, in this order.
    """

    def __init__(self, policy: Policy, options: Sequence[RouteOption], task: PromptTask) -> None:
        self.policy = policy
        self.options = tuple(options)
        self.task = task
        self._terms = policy_terms(policy)
        drafts = [option.client_side_draft for option in self.options]
        routes = dict.fromkeys(option.route for option in self.options)
        routes |= dict.fromkeys(draft.route for draft in drafts if draft is not None)
        self.routes = tuple(routes)
        self._index = {route: index for index, route in enumerate(self.routes)}
        self._open = tuple(
            index
            for index, option in enumerate(self.options)
            if exclusion(policy, option) is None and _meets_fixed_limits(self._terms, option, task)
        )
        contexts = [option.context for option in self.options if option.context is not None]
        self._least_context = min(contexts, default=NEVER)
        self._state = TableState([], (), (), {}, (), (), (), (), {}, {}, policy.percentile)

    def update(self, fresh: list[RouteEstimate], *, share: float | None = None) -> None:
        """Take the current estimates; cheap if none has changed.

        Args:
            fresh: the estimate of each of :attr:`routes`, for this task and ``share``.
            share: the share of calls that keep the limits in the estimates; None for the policy's percentile.
        """
        if fresh != self._state.fresh:
            self._state = self._computed(fresh, self.policy.percentile if share is None else share)

    def decide_if_kept(
        self,
        request: RouteRequest,
        explorer: Explorer | None,
        *,
        late: bool,
        warm: Mapping[str, RouteEstimate],
    ) -> Decision | None:
        """Choose an option as :meth:`decide` does; None if none keeps the limits and admits the call."""
        return self._decided(request, explorer, late, warm, only_kept=True)

    def _warmed(self, warm: Mapping[str, RouteEstimate], *, writes: bool) -> TableState:
        """Return the state in which routes whose cost depends on caches are evaluated for this call.

        These hold a part of the prompt, or charge for writing it, with ``writes``.
        """
        state = self._state
        if not warm:
            return state
        places = [
            index
            for index in self._open
            if self.options[index].client_side_draft is None
            and (self.options[index].route in warm or (writes and _priced_writes(self.options[index])))
        ]
        estimates = list(state.estimates)
        for index in places:
            estimates[index] = warm.get(self.options[index].route, estimates[index])
        return state._replace(
            estimates=tuple(estimates),
            nonlinear=tuple(dict.fromkeys((*state.nonlinear, *places))),
            warm=frozenset(places),
        )

    def decide(
        self,
        request: RouteRequest,
        explorer: Explorer | None = None,
        *,
        late: bool = False,
        warm: Mapping[str, RouteEstimate] = _COLD,
    ) -> Decision:
        """Choose an option for a call.

        Args:
            explorer: decides when an option is tried to learn more about it; None never tries any.
            late: whether options that break limits of time are fallbacks, and the nearest one is chosen if no
                option keeps them.
            warm: the estimates of routes that hold a part of the prompt in their caches, by route.

        Raises:
            NoRouteError: no option meets the policy; see :func:`specclient.routing.choose.decisions.choose`.
        """
        found = self._decided(request, explorer, late, warm, only_kept=False)
        assert found is not None
        return found

    def _decided(
        self,
        request: RouteRequest,
        explorer: Explorer | None,
        late: bool,
        warm: Mapping[str, RouteEstimate],
        *,
        only_kept: bool,
    ) -> Decision | None:
        state, policy = self._warmed(warm, writes=request.writes), self.policy
        snapshot = DecisionSnapshot(
            self._terms, self.options, state.estimates, state.drafting, request, share=state.share, late=late
        )
        chosen, least = self._best(state, snapshot, request)
        if only_kept and (chosen is None or state.estimates[chosen].limited):
            return None
        if chosen is not None and explorer is not None and policy.explore:
            chosen, least = self._started_slowly(state, snapshot, chosen, least, explorer)
        if chosen is None or state.estimates[chosen].limited:
            nearest = self._nearest(snapshot) if explorer is not None and policy.explore else None
            if nearest is not None:
                return decision_for(snapshot, nearest, "tried")
        if chosen is None:
            others = snapshot.late_order() if late else []
            if not others:
                raise no_route_error(snapshot)
            return decision_for(snapshot, others[0], "nearest")
        if explorer is not None and policy.explore:
            explored = self._explored(state, snapshot, chosen, least, explorer)
            if explored is not None:
                explorer.trying(self.options[explored].route, state.estimates[explored])
                explorer.sending(self.options[explored].route, state.estimates[explored])
                return decision_for(snapshot, explored, "tried")
            explorer.sending(self.options[chosen].route, state.estimates[chosen])
        return decision_for(snapshot, chosen)

    def _started_slowly(
        self,
        state: TableState,
        snapshot: DecisionSnapshot,
        chosen: int,
        least: float,
        explorer: Explorer,
    ) -> tuple[int, float]:
        """Return the best option that may get a further call now, the chosen one if there is no other."""
        found, score = chosen, least
        skipped: set[int] = set()
        while not explorer.admits(self.options[found].route, state.estimates[found]):
            skipped.add(found)
            other, score = self._best(state, snapshot, snapshot.request, skipped)
            if other is None or state.estimates[other].limited or len(skipped) == _SKIPPED:
                return chosen, least
            found = other
        return found, score

    def _best(
        self,
        state: TableState,
        snapshot: DecisionSnapshot,
        request: RouteRequest,
        skipped: Collection[int] = (),
    ) -> tuple[int | None, float]:
        """Return the best option that keeps the limits, and its score.

        Args:
            skipped: options that are not taken.
        """
        p, n = request.prompt_tokens, request.length.median
        nonlinear = _evaluated(state.nonlinear, snapshot) if state.nonlinear else {}
        for rank in state.groups if not nonlinear else sorted({*state.groups, *nonlinear}):
            group = state.groups.get(rank, EMPTY_GROUP)
            members, columns = group.members, group.columns
            sums = [base + by_prompt * p + by_answer * n for base, by_prompt, by_answer in group.scores]
            rows = len(sums)
            if state.warm:
                sums = [NEVER if i in state.warm else score for i, score in zip(members, sums, strict=True)]
            if rank in nonlinear:
                members = (*members, *(index for index, _ in nonlinear[rank]))
                sums += [score for _, score in nonlinear[rank]]
            if skipped:
                sums = [NEVER if i in skipped else score for i, score in zip(members, sums, strict=True)]
            if p + max(n, request.reserved_tokens) > self._least_context:
                fitting = map(snapshot.fits, members)
                sums = [score if fits else NEVER for score, fits in zip(sums, fitting, strict=True)]
            misses = 0
            while sums and (least := min(sums)) < NEVER:
                places = [sums.index(least)]
                if sums.count(least) > 1:
                    places = [place for place, score in enumerate(sums) if score == least]
                kept = kept_places(columns, places, rows, p, n) if columns else places
                if len(kept) > 1:
                    kept = [members.index(snapshot.best_of_tied([members[place] for place in kept]))]
                if kept:
                    best = members[kept[0]]
                    near = is_near_limit(columns, kept[0], rows, p, n) if columns else False
                    if not (near and snapshot.evaluation(best).violations):
                        return best, least
                for place in kept or places:
                    sums[place] = NEVER
                misses += 1
                if misses == _MISSES:
                    sums[:rows] = kept_scores(sums[:rows], columns, p, n)
        return None, NEVER

    def _nearest(self, snapshot: DecisionSnapshot) -> int | None:
        """Return the option that could well keep the limits of time and is nearest to them.

        It serves calls for which no option is expected to keep them: without calls, no option could ever
        prove to be fast again.
        """
        open_ones = (index for index in self._open if not snapshot.estimates[index].limited)
        able = [index for index in open_ones if snapshot.could_beat(index, NEVER)]

        def missed(index: int) -> tuple[RankKey, float]:
            evaluation = snapshot.evaluation(index)
            return evaluation.rank, evaluation.missed_share

        return min(able, key=missed, default=None)

    def _explored(
        self, state: TableState, snapshot: DecisionSnapshot, chosen: int, least: float, explorer: Explorer
    ) -> int | None:
        """Return an option to learn more about, least known first, if it could be better than the chosen one.

        Limits of time are compared with the time that a call could well take, not with the expected time.
        Otherwise a route that a few slow calls have ruled out could never prove to be better.
        """
        estimates, drawn = state.estimates, explorer.draw()
        p, n = snapshot.request.prompt_tokens, snapshot.request.length.median

        def could_win(index: int) -> bool:
            if estimates[index].limited:
                return False
            score = state.reachable.get(index)
            if score is not None and score[0] + score[1] * p + score[2] * n >= least:
                return False  # the usual case, found without an evaluation
            return snapshot.could_beat(index, least)

        untried = state.untried if drawn < _UNTRIED_SHARE else state.expected
        due = (*state.retries, *untried[:_EXPLORATION_CANDIDATES]) if untried else state.retries
        for index in due:
            is_due = index != chosen and explorer.due(self.options[index].route, estimates[index])
            if is_due and could_win(index):
                return index
        if drawn >= self.policy.explore:
            return None
        by_evidence = sorted(self._open, key=lambda index: estimates[index].evidence)
        others = by_evidence[:_EXPLORATION_CANDIDATES]
        return next((index for index in others if index != chosen and could_win(index)), None)

    def _computed(self, fresh: list[RouteEstimate], share: float) -> TableState:
        """Return the state for new estimates; rows of unchanged estimates are kept."""
        old, terms = self._state, self._terms
        estimates = tuple(fresh[self._index[option.route]] for option in self.options)
        drafts = [option.client_side_draft for option in self.options]
        drafting = tuple(None if draft is None else fresh[self._index[draft.route]] for draft in drafts)
        rows: dict[int, ScoreRow | None] = {}
        reachable: dict[int, Score] = {}
        nonlinear = []
        for index in self._open:
            option, estimate = self.options[index], estimates[index]
            if index in old.rows and estimate is old.estimates[index]:
                rows[index], reachable[index] = old.rows[index], old.reachable[index]
            elif option.client_side_draft is not None:
                nonlinear.append(index)
            else:
                try:
                    rows[index] = score_row(terms, option, estimate, self.task)
                    reachable[index] = reachable_score(terms, option, estimate, self.task)
                except TypeError:  # a criterion's value is not a sum in tokens
                    rows.pop(index, None)
                    nonlinear.append(index)
        return TableState(
            fresh,
            estimates,
            drafting,
            rows,
            tuple(nonlinear),
            tuple(index for index in self._open if estimates[index].retry),
            untried := tuple(index for index in self._open if not estimates[index].calls),
            tuple(index for index in untried if estimates[index].ttft_s is not None),
            reachable,
            group_rows(rows, len(terms.bounds)),
            share,
        )


def _priced_writes(option: RouteOption) -> bool:
    return option.tariff is not None and bool(option.tariff.written)


def _evaluated(indices: Iterable[int], snapshot: DecisionSnapshot) -> dict[RankKey, list[tuple[int, float]]]:
    """Return the usable ones of some options with their scores, by rank."""
    ranked: dict[RankKey, list[tuple[int, float]]] = {}
    for index in indices:
        evaluation = snapshot.evaluation(index)
        if evaluation.open:
            ranked.setdefault(evaluation.rank, []).append((index, evaluation.score))
    return ranked


def _meets_fixed_limits(terms: PolicyTerms, option: RouteOption, task: PromptTask) -> bool:
    """Return whether an option keeps the limits on fixed values, such as the model's quality."""
    call = predict_call(option, RouteEstimate(), RouteRequest(task, 0, AnswerLength(0, 0, 0)))
    return all(each.criterion.learned or each.violation(call) is None for each in terms.bounds)
