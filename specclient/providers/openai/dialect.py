"""The wire dialect of OpenAI's API: encodes requests, and decodes responses, chunks and errors."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping
from typing import Any

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
    first_invalid_field,
    invalid_response_error,
    raise_embedded_error,
)
from specclient.providers.openai.events import chunk_of, event_of, parsed, parsed_as
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
from specclient.types.named import named
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import Authorize, WireRequest, WireResponse

#: Responses and chunks that may contain a gateway's error.
_COMPLETIONS = (ChatCompletion, ChatCompletionChunk, Completion)
#: Endpoints that the headers of one caller's client are kept for.
_MOST_PREPARED = 16
_NO_MODELS = ApiMethod(name="models.list", verb="GET", path="/models")


class OpenAIDialect:
    """The dialect of OpenAI and compatible servers; see :class:`specclient.providers.Dialect`."""

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        method, options = request.method, request.options
        params: Mapping[str, Any] = {"model": model, **request.params} if model else request.params
        query, body = parts_of(method, params)
        path = path_of(method, request.path_params, endpoint, model or model_in(body))
        own = None if options.written is None else _own_json(request, endpoint, model)
        content = request.content if own is None else own
        if method.verb == "GET":  # has no body
            query |= {"stream": True} if request.stream and "stream" in method.params else {}
        elif own is None:
            if request.stream or options.body or body.get("prediction") is not None:
                body = _shaped(body, request, endpoint)
            if endpoint.quirks is not NO_QUIRKS or endpoint.capabilities.telemetry_flags:
                path, body = _for_endpoint(path, body, request, endpoint)
        data, files = forms.multipart(body, method.files) if method.files else (None, None)
        if content is None and files is None and (body or method.verb in ("POST", "PUT", "PATCH")):
            content = json_of(body) if body or method.params else None
        added = {**query, **options.query} if query or options.query else {}
        url = url_of(endpoint, path, added)  # its errors precede those of the headers
        headers, counts = _headers(request, endpoint, json_body=files is None and method.verb != "GET")
        return WireRequest(
            method=method.verb,
            url=url,
            headers=headers,
            content=content,
            data=data,
            files=files,
            authorize=_authorize(endpoint, method, options.headers),
            deployment=f"{endpoint.name}/{model}{endpoint.account}",
            timeout=options.timeout,
            max_retries=options.max_retries,
            follow_redirects=options.follow_redirects,
            deadline_s=options.deadline_s,
            count_retries=counts,
            start_hint=endpoint.start_hint,
        )

    def decode(self, method: ApiMethod, reply: WireResponse) -> Any:
        response_type = (
            named(method.response_type) if isinstance(method.response_type, str) else method.response_type
        )
        try:
            if response_type is None:
                return None
            if isinstance(response_type, type) and issubclass(response_type, WireModel):
                answer = parsed(response_type, reply.content, reply.status)
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
            return chunk_of(method.event_type, data, event)
        return event_of(method, data, event)

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


def _headers(request: Request, endpoint: Endpoint, *, json_body: bool) -> tuple[dict[str, str], bool]:
    """Return the headers of a request, and whether the header with the number of earlier attempts is added.

    Those of a caller's client are made once, as they rarely change.
    """
    method, options = request.method, request.options
    if options.origin is None or options.headers is not options.origin.headers:
        made = headers_of(endpoint, method, options.headers, json_body=json_body)
        return made, counts_retries(options.headers)
    prepared, key = options.origin.prepared, (id(endpoint), method.name, json_body)
    found = prepared.get(key)
    if found is None:
        if len(prepared) >= _MOST_PREPARED:
            prepared.clear()
        made = headers_of(endpoint, method, options.headers, json_body=json_body)
        # The endpoint is kept with them, so that its id stands for no other one.
        found = prepared[key] = made, counts_retries(options.headers), endpoint
    return dict(found[0]), found[1]


def _own_json(request: Request, endpoint: Endpoint, model: str) -> bytes | None:
    """Return the caller's own JSON, if the endpoint gets it without fields or quirks of its own."""
    params, extra = request.params, request.options.body
    is_shaped = (
        request.stream
        or endpoint.quirks is not NO_QUIRKS
        or endpoint.capabilities.telemetry_flags
        or params.get("prediction") is not None
        or extra.get("prediction") is not None
    )
    return None if is_shaped else request.content_for(model)


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
        return parsed_as(response_type, reply.content) if reply.content else None
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


def _finish(error: APIError, reply: WireResponse) -> None:
    """Remove secrets from an error, and set its number of HTTP attempts."""
    reply.secrets().clean(error)
    error.attempts = reply.attempts
