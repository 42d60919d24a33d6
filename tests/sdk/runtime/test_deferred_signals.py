"""Signal handlers run at the end of the context, in order, and all of them are installed again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from specclient.runtime.deferred_signals import DeferredSignals

NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def seen() -> Iterator[list[int]]:
    """The signals whose handler has run."""
    seen: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        seen.append(number)

    before = {number: signal.signal(number, note) for number in NUMBERS}
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


def test_handlers_run_at_the_end_in_order(seen: list[int]) -> None:
    installed = [signal.getsignal(number) for number in NUMBERS]
    interrupts: list[int] = []
    with DeferredSignals(lambda: interrupts.append(1)) as signals:
        assert not signals.have_arrived()
        for number in reversed(NUMBERS):
            signal.raise_signal(number)
        assert signals.have_arrived()
        assert seen == []
    assert seen == list(reversed(NUMBERS))
    assert interrupts == [1, 1]
    assert [signal.getsignal(number) for number in NUMBERS] == installed


def test_the_same_signal_again_runs_its_handler_at_once(seen: list[int]) -> None:
    with DeferredSignals(lambda: None):
        signal.raise_signal(NUMBERS[0])
        signal.raise_signal(NUMBERS[0])
        assert seen == [NUMBERS[0]]
    assert seen == [NUMBERS[0]] * 2


def test_an_error_of_a_handler_is_raised_at_the_end(seen: list[int]) -> None:
    def fail(_number: int, _: FrameType | None) -> None:
        raise TimeoutError

    def work() -> None:
        with DeferredSignals(lambda: None):
            signal.raise_signal(NUMBERS[0])
            seen.append(0)

    signal.signal(NUMBERS[0], fail)
    with pytest.raises(TimeoutError):
        work()
    assert seen == [0]
    assert signal.getsignal(NUMBERS[0]) is fail


def test_a_handler_installed_in_the_context_stays(seen: list[int]) -> None:
    with DeferredSignals(lambda: None):
        signal.signal(NUMBERS[0], signal.SIG_IGN)
    assert signal.getsignal(NUMBERS[0]) is signal.SIG_IGN
    signal.raise_signal(NUMBERS[1])
    assert seen == [NUMBERS[1]]


def test_other_threads_leave_the_handlers_alone(seen: list[int]) -> None:
    def enter() -> None:
        with DeferredSignals(lambda: None):
            installed.append(signal.getsignal(NUMBERS[0]))

    installed: list[object] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert installed == [signal.getsignal(NUMBERS[0])]
    assert seen == []
