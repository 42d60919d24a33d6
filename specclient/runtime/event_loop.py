"""Turn what asyncio leaves open into small tools: a loop that must run, work in a thread, a shield.

anyio has them, too, and comes in (1.5 MB) where a program has it already, or does what is rarer.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TypeVar

from specclient.errors import SpecClientError
from specclient.runtime.forks import import_lock

T = TypeVar("T")


def check_asyncio() -> None:
    """Raise SpecClientError where no asyncio event loop runs: under trio, mostly."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        return
    raise SpecClientError(
        "AsyncOpenAI runs on asyncio, and no asyncio event loop is running here; start the program with "
        "asyncio.run(), or anyio.run(backend='asyncio'). Under trio, use the synchronous OpenAI in a thread: "
        "await trio.to_thread.run_sync(...)"
    )


async def run_in_thread(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, in a thread that ends with it, with the caller's context variables.

    Not one of the loop's own: all of those may be waiting for the call that this is a part of. A caller that
    is cancelled leaves at once; the work goes on to its end.
    """
    result: Future[T] = Future()
    run = (result, contextvars.copy_context(), work)
    threading.Thread(target=_run, args=run, name="specclient-work").start()
    waiting = asyncio.wrap_future(result)
    try:
        return await waiting
    finally:
        del result, waiting, run  # they hold the error whose traceback holds this frame: a circle


def _run(result: Future[T], context: contextvars.Context, work: Callable[[], T]) -> None:
    result.set_running_or_notify_cancel()
    try:
        result.set_result(context.run(work))
    except BaseException as error:  # noqa: BLE001 - raised in the caller
        result.set_exception(error)
    finally:
        del result  # as above


def cancel_shield() -> AbstractContextManager[object]:
    """Return a context into which no cancel scope of anyio's around it reaches.

    asyncio's own cancellation is raised once, and whoever catches it may wait again; that of a scope is
    raised again at every wait. Where anyio is not loaded, there is no scope.
    """
    with import_lock:  # the first scope imports more of it
        scope = getattr(sys.modules.get("anyio"), "CancelScope", None)
        return contextlib.nullcontext() if scope is None else scope(shield=True)
