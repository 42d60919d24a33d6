"""Turn a behaviour written once, as a generator of steps, into a plain or an asynchronous method."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from specclient.forks import uncut
from specclient.loops import in_thread

#: What a behaviour yields: the result of a call (of an asynchronous client: what gives it when awaited), or
#: one of the steps below. It is sent what the step gave.
Steps = Generator[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait that many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Blocking:
    """Do what may block: asynchronously, in a thread."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Together:
    """Make several calls at the same time, ``limit`` at most; gives their results in order."""

    calls: Sequence[Callable[[], Any]]
    limit: int


def method_of_flow(flow: Callable[..., Steps], *, is_async: bool) -> Callable[..., Any]:
    """Return a behaviour as a method of a resource.

    Args:
        flow: takes the resource and the method's arguments.
        is_async: whether the resource's own methods are coroutines.
    """
    method: Callable[..., Any]
    if is_async:

        @functools.wraps(flow)
        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await awaited(flow(self, *args, **kwargs))

    else:

        @functools.wraps(flow)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return done(flow(self, *args, **kwargs))

    return method


def done(steps: Steps) -> Any:
    """Take the steps one after the other, and return what they end with; what one raises, they are told."""
    given: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(given) if failure is None else steps.throw(failure)
        except StopIteration as end:
            return end.value
        given = failure = None
        try:
            if isinstance(step, Sleep):
                time.sleep(step.seconds)
            elif isinstance(step, Blocking):
                given = step.work()
            elif isinstance(step, Together):
                with ThreadPoolExecutor(step.limit) as pool:
                    given = list(pool.map(lambda call: call(), step.calls))
            else:
                given = step
        except BaseException as error:  # noqa: BLE001  # as in `awaited`
            failure = error


async def awaited(steps: Steps) -> Any:
    """Take the steps one after the other without blocking the event loop; see :func:`done`."""
    given: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(given) if failure is None else steps.throw(failure)
        except StopIteration as end:
            return end.value
        given = failure = None
        try:
            if isinstance(step, Sleep):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, Blocking):
                given = await in_thread(step.work)
            elif isinstance(step, Together):
                given = await _together(step)
            else:
                given = await step if inspect.isawaitable(step) else step
        except BaseException as error:  # noqa: BLE001  # the behaviour decides, and raises what it does not handle
            failure = error


async def _together(step: Together) -> list[Any]:
    with uncut:
        import anyio  # noqa: PLC0415 - only for several calls at once

    results: list[Any] = [None] * len(step.calls)
    failures: list[Exception] = []
    slots = anyio.Semaphore(step.limit)

    async def one(index: int, call: Callable[[], Any], scope: anyio.CancelScope) -> None:
        async with slots:
            try:
                results[index] = await call()
            except Exception as error:  # noqa: BLE001  # raised below, and not as a group
                failures.append(error)
                scope.cancel()

    async with anyio.create_task_group() as group:
        for index, call in enumerate(step.calls):
            group.start_soon(one, index, call, group.cancel_scope)
    if failures:
        raise failures[0]
    return results
