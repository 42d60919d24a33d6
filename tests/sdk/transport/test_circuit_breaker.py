"""A deployment that keeps failing is given a rest, and a blip is not."""

from __future__ import annotations

from typing import Any

import pytest

from specclient.errors import (
    APIConnectionError,
    APITimeoutError,
    CircuitOpenError,
    ConfigurationError,
    DeadlineExceededError,
    status_error,
)
from specclient.transport.circuit_breaker import CircuitBreaker
from specclient.types.limit import CircuitRule

DOWN = APIConnectionError(message="Connection error. No answer from http://there.")


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        self.seconds += 0.001  # whatever is asked for later is later
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fail(
    breaker: CircuitBreaker, clock: Clock, times: int, error: BaseException = DOWN, gap: float = 3.0
) -> None:
    for _ in range(times):
        breaker.leave(breaker.enter("p/m"), error)
        clock.seconds += gap


def is_open(breaker: CircuitBreaker) -> bool:
    try:
        breaker.check("p/m")
    except CircuitOpenError:
        return True
    return False


def test_five_failures_in_a_row_over_ten_seconds_open_it(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    fail(breaker, clock, 4)
    assert not is_open(breaker)
    fail(breaker, clock, 1, gap=0.0)
    with pytest.raises(
        CircuitOpenError, match=r"p/m has failed 5 times.*in 12\.0 s.*No answer from"
    ) as caught:
        breaker.check("p/m")
    assert (caught.value.deployment, round(caught.value.retry_after_s)) == ("p/m", 12)
    assert isinstance(caught.value, APIConnectionError)
    breaker.check("p/other")


@pytest.mark.parametrize("error", [APITimeoutError(), status_error(500, ""), status_error(503, "")])
def test_what_counts_as_failing(clock: Clock, error: BaseException) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    fail(breaker, clock, 5, error)
    assert is_open(breaker)


@pytest.mark.parametrize(
    "error",
    [None, *(status_error(status, "") for status in (400, 401, 404, 409, 429, 501))],
    ids=lambda error: str(error and error.status_code),
)
def test_an_answer_whatever_it_says_begins_the_count_anew(clock: Clock, error: BaseException | None) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    for _ in range(3):
        fail(breaker, clock, 4)
        fail(breaker, clock, 1, error)
        assert not is_open(breaker)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DeadlineExceededError(), RuntimeError()])
def test_what_says_nothing_of_the_server_changes_nothing(clock: Clock, error: BaseException) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    fail(breaker, clock, 20, error)
    assert not is_open(breaker)
    fail(breaker, clock, 4)
    fail(breaker, clock, 1, error)
    fail(breaker, clock, 1)
    assert is_open(breaker)


def test_a_burst_that_fails_together_counts_once(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(lasting_s=0), clock=clock)
    for _ in range(4):  # four waves of a hundred
        under_way = [breaker.enter("p/m") for _ in range(100)]
        for started in under_way:
            breaker.leave(started, DOWN)
    assert not is_open(breaker)
    fail(breaker, clock, 1, gap=0.0)
    assert is_open(breaker)


def test_a_burst_whose_retries_fail_fast_within_a_blip_opens_nothing(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    fail(breaker, clock, 300, gap=0.01)  # three seconds, one after the other
    assert not is_open(breaker)


def test_one_probe_at_a_time_and_its_end_decides(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(failures=2, lasting_s=0, rest_s=30), clock=clock)
    fail(breaker, clock, 2, gap=0.0)
    clock.seconds += 29
    assert is_open(breaker)
    clock.seconds += 1
    probe = breaker.enter("p/m")
    with pytest.raises(CircuitOpenError, match="after the running probe, in"):
        breaker.enter("p/m")
    breaker.leave(probe, DOWN)
    assert is_open(breaker)
    clock.seconds += 30
    cancelled = breaker.enter("p/m")
    breaker.leave(cancelled, KeyboardInterrupt())
    second = breaker.enter("p/m")
    breaker.leave(second, None)
    assert not is_open(breaker)
    fail(breaker, clock, 1)
    assert not is_open(breaker)


def test_a_rest_is_as_long_as_the_failing_and_half_a_minute_at_most(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    rests = []
    for _ in range(8):
        while not is_open(breaker):
            fail(breaker, clock, 1, gap=0.0)
            clock.seconds += 0.0 if is_open(breaker) else 2.5
        with pytest.raises(CircuitOpenError) as caught:
            breaker.check("p/m")
        rests.append(round(caught.value.retry_after_s))
        clock.seconds += caught.value.retry_after_s
    assert rests == [10, 20, 30, 30, 30, 30, 30, 30]


def test_a_late_failure_does_not_open_a_circuit_that_closed_meanwhile(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(failures=1, lasting_s=0), clock=clock)
    slow = breaker.enter("p/m")
    fail(breaker, clock, 1, gap=31.0)
    breaker.leave(breaker.enter("p/m"), None)
    assert not is_open(breaker)
    breaker.leave(slow, None)
    assert not is_open(breaker)


def test_off_is_off(clock: Clock) -> None:
    breaker = CircuitBreaker(None, clock=clock)
    fail(breaker, clock, 100)
    assert not is_open(breaker)


@pytest.mark.parametrize("options", [{"failures": 0}, {"rest_s": -1}, {"lasting_s": -1}, {"rest_s": "long"}])
def test_circuits_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"circuit {next(iter(options))} is"):
        CircuitRule(**options)


def opened(clock: Clock) -> CircuitBreaker:
    """A circuit that a rest of 30 s has just ended."""
    breaker = CircuitBreaker(CircuitRule(failures=2, lasting_s=0, rest_s=30), clock=clock)
    fail(breaker, clock, 2, gap=0.0)
    clock.seconds += 30
    return breaker


def test_a_probe_that_hangs_is_followed_by_another_after_a_rest(clock: Clock) -> None:
    breaker = opened(clock)
    hung = breaker.enter("p/m")
    clock.seconds += 20
    with pytest.raises(CircuitOpenError, match=r"sent after the running probe, in 10\.0 s") as caught:
        breaker.enter("p/m")
    assert caught.value.retry_after_s == pytest.approx(10.0, abs=0.01)
    assert not breaker.is_open("p/m", 1.0)  # its answer may come any moment
    clock.seconds += caught.value.retry_after_s
    second = breaker.enter("p/m")
    assert second.probe
    breaker.leave(hung, KeyboardInterrupt())  # lets nobody in: the second one is under way
    assert is_open(breaker)
    breaker.leave(second, None)
    assert not is_open(breaker)


@pytest.mark.parametrize(("status", "closes"), [(200, True), (429, True), (501, True), (500, False)])
def test_a_probe_whose_answer_has_begun_has_seen_enough(clock: Clock, status: int, closes: bool) -> None:
    breaker = opened(clock)
    probe = breaker.enter("p/m")
    breaker.answered(probe, status)
    assert is_open(breaker) is not closes
    if closes:
        breaker.leave(probe, KeyboardInterrupt())
        assert not is_open(breaker)


def test_deployments_that_failed_longest_ago_are_forgotten(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(failures=1, lasting_s=0), clock=clock)
    for number in range(5000):
        clock.seconds += 1e-3
        breaker.leave(breaker.enter(f"p/{number}"), DOWN)
    assert len(breaker._failing) <= 1024
    with pytest.raises(CircuitOpenError):
        breaker.check("p/4999")
    breaker.check("p/0")
