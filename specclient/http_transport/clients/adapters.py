"""One async interface over HTTP clients: the package's own and users', sync and async."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from specclient.errors import ConfigurationError
from specclient.http_transport import lazy_httpx as httpx
from specclient.http_transport.body_limits import BodyReader
from specclient.http_transport.clients import decoding, redirects
from specclient.http_transport.clients.timeouts import TimeoutSeconds
from specclient.http_transport.uploads import Upload
from specclient.runtime.forks import import_lock
from specclient.types.wire import WireRequest

if TYPE_CHECKING:
    import anyio

MAX_CONNECTIONS = 1000
MAX_IDLE_CONNECTIONS = 100  # connections that are kept for later requests
_MAX_SENDING_THREADS = MAX_CONNECTIONS  # per sync client of a user


class ClientAdapter(Protocol):
    """The interface through which the transport drives a client.

    Attributes:
        library: the package of the client and its responses: ``httpx`` or ``httpx2``.
    """

    library: str

    async def open(self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds) -> Any:
        """Send a request and return the client's response at the end of its headers."""
        ...

    async def read(self, response: Any, body: BodyReader) -> bytes:
        """Read the body of a response within the limits of ``body``. The response keeps it, too."""
        ...

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        """Iterate over the decompressed body of a response as it arrives."""
        ...

    def received(self, response: Any) -> int | None:
        """Return the compressed bytes of the body received so far; None if it is not compressed."""
        ...

    def fields(self, response: Any) -> dict[str, str]:
        """Return the headers of a response by lower-case name; the last value of a repeated one."""
        ...

    def as_library_response(self, response: Any) -> Any:
        """Return the response as an object of :attr:`library`."""
        ...

    async def close(self, response: Any) -> None:
        """Return the connection to the pool, or drop it if the body was not read to its end."""
        ...


def fields_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by lower-case name, given the names and values as received.

    Looking up a header by name in an HTTP library's object costs microseconds each time.
    """
    return {name.lower().decode("latin-1"): text.decode("latin-1") for name, text in raw}


class AsyncClientAdapter:
    """Adapter of an ``AsyncClient`` of httpx or httpx2."""

    def __init__(self, client: Any, library: str = "httpx") -> None:
        self.client = client
        self.library = library
        redirects.install_hooks(client, is_async=True)

    async def open(self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds) -> Any:
        content: Any = request.content
        if isinstance(content, Upload):
            headers = {**content.headers, **headers}
        built = _build(self, request, headers, limits, content)
        try:
            return await self.client.send(built, stream=True, **_send_options(request))
        except _odd_redirects(self.library) as error:
            failure = _odd_redirect(self, error)
        raise failure

    async def read(self, response: Any, body: BodyReader) -> bytes:
        if response.is_stream_consumed:  # a user's event hook may have read it already
            content: bytes = await response.aread()
            return content
        decoding.cut_compressed(response, self.library, is_async=True)
        async with contextlib.aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                if not body.add(piece, self.received(response)):
                    break
        return decoding.keep_content(response, body)

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        # A user's event hook may have read the body already.
        if "content-encoding" in response.headers or response.is_stream_consumed:
            decoding.cut_compressed(response, self.library, is_async=True)
            return aiter(response.aiter_bytes())
        return aiter(response.stream)  # nothing to decode: half the CPU of aiter_bytes

    def received(self, response: Any) -> int | None:
        return decoding.received(response)

    def fields(self, response: Any) -> dict[str, str]:
        return fields_of(response.headers.raw)

    def as_library_response(self, response: Any) -> Any:
        return response

    async def close(self, response: Any) -> None:
        await response.aclose()

    async def aclose(self) -> None:
        """Close the client."""
        await self.client.aclose()


class OwnHttpxAdapter(AsyncClientAdapter):
    """Adapter of the package's own httpx client. Removes queries and user names from URLs that httpx logs."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        logging.getLogger("httpx").addFilter(_shorten_logged_urls)  # adding it again has no effect

    async def open(self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds) -> Any:
        token = _in_own_client.set(True)
        try:
            return await super().open(request, headers, limits)
        finally:
            _in_own_client.reset(token)


_in_own_client: contextvars.ContextVar[bool] = contextvars.ContextVar("in_own_client", default=False)


def _shorten_logged_urls(record: logging.LogRecord) -> bool:
    if _in_own_client.get() and isinstance(record.args, tuple):
        record.args = tuple(
            arg.copy_with(query=None, userinfo=b"") if isinstance(arg, httpx.URL) else arg
            for arg in record.args
        )
    return True


