"""Calls by path, such as ``client.get("/models", cast_to=…)``, for endpoints without a method."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, get_args

from specclient.client.model_calls import model_call, unit_call
from specclient.providers.encoding import json_of
from specclient.resources.base import ResourceCaller, timeout_of
from specclient.resources.traced_methods import RAW_RESPONSE
from specclient.types.api_method import ApiMethod
from specclient.types.binary import HttpxBinaryResponseContent
from specclient.types.pages import PageClasses
from specclient.types.params import is_given
from specclient.types.request import PerCallOptions, Request

_FIELDS = (
    *("method", "url", "json_data", "content", "files", "headers", "params", "timeout"),
    *("max_retries", "extra_json", "follow_redirects", "idempotency_key", "security"),
)
#: Methods with names that begin so have the key of ``client.admin``.
_ADMIN = "admin."


class HttpMethods:
    """The methods of a client that send a request to any path.

    ``options`` applies to one call and may have the keys ``headers``, ``params`` (the query), ``timeout``,
    ``max_retries``, ``extra_json`` (added to the body), ``follow_redirects``, ``idempotency_key`` and
    ``security``: ``{"admin_api_key_auth": True}`` sends the key of ``client.admin``.
    ``cast_to`` is the type of the result: a model class, any type that pydantic validates, ``object`` for
    decoded JSON, ``str``, ``bytes``, ``type(None)``, or ``httpx.Response`` for the response itself.

    Raises:
        TypeError: arguments exclude each other.
        OpenAIError: the call fails; see the tree in :mod:`specclient.errors`.
    """

    _caller: ResourceCaller

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Send the request that ``options`` describes: ``method``, ``url``, ``json_data``, …"""
        if not isinstance(options, Mapping):
            options = {name: getattr(options, name) for name in _FIELDS if hasattr(options, name)}
        given = {name: value for name, value in options.items() if is_given(value)}
        body, content, files = (given.pop(name, None) for name in ("json_data", "content", "files"))
        verb, path = given.pop("method").upper(), given.pop("url")
        return self._send(
            verb,
            path,
            cast_to,
            body,
            given,
            content=content,
            files=files,
            stream=stream,
            stream_cls=stream_cls,
        )

    def get(
        self, path: str, *, cast_to: Any, options: Mapping[str, Any] | None = None, stream: bool = False,
        stream_cls: Any = None,
    ) -> Any:  # fmt: skip
        """Send a GET request and return the response as ``cast_to``."""
        return self._send("GET", path, cast_to, None, options, stream=stream, stream_cls=stream_cls)

    def post(
        self, path: str, *, cast_to: Any, body: Any = None, content: Any = None,
        options: Mapping[str, Any] | None = None, files: Any = None, stream: bool = False,
        stream_cls: Any = None,
    ) -> Any:  # fmt: skip
        """Send a POST request and return the response as ``cast_to``.

        Args:
            path: appended to the base URL; or a complete URL.
            cast_to: see the class.
            body: sent as JSON.
            content: bytes, sent unchanged; instead of ``body``.
            options: see the class.
            files: make the request a multipart form.
            stream: whether to return a stream of events.
            stream_cls: ``Stream[T]``, with the type of the events.
        """
        return self._send(
            "POST", path, cast_to, body, options, content=content, files=files, stream=stream,
            stream_cls=stream_cls,
        )  # fmt: skip

    def put(
        self, path: str, *, cast_to: Any, body: Any = None, content: Any = None,
        options: Mapping[str, Any] | None = None, files: Any = None,
    ) -> Any:  # fmt: skip
        """Send a PUT request; see :meth:`post`."""
        return self._send("PUT", path, cast_to, body, options, content=content, files=files)

    def patch(
        self, path: str, *, cast_to: Any, body: Any = None, content: Any = None,
        options: Mapping[str, Any] | None = None, files: Any = None,
    ) -> Any:  # fmt: skip
        """Send a PATCH request; see :meth:`post`."""
        return self._send("PATCH", path, cast_to, body, options, content=content, files=files)

    def delete(
        self, path: str, *, cast_to: Any, body: Any = None, content: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Send a DELETE request; see :meth:`post`."""
        return self._send("DELETE", path, cast_to, body, options, content=content)

    def get_api_list(
        self, path: str, *, model: Any, page: Any, body: Any = None, options: Mapping[str, Any] | None = None,
        method: str = "get",
    ) -> Any:  # fmt: skip
        """Return the first page of a list; an asynchronous client returns an awaitable paginator.

        Args:
            path, body, options: as for :meth:`post`.
            model: the class of the items.
            page: the class of the pages, such as ``SyncCursorPage[Model]``.
            method: the HTTP method.
        """
        kind = getattr(page, "__pydantic_generic_metadata__", {}).get("origin") or page
        row = ApiMethod(
            name="list", verb=method.upper(), path=path, response_type=model, page=PageClasses(kind, kind)
        )
        content = None if body is None else json_of(body)
        return self._caller.page(Request(row, content=content, options=_per_call(dict(options or {}))))

    def _send(
        self, verb: str, path: str, cast_to: Any, body: Any, options: Mapping[str, Any] | None, *,
        content: Any = None, files: Any = None, stream: bool = False, stream_cls: Any = None,
    ) -> Any:  # fmt: skip
        for name, other in (("body", body), ("files", files)):
            if content is not None and other is not None:
                raise TypeError(f"{name} and content cannot both be given; leave one of them out")
        if isinstance(body, bytes):
            warnings.warn(
                "Passing raw bytes as `body` is deprecated; pass them as `content`",
                DeprecationWarning,
                stacklevel=3,
            )
        chosen = dict(options or {})
        caller = _caller_for(self._caller, chosen)
        name = _method_name(verb, chosen)
        if verb == "POST" and content is None and not files and not name.startswith(_ADMIN):
            request = model_call(path, cast_to, body, _per_call(chosen), stream=stream)
            if request is not None:
                return caller.call(request)
        response_type, convert = _result(cast_to)
        if verb == "POST" and content is None and not (files or stream) and not name.startswith(_ADMIN):
            request = unit_call(path, response_type, body, _per_call(chosen))
            if request is not None:
                return caller.call(request, convert)
        files = dict(files or {})
        method = ApiMethod(
            name=name,
            verb=verb,
            path=path,
            response_type=response_type,
            event_type=next(iter(get_args(stream_cls)), cast_to) if stream else None,
            files=frozenset(files),
        )
        params: Mapping[str, Any] = files
        is_mapping = isinstance(body, Mapping)
        if is_mapping and (files or body or "extra_json" in chosen) and verb != "DELETE":
            params = {**body, **files}
        elif body is not None:
            complete = {**body, **(chosen.get("extra_json") or {})} if is_mapping else body
            content = complete if isinstance(complete, bytes) else json_of(complete)
        request = Request(method, params=params, content=content, stream=stream, options=_per_call(chosen))
        return caller.call(request, convert)


def _caller_for(caller: ResourceCaller, chosen: dict[str, Any]) -> ResourceCaller:
    """Remove the header that selects a form of response, and return the caller for that form."""
    headers = dict(chosen.get("headers") or {})
    form = next((headers.pop(name) for name in list(headers) if name.lower() == RAW_RESPONSE.lower()), None)
    if form is None:
        return caller
    chosen["headers"] = headers
    return caller.streaming() if form == "stream" else caller.raw()


def _method_name(verb: str, chosen: Mapping[str, Any]) -> str:
    """Return the name of the method of a call, which decides the key: that of the option ``security``.

    Raises:
        TypeError: the option names no key, and the call has none.
    """
    security = chosen.get("security")
    if security is None or security.get("bearer_auth"):
        return verb.lower()
    if security.get("admin_api_key_auth"):
        return _ADMIN + verb.lower()
    if any(name.lower() == "authorization" for name in chosen.get("headers") or {}):
        return verb.lower()
    raise TypeError(
        "options['security'] names no key: it must have bearer_auth or admin_api_key_auth, or the call the "
        "header Authorization"
    )


def _result(cast_to: Any) -> tuple[Any, Callable[[Any], Any] | None]:
    """Return the response type of a method for ``cast_to``, and the function that converts its result."""
    if cast_to is bytes:
        return bytes, lambda reply: reply.content
    if cast_to is HttpxBinaryResponseContent:
        return bytes, lambda reply: HttpxBinaryResponseContent(reply.response)
    return (None if cast_to is type(None) else cast_to), None


def _per_call(chosen: Mapping[str, Any]) -> PerCallOptions:
    key = chosen.get("idempotency_key")
    return PerCallOptions(
        headers={**({"idempotency-key": key} if key else {}), **(chosen.get("headers") or {})},
        query=chosen.get("params") or {},
        body=chosen.get("extra_json") or {},
        timeout=timeout_of(chosen),
        max_retries=chosen.get("max_retries"),
        follow_redirects=chosen.get("follow_redirects"),
    )
