"""Turn the asynchronous client into a synchronous one: the same core, on one event loop in the background.

All synchronous clients of a process share one loop thread. It is a daemon, so it never keeps the
interpreter from exiting, and it is made anew in a child after ``fork``.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Self, TypeVar, Unpack

from anyio import CancelScope
from anyio.from_thread import BlockingPortal, start_blocking_portal

from specclient.core import ClientOptions, Core, Parts, checked_options
from specclient.resources.base import Caller
from specclient.resources.beta import Beta
from specclient.resources.callers import SyncCaller
from specclient.resources.chat import Chat
from specclient.resources.completions import Completions
from specclient.resources.embeddings import Embeddings
from specclient.resources.models import Models
from specclient.resources.moderations import Moderations
from specclient.resources.responses import Responses
from specclient.stream import AsyncStream, Stream
from specclient.surface import Surface
from specclient.types.call import Call

if TYPE_CHECKING:
    from specclient.costs.ledger import Ledger

T = TypeVar("T")
P = ParamSpec("P")

#: Chunks that may wait for a slow reader before the stream stops reading from the network.
HIGH_WATER = 512
#: Seconds that closing a stream waits for its end to be recorded.
CLOSE_S = 10.0


class _Loop:
    """The process's loop thread: started by the first call, stopped at exit, forgotten after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._manager: AbstractContextManager[BlockingPortal] | None = None
        self._abandoned: list[object] = []
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.stop)

    def portal(self) -> BlockingPortal:
        if self._portal is not None:
            return self._portal
        with self._lock:
            if self._portal is None:
                self._manager = start_blocking_portal("asyncio", name="specclient")
                self._portal = self._manager.__enter__()
            return self._portal

    def stop(self) -> None:
        """Cancel what still runs, wait for it to end, and write what it leaves for the ledgers."""
        with self._lock:
            manager, self._manager, self._portal = self._manager, None, None
        if manager is not None:
            # An exception is what tells the portal to cancel its tasks instead of waiting for them.
            manager.__exit__(_Stopped, _Stopped(), None)
        for client in list(_clients):
            client.flush()

    def _forget(self) -> None:
        """In a forked child: the thread stayed with the parent, so there is nothing to stop.

        The parent's manager is kept and not dropped: collecting it would try to stop that thread,
        and wait for it without end.
        """
        self._abandoned.append(self._manager)
        self._lock = threading.Lock()
        self._portal = self._manager = None


class _Stopped(Exception):  # noqa: N818 - no error: the interpreter is leaving
    """Ends the loop thread."""


#: Whose ledgers are flushed once the loop has ended: a stream that is cut short then leaves a row.
_clients: weakref.WeakSet[Parts] = weakref.WeakSet()

_loop = _Loop()


class Bridge:
    """Runs coroutine functions on the background loop; see :class:`specclient.resources.base.Runner`."""

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call, wait, and return the result; an interrupt cancels the call."""
        future = _loop.portal().start_task_soon(lambda: function(*args, **kwargs))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stream(
        self, function: Callable[P, Awaitable[AsyncStream[T]]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]:
        """Open a stream on the background loop and return once it is open."""
        return Stream(_Pump(lambda: function(*args, **kwargs)))


class _End:
    """Closes a pump's queue; carries what ended the stream, if it was an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _Pump(Generic[T]):
    """Runs one stream from opening to end inside one task, and hands its chunks to another thread.

    One task, because the cancel scopes and context variables of whoever produces the chunks are
    bound to the task that steps them. The task may be ``HIGH_WATER`` chunks ahead of the reader, who
    grants it more as it reads on; only the loop's thread touches the count, so no grant is lost.
    """

    def __init__(self, open_stream: Callable[[], Awaitable[AsyncStream[T]]]) -> None:
        self._open_stream = open_stream
        self._queue: SimpleQueue[list[T] | _End] = SimpleQueue()
        self._ready: deque[T] = deque()
        self._opened: Future[AsyncStream[T]] = Future()
        self._ended = threading.Event()
        self._finished = False
        self._read = 0
        self._room = HIGH_WATER
        self._task = _loop.portal().start_task_soon(self._pump)
        try:
            self._stream = self._opened.result()
        except BaseException:
            self._task.cancel()
            raise

    async def _pump(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._granted = asyncio.Event()
        end = _End()
        try:
            stream = await self._open_stream()
        except BaseException as error:
            self._opened.set_exception(error)
            if isinstance(error, Exception):
                return
            raise
        self._opened.set_result(stream)
        try:
            while True:
                batch = await stream.next_batch()
                self._queue.put(batch)
                self._room -= len(batch)
                while self._room <= 0:
                    self._granted.clear()
                    await self._granted.wait()
        except StopAsyncIteration:
            pass
        except Exception as error:  # noqa: BLE001 - carried across and raised in the reader
            end = _End(error)
        finally:
            with CancelScope(shield=True):
                await stream.close()
            self._queue.put(end)  # after the record is closed: whoever reads the end may read `meta`
            self._ended.set()

    def _grant(self, chunks: int) -> None:
        self._room += chunks
        self._granted.set()

    def next(self) -> T:
        while not self._ready:
            item = self._queue.get()
            if isinstance(item, _End):
                self._queue.put(item)  # for any other reader
                first, self._finished = not self._finished, True
                raise (item.error if first and item.error else StopIteration)
            self._ready.extend(item)
            self._read += len(item)
            if self._read >= HIGH_WATER // 2:
                read, self._read = self._read, 0
                with suppress(RuntimeError):  # the loop has ended, and the stream with it
                    self._loop.call_soon_threadsafe(self._grant, read)
        return self._ready.popleft()

    def meta(self) -> Call:
        return self._stream.meta

    def origin(self) -> AsyncStream[T]:
        return self._stream

    def close(self) -> None:
        self._finished = True
        self._task.cancel()
        self._ended.wait(CLOSE_S)
        self._ready.clear()
        while not self._queue.empty():  # nobody reads on in what was left
            self._queue.get()
        self._queue.put(_End())

    def abandon(self) -> None:
        self._task.cancel()


class OpenAI(Surface):
    """The synchronous client; options as :class:`specclient.client.AsyncOpenAI`'s."""

    beta: Beta
    chat: Chat
    completions: Completions
    embeddings: Embeddings
    models: Models
    moderations: Moderations
    responses: Responses

    _resources: ClassVar[Mapping[str, Callable[[Caller], Any]]] = {
        "beta": Beta,
        "chat": Chat,
        "completions": Completions,
        "embeddings": Embeddings,
        "models": Models,
        "moderations": Moderations,
        "responses": Responses,
    }

    _is_async = False

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        checked_options(type(self), options)
        self._begin(Core(options))

    def _begin(self, core: Core) -> None:
        self._core = core
        self._bridge = Bridge()
        self._caller = SyncCaller(core.pipeline, self._bridge, secret=lambda: core.webhook_secret)
        _clients.add(core.parts)

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        checked_options(type(self), changes)
        seen = type(self).__new__(type(self))
        core = self._core
        seen._begin(Core({**core.options, **changes}, endpoint=core.endpoint, parts=core.parts))
        return seen

    @property
    def ledger(self) -> Ledger:
        """The record of every call."""
        return self._core.parts.ledger

    def is_closed(self) -> bool:
        """Tell whether :meth:`close` has been called; a closed client opens anew when it is used."""
        return self._core.parts.closed

    def close(self) -> None:
        """Close connections, free the local engine and write what the ledger still holds."""
        self._bridge.run(self._core.parts.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
