"""Turn requests into OpenAI's wire form, and its answers, chunks and errors into our objects."""

from __future__ import annotations

import functools
import importlib.metadata
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit, urlunsplit

import pydantic

from specclient.errors import (
    APIError,
    APIResponseValidationError,
    BadRequestError,
    ConfigurationError,
    UnsupportedParameterError,
    status_error,
)
from specclient.providers.base import Answer, Chunk, Endpoint
from specclient.types.base import WireModel
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.fault import read_fault
from specclient.types.model import Model
from specclient.types.request import Operation, Request
from specclient.types.usage import Usage
from specclient.types.wire import WireReply, WireRequest

_Wire = TypeVar("_Wire", bound=WireModel)

_PATHS: dict[Operation, str] = {"chat": "/chat/completions", "completion": "/completions"}
_EXCERPT = 200

# What an error that arrives under status 200 would have had as status, by its type or code.
_STATUS_OF_FAULT = {
    "invalid_request_error": 400,
    "BadRequestError": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "InternalServerError": 500,
    "server_error": 500,
    "overloaded_error": 503,
}


class OpenAIDialect:
    """What ``/chat/completions`` and ``/completions`` speak; see :class:`specclient.providers.Dialect`."""

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        body: dict[str, Any] = {"model": model, **request.params}
        if endpoint.prediction is False and body.get("prediction") is not None:
            raise UnsupportedParameterError(
                f"provider {endpoint.name!r} does not take 'prediction'; leave it out, or name a model of a "
                "provider that does (openai, mistral, fireworks, cerebras, openrouter)"
            )
        if request.stream:
            body["stream"] = True
            if not endpoint.stream_usage:
                body.pop("stream_options", None)
        body.update(request.options.body)
        if request.stream and endpoint.stream_usage:  # after the caller's own, which must not drop the usage
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return WireRequest(
            method="POST",
            url=_url(endpoint, _PATHS[request.operation], request.options.query),
            headers=_headers(endpoint, request.options.headers, stream=request.stream),
            content=_dump(body),
            deployment=f"{endpoint.name}/{model}",
            timeout=request.options.timeout,
            max_retries=request.options.max_retries,
        )

    def decode(self, operation: Operation, reply: WireReply) -> Answer:
        cls: type[Answer] = ChatCompletion if operation == "chat" else Completion
        try:
            answer = _parse(cls, reply.content, reply.status)
            _raise_fault_in(answer)
            if "choices" not in answer.model_fields_set:
                raise _fault_of(reply.content) or _invalid(reply.content, reply.status, "it has no choices")
        except APIError as error:
            _finish(error, reply)
            raise
        return answer

    def decode_event(self, operation: Operation, data: bytes, event: str | None = None) -> Chunk | None:
        if event == "ping" or data.strip() == b"[DONE]":
            return None
        if event == "error":
            raise _fault_of(data) or _invalid(data, None, "an error without a message")
        chunk: Chunk = (
            _parse(ChatCompletionChunk, data, None) if operation == "chat" else _parse(Completion, data, None)
        )
        _raise_fault_in(chunk)
        if not chunk.choices:
            _check_choiceless(chunk, data)
        elif "message" in (chunk.choices[0].model_extra or ()):
            raise _invalid(data, None, "a whole answer where a stream was asked for")
        return chunk

    def usage(self, answer: Answer | Chunk) -> Usage | None:
        reported = answer.usage
        if reported is None:
            return _usage_of_groq(answer)
        given = reported.model_fields_set
        extra = reported.model_extra or {}
        inputs, outputs = reported.prompt_tokens_details, reported.completion_tokens_details
        reasoning = outputs.reasoning_tokens if outputs else None
        if reasoning is None:
            reasoning = _count(extra.get("reasoning_tokens"))  # SGLang
        completion = reported.completion_tokens if "completion_tokens" in given else None
        prompt = reported.prompt_tokens if "prompt_tokens" in given else None
        if (
            completion is not None
            and reasoning
            and reported.total_tokens == (prompt or 0) + completion + reasoning
        ):
            completion += reasoning  # xAI counts reasoning beside completion_tokens; the sum tells
        cached = inputs.cached_tokens if inputs else None
        return Usage(
            prompt=prompt,
            completion=completion,
            cached=_count(extra.get("prompt_cache_hit_tokens")) if cached is None else cached,  # DeepSeek
            cache_write=_count((inputs.model_extra or {}).get("cache_write_tokens")) if inputs else None,
            reasoning=reasoning,
            accepted_prediction=outputs.accepted_prediction_tokens if outputs else None,
            rejected_prediction=outputs.rejected_prediction_tokens if outputs else None,
        )

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        return WireRequest(
            method="GET",
            url=_url(endpoint, "/models", {}),
            headers=_headers(endpoint, {}, stream=False),
            deployment=f"{endpoint.name}/",
        )

    def decode_models(self, reply: WireReply) -> list[Model]:
        try:
            body = json.loads(reply.content)
            rows = body["data"] if isinstance(body, dict) else body  # Together sends the bare list
            return [Model.received(json.dumps(row).encode()) for row in rows]
        except pydantic.ValidationError as error:
            reason = _where(error)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
        failure = _fault_of(reply.content) or _invalid(reply.content, reply.status, reason)
        _finish(failure, reply)
        raise failure


def usage_requested(request: Request) -> bool:
    """Tell whether the caller asked for the usage chunk of a stream.

    ``encode`` asks for it wherever the endpoint allows, since it is what a call is accounted by. A caller who
    did not must not be handed the chunk without choices that then ends the stream.
    """
    options = request.options.body.get("stream_options", request.params.get("stream_options"))
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


