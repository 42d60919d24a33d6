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


def test_a_burst_does_not_go_to_a_little_known_route_as_a_whole():
    table = ScoreTable(Policy(minimize="latency", explore=1e-9), OPTIONS[:2], "chat")
    known = {"ttft_s": 1.0, "token_s": 0.01, "assumed": False}
    new = RouteEstimate(evidence=2, calls=2, **known | {"ttft_s": 0.5})
    table.update([new, RouteEstimate(evidence=50, calls=50, **known)])
    explorer, asked = Explorer(Random(1)), RouteRequest("chat", 100, AnswerLength(1, 10, 20))
    burst = [table.decide(asked, explorer).chosen for _ in range(20)]
    assert burst.count("a/m") == 2, "as many as have shown its speed"
    assert burst[:2] == ["a/m", "a/m"]
    assert {table.decide(asked).chosen for _ in range(5)} == {"a/m"}, "no call follows these decisions"
    finished = RouteEstimate(evidence=4, calls=4, **known | {"ttft_s": 0.5})
    table.update([finished, RouteEstimate(evidence=50, calls=50, **known)])
    assert [table.decide(asked, explorer).chosen for _ in range(8)].count("a/m") == 4


def test_calls_that_never_finish_do_not_keep_a_route_out():
    table = ScoreTable(Policy(minimize="latency", explore=1e-9), OPTIONS[:2], "chat")
    known = {"token_s": 0.01, "assumed": False}
    table.update(
        [
            RouteEstimate(evidence=1, calls=1, ttft_s=0.5, **known),
            RouteEstimate(evidence=50, calls=50, ttft_s=1.0, **known),
        ]
    )
    explorer, asked = Explorer(Random(1)), RouteRequest("chat", 100, AnswerLength(1, 10, 20))
    assert [table.decide(asked, explorer).chosen for _ in range(100)].count("a/m") in range(3, 10)


def test_a_route_of_published_speed_is_tried_at_once_and_an_unknown_one_in_some_calls():
    """The first calls cost most while a cheap route is not known to be fast enough."""
    slow = {"token_s": 0.01, "assumed": True, "optimistic_speedup": 2.0}
    known = RouteEstimate(evidence=50, calls=50, ttft_s=1.0, token_s=0.01, assumed=False)
    for first, least in ((RouteEstimate(ttft_s=1.2, **slow), 50), (RouteEstimate(), 1)):
        tried = 0
        for seed in range(50):
            table = ScoreTable(Policy(minimize="latency", explore=1e-9), OPTIONS[:2], "chat")
            table.update([first, known])
            asked = RouteRequest("chat", 100, AnswerLength(1, 10, 20))
            tried += table.decide(asked, Explorer(Random(seed))).explored
        assert least <= tried
        assert tried < 25 or least == 50


@pytest.mark.parametrize(("similar", "calls"), [(True, 2), (False, 20)])
def test_the_speed_of_similar_routes_does_not_admit_a_burst(similar, calls):
    table = ScoreTable(Policy(minimize="latency", explore=1e-9), OPTIONS[:2], "chat")
    fast = RouteEstimate(ttft_s=0.5, token_s=0.01, similar=similar)
    table.update([fast, RouteEstimate(evidence=50, calls=50, ttft_s=1.0, token_s=0.01, assumed=False)])
    explorer, asked = Explorer(Random(1)), RouteRequest("chat", 100, AnswerLength(1, 10, 20))
    chosen = [table.decide(asked, explorer).chosen for _ in range(20)]
    assert chosen.count("a/m") == calls, "one as the best route, and one to learn of it"
