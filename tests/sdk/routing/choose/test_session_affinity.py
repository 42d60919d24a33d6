"""Session affinity: a session stays where its prompt is cached while that saves more and is permitted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from failover_servers import ASK, answering, kit, status
from loopback_server import reply

from specclient import Settings
from specclient.client.core import ClientCore
from specclient.prices.prices import Prices
from specclient.prices.prompt_caches import prompt_cache_of
from specclient.providers.endpoint import Endpoint
from specclient.routing.choose.session_affinity import SessionAffinity
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT
from specclient.types.policy import Policy
from specclient.types.request import Request
from specclient.types.route import Alternative, Candidate, Decision
from specclient.types.usage import Usage

#: Dollars per million tokens; cached tokens of ``a`` cost a tenth.
SETTINGS = Settings.model_validate(
    {"prices": {"a/m": {"input": 10, "cached_input": 1, "output": 10}, "b/m": {"input": 9, "output": 9}}}
)
PLACES: Any = SimpleNamespace(get=lambda name: None)


def decision(*rows: tuple[str, float, float], policy: Policy | None = None) -> Decision:
    """Return a decision for the first of (route, dollars, seconds), the others in order."""
    routes = [Alternative(route, *route.split("/")) for route, _, _ in rows]
    candidates = [
        Candidate(
            route,
            cost=Decimal(str(cost)),
            latency_s=latency_s,
            ttft_s=latency_s / 2,
            figures={"cost": cost, "latency": latency_s},
            verdict="left" if place else "chosen",
        )
        for place, (route, cost, latency_s) in enumerate(rows)
    ]
    first = routes[0]
    return Decision(
        first.route,
        first.provider,
        first.model,
        candidates,
        "cheapest",
        policy or Policy(),
        taken=first,
        alternatives=tuple(routes[1:]),
    )


def call(route: str, session: str = "s", prompt: int = 10_000, cached: int | None = None) -> Call:
    return Call(
        id="c",
        started_at=datetime.now(UTC),
        operation="chat",
        model="auto",
        route=decision((route, 0, 0)),
        status="ok",
        usage=Usage(prompt=prompt, completion=5, cached=cached),
        session=session,
    )


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> SessionAffinity:
    return SessionAffinity(Prices(SETTINGS), clock=clock, most=3)


# 10,000 cached tokens of `a` save $0.09.
CHEAPER_BY_LESS = decision(("b/m", 0.10, 1), ("a/m", 0.15, 1))
CHEAPER_BY_MORE = decision(("b/m", 0.05, 1), ("a/m", 0.15, 1))


def test_a_session_stays_while_its_cache_saves_more_than_another_route(sessions: SessionAffinity) -> None:
    sessions.note(call("a/m", cached=0))
    sessions.note(call("a/m", cached=10_000))
    kept = sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES)
    assert (kept.chosen, kept.provider, kept.model) == ("a/m", "a", "m")
    assert kept.reason == (
        "served this session last, with 10000 tokens of its prompt expected in its cache, which saves $0.09"
    )
    assert {each.route: each.verdict for each in kept.candidates} == {"b/m": "left", "a/m": "chosen"}
    assert [each.route for each in kept.alternatives] == ["b/m"]
    assert sessions.prefer_cached_route("s", CHEAPER_BY_MORE, PLACES) is CHEAPER_BY_MORE


def test_a_cache_hit_is_assumed_once_before_one_was_seen(sessions: SessionAffinity) -> None:
    sessions.note(call("a/m", cached=0))  # a first call has no cache hit
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "a/m"
    sessions.note(call("a/m", cached=0))  # nor has the second
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "b/m"


def test_short_prompts_are_not_cached(sessions: SessionAffinity) -> None:
    """100 cached tokens would save $0.0009."""
    sessions.note(call("a/m", prompt=100))
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "b/m"
    hardly = decision(("b/m", 0.10, 1), ("a/m", 0.1005, 1))
    assert sessions.prefer_cached_route("s", hardly, PLACES) is hardly
    sessions.note(call("a/m", session="t", prompt=1024))
    assert sessions.prefer_cached_route("t", hardly, PLACES).chosen == "a/m"


def test_a_first_call_that_states_what_it_wrote_is_expected_to_have_no_more(
    sessions: SessionAffinity,
) -> None:
    written = Usage(prompt=10_000, completion=5, cache_write=2_000)
    sessions.note(replace(call("a/m"), usage=written))
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES) is CHEAPER_BY_LESS
    kept = sessions.prefer_cached_route("s", decision(("b/m", 0.14, 1), ("a/m", 0.15, 1)), PLACES)
    assert "with 2000 tokens of its prompt expected in its cache, which saves $0.018" in kept.reason


def test_a_cache_does_not_keep_a_route_that_violates_a_limit(sessions: SessionAffinity) -> None:
    sessions.note(call("a/m"))
    chosen, own = CHEAPER_BY_LESS.candidates
    slow = replace(CHEAPER_BY_LESS, candidates=[chosen, replace(own, violations=("max_latency_s",))])
    assert sessions.prefer_cached_route("s", slow, PLACES) is slow


def test_another_strategy_of_the_chosen_route_is_not_preferred_for_its_cache(
    sessions: SessionAffinity,
) -> None:
    sessions.note(call("a/m"))
    same = decision(("a/m", 0.1, 1), ("a/m", 0.1, 1))
    assert sessions.prefer_cached_route("s", same, PLACES) is same


def test_a_route_is_not_left_because_another_one_writes_for_less_than_it_reads(clock: Clock) -> None:
    """Writing 10,000 tokens at `b` costs $0.04 less than reading them; that is in its predicted cost."""
    a = {"input": 10, "cached_input": 10, "cache_write": 10, "output": 10}
    b = {"input": 8, "cache_write": 4, "output": 9}
    sessions = SessionAffinity(Prices(Settings.model_validate({"prices": {"a/m": a, "b/m": b}})), clock=clock)
    usage = Usage(prompt=10_000, completion=5, cached=2_000, cache_write=8_000)
    sessions.note(replace(call("a/m"), usage=usage))
    tie = decision(("b/m", 0.10, 1), ("a/m", 0.10, 1))
    assert sessions.prefer_cached_route("s", tie, PLACES).chosen == "a/m"


def test_a_session_stays_on_a_tie(sessions: SessionAffinity) -> None:
    sessions.note(call("b/m", prompt=100))
    assert (
        sessions.prefer_cached_route("s", decision(("a/m", 0.1, 1), ("b/m", 0.1, 1)), PLACES).chosen == "b/m"
    )


def test_under_minimize_latency_the_saved_prefill_time_counts(sessions: SessionAffinity) -> None:
    sessions.note(call("a/m"))
    fast = Policy(minimize="latency")
    assert (
        sessions.prefer_cached_route(
            "s", decision(("b/m", 0, 1.0), ("a/m", 0, 1.2), policy=fast), PLACES
        ).chosen
        == "a/m"
    )
    assert (
        sessions.prefer_cached_route(
            "s", decision(("b/m", 0, 1.0), ("a/m", 0, 2.0), policy=fast), PLACES
        ).chosen
        == "b/m"
    )


def test_a_session_leaves_a_route_that_no_longer_meets_the_policy(sessions: SessionAffinity) -> None:
    sessions.note(call("a/m"))
    alone = decision(("b/m", 0.1, 1))
    assert sessions.prefer_cached_route("s", alone, PLACES) is alone


def test_a_route_of_unknown_cost_does_not_keep_the_session(sessions: SessionAffinity) -> None:
    sessions.note(call("a/m"))
    known = CHEAPER_BY_LESS
    second = replace(known.candidates[1], cost=None, figures={"cost": None, "latency": 1})
    candidates = [replace(known.candidates[0]), second]
    assert sessions.prefer_cached_route("s", replace(known, candidates=candidates), PLACES).chosen == "b/m"


def test_caches_expire(sessions: SessionAffinity, clock: Clock) -> None:
    sessions.note(call("a/m"))
    clock.now = 299
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "a/m"
    clock.now = 301
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "b/m"


def test_a_cache_lives_as_long_as_its_vendor_says(sessions: SessionAffinity, clock: Clock) -> None:
    assert [prompt_cache_of(vendor).kept_s for vendor in ("deepseek", "openai", None)] == [3600, 300, 300]
    place = Endpoint(name="a", base_url="https://a.example/v1", price_provider="deepseek")
    places: Any = SimpleNamespace(get=lambda name: place if name == "a" else None)
    sessions.note(call("a/m"))
    clock.now = 3599
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, places).chosen == "a/m"
    clock.now = 3601
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, places).chosen == "b/m"


def test_tokens_written_for_an_hour_are_kept_for_an_hour(sessions: SessionAffinity, clock: Clock) -> None:
    written = Usage(prompt=10_000, completion=5, cache_write=10_000, cache_write_1h=10_000)
    sessions.note(replace(call("a/m"), usage=written))
    clock.now = 3599
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "a/m"
    clock.now = 3601
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "b/m"


@pytest.mark.parametrize(("write", "chosen"), [(8, "b/m"), (9, "a/m"), (12, "a/m")])
def test_writing_to_another_providers_cache_counts(clock: Clock, write: int, chosen: str) -> None:
    """10,000 cached tokens of `a` save $0.01; writing them at `b` costs up to $0.04 more."""
    a = {"input": 10, "cached_input": 9, "output": 10}
    b = {"input": 8, "cached_input": 1, "cache_write": write, "output": 9}
    prices = Prices(Settings.model_validate({"prices": {"a/m": a, "b/m": b}}))
    sessions = SessionAffinity(prices, clock=clock)
    usage = Usage(prompt=10_000, completion=5, cached=2_000, cache_write=8_000)
    sessions.note(replace(call("a/m"), usage=usage))
    found = decision(("b/m", 0.10, 1), ("a/m", 0.12, 1))
    assert sessions.prefer_cached_route("s", found, PLACES).chosen == chosen


@pytest.mark.parametrize("fallbacks", [True, False])
def test_a_session_stays_with_or_without_fallbacks(sessions: SessionAffinity, fallbacks: bool) -> None:
    places = {name: {"base_url": "http://127.0.0.1:1/v1"} for name in ("a", "b")}
    prices = {f"{name}/m": {"input": 1, "output": 1} for name in places}
    tables = {"ledger": "off", "candidates": ["a/m", "b/m"], "providers": places, "prices": prices}
    router = ClientCore({"config": Settings.model_validate(tables)}).pipeline.router
    found = router.decide(Request(CHAT, "auto", {"messages": ASK}, policy=Policy(fallbacks=fallbacks)))
    sessions.note(call("b/m"))
    kept = sessions.prefer_cached_route("s", found, router.destinations)
    assert (found.chosen, kept.chosen) == ("a/m", "b/m")
    assert [each.verdict for each in kept.candidates] == ["left", "chosen"]


def test_a_cancelled_hedge_does_not_change_the_cache_estimate(sessions: SessionAffinity) -> None:
    lost = replace(call("b/m"), status="cancelled", usage=Usage())
    sessions.note(replace(call("a/m"), parts=(call("a/m"), lost)))
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "a/m"


def test_other_sessions_and_failed_calls_are_ignored(sessions: SessionAffinity) -> None:
    sessions.note(call("a/m", session="other"))
    sessions.note(replace(call("a/m"), status="error"))
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "b/m"


def test_the_least_recently_used_sessions_are_dropped(sessions: SessionAffinity) -> None:
    for name in ("s", "t", "u", "s", "v"):
        sessions.note(call("a/m", session=name, cached=10_000))
    assert len(sessions) == 3
    assert sessions.prefer_cached_route("t", CHEAPER_BY_LESS, PLACES).chosen == "b/m"
    assert sessions.prefer_cached_route("s", CHEAPER_BY_LESS, PLACES).chosen == "a/m"


def _body(cached: int) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}],
        "usage": {
            "prompt_tokens": 10_000,
            "completion_tokens": 1,
            "total_tokens": 10_001,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_session_stays_with_the_route_that_answered_after_failover(
    tmp_path: Path, stream: bool
) -> None:
    """Whole answers report 10,000 tokens of a prompt whose text is short, as stored conversations do."""
    async with kit(tmp_path) as made:
        made.servers[0].script(status(500), answering("free"))
        made.servers[1].script(*([answering("x")] * 2 if stream else [reply(200, _body(0))] * 2))
        chosen_routes = []
        decide = made.decide
        # Both routes cost the same, so the cache decides.
        made.client.router.decide = lambda request: replace(  # type: ignore[method-assign]
            (found := decide(request)),
            candidates=[replace(each, cost=Decimal(1), latency_s=1.0) for each in found.candidates],
        )
        for session in ("s", "s", "t"):
            answer = await made.client.chat.completions.create(
                model="auto", messages=ASK, session=session, stream=stream
            )
            if stream:
                [chunk async for chunk in answer]
            chosen_routes.append((session, answer.meta.route.chosen))
        assert chosen_routes == [("s", "s1/m"), ("s", "s1/m"), ("t", "s0/m")]
        assert made.request_counts() == [2, 2]
