"""When every route is expected to miss a limit, the one most likely to meet it is explored."""

from __future__ import annotations

from random import Random

import pytest

from specclient.errors import NoRouteError
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.learn.route_estimate import AnswerLength, RouteEstimate
from specclient.types.policy import Policy

OPTIONS = tuple(RouteOption(route=f"{name}/m", provider=name, model="m") for name in ("a", "b", "c"))


def decide_among_slow_routes(policy, *speedups, explorer=None):
    table = ScoreTable(policy, OPTIONS, "chat")
    late = [
        RouteEstimate(
            evidence=9, calls=9, ttft_s=s, token_s=0.01, ttft_limit_s=s, optimistic_speedup=h, assumed=False
        )
        for s, h in zip((1.5, 1.2, 3.0), speedups, strict=True)
    ]
    table.update(late)
    return table.decide(RouteRequest("chat", 100, AnswerLength(1, 10, 20)), explorer)


def test_a_route_that_could_meet_the_limit_is_explored_when_none_is_expected_to():
    policy = Policy(minimize="latency", max_ttft_s=1.0)
    found = decide_among_slow_routes(policy, 2.0, 1.5, 2.0, explorer=Explorer(Random(1)))
    assert (found.chosen, found.explored) == ("b/m", True), (
        "the route nearest to the limit among those that could meet it"
    )


def test_no_route_is_explored_that_cannot_meet_the_limit_or_without_exploration():
    policy = Policy(minimize="latency", max_ttft_s=1.0)
    for tried in (
        lambda: decide_among_slow_routes(policy, 1.1, 1.1, 1.1, explorer=Explorer(Random(1))),
        lambda: decide_among_slow_routes(policy, 2.0, 1.5, 2.0),
        lambda: decide_among_slow_routes(
            Policy(minimize="latency", max_ttft_s=1.0, explore=0), 2.0, 1.5, 2.0, explorer=Explorer(Random(1))
        ),
    ):
        with pytest.raises(NoRouteError):
            tried()
