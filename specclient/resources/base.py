"""Turn the keywords of a call into a frozen Request, refusing those that no endpoint knows."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, ParamSpec, Protocol, Self, TypeVar

from pydantic import BaseModel

from specclient.call.stream import AsyncStream, Stream
from specclient.types.api_method import ApiMethod
from specclient.types.params import CallOptions, NotGiven, Omit
from specclient.types.request import PerCallOptions, Request

T = TypeVar("T")
P = ParamSpec("P")

_OURS = frozenset(CallOptions.__annotations__)
_NO_OPTIONS = PerCallOptions()


class SyncRunner(Protocol):
    """How synchronous resources reach the event loop; :mod:`specclient.client.sync_client` has the one that
    is used."""

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call, wait, and return the result or raise its exception."""
        ...

    def stream(
        self, function: Callable[P, Awaitable[AsyncStream[T]]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]:
        """Call, and hand the chunks of the resulting stream across."""
        ...


class ResourceCaller(Protocol):
    """How a resource reaches the pipeline; the form of what comes back is the caller's business.

    An asynchronous caller returns awaitables, a synchronous one results; each gives results parsed, raw
    (``with_raw_response``) or as bodies yet to be read (``with_streaming_response``).
    """

    def call(self, request: Request, into: Callable[[Any], Any] | None = None) -> Any:
        """Serve a request; ``into`` turns the parsed result, or the stream of it, into what is returned."""
        ...

    def page(self, request: Request) -> Any:
        """Serve a request that lists."""
        ...

    def raw(self) -> Self:
        """Return the caller whose results are raw responses."""
        ...

    def streaming(self) -> Self:
        """Return the caller whose results are responses with the body unread."""
        ...

    def view(self, resource: Any) -> Any:
        """Return a resource as :meth:`streaming` callers show it: each method opens a context."""
        ...


class Resource:
    """A group of methods on a client.

    Args:
        caller: serves the requests that the methods make.

    Attributes:
        is_async: whether the methods are coroutines.
    """

    is_async: ClassVar[bool] = False

    def __init__(self, caller: ResourceCaller) -> None:
        self.caller = caller

    @cached_property
    def with_raw_response(self) -> Any:
        """The same methods, returning the HTTP response: ``.headers``, ``.status_code``, ``.parse()``."""
        return type(self)(self.caller.raw())

    @cached_property
    def with_streaming_response(self) -> Any:
        """The same methods, as contexts of a response whose body is read when it is asked for."""
        streaming = self.caller.streaming()
        return streaming.view(type(self)(streaming))


def build_request(
    method: ApiMethod,
    given: Mapping[str, Any],
    *,
    path_params: Mapping[str, str] | None = None,
    provider: str | None = None,
) -> Request:
    """Return the request that keywords stand for.

    Args:
        given: every keyword of the call; values that are not given are dropped.
        path_params: the values of the placeholders in the method's path.
        provider: whose endpoint a method without a model goes to; None for the default one.

    Raises:
        TypeError: for an unknown keyword or a model that is no name, as the OpenAI client does.
    """
    params: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    # The table's rows list the API's own parameters alone, and those win: ``session`` of live and realtime.
    options_of = _OURS if method.params >= _OURS else _OURS - method.params
    for name, value in given.items():
        if isinstance(value, NotGiven | Omit):
            continue
        if name in options_of:
            ours[name] = value
        elif name in method.params or name in ("model", "stream"):
            params[name] = _plain(value)
        else:
            raise TypeError(
                f"{method.name.rpartition('.')[2]}() got an unexpected keyword argument {name!r}; "
                f"to send a parameter this client does not know, use extra_body={{{name!r}: …}}"
            )
    model = ""
    if method.metered and "model" in params:
        model = _checked_model(params.pop("model"))
    options = _options(ours) if ours else _NO_OPTIONS
    if model and "model" in options.body:
        model, options = _named_in_body(options)
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


def _named_in_body(options: PerCallOptions) -> tuple[str, PerCallOptions]:
    """Return the model that ``extra_body`` names, which is the one that works and is paid for."""
    rest = {name: value for name, value in options.body.items() if name != "model"}
    return _checked_model(options.body["model"]), replace(options, body=rest)


def _options(ours: Mapping[str, Any]) -> PerCallOptions:
    headers = ours.get("extra_headers") or {}
    if key := ours.get("idempotency_key"):
        headers = {"idempotency-key": key, **headers}
    return PerCallOptions(
        headers=headers,
        query=ours.get("extra_query") or {},
        body=ours.get("extra_body") or {},
        timeout=timeout_of(ours),
        drop_params=ours.get("drop_params"),
        deadline_s=ours.get("deadline_s"),
        tags=ours.get("tags") or {},
        session=ours.get("session"),
    )


def timeout_of(given: Mapping[str, Any]) -> Any:
    """Return the ``timeout`` of a call: None where it is not given, infinity where it is None: no limit."""
    timeout = given.get("timeout")
    return math.inf if timeout is None and "timeout" in given else timeout


def _plain(value: Any) -> Any:
    """Make a list of an iterable that JSON cannot hold (``messages`` may be any iterable)."""
    if isinstance(value, str | bytes | list | Mapping | BaseModel) or not isinstance(value, Iterable):
        return value
    return value if hasattr(value, "read") else list(value)