class ThreadedClientAdapter:
    """Adapter of a sync ``Client``. Each blocking step runs in a worker thread.

    The threads belong to this client alone, so a server that hangs blocks no other client and no other user
    of worker threads. Sending uses one of :data:`MAX_CONNECTIONS` threads. Steps of a response that has
    started have no such limit, because they are what frees a connection.
    """

    def __init__(self, client: Any, library: str = "httpx") -> None:
        with import_lock:
            import anyio  # noqa: PLC0415 - only sync clients need it

        self.client = client
        self.library = library
        self._new_limiter = anyio.CapacityLimiter
        self._sending: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter] = (
            weakref.WeakKeyDictionary()
        )
        redirects.install_hooks(client, is_async=False)

    async def open(self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds) -> Any:
        content: Any = request.content
        if isinstance(content, Upload):
            headers, content = {**content.headers, **headers}, content.pieces
        built = _build(self, request, headers, limits, content)
        send = partial(self.client.send, built, stream=True, **_send_options(request))
        try:
            return await _run_in_thread(send, lambda response: response.close(), self._sending_limiter())
        except _odd_redirects(self.library) as error:
            failure = _odd_redirect(self, error)
        raise failure

    def _sending_limiter(self) -> anyio.CapacityLimiter:
        loop = asyncio.get_running_loop()
        if (limiter := self._sending.get(loop)) is None:
            limiter = self._sending[loop] = self._new_limiter(_MAX_SENDING_THREADS)
        return limiter

    async def read(self, response: Any, body: BodyReader) -> bytes:
        abandoned = False

        def read() -> bytes:
            if response.is_stream_consumed:  # a user's event hook may have read it already
                consumed: bytes = response.read()
                return consumed
            decoding.cut_compressed(response, self.library, is_async=False)
            for piece in response.iter_bytes():
                if abandoned or not body.add(piece, self.received(response)):
                    break
            return decoding.keep_content(response, body)

        try:
            content: bytes = await _run_in_thread(read, on_abandoned=lambda _: response.close())
        except asyncio.CancelledError:
            abandoned = True
            raise
        return content

    async def chunks(self, response: Any) -> AsyncIterator[bytes]:
        decoding.cut_compressed(response, self.library, is_async=False)
        chunks: Iterator[bytes] = response.iter_bytes()
        step = partial(next, chunks, None)
        while (chunk := await _run_in_thread(step, on_abandoned=lambda _: response.close())) is not None:
            yield chunk

    def received(self, response: Any) -> int | None:
        return decoding.received(response)

    def fields(self, response: Any) -> dict[str, str]:
        return fields_of(response.headers.raw)

    def as_library_response(self, response: Any) -> Any:
        return response

    async def close(self, response: Any) -> None:
        await _run_in_thread(response.close, lambda _: None)


async def _run_in_thread(
    step: Callable[[], Any], on_abandoned: Callable[[Any], None], limiter: anyio.CapacityLimiter | None = None
) -> Any:
    """Run a blocking step in a worker thread. A cancelled caller does not wait for it.

    Args:
        on_abandoned: called with the step's result, in the thread, if the caller was cancelled meanwhile.
        limiter: limits the number of steps that run at once; None for no limit.
    """
    with import_lock:
        import anyio.to_thread  # noqa: PLC0415 - only sync clients need it

    abandoned = False
    limiter = limiter or anyio.CapacityLimiter(1)

    def run() -> Any:
        result = step()
        if abandoned:
            with contextlib.suppress(Exception):
                on_abandoned(result)
        return result

    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
    except asyncio.CancelledError:
        abandoned = True
        raise


def _build(
    adapter: AsyncClientAdapter | ThreadedClientAdapter,
    request: WireRequest,
    headers: Mapping[str, str],
    limits: TimeoutSeconds,
    content: Any,
) -> Any:
    body = {"content": content} if request.files is None else {"data": request.data, "files": request.files}
    timeout = sys.modules[adapter.library].Timeout(**limits.phases())
    build = partial(
        adapter.client.build_request, request.method, request.url, headers=headers, timeout=timeout, **body
    )
    try:
        built = build()
    except UnicodeEncodeError:
        if not _drop_unsendable_cookies(adapter.client):
            raise
        built = build()
    built.extensions[redirects.EXTENSION] = redirects.origin(built.url)
    return built


def _odd_redirects(library: str) -> tuple[type[BaseException], ...]:
    """Return the exceptions of a client that follows a redirect to an invalid place, or with odd cookies."""
    return UnicodeError, OverflowError, ExceptionGroup, sys.modules[library].InvalidURL


def _odd_redirect(adapter: AsyncClientAdapter | ThreadedClientAdapter, error: BaseException) -> Exception:
    """Return the library's own exception for such a redirect."""
    _drop_unsendable_cookies(adapter.client)
    failure: Exception = sys.modules[adapter.library].RemoteProtocolError(
        f"the server redirects to an invalid place, or sets an invalid cookie ({type(error).__name__})"
    )
    return failure


def _drop_unsendable_cookies(client: Any) -> bool:
    """Delete the cookies with other characters than ASCII, and return whether there were any.

    A server may set them, and httpx, which stores them, then fails to send any request to that server.
    """
    jar = client.cookies.jar
    odd = [each for each in jar if not f"{each.name}{each.value or ''}".isascii()]
    for cookie in odd:
        jar.clear(cookie.domain, cookie.path, cookie.name)
    return bool(odd)


def _send_options(request: WireRequest) -> dict[str, bool]:
    follow = request.follow_redirects
    return {} if follow is None else {"follow_redirects": follow}


def adapter_of(http_client: Any) -> AsyncClientAdapter | ThreadedClientAdapter:
    """Return the adapter for a user's client.

    Raises:
        ConfigurationError: the object derives from no class of httpx or httpx2.
    """
    library = next(
        (
            package
            for cls in type(http_client).__mro__
            if (package := cls.__module__.partition(".")[0]) in ("httpx", "httpx2")
        ),
        None,
    )
    if library is None:
        cls = type(http_client)
        raise ConfigurationError(
            f"http_client is a {cls.__module__}.{cls.__qualname__}; it must be an httpx.AsyncClient or "
            "httpx.Client (or one of httpx2)"
        )
    is_async = inspect.iscoroutinefunction(http_client.send)
    return (AsyncClientAdapter if is_async else ThreadedClientAdapter)(http_client, library)
