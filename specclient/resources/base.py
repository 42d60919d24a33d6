"""The base class of resources, and the conversion of keyword arguments into requests."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, ParamSpec, Protocol, Self, TypeVar

from pydantic import BaseModel

from specclient.call.stream import AsyncStream, Stream
from specclient.resources.table.sockets import SocketRow
from specclient.types.api_method import ApiMethod
from specclient.types.cache_options import CacheOptions
from specclient.types.params import CallOptions, is_given
from specclient.types.request import PerCallOptions, Request

#: The form of a call's result: parsed, a raw response, or a response with an unread body.
ResultForm = Literal["parsed", "raw", "unread"]
T = TypeVar("T")
P = ParamSpec("P")

_OURS = frozenset(CallOptions.__annotations__)
_NO_OPTIONS = PerCallOptions()


class SyncRunner(Protocol):
    """Runs coroutines for synchronous resources; implemented by :class:`specclient.client.bridge.Bridge`."""

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a coroutine function and return its result."""
        ...

    def stream(
        self, function: Callable[P, Awaitable[AsyncStream[T]]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]:
        """Call a coroutine function that returns a stream; return it as a synchronous stream."""
        ...


class ResourceCaller(Protocol):
    """Serves the requests of a resource.

    An asynchronous caller returns awaitables, a synchronous one results. Results are parsed, raw responses
    (``with_raw_response``), or responses with an unread body (``with_streaming_response``).

    Attributes:
        client: returns the client that the caller serves; once it is deleted, another one like it.
        form: the form of the results: ``parsed``, ``raw`` or ``unread``.
    """

    client: Callable[[], Any]
    form: ResultForm

    def call(self, request: Request, into: Callable[[Any], Any] | None = None) -> Any:
        """Serve a request; ``into`` converts the parsed result or the stream before it is returned."""
        ...

    def page(self, request: Request) -> Any:
        """Serve a request for a list; return its first page."""
        ...

    def connect(self, row: SocketRow, given: Mapping[str, Any]) -> Any:
        """Return the context manager of a WebSocket; ``given`` are the arguments of its method."""
        ...

    def raw(self) -> Self:
        """Return a caller whose results are raw responses."""
        ...

    def streaming(self) -> Self:
        """Return a caller whose results are responses with an unread body."""
        ...

    def view(self, resource: Any) -> Any:
        """Return a view of a resource of a :meth:`streaming` caller; its methods return context managers."""
        ...


class Resource:
    """A group of methods on a client.

    Args:
        caller: serves the requests that the methods make.

    Attributes:
        is_async: whether the methods are coroutines.
        resource_name: the resource's name on a client: ``chat.completions``.
    """

    is_async: ClassVar[bool] = False
    resource_name: ClassVar[str] = ""

    def __init__(self, caller: ResourceCaller) -> None:
        self.caller = caller

    @property
    def _client(self) -> Any:
        """The client of this resource, under the name that integrations of the `openai` package read."""
        return self.caller.client()

    @cached_property
    def with_raw_response(self) -> Any:
        """The same methods, which return the HTTP response: ``.headers``, ``.status_code``, ``.parse()``."""
        return type(self)(self.caller.raw())

    @cached_property
    def with_streaming_response(self) -> Any:
        """The same methods, which return context managers of a response with an unread body."""
        streaming = self.caller.streaming()
        return streaming.view(type(self)(streaming))


def unexpected_argument(method: str, name: str) -> TypeError:
    """Return the error for a keyword argument that a method does not have.

    Args:
        method: its path on a client: ``files.list``.
        name: the argument.
    """
    return TypeError(
        f"{method.rpartition('.')[2]}() got an unexpected keyword argument {name!r}; "
        f"to send a parameter this client does not know, use extra_body={{{name!r}: …}}"
    )


def build_request(
    method: ApiMethod,
    given: Mapping[str, Any],
    *,
    path_params: Mapping[str, str] | None = None,
    provider: str | None = None,
) -> Request:
    """Return the request for the keyword arguments of a call.

    Args:
        method: the method that is called.
        given: all keyword arguments of the call; ``NOT_GIVEN`` and ``omit`` are dropped.
        path_params: the values of the placeholders in the method's path.
        provider: the provider that serves a method without a model; None for the default provider.

    Raises:
        TypeError: a keyword is unknown, or the model is not a name, as in the OpenAI client.
    """
    params: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    # A parameter of the API wins over our option of the same name: ``session`` of live and realtime.
    options_of = _OURS if method.params >= _OURS else _OURS - method.params
    for name, value in given.items():
        if not is_given(value):
            continue
        if name in options_of:
            ours[name] = value
        elif name in method.params or name in ("model", "stream"):
            params[name] = _as_json_value(value)
        else:
            raise unexpected_argument(method.name, name)
    model = ""
    if method.metered and "model" in params:
        model = _checked_model(params.pop("model"))
    options = _per_call_options(ours) if ours else _NO_OPTIONS
    if model and "model" in options.body:
        model, options = _model_of_extra_body(options)
    stream = bool(params.pop("stream", False)) if method.event_type is not None else False
    return Request(
        method,
        model,
        params,
        path_params or {},
        provider=provider,
        stream=stream,
        policy=ours.get("policy"),
        strategy=ours.get("strategy"),
        options=options,
    )


def _checked_model(model: Any) -> str:
    if not isinstance(model, str) or not model:
        raise TypeError(f"model is {model!r}; it must be a model's name, such as 'gpt-4.1' or 'local/demo'")
    return model


def _model_of_extra_body(options: PerCallOptions) -> tuple[str, PerCallOptions]:
    """Return the model in ``extra_body``, which overrides the argument, and the options without it."""
    rest = {name: value for name, value in options.body.items() if name != "model"}
    return _checked_model(options.body["model"]), replace(options, body=rest)


def _per_call_options(ours: Mapping[str, Any]) -> PerCallOptions:
    headers = ours.get("extra_headers") or {}
    if key := ours.get("idempotency_key"):
        headers = {"idempotency-key": key, **headers}
    return PerCallOptions(
        headers=headers,
        query=_given_members(ours.get("extra_query")),
        body=_given_members(ours.get("extra_body")),
        timeout=timeout_of(ours),
        drop_params=ours.get("drop_params"),
        deadline_s=ours.get("deadline_s"),
        tags=ours.get("tags") or {},
        session=ours.get("session"),
        cache=CacheOptions.of(ours.get("cache")),
    )


def _given_members(extra: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {name: value for name, value in extra.items() if is_given(value)} if extra else {}


def timeout_of(given: Mapping[str, Any]) -> Any:
    """Return the ``timeout`` option: None if it is not given, infinity (no limit) if it is None."""
    timeout = given.get("timeout")
    return math.inf if timeout is None and "timeout" in given else timeout


def _as_json_value(value: Any) -> Any:
    """Return an iterable, such as ``messages`` may be, as a list, which JSON can represent."""
    if isinstance(value, str | bytes | list | Mapping | BaseModel) or not isinstance(value, Iterable):
        return value
    return value if hasattr(value, "read") else list(value)
