"""Which thread runs the loop of the synchronous clients, and that no work on it is left."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest

from specclient.client.background_loop import BackgroundLoop
from specclient.client.loop_tasks import LoopCall, LoopTask
from specclient.client.shared_loop import IDLE_S
from specclient.errors import SpecClientError

T = TypeVar("T")
PATIENCE_S = 30.0


class Loop(BackgroundLoop):
    """A loop of its own, so that the streams of other tests are not on it."""

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        return self.run(LoopCall(function))


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


async def _thread() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


def _signal_soon(after_s: float = 0.05) -> None:
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(after_s, signal.pthread_kill, (main, signal.SIGUSR1)).start()


@pytest.fixture
def handle() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Install a handler of SIGUSR1 for a test."""
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGUSR1)

    def install(handler: Callable[[], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: handler())

    yield install
    signal.signal(signal.SIGUSR1, before)


def test_a_call_that_is_alone_runs_in_the_thread_that_makes_it(loop: Loop) -> None:
    assert {loop.call(_thread) for _ in range(5)} == {threading.get_ident()}
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(loop.call, _thread).result() != threading.get_ident()


def test_a_call_after_a_pause_runs_in_the_thread_that_makes_it(loop: Loop) -> None:
    loop.call(_thread)
    time.sleep(4 * IDLE_S)  # the loop's own thread runs the loop by then
    assert loop.call(_thread) == threading.get_ident()


def test_a_call_beside_other_work_runs_in_the_loops_own_thread(loop: Loop) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        await ended.wait()

    task = LoopTask(work)
    loop.start(task)
    assert loop.call(_thread) != threading.get_ident()
    task.cancel()


def test_a_call_inside_a_running_event_loop_runs_in_the_loops_own_thread(loop: Loop) -> None:
    async def main() -> int:
        return loop.call(_thread)

    assert asyncio.run(main()) != threading.get_ident()


def test_a_call_inside_another_librarys_event_loop_runs_in_the_loops_own_thread(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sniffio = pytest.importorskip("sniffio")
    monkeypatch.setattr(sniffio.thread_local, "name", "trio")  # as trio does while it runs
    assert loop.call(_thread) != threading.get_ident()


def test_a_call_goes_on_when_the_thread_that_ran_it_has_its_own_result(loop: Loop) -> None:
    runs_here = threading.Event()

    async def first() -> None:
        runs_here.set()
        await asyncio.sleep(0.1)

    async def second() -> set[int]:
        threads = {threading.get_ident()}
        await asyncio.sleep(0.3)  # the first has ended
        return threads | {threading.get_ident()}

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(lambda: (runs_here.wait(PATIENCE_S), loop.call(second))[1])
        loop.call(first)
        threads = slow.result(PATIENCE_S)
    assert threading.get_ident() in threads
    assert len(threads) == 2


def test_a_call_on_the_loop_itself_is_refused(loop: Loop) -> None:
    async def nested() -> int:
        return loop.call(_thread)

    with pytest.raises(SpecClientError, match="wait for itself"):
        loop.call(nested)
    assert loop.call(_thread) == threading.get_ident()


@pytest.mark.parametrize("pause_s", [0.0, 4 * IDLE_S])
def test_what_a_call_leaves_on_the_loop_is_done_although_no_call_is_made(loop: Loop, pause_s: float) -> None:
    timer, woken = threading.Event(), threading.Event()

    async def leave() -> asyncio.AbstractEventLoop:
        running = asyncio.get_running_loop()
        running.call_later(0.01, timer.set)
        return running

    running = loop.call(leave)
    assert timer.wait(PATIENCE_S)
    loop.call(_thread)
    time.sleep(pause_s)
    running.call_soon_threadsafe(woken.set)
    assert woken.wait(PATIENCE_S)


def test_calls_and_tasks_of_many_threads_all_end(loop: Loop) -> None:
    tasks: list[int] = []

    async def work(number: int) -> int:
        await asyncio.sleep(0.001 * (number % 3))
        return number

    async def note(number: int) -> None:
        tasks.append(await work(number))

    def calls(first: int) -> list[int]:
        found = []
        for number in range(first, first + 50):
            found.append(loop.call(partial(work, number)))
            loop.start(LoopTask(partial(note, number)))
            if number % 10 == 0:
                time.sleep(1.2 * IDLE_S)
        return found

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(calls, range(0, 600, 100)))
    assert found == [list(range(first, first + 50)) for first in range(0, 600, 100)]
    end = time.monotonic() + PATIENCE_S
    while len(tasks) < 300 and time.monotonic() < end:
        time.sleep(0.01)
    assert sorted(tasks) == sorted(number for numbers in found for number in numbers)


def test_an_error_of_a_signal_handler_cancels_the_call_and_harms_no_other(
    loop: Loop, handle: Callable[[Callable[[], object]], None]
) -> None:
    cancelled = threading.Event()

    def time_out() -> None:
        raise TimeoutError("the program's own limit")

    async def wait() -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            cancelled.set()

    async def other() -> str:
        await asyncio.sleep(0.3)
        return "unharmed"

    handle(time_out)
    with ThreadPoolExecutor(1) as pool:
        beside = threading.Timer(0.01, lambda: None)
        beside.start()
        result = pool.submit(lambda: (beside.join(), loop.call(other))[1])
        _signal_soon()
        with pytest.raises(TimeoutError, match="own limit"):
            loop.call(wait)
        assert result.result(PATIENCE_S) == "unharmed"
    assert cancelled.wait(PATIENCE_S)
    assert loop.call(_thread) == threading.get_ident()


def test_a_signal_handler_runs_at_once_and_may_make_calls(
    loop: Loop, handle: Callable[[Callable[[], object]], None]
) -> None:
    seen: list[int] = []
    released = asyncio.Event()

    async def release() -> int:
        released.set()
        return threading.get_ident()

    async def wait() -> str:
        await released.wait()
        return "ended"

    handle(lambda: seen.append(loop.call(release)))
    _signal_soon()
    assert loop.call(wait) == "ended"  # only the handler's call ends it
    assert len(seen) == 1


def test_a_second_signal_interrupts_a_callback_that_blocks_the_loop(
    loop: Loop, handle: Callable[[Callable[[], object]], None]
) -> None:
    arrived: list[float] = []

    def note() -> None:
        arrived.append(time.monotonic())
        raise KeyboardInterrupt

    async def block() -> None:
        _signal_soon()
        _signal_soon(0.5)
        time.sleep(PATIENCE_S)  # what a defective hook does

    handle(note)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        loop.call(block)
    assert time.monotonic() - began < PATIENCE_S
    assert arrived
    assert loop.call(_thread)


def test_stopping_cancels_a_call_that_another_thread_runs() -> None:
    loop, begun = Loop(), threading.Event()
    errors: list[BaseException] = []

    async def wait() -> None:
        begun.set()
        await asyncio.sleep(PATIENCE_S)

    def call() -> None:
        try:
            loop.call(wait)
        except BaseException as error:  # noqa: BLE001 - looked at below
            errors.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert begun.wait(PATIENCE_S)
    loop.stop()
    caller.join(PATIENCE_S)
    assert [type(error).__name__ for error in errors] == ["CancelledError"]
