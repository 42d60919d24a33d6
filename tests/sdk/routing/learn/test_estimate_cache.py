"""The cache of estimates: what it keeps, and what it drops."""

from __future__ import annotations

import pytest

from specclient.routing.learn import estimate_cache as module
from specclient.routing.learn.estimate_cache import EstimateCache
from specclient.routing.learn.route_estimate import RouteEstimate

VIEW, LONG = ("chat", 0.95, None), ("chat", 0.95, 4096)


def filled(*routes: str) -> EstimateCache:
    made = EstimateCache()
    for route in routes:
        for view in (VIEW, LONG):
            made.keep(view, route, RouteEstimate(calls=len(route)))
    return made


def test_all_estimates_are_returned_or_none() -> None:
    made = filled("a/m", "b/m")
    assert made.get_all(VIEW, ["b/m", "a/m"]) == [made.get(VIEW, "b/m"), made.get(VIEW, "a/m")]
    assert made.get_all(VIEW, ["a/m", "c/m"]) is None
    assert made.get_all(("code", 0.95, None), ["a/m"]) is None


def test_a_destination_is_dropped_in_every_view_and_its_namesake_is_not() -> None:
    made = filled("a/m", "a/n", "ab/m")
    version = made.version
    made.drop_place("a")
    assert len(made) == 2
    assert made.version > version
    assert made.get(LONG, "a/n") is None
    assert made.get(LONG, "ab/m") is not None


def test_a_full_cache_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 4)
    made = filled("a/m", "b/m", "c/m")
    assert len(made) == 2
    made.keep(VIEW, "c/m", RouteEstimate(calls=9))
    assert len(made) == 2, "an estimate that replaces another counts once"
