"""The wire dialect of OpenAI's API: encodes requests, and decodes responses, chunks and errors."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping
from typing import Any, TypeVar

import pydantic

from specclient.errors import APIError, APIResponseValidationError, ConfigurationError
from specclient.providers import forms, predictions
from specclient.providers.dialects import EventReader
from specclient.providers.encoding import (
    brings_key,
    counts_retries,
    headers_of,
    json_of,
    key_headers,
    model_in,
    parts_of,
    path_of,
    url_of,
)
from specclient.providers.endpoint import Endpoint
from specclient.providers.errors import (
    embedded_error_of,
    error_from,
    first_invalid_field,
    invalid_response_error,
    raise_embedded_error,
)
from specclient.providers.openai.quirks import (
    NO_QUIRKS,
    apply_quirks,
    continues_prefix,
    quirks_apply,
    with_flags,
)
from specclient.providers.unsupported import is_requested, refuse_unsupported
from specclient.providers.usage import usage_of
from specclient.runtime.forks import import_lock
from specclient.types.api_method import ApiMethod
from specclient.types.base import WireModel
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.model import Model
from specclient.types.named import named, reader
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import Authorize, WireRequest, WireResponse

_Wire = TypeVar("_Wire", bound=WireModel)

#: Responses and chunks that may contain a gateway's error.
_COMPLETIONS = (ChatCompletion, ChatCompletionChunk, Completion)
_NO_MODELS = ApiMethod(name="models.list", verb="GET", path="/models")


class OpenAIDialect:
    """The dialect of OpenAI and compatible servers; see :class:`specclient.providers.Dialect`."""

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        method, options = request.method, request.options
        params: Mapping[str, Any] = {"model": model, **request.params} if model else request.params
        query, body = parts_of(method, params)
        path = path_of(method, request.path_params, endpoint, model or model_in(body))
        if method.verb == "GET":  # has no body
            query |= {"stream": True} if request.stream and "stream" in method.params else {}
        else:
            if request.stream or options.body or body.get("prediction") is not None:
                body = _shaped(body, request, endpoint)
            if endpoint.quirks is not NO_QUIRKS or endpoint.capabilities.telemetry_flags:
                path, body = _for_endpoint(path, body, request, endpoint)
        data, files = forms.multipart(body, method.files) if method.files else (None, None)
        content = request.content
        if content is None and files is None and (body or method.verb in ("POST", "PUT", "PATCH")):
            content = json_of(body) if body or method.params else None
        added = {**query, **options.query} if query or options.query else {}
        return WireRequest(
            method=method.verb,
            url=url_of(endpoint, path, added),
            headers=headers_of(
                endpoint, method, options.headers, json_body=files is None and method.verb != "GET"
            ),
            content=content,
            data=data,
            files=files,
            authorize=_authorize(endpoint, method, options.headers),
            deployment=f"{endpoint.name}/{model}{endpoint.account}",
            timeout=options.timeout,
            max_retries=options.max_retries,
            follow_redirects=options.follow_redirects,
            deadline_s=options.deadline_s,
            count_retries=counts_retries(options.headers),
        )

    def decode(self, method: ApiMethod, reply: WireResponse) -> Any:
        response_type = (
            named(method.response_type) if isinstance(method.response_type, str) else method.response_type
        )
        try:
            if response_type is None:
                return None
            if isinstance(response_type, type) and issubclass(response_type, WireModel):
                answer = _parse(response_type, reply.content, reply.status)
                if isinstance(answer, _COMPLETIONS):
                    raise_embedded_error(answer)
                    if "choices" not in answer.model_fields_set:
                        raise embedded_error_of(reply.content) or invalid_response_error(
                            reply.content, reply.status, "it has no choices"
                        )
                return answer
            return _plain_answer(response_type, reply)
        except APIError as error:
            _finish(error, reply)
            raise

    def events(self, method: ApiMethod) -> EventReader:
        return functools.partial(self.decode_event, method)

    def decode_event(self, method: ApiMethod, data: bytes, event: str | None = None) -> Any:
        """Decode one event. OpenAI's events do not depend on earlier ones."""
        if data[:1] != b"{" and data.strip() == b"[DONE]":
            return None
        if event is not None and event == "ping" and method.params:  # a call by path gets every event
            return None
        if method.event_type is ChatCompletionChunk or method.event_type is Completion:
            return _chunk(method.event_type, data, event)
        return _event(method, data, event)

    def usage(self, answer: Any) -> Usage | None:
        return usage_of(answer)

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        return self.encode(Request(_NO_MODELS), endpoint, "")

    def decode_models(self, reply: WireResponse) -> list[Model]:
        try:
            body = json.loads(reply.content)
            rows = body["data"] if isinstance(body, dict) else body  # Together sends the bare list
            models = [Model.received(json.dumps(row).encode()) for row in rows]
            if all(model.id for model in models):
                return models
            reason = "a model without an id"
        except pydantic.ValidationError as error:
            reason = first_invalid_field(error)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
        failure = embedded_error_of(reply.content) or invalid_response_error(
            reply.content, reply.status, reason
        )
        _finish(failure, reply)
        raise failure


