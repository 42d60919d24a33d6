"""Transports for httpx and httpx2 that send calls to models through the call pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Unpack

from specclient.client.async_client import AsyncOpenAI
from specclient.client.base_client import BaseClient
from specclient.client.bridge import Bridge
from specclient.client.options import ClientOptions
from specclient.client.sync_client import OpenAI
from specclient.errors import APIConnectionError, ConfigurationError, OpenAIError
from specclient.http_transport.library_types import (
    AsyncBody,
    AsyncLibraryTransport,
    LibraryTransport,
    SyncBody,
    library_of,
)
from specclient.official_client import exchange
from specclient.official_client.answer import TransportAnswer, TransportHead
from specclient.official_client.credentials import RequestHeads
from specclient.official_client.failures import connection_exception, failure_answer
from specclient.official_client.origins import HomeOrigins, HomePath
from specclient.official_client.other_hosts import InnerTransports, refusal
from specclient.official_client.outgoing import OutgoingCall, outgoing_call
from specclient.official_client.records import CallListener, report
from specclient.official_client.response_bodies import AsyncResponseBody, SyncResponseBody
from specclient.openai_http.errors import ServingError
from specclient.runtime.event_loop import check_asyncio

_BRIDGE: Final = Bridge()


class _TransportBase:
    """The state of both transports, and the steps that they share.

    Args:
        client: its pipeline serves the calls.
        owned: whether the client is closed with the transport.
        on_call, strict, inner: see :func:`transport`.
        max_retries: the number of attempts of a call after the first; None for the client's setting.
    """

    #: The name of the libraries' transport for requests to other hosts.
    _library_transport: ClassVar[str]

    def __init__(
        self,
        client: BaseClient,
        *,
        owned: bool = False,
        on_call: CallListener | None = None,
        strict: bool = False,
        inner: Any = None,
        max_retries: int | None = None,
    ) -> None:
        self.client = client
        self._owned, self._on_call, self._strict, self._max_retries = owned, on_call, strict, max_retries
        self._origins = HomeOrigins(lambda: client.pipeline.destinations)
        self._heads = RequestHeads(client.core)
        self._inner = InnerTransports(inner, self._library_transport)

    def _outgoing(self, request: Any, body: bytes, home: HomePath) -> OutgoingCall | TransportAnswer | None:
        """Return a request as a call; its response if it is invalid, and None if it is passed on."""
        try:
            return outgoing_call(request, body, home, self._heads, self._max_retries)
        except (ServingError, OpenAIError) as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> TransportAnswer:
        return failure_answer(error, None, self.client.pipeline.destinations)

    def _complete(self, answer: TransportAnswer, request: Any) -> Any:
        """Report the call of a complete response, and return it as the library's."""
        report(answer.call, self._on_call)
        return _response(answer, request)


class PipelineTransport(_TransportBase, LibraryTransport):
    """A synchronous transport; :func:`transport` makes it."""

    _library_transport = "HTTPTransport"

    def handle_request(self, request: Any) -> Any:
        """Return the response to a request of httpx or httpx2, with its body unread if it is a stream."""
        home = self._origins.find(request.url)
        if home is None and self._strict:
            return _response(refusal(request), request)
        call = None if home is None else self._outgoing(request, request.read(), home)
        if call is None:
            return self._inner.of(request).handle_request(request)
        if isinstance(call, TransportAnswer):
            return _response(call, request)
        pipeline = self.client.pipeline
        try:
            pipeline.warm_up(call.call.request)
            if not call.streams:
                return self._complete(_BRIDGE.run(exchange.whole, call, pipeline), request)
            stream = _BRIDGE.stream(exchange.opened, call, pipeline)
        except APIConnectionError as error:
            failure = connection_exception(error, request)
        except OpenAIError as error:
            return _response(self._failure(error), request)
        else:
            body = SyncResponseBody(stream, request, self._on_call)
            return _unread_response(stream.async_stream().http, body, request)
        raise failure

    def close(self) -> None:
        """Close the transport's own client, and the connections to other hosts."""
        for inner in self._inner.take():
            inner.close()
        if self._owned and isinstance(self.client, OpenAI):
            self.client.close()


