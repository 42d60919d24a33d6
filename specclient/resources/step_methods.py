"""Methods written once as generators of steps, which run synchronously or asynchronously."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from specclient.runtime.event_loop import run_in_thread
from specclient.runtime.forks import import_lock

#: A generator that yields results of calls (awaitables, for an asynchronous client) or the steps below, and
#: is sent the result of each step.
Steps = Generator[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class SleepStep:
    """Wait for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class BlockingStep:
    """Call a function that may block; asynchronous methods call it in a thread."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ConcurrentStep:
    """Make calls concurrently, at most ``limit`` at a time; the result is the list of their results."""

    calls: Sequence[Callable[[], Any]]
    limit: int


def method_from_steps(flow: Callable[..., Steps], *, is_async: bool) -> Callable[..., Any]:
    """Return a generator function of steps as a method of a resource.

    Args:
        flow: takes the resource and the method's arguments.
        is_async: whether the resource's own methods are coroutines.
    """
    method: Callable[..., Any]
    if is_async:

        @functools.wraps(flow)
        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await run_steps_async(flow(self, *args, **kwargs))

    else:

        @functools.wraps(flow)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return run_steps(flow(self, *args, **kwargs))

    return method


def run_steps(steps: Steps) -> Any:
    """Run the steps in order and return the generator's result; exceptions of a step are thrown into it."""
    given: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(given) if failure is None else steps.throw(failure)
        except StopIteration as end:
            return end.value
        given = failure = None
        try:
            if isinstance(step, SleepStep):
                time.sleep(step.seconds)
            elif isinstance(step, BlockingStep):
                given = step.work()
            elif isinstance(step, ConcurrentStep):
                with ThreadPoolExecutor(step.limit) as pool:
                    given = list(pool.map(lambda call: call(), step.calls))
            else:
                given = step
        except BaseException as error:  # noqa: BLE001  # as in `run_steps_async`
            failure = error


async def run_steps_async(steps: Steps) -> Any:
    """Run the steps in order without blocking the event loop; see :func:`run_steps`."""
    given: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(given) if failure is None else steps.throw(failure)
        except StopIteration as end:
            return end.value
        given = failure = None
        try:
            if isinstance(step, SleepStep):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, BlockingStep):
                given = await run_in_thread(step.work)
            elif isinstance(step, ConcurrentStep):
                given = await _together(step)
            else:
                given = await step if inspect.isawaitable(step) else step
        except BaseException as error:  # noqa: BLE001  # thrown into the generator, which may handle it
            failure = error


async def _together(step: ConcurrentStep) -> list[Any]:
    with import_lock:
        import anyio  # noqa: PLC0415 - only for several calls at once

    results: list[Any] = [None] * len(step.calls)
    failures: list[Exception] = []
    slots = anyio.Semaphore(step.limit)

    async def one(index: int, call: Callable[[], Any], scope: anyio.CancelScope) -> None:
        async with slots:
            try:
                results[index] = await call()
            except Exception as error:  # noqa: BLE001  # raised below, instead of an exception group
                failures.append(error)
                scope.cancel()

    async with anyio.create_task_group() as group:
        for index, call in enumerate(step.calls):
            group.start_soon(one, index, call, group.cancel_scope)
    if failures:
        raise failures[0]
    return results
