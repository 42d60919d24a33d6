"""The score tables of one policy: one for each share of calls that must be expected to keep its limits."""

from __future__ import annotations

from collections.abc import Sequence

from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.choose.typical_cost import TypicalCost
from specclient.routing.learn.adaptive_percentile import AdaptivePercentile
from specclient.routing.learn.estimator import Estimator
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy

__all__ = ["PolicyTables"]


class PolicyTables:
    """The score tables of a policy's options, for prompts of one task and length.

    Args:
        adaptive: gives the share of calls that must keep the limits; it has few values, each with a table.

    Attributes:
        policy, options, adaptive: as given.
    """

    __slots__ = ("_cost", "_tables", "_task", "adaptive", "options", "policy")

    def __init__(
        self,
        policy: Policy,
        options: Sequence[RouteOption],
        task: PromptTask,
        adaptive: AdaptivePercentile,
    ) -> None:
        self.policy = policy
        self.options = options
        self.adaptive = adaptive
        self._task = task
        self._cost = TypicalCost.of(policy, options)
        self._tables: dict[float, ScoreTable] = {}

    def current(self, estimates: Estimator, request: RouteRequest) -> ScoreTable:
        """Return the table for the share of such calls that must now keep the limits, with current estimates.

        Where no option keeps them with more than the policy's percentile, the percentile decides.
        """
        adaptive, cost = self.adaptive, self._cost
        dollars = None if cost is None else cost.dollars(request.prompt_tokens, request.length.median)
        share = adaptive.required(dollars)
        table = self._at(share, estimates, request)
        if share > adaptive.promised and not table.keeps_limits(request):
            return self._at(adaptive.promised, estimates, request)
        return table

    def _at(self, share: float, estimates: Estimator, request: RouteRequest) -> ScoreTable:
        table = self._tables.get(share)
        if table is None:
            table = self._tables[share] = ScoreTable(self.policy, self.options, self._task)
        routes, task = table.routes, request.task
        table.update(estimates.all_of(routes, task, share, request.prompt_tokens), share=share)
        return table
