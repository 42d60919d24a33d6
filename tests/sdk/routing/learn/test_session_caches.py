"""Prompt caches by session: what routes hold is learned from reported tokens, and forgotten in time."""

from __future__ import annotations

import pytest

from specclient.routing.learn import session_caches
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.session_caches import SHORTEST, HeldPrefix, SessionCaches


def _call(at: float, *, route: str = "a/m", session: str | None = "s", prompt: int | None = 10_000,
          cached: int | None = None, failed: bool = False) -> CallSample:  # fmt: skip
    return CallSample(
        route=route, at=at, session=session, prompt_tokens=prompt, cached_tokens=cached, failed=failed
    )


def test_a_hit_is_assumed_once_and_then_learned() -> None:
    hits, misses = SessionCaches(), SessionCaches()
    for at in range(0, 300, 30):
        hits.add(_call(at, cached=10_000 if at else 0))
        misses.add(_call(at))
        if not at:
            assert hits.held("s", 12_000, 10)["a/m"] == HeldPrefix(10_000, 0.8)
    assert hits.held("s", 12_000, 280)["a/m"].share > 0.95
    assert misses.held("s", 12_000, 280)["a/m"].share < 0.1
    assert hits.held("s", 3000, 280)["a/m"].tokens == 3000


def test_what_one_session_shows_holds_for_others_of_the_route() -> None:
    caches = SessionCaches()
    for at in range(0, 600, 30):
        caches.add(_call(at, cached=0))
    caches.add(_call(600, session="new"))
    caches.add(_call(600, session="new", route="b/m"))
    held = caches.held("new", 10_000, 620)
    assert held["a/m"].share < 0.1
    assert held["b/m"].share == 0.8


def test_a_route_that_caches_nothing_stays_known() -> None:
    """Otherwise session affinity would assume again that it holds the prompt of each new session."""
    caches = SessionCaches()
    for at in range(0, 1200, 30):
        caches.add(_call(at, prompt=1100, cached=0))
    caches.add(_call(1200, session="new", prompt=1100))
    assert caches.held("new", 1200, 1220)["a/m"].expected < 64


def test_caches_expire_as_their_reports_show() -> None:
    caches = SessionCaches()
    for number in range(20):
        start = 10_000.0 * number
        caches.add(_call(start, session=str(number)))
        caches.add(_call(start + 200, session=str(number), cached=10_000))
        caches.add(_call(start + 1300, session=str(number), cached=0))
    fresh, old = (caches.held("19", 10_000, 191_300 + age)["a/m"].share for age in (100, 1100))
    assert fresh > 0.7
    assert old < 0.3
    assert not caches.held("19", 10_000, 191_300 + 90_000)


@pytest.mark.parametrize(
    "sample",
    [
        _call(0, session=None),
        _call(0, failed=True),
        _call(0, prompt=None),
        _call(0, prompt=SHORTEST - 1),
        _call(0, session="other"),
    ],
)
def test_calls_that_leave_nothing_in_a_cache(sample: CallSample) -> None:
    caches = SessionCaches()
    caches.add(sample)
    assert not caches.held("s", 10_000, 1)


def test_the_least_recent_sessions_and_routes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_caches, "SESSIONS", 3)
    caches = SessionCaches()
    for at, name in enumerate(("s", "t", "u", "s", "v")):
        caches.add(_call(at, session=name))
    assert len(caches) == 3
    assert not caches.held("t", 10_000, 5)
    for number in range(9):
        caches.add(_call(10 + number, route=f"r{number}/m"))
    assert set(caches.held("s", 10_000, 20)) == {f"r{number}/m" for number in range(1, 9)}
