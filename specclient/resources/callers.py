"""Callers: serve the requests of resources, and return results parsed, raw, or unread."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Self

from specclient.call.decode import value_as_sent
from specclient.call.pipeline import Pipeline
from specclient.call.stream import AsyncStream
from specclient.resources.base import ResultForm, SyncRunner
from specclient.resources.paging import async_page, sync_page
from specclient.resources.sockets.connect import socket_managers
from specclient.resources.table.sockets import SocketRow
from specclient.resources.traced_methods import request_wrapper, wrapped_request
from specclient.runtime.event_loop import check_asyncio
from specclient.runtime.forks import import_lock
from specclient.types.as_sent import chunks_as_sent
from specclient.types.request import Request

ResultConverter = Callable[[Any], Any] | None
SecretSource = Callable[[], str | None]
#: Returns the client that has made a caller, see :class:`specclient.resources.base.ResourceCaller`.
ClientSource = Callable[[], Any]


def _none() -> None:
    return None


class AsyncCaller:
    """Serves the resources of an asynchronous client; see
    :class:`specclient.resources.base.ResourceCaller`."""

    def __init__(
        self,
        pipeline: Pipeline,
        form: ResultForm = "parsed",
        *,
        secret: SecretSource = _none,
        client: ClientSource = _none,
    ) -> None:
        self._pipeline = pipeline
        self.form = form
        self._secret = secret
        self.client = client

    @property
    def webhook_secret(self) -> str | None:
        """The secret that the client's webhooks are signed with."""
        return self._secret()

    async def call(self, request: Request, into: ResultConverter = None) -> Any:
        if (wrapper := request_wrapper(self.client, request)) is not None:
            return await wrapped_request(
                wrapper, self.client(), request, lambda changed: self._call(changed, into)
            )
        return await self._call(request, into)

    async def _call(self, request: Request, into: ResultConverter) -> Any:
        check_asyncio()
        if self.form == "unread":
            body = await self._pipeline.stream_bytes(request)
            return _response_forms().unread(request, body, into, is_async=True)
        if request.stream:
            stream = await self._stream(request)
        elif self.form == "raw":
            return _response_forms().raw(request, await self._pipeline.execute(request), into)
        else:
            if into is None:  # no local name for the result: an error's frames would hold it
                return value_as_sent(request, await self._pipeline.execute(request))
            return into(await self._pipeline.call(request))
        if self.form == "raw":
            return _response_forms().raw_stream(stream, into)
        return stream if into is None else into(stream)

    async def _stream(self, request: Request) -> AsyncStream[Any]:
        return (await self._pipeline.stream(request)).for_caller(chunks_as_sent)

    def connect(self, row: SocketRow, given: Mapping[str, Any]) -> Any:
        return socket_managers().AsyncSocketManager(self._pipeline, row, given)

    def page(self, request: Request) -> Any:
        return async_page(self, AsyncCaller(self._pipeline), request)

    def raw(self) -> Self:
        return type(self)(self._pipeline, "raw", secret=self._secret, client=self.client)

    def streaming(self) -> Self:
        return type(self)(self._pipeline, "unread", secret=self._secret, client=self.client)

    def view(self, resource: Any) -> Any:
        return _response_forms().StreamingResponseView(resource, _response_forms().AsyncResponseContext)


class SyncCaller:
    """Serves the resources of a synchronous client; see :class:`specclient.resources.base.ResourceCaller`."""

    def __init__(
        self,
        pipeline: Pipeline,
        runner: SyncRunner,
        form: ResultForm = "parsed",
        *,
        secret: SecretSource = _none,
        client: ClientSource = _none,
    ) -> None:
        self._pipeline = pipeline
        self._runner = runner
        self.form = form
        self._secret = secret
        self.client = client

    @property
    def webhook_secret(self) -> str | None:
        """The secret that the client's webhooks are signed with."""
        return self._secret()

    def call(self, request: Request, into: ResultConverter = None) -> Any:
        if (wrapper := request_wrapper(self.client, request)) is not None:
            return wrapped_request(wrapper, self.client(), request, lambda changed: self._call(changed, into))
        return self._call(request, into)

    def _call(self, request: Request, into: ResultConverter) -> Any:
        self._pipeline.warm_up(request)
        if self.form == "unread":
            body = self._runner.stream(self._pipeline.stream_bytes, request)
            return _response_forms().unread(request, body, into, is_async=False)
        if request.stream:
            stream = self._runner.stream(self._stream, request)
        elif self.form == "raw":
            return _response_forms().raw(request, self._runner.run(self._pipeline.execute, request), into)
        else:
            if into is None:
                return value_as_sent(request, self._runner.run(self._pipeline.execute, request))
            return into(self._runner.run(self._pipeline.call, request))
        if self.form == "raw":
            return _response_forms().raw_stream(stream, into)
        return stream if into is None else into(stream)

    async def _stream(self, request: Request) -> AsyncStream[Any]:
        return (await self._pipeline.stream(request)).for_caller(chunks_as_sent)

    def connect(self, row: SocketRow, given: Mapping[str, Any]) -> Any:
        return socket_managers().SocketManager(self._pipeline, row, given, self._runner)

    def page(self, request: Request) -> Any:
        return sync_page(self, SyncCaller(self._pipeline, self._runner), request)

    def raw(self) -> Self:
        return type(self)(self._pipeline, self._runner, "raw", secret=self._secret, client=self.client)

    def streaming(self) -> Self:
        return type(self)(self._pipeline, self._runner, "unread", secret=self._secret, client=self.client)

    def view(self, resource: Any) -> Any:
        return _response_forms().StreamingResponseView(resource, _response_forms().SyncResponseContext)


def _response_forms() -> ModuleType:
    """Return the module for raw and unread responses, which few programs use."""
    with import_lock:
        return importlib.import_module("specclient.resources.response_forms")