def usage_requested(request: Request) -> bool:
    """Return whether the caller has requested the usage chunk of a stream.

    ``encode`` always requests it if the endpoint supports that, for the call's record. Callers who have not
    requested it must not get the chunk without choices at the end of the stream.
    """
    options = request.options.body.get("stream_options", request.params.get("stream_options"))
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


def _shaped(body: dict[str, Any], request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """Return a body with the fields of a stream, and with the caller's extra fields."""
    if body.get("prediction") is not None:
        body = predictions.checked_prediction_body(body, request, endpoint)
    if request.stream and request.method.params:  # in a call by path, the caller sets it
        body["stream"] = True
    has_usage = request.stream and request.operation in ("chat", "completion")
    may_ask = endpoint.asks_usage
    if has_usage and not may_ask and isinstance(options := body.get("stream_options"), Mapping):
        rest = {name: value for name, value in options.items() if name != "include_usage"}
        body = {name: value for name, value in body.items() if name != "stream_options"}
        body |= {"stream_options": rest} if rest else {}
    body = {**body, **request.options.body}
    if has_usage and may_ask:  # even if the caller's options omit it
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return body


def _for_endpoint(
    path: str, body: dict[str, Any], request: Request, endpoint: Endpoint
) -> tuple[str, dict[str, Any]]:
    """Return path and body in the endpoint's form, with flags that request speculation telemetry.

    Fields in ``extra_body`` are meant for this endpoint and are not changed.
    """
    quirks, own = endpoint.quirks, request.options.body
    if not quirks_apply(request):
        return path, body
    given = {name: value for name, value in body.items() if name not in own}
    refused = [name for name in quirks.refused if is_requested(name, given.get(name))]
    refuse_unsupported(request, endpoint, refused)
    given = {name: value for name, value in given.items() if name not in quirks.refused}
    if quirks.prefix_path and continues_prefix(body) and not endpoint.base_url.endswith(quirks.prefix_path):
        path = quirks.prefix_path + path
    return path, with_flags(apply_quirks(given, own, quirks), endpoint.capabilities.telemetry_flags)


def _authorize(endpoint: Endpoint, method: ApiMethod, added: Mapping[str, Any]) -> Authorize | None:
    """Return the function that authorises the attempts of a request; None if it has a key or needs none."""
    if endpoint.authorizes_all:
        return endpoint.authorizer
    if endpoint.key_source is None and (endpoint.authorizer is None or endpoint.key is not None):
        return None
    if brings_key(endpoint, method, added):
        return None
    return _fresh_key(endpoint) if endpoint.key_source is not None else endpoint.authorizer


def _fresh_key(endpoint: Endpoint) -> Authorize:
    """Return a function that calls ``key_source`` and adds the key's headers to a request."""

    async def with_key(request: WireRequest) -> WireRequest:
        source: Any = endpoint.key_source
        assert source is not None
        if inspect.iscoroutinefunction(source) or inspect.iscoroutinefunction(type(source).__call__):
            key = await source()
        else:  # in a thread, because it may block
            with import_lock:
                import anyio.to_thread  # noqa: PLC0415 - only for such functions

            key = await anyio.to_thread.run_sync(source, abandon_on_cancel=True)
            if inspect.isawaitable(key):
                key = await key
        if not isinstance(key, str):
            raise ConfigurationError(
                f"the function that gives the key of {endpoint.name!r} returned a {type(key).__name__}; "
                "it must return a string"
            )
        return request.with_headers(key_headers(endpoint, key)) if key else request

    return with_key


def _plain_answer(response_type: Any, reply: WireResponse) -> Any:
    """Return a response that is not an API object: bytes, text, decoded JSON, or the user's own type."""
    if response_type is bytes:
        return reply
    if response_type is str:
        return reply.content.decode("utf-8", "replace")
    if response_type in (bool, int, float):
        return _number(response_type, reply)
    if (
        isinstance(response_type, type)
        and response_type.__module__.startswith("httpx")
        and response_type.__name__ == "Response"
    ):
        return reply.response
    if response_type in (object, dict, list, Any) and "json" not in reply.headers.get("content-type", "json"):
        return reply.content.decode("utf-8", "replace")
    try:
        return _parsed_as(response_type, reply.content) if reply.content else None
    except pydantic.ValidationError as error:
        reason = first_invalid_field(error)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise embedded_error_of(reply.content) or invalid_response_error(reply.content, reply.status, reason)


class InvalidNumberError(APIResponseValidationError, ValueError):
    """The answer is not the requested number. Also a ValueError, as in the OpenAI client."""


def _number(kind: Any, reply: WireResponse) -> Any:
    """Return the body, which is text, as a truth value or a number."""
    text = reply.content.decode("utf-8", "replace")
    if kind is bool:
        return text.strip().lower() == "true"
    try:
        return kind(text)
    except ValueError:
        pass
    raise InvalidNumberError(
        body=text[:100], message=f"The response is not a number of type {kind.__name__}: {text[:100]!r}"
    )


def _parsed_as(kind: Any, content: bytes) -> Any:
    """Validate JSON as any type that pydantic supports, or decode it if the type is not specific."""
    if isinstance(kind, type) and issubclass(kind, WireModel):
        return kind.received(content)
    if kind in (object, dict, list, Any):
        return json.loads(content)
    return pydantic.TypeAdapter(kind).validate_json(content)


def _chunk(cls: type[_Wire], data: bytes, event: str | None) -> _Wire:
    """Decode one chunk of a streamed completion."""
    if event == "error":
        raise embedded_error_of(data) or invalid_response_error(data, None, "an error without a message")
    chunk: Any = _parse(cls, data, None)
    if chunk.__pydantic_extra__:
        raise_embedded_error(chunk)
    if not chunk.choices:
        _check_choiceless(chunk, data)
    elif (extra := chunk.choices[0].__pydantic_extra__) and "message" in extra:
        raise invalid_response_error(data, None, "a whole response where a stream was requested")
    found: _Wire = chunk
    return found


def _event(method: ApiMethod, data: bytes, event: str | None) -> Any:
    """Decode one event of any other stream. Events of the Assistants API include their type."""
    if b'"error"' in data or event == "error":
        _raise_error_event(data, event if method.params else None)
    if event is not None and event.startswith("thread."):
        data = b'{"event":%b,"data":%b}' % (json.dumps(event).encode(), data)
    kind = method.event_type
    try:
        if isinstance(kind, str):
            return reader(kind)(data)
        return _parsed_as(kind, data)
    except pydantic.ValidationError as error:
        reason = first_invalid_field(error)
    except ValueError as error:
        reason = str(error)
    raise embedded_error_of(data) or invalid_response_error(data, None, reason)


def _raise_error_event(data: bytes, event: str | None) -> None:
    """Raise the error in an event, if it is one. Typed error events (``responses``) are returned instead."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(body, Mapping) or (event is not None and event.startswith("thread.")):
        return
    if (body.get("error") and body.get("type") != "error") or (event == "error" and "type" not in body):
        raise error_from(body)


def _parse(cls: type[_Wire], content: bytes, status: int | None) -> _Wire:
    try:
        return cls.received(content)
    except pydantic.ValidationError as error:
        reason = first_invalid_field(error.with_traceback(None))  # its frames hold it: a reference cycle
    # Raised here, so that no traceback or crash report refers to pydantic's error, which quotes its input.
    raise embedded_error_of(content) or invalid_response_error(content, status, reason)


def _finish(error: APIError, reply: WireResponse) -> None:
    """Remove secrets from an error, and set its number of HTTP attempts."""
    reply.secrets().clean(error)
    error.attempts = reply.attempts


def _check_choiceless(chunk: Any, data: bytes) -> None:
    """Raise an error for a chunk without choices that is not a usage chunk either."""
    if "choices" not in chunk.model_fields_set and (fault := embedded_error_of(data)):
        raise fault
    if not chunk.model_fields_set - (chunk.model_extra or {}).keys():
        raise invalid_response_error(data, None, "it has no field of a chunk")