class AsyncPipelineTransport(_TransportBase, AsyncLibraryTransport):
    """An asynchronous transport; :func:`async_transport` makes it."""

    _library_transport = "AsyncHTTPTransport"

    async def handle_async_request(self, request: Any) -> Any:
        """Return the response to a request of httpx or httpx2, with its body unread if it is a stream."""
        home = self._origins.find(request.url)
        if home is None and self._strict:
            return _response(refusal(request), request)
        if home is not None:
            check_asyncio()
        call = None if home is None else self._outgoing(request, await request.aread(), home)
        if call is None:
            return await self._inner.of(request).handle_async_request(request)
        if isinstance(call, TransportAnswer):
            return _response(call, request)
        pipeline = self.client.pipeline
        try:
            if not call.streams:
                return self._complete(await exchange.whole(call, pipeline), request)
            stream = await exchange.opened(call, pipeline)
        except APIConnectionError as error:
            failure = connection_exception(error, request)
        else:
            return _unread_response(stream.http, AsyncResponseBody(stream, request, self._on_call), request)
        raise failure

    async def aclose(self) -> None:
        """Close the transport's own client, and the connections to other hosts."""
        for inner in self._inner.take():
            await inner.aclose()
        if self._owned and isinstance(self.client, AsyncOpenAI):
            await self.client.close()


def transport(
    *,
    client: BaseClient | None = None,
    on_call: CallListener | None = None,
    strict: bool = False,
    inner: Any = None,
    **options: Unpack[ClientOptions],
) -> PipelineTransport:
    """Return a transport of httpx and httpx2 that sends calls to models through the pipeline::

        openai.OpenAI(http_client=httpx.Client(transport=specclient.transport()))

    Requests to the base URL of a provider that the options know are calls of the pipeline: they are routed,
    retried, paced, checked against budgets and recorded. All others are passed on unchanged.

    Args:
        client: the :class:`specclient.OpenAI` or :class:`specclient.AsyncOpenAI` whose pipeline serves the
            calls. It is not closed here. None makes one of ``options``, which is closed with the transport.
        on_call: called with the record of each call that has ended, in the thread that reads its response.
        strict: whether a request to any other host gets a response with status 403, and is not sent.
        inner: the transport of requests to other hosts; None for the library's ``HTTPTransport``, which uses
            no proxy of the environment. It is not closed here.
        options: the options of :class:`specclient.OpenAI`. An ``api_key`` replaces those of the requests to
            the default provider.

    Raises:
        ConfigurationError: an option is invalid, or both ``client`` and ``options`` are given.
    """
    checked_client(client, options)
    made = OpenAI(**options) if client is None else client
    return PipelineTransport(made, owned=client is None, on_call=on_call, strict=strict, inner=inner)


def async_transport(
    *,
    client: BaseClient | None = None,
    on_call: CallListener | None = None,
    strict: bool = False,
    inner: Any = None,
    **options: Unpack[ClientOptions],
) -> AsyncPipelineTransport:
    """Return a transport for an asynchronous client of httpx or httpx2; see :func:`transport`.

    Calls run on the event loop of their caller, which must be asyncio's.
    """
    checked_client(client, options)
    made = AsyncOpenAI(**options) if client is None else client
    return AsyncPipelineTransport(made, owned=client is None, on_call=on_call, strict=strict, inner=inner)


def checked_client(client: object, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for a client of another package, or one that is given with options."""
    if client is None:
        return
    if not isinstance(client, BaseClient):
        raise ConfigurationError(
            f"client is a {type(client).__module__}.{type(client).__name__}; it must be a specclient.OpenAI "
            "or specclient.AsyncOpenAI"
        )
    if options:
        raise ConfigurationError(
            f"client and {', '.join(sorted(options))} cannot both be given; make the client with the options"
        )


def _response(answer: TransportAnswer, request: Any) -> Any:
    library = library_of(request)
    headers = [*answer.head.headers, ("content-length", str(len(answer.content)))]
    # A stream, not content: the library then closes the response, and sets its `elapsed`.
    body = library.ByteStream(answer.content)
    return library.Response(answer.head.status, headers=headers, stream=body, request=request)


def _unread_response(head: TransportHead, body: SyncBody | AsyncBody, request: Any) -> Any:
    return library_of(request).Response(head.status, headers=head.headers, stream=body, request=request)
