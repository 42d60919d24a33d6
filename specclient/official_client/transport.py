"""Transports for httpx and httpx2 that send calls to models through the call pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

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
from specclient.official_client.failures import connection_exception, failure_answer
from specclient.official_client.origins import HomeOrigins
from specclient.official_client.other_hosts import InnerTransports, refusal
from specclient.official_client.outgoing import outgoing_call
from specclient.official_client.records import CallListener, report
from specclient.official_client.response_bodies import AsyncResponseBody, SyncResponseBody
from specclient.openai_http.errors import ServingError
from specclient.runtime.event_loop import check_asyncio


class PipelineTransport(LibraryTransport):
    """A synchronous transport; :func:`transport` makes it.

    Args:
        client: its pipeline serves the calls.
        owned: whether the client is closed with the transport.
        on_call, strict, inner: see :func:`transport`.
        max_retries: the number of attempts of a call after the first; None for the client's setting.
    """

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
        self._bridge = Bridge()
        self._origins = HomeOrigins(lambda: client.pipeline.destinations)
        self._inner = InnerTransports(inner, "HTTPTransport")

    def handle_request(self, request: Any) -> Any:
        """Return the response to a request of httpx or httpx2, with its body unread if it is a stream."""
        home = self._origins.find(request.url)
        if home is None:
            return _response(refusal(request), request) if self._strict else self._pass_on(request)
        pipeline = self.client.pipeline
        try:
            call = outgoing_call(request, request.read(), home, self.client.core, self._max_retries)
        except (ServingError, OpenAIError) as error:
            return _response(failure_answer(error, None, pipeline.destinations), request)
        if call is None:
            return self._pass_on(request)
        try:
            pipeline.warm_up(call.call.request)
            if not call.streams:
                answer = self._bridge.run(exchange.whole, call, pipeline)
                report(answer.call, self._on_call)
                return _response(answer, request)
            stream = self._bridge.stream(exchange.opened, call, pipeline)
        except APIConnectionError as error:
            failure = connection_exception(error, request)
        except OpenAIError as error:
            return _response(failure_answer(error, None, pipeline.destinations), request)
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

    def _pass_on(self, request: Any) -> Any:
        return self._inner.of(request).handle_request(request)


class AsyncPipelineTransport(AsyncLibraryTransport):
    """An asynchronous transport; :func:`async_transport` makes it. See :class:`PipelineTransport`."""

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
        self._inner = InnerTransports(inner, "AsyncHTTPTransport")

    async def handle_async_request(self, request: Any) -> Any:
        """Return the response to a request of httpx or httpx2, with its body unread if it is a stream."""
        home = self._origins.find(request.url)
        if home is None:
            return _response(refusal(request), request) if self._strict else await self._pass_on(request)
        check_asyncio()
        pipeline = self.client.pipeline
        try:
            call = outgoing_call(request, await request.aread(), home, self.client.core, self._max_retries)
        except (ServingError, OpenAIError) as error:
            return _response(failure_answer(error, None, pipeline.destinations), request)
        if call is None:
            return await self._pass_on(request)
        try:
            if not call.streams:
                answer = await exchange.whole(call, pipeline)
                report(answer.call, self._on_call)
                return _response(answer, request)
            stream = await exchange.opened(call, pipeline)
        except APIConnectionError as error:
            failure = connection_exception(error, request)
        else:
            body = AsyncResponseBody(stream, request, self._on_call)
            return _unread_response(stream.http, body, request)
        raise failure

    async def aclose(self) -> None:
        """Close the transport's own client, and the connections to other hosts."""
        for inner in self._inner.take():
            await inner.aclose()
        if self._owned and isinstance(self.client, AsyncOpenAI):
            await self.client.close()

    async def _pass_on(self, request: Any) -> Any:
        return await self._inner.of(request).handle_async_request(request)


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
