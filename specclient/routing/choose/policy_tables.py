"""The score tables of one policy: one for each share of calls that must be expected to keep its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.choose.typical_cost import TypicalCost
from specclient.routing.learn.adaptive_percentile import AdaptivePercentile
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy
from specclient.types.route import Decision

__all__ = ["PolicyTables"]

_COLD: Mapping[str, RouteEstimate] = {}
#: The shares of calls that keep the limits for which estimates of a cache hit are made; the share that is
#: assumed without a hit, and the share of hits from which the time of a hit is the usual one.
_ON_HIT = (0.9, 0.95, 0.975, 0.99)
_KEPT_ON_MISS, _LIKELY = 0.25, 0.5


class PolicyTables:
    """The score tables of a policy's options, for prompts of one task and length.

    Args:
        adaptive: gives the share of calls that must keep the limits; it has few values, each with a table.

    Attributes:
        policy, options, adaptive: as given.
    """

    __slots__ = ("_cost", "_tables", "_task", "_versions", "adaptive", "options", "policy")

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
        self._versions: dict[float, int] = {}

    def decide(self, estimates: Estimator, request: RouteRequest, explorer: Explorer | None) -> Decision:
        """Choose an option for a call, with current estimates; see :meth:`ScoreTable.decide`.

        The share of such calls that must keep the limits is the adapted one. Where no option keeps them with
        more than the policy's percentile, the percentile decides.
        """
        adaptive, cost = self.adaptive, self._cost
        dollars = None if cost is None else cost.dollars(request.prompt_tokens, request.length.median)
        share = adaptive.required(dollars)
        late = bool(self.policy.explore) and adaptive.mostly_kept
        table = self._at(share, estimates, request)
        warm = self._warm(share, estimates, request) if request.held else _COLD
        if share > adaptive.promised:
            found = table.decide_if_kept(request, explorer, late=late, warm=warm)
            if found is not None:
                return found
            table = self._at(adaptive.promised, estimates, request)
            warm = self._warm(adaptive.promised, estimates, request) if request.held else _COLD
        return table.decide(request, explorer, late=late, warm=warm)

    def _warm(self, share: float, estimates: Estimator, request: RouteRequest) -> Mapping[str, RouteEstimate]:
        """Return the estimates of routes that hold a part of the prompt, by route.

        If the prefix is held with probability ``h``, limits are kept with the required probability if they
        are kept with a higher one on a hit. Where none is high enough, and the policy limits the time, the
        time of the whole prompt counts.
        """
        policy, warm = self.policy, {}
        limited = policy.max_ttft_s is not None or policy.max_latency_s is not None
        for route, held in request.held.items():
            on_hit = share
            if limited:
                needed = (share - (1 - held.share) * _KEPT_ON_MISS) / held.share
                on_hit = next((level for level in (share, *_ON_HIT) if level >= needed), 0.0)
            elif held.share < _LIKELY:
                on_hit = 0.0
            left = request.prompt_tokens - (held.tokens if on_hit else 0)
            warm[route] = estimates.of(route, request.task, on_hit or share, max(left, 1))
        return warm

    def _at(self, share: float, estimates: Estimator, request: RouteRequest) -> ScoreTable:
        table = self._tables.get(share)
        if table is None:
            table = self._tables[share] = ScoreTable(self.policy, self.options, self._task)
        version = estimates.current_version()
        if self._versions.get(share) != version:
            fresh = estimates.all_of(table.routes, request.task, share, request.prompt_tokens)
            table.update(fresh, share=share)
            self._versions[share] = version
        return table
