"""asyncio helpers: a check for a running loop, work in a thread, and a shield from cancellation.

anyio has similar helpers but takes 1.5 MB; it is imported only for less common operations.
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
    """Raise SpecClientError if no asyncio event loop is running, for example under trio."""
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
    """Run ``work`` in a new thread, with the caller's context variables, and return its result.

    The threads of the loop's executor are not used, because all of them may wait for this call. If the caller
    is cancelled, it continues at once; the work runs to its end.
    """
    result: Future[T] = Future()
    run = (result, contextvars.copy_context(), work)
    threading.Thread(target=_run, args=run, name="specclient-work").start()
    waiting = asyncio.wrap_future(result)
    try:
        return await waiting
    finally:
        del result, waiting, run  # a reference cycle: the error's traceback refers to this frame


def _run(result: Future[T], context: contextvars.Context, work: Callable[[], T]) -> None:
    result.set_running_or_notify_cancel()
    try:
        result.set_result(context.run(work))
    except BaseException as error:  # noqa: BLE001 - raised in the caller
        result.set_exception(error)
    finally:
        del result  # as above


def cancel_shield() -> AbstractContextManager[object]:
    """Return a context manager that shields its body from surrounding anyio cancel scopes.

    asyncio raises a cancellation once; a task that catches it can wait again. A cancelled anyio scope raises
    at every wait. If anyio is not imported, there is no scope.
    """
    if not _may_be_in_scope():
        return contextlib.nullcontext()
    with import_lock:  # the first scope imports more of it
        scope = getattr(sys.modules.get("anyio"), "CancelScope", None)
        return contextlib.nullcontext() if scope is None else scope(shield=True)


def _may_be_in_scope() -> bool:
    """Return whether an anyio cancel scope may surround the running task.

    anyio notes each task that has entered one or was started in one. A scope takes 20 µs, and servers make
    a task for each request.
    """
    backend = sys.modules.get("anyio._backends._asyncio")
    if backend is None:
        return False
    noted = getattr(backend, "_task_states", None)  # not documented
    return noted is None or asyncio.current_task() in noted