def _url(endpoint: Endpoint, path: str, query: Mapping[str, Any]) -> str:
    base = urlsplit(endpoint.base_url)
    added = urlencode(
        [(k, _query_text(v)) for k, v in {**endpoint.query, **query}.items() if v is not None], doseq=True
    )
    full = "&".join(part for part in (base.query, added) if part)
    return urlunsplit((base.scheme, base.netloc, base.path.rstrip("/") + path, full, ""))


def _query_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return [_query_text(v) for v in value] if isinstance(value, list | tuple) else value


def _headers(endpoint: Endpoint, added: Mapping[str, str | None], *, stream: bool) -> dict[str, str]:
    """Return headers by lower-case name: ours, then the endpoint's, then the call's; None takes one out."""
    headers: dict[str, str | None] = {
        "accept": "text/event-stream" if stream else "application/json",
        "content-type": "application/json",
        "user-agent": _user_agent(),
        "openai-organization": endpoint.organization,
        "openai-project": endpoint.project,
        "authorization": f"Bearer {endpoint.key.get_secret_value()}" if endpoint.key else None,
    }
    for name, value in (*endpoint.headers.items(), *added.items()):
        headers[name.lower()] = value
        if value is not None and not (value.isascii() and value.isprintable()):
            raise ConfigurationError(f"header {name!r} holds a line break or a character outside ASCII")
    if endpoint.key_required and endpoint.key is None and not headers["authorization"]:
        variables = " or ".join(endpoint.key_env)
        raise ConfigurationError(
            f"no key for provider {endpoint.name!r}: set {variables} in the environment, or pass the key"
        )
    return {name: value for name, value in headers.items() if value is not None}


@functools.cache
def _user_agent() -> str:
    return f"specclient/{importlib.metadata.version('specclient')}"


def _dump(body: Mapping[str, Any]) -> bytes:
    try:
        return _to_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        for name, value in body.items():
            try:
                _to_json(value)
            except (TypeError, ValueError, RecursionError) as cause:
                raise BadRequestError(
                    f"parameter {name!r} cannot be sent as JSON: {_reason(cause)}"
                ) from cause
        raise BadRequestError(f"the request cannot be sent as JSON: {_reason(error)}") from error


def _to_json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    return text.encode()


def _plain(value: Any) -> Any:
    """Return what the JSON encoder takes for ``value``: an answer's message, a generator, a mapping."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeError):
        return "it holds half of a surrogate pair, which is no character"
    if isinstance(error, ValueError) and "float" in str(error):
        return "NaN and infinity have no JSON form"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _parse(cls: type[_Wire], content: bytes, status: int | None) -> _Wire:
    try:
        return cls.received(content)
    except pydantic.ValidationError as error:
        reason = _where(error)
    # Out here, so that no traceback or crash report leads on to pydantic's error, which quotes its input.
    raise _fault_of(content) or _invalid(content, status, reason)


def _finish(error: APIError, reply: WireReply) -> None:
    """Take what must not be shown out of an error about ``reply``, and note how many tries it took."""
    reply.secrets().clean(error)
    error.attempts = reply.attempts


def _check_choiceless(chunk: Chunk, data: bytes) -> None:
    """Raise for an event without choices that is neither a usage chunk nor any other part of an answer."""
    if "choices" not in chunk.model_fields_set and (fault := _fault_of(data)):
        raise fault
    if not chunk.model_fields_set - (chunk.model_extra or {}).keys():
        raise _invalid(data, None, "it has no field of a chunk")


def _where(error: pydantic.ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"


def _invalid(content: bytes, status: int | None, reason: object) -> APIResponseValidationError:
    text = content.decode("utf-8", "replace")[:_EXCERPT]
    error = APIResponseValidationError(
        body=text, message=f"The answer is not what the endpoint promises ({reason}). It begins: {text!r}"
    )
    error.status_code = status
    return error


def _raise_fault_in(answer: Answer | Chunk) -> None:
    """Raise the error that some gateways put beside the fields of an otherwise well-formed answer."""
    extra = answer.model_extra
    if extra and extra.get("error"):
        raise _error_from(extra)


def _fault_of(content: bytes) -> APIError | None:
    """Return the error that ``content`` is, None where it is none."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(body, list) and len(body) == 1:
        body = body[0]  # Gemini
    if not isinstance(body, Mapping):
        return None
    is_error = body.get("error") or body.get("object") == "error" or body.get("message")
    return _error_from(body) if is_error else None


def _error_from(body: object) -> APIError:
    fault = read_fault(body)
    message = fault.message or f"An error without a message: {fault.body}"
    code = int(fault.code) if fault.code is not None and fault.code.isdigit() else 0
    status = code if 400 <= code < 600 else 0
    status = status or _STATUS_OF_FAULT.get(fault.code or "", 0) or _STATUS_OF_FAULT.get(fault.type or "", 0)
    error: APIError
    if status:
        error = status_error(status, message, body=fault.body)
        error.status_code = status
    else:
        error = APIError(message, body=fault.body)
    error.code, error.param, error.type = fault.code, fault.param, fault.type
    return error


def _usage_of_groq(answer: Answer | Chunk) -> Usage | None:
    groq = (answer.model_extra or {}).get("x_groq")
    counts = groq.get("usage") if isinstance(groq, Mapping) else None
    if not isinstance(counts, Mapping):
        return None
    return Usage(
        prompt=_count(counts.get("prompt_tokens")), completion=_count(counts.get("completion_tokens"))
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
