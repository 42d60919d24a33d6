"""The pause after a refusal: it follows a rate limit, and grows only while nothing is served."""

from __future__ import annotations

import math

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.refusals import RefusalPause
from specclient.routing.learn.route_model import RouteModel


def test_before_any_refusal_there_is_no_pause() -> None:
    assert RefusalPause().until == -math.inf


def test_a_burst_beyond_the_limit_is_one_refusal() -> None:
    pause = RefusalPause()
    for burst in range(20):
        at = 36.0 * burst
        for _ in range(5):
            pause.refused(at + 0.1, at)
        for n in range(5):
            pause.served(at)
            assert pause.until - at < 4.5, f"call {n} of burst {burst}"


def test_a_spent_quota_is_tried_more_and_more_rarely() -> None:
    pause, at, tries = RefusalPause(), 0.0, 0
    while at < 3600:
        if at >= pause.until:
            tries += 1
            pause.refused(at + 0.1, at)
        at += 1.0
    assert 8 <= tries <= 16
    for _ in range(20):
        at = pause.until + 1
        pause.refused(at, at)
        pause.served(at)
    assert pause.until - at < 120, "it shrinks again once requests are served"


def test_the_pause_follows_a_steady_limit() -> None:
    """A token bucket of one request each two seconds, and a caller with a request each quarter second."""
    pause, left, served, refused = RefusalPause(), 5.0, 0, 0
    for n in range(4 * 600):
        at = n / 4
        left = min(left + 0.125, 5.0)
        if at < pause.until:
            continue
        if left >= 1:
            left, served = left - 1, served + 1
            pause.served(at)
        else:
            refused += 1
            pause.refused(at, at)
    assert served > 0.8 * 300
    assert refused < 2 * served


def test_refusals_are_no_failures_of_the_route() -> None:
    learned = RouteModel()
    for n in range(30):
        at = 1e9 + 36 * n
        learned.learn(CallSample(route="x/y", at=at + 0.1, failed=True, refused=True, latency_s=0.1), 150)
        learned.learn(
            CallSample(
                route="x/y", at=at + 2, ttft_s=0.4, latency_s=2.0, completion_tokens=100, prompt_tokens=100
            ),
            150,
        )
    now = 1e9 + 36 * 29 + 0.2
    made = learned.estimate("chat", 0.95, now)
    assert made.limited
    assert made.failure_rate < 0.02
    assert not learned.bad(now)
    assert 0 < learned.expires_s(now) < 3
    assert not learned.estimate("chat", 0.95, now + learned.expires_s(now)).limited


def test_a_route_without_an_answer_can_be_limited() -> None:
    learned = RouteModel()
    assert learned.learn(CallSample(route="x/y", at=1e9, failed=True, refused=True, latency_s=0.1), 150)
    made = learned.estimate("chat", 0.95, 1e9 + 0.5)
    assert (made.limited, made.ttft_s, made.calls) == (True, None, 1)
