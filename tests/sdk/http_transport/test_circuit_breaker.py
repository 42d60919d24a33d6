"""The circuit breaker: opens for a deployment that keeps failing, not after a short burst of failures."""

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
from specclient.http_transport.circuit_breaker import CircuitBreaker
from specclient.types.limit import CircuitRule

DOWN = APIConnectionError(message="Connection error. No answer from http://there.")


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        self.seconds += 0.001  # so that later readings are later times
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


def test_five_failures_in_a_row_over_ten_seconds_open_the_circuit(clock: Clock) -> None:
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
def test_timeouts_and_server_errors_count_as_failures(clock: Clock, error: BaseException) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    fail(breaker, clock, 5, error)
    assert is_open(breaker)


@pytest.mark.parametrize(
    "error",
    [None, *(status_error(status, "") for status in (400, 401, 404, 409, 429, 501))],
    ids=lambda error: str(error and error.status_code),
)
def test_a_success_or_a_client_error_resets_the_count(clock: Clock, error: BaseException | None) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    for _ in range(3):
        fail(breaker, clock, 4)
        fail(breaker, clock, 1, error)
        assert not is_open(breaker)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DeadlineExceededError(), RuntimeError()])
def test_errors_unrelated_to_the_server_do_not_change_the_count(clock: Clock, error: BaseException) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    fail(breaker, clock, 20, error)
    assert not is_open(breaker)
    fail(breaker, clock, 4)
    fail(breaker, clock, 1, error)
    fail(breaker, clock, 1)
    assert is_open(breaker)


def test_concurrent_failures_count_once(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(lasting_s=0), clock=clock)
    for _ in range(4):  # four waves of a hundred
        under_way = [breaker.enter("p/m") for _ in range(100)]
        for started in under_way:
            breaker.leave(started, DOWN)
    assert not is_open(breaker)
    fail(breaker, clock, 1, gap=0.0)
    assert is_open(breaker)


def test_many_failures_within_a_few_seconds_do_not_open_the_circuit(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    fail(breaker, clock, 300, gap=0.01)  # three seconds, one after the other
    assert not is_open(breaker)


def test_one_probe_runs_at_a_time_and_its_result_closes_or_reopens_the_circuit(clock: Clock) -> None:
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


def test_a_failure_of_one_server_of_several_is_not_counted(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(), clock=clock)
    for _ in range(9):
        breaker.leave(breaker.enter("p/m"), DOWN, others_serve=True)
        clock.seconds += 3.0
    assert not is_open(breaker)
    fail(breaker, clock, 5)
    assert is_open(breaker)
    clock.seconds += 31.0
    breaker.leave(breaker.enter("p/m"), DOWN, others_serve=True)
    assert breaker.enter("p/m").probe, "the failed probe told nothing of the others"


def test_the_circuit_stays_open_as_long_as_the_failing_lasted_up_to_thirty_seconds(clock: Clock) -> None:
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


def test_without_a_rule_the_circuit_never_opens(clock: Clock) -> None:
    breaker = CircuitBreaker(None, clock=clock)
    fail(breaker, clock, 100)
    assert not is_open(breaker)


@pytest.mark.parametrize("options", [{"failures": 0}, {"rest_s": -1}, {"lasting_s": -1}, {"rest_s": "long"}])
def test_invalid_circuit_rules_raise(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"circuit {next(iter(options))} is"):
        CircuitRule(**options)


def opened(clock: Clock) -> CircuitBreaker:
    """Return an open circuit whose rest of 30 s has just ended."""
    breaker = CircuitBreaker(CircuitRule(failures=2, lasting_s=0, rest_s=30), clock=clock)
    fail(breaker, clock, 2, gap=0.0)
    clock.seconds += 30
    return breaker


def test_a_hanging_probe_is_followed_by_another_after_a_rest(clock: Clock) -> None:
    breaker = opened(clock)
    hung = breaker.enter("p/m")
    clock.seconds += 20
    with pytest.raises(CircuitOpenError, match=r"sent after the running probe, in 10\.0 s") as caught:
        breaker.enter("p/m")
    assert caught.value.retry_after_s == pytest.approx(10.0, abs=0.01)
    assert not breaker.is_open("p/m", 1.0)  # the probe may be answered at any time
    clock.seconds += caught.value.retry_after_s
    second = breaker.enter("p/m")
    assert second.probe
    breaker.leave(hung, KeyboardInterrupt())  # permits no new probe: the second one is running
    assert is_open(breaker)
    breaker.leave(second, None)
    assert not is_open(breaker)


@pytest.mark.parametrize(("status", "closes"), [(200, True), (429, True), (501, True), (500, False)])
def test_the_status_of_a_probe_decides_before_its_body_is_read(
    clock: Clock, status: int, closes: bool
) -> None:
    breaker = opened(clock)
    probe = breaker.enter("p/m")
    breaker.answered(probe, status)
    assert is_open(breaker) is not closes
    if closes:
        breaker.leave(probe, KeyboardInterrupt())
        assert not is_open(breaker)


def test_the_deployments_that_failed_longest_ago_are_removed(clock: Clock) -> None:
    breaker = CircuitBreaker(CircuitRule(failures=1, lasting_s=0), clock=clock)
    for number in range(5000):
        clock.seconds += 1e-3
        breaker.leave(breaker.enter(f"p/{number}"), DOWN)
    assert len(breaker._failing) <= 1024
    with pytest.raises(CircuitOpenError):
        breaker.check("p/4999")
    breaker.check("p/0")
