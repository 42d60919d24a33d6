"""The wire dialect of Anthropic's Messages API.

https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from specclient.errors import NotFoundError
from specclient.providers.anthropic.params import body_of
from specclient.providers.anthropic.response import completion_of
from specclient.providers.anthropic.stream import AnthropicStreamReader
from specclient.providers.dialects import EventReader
from specclient.providers.encoding import json_of
from specclient.providers.endpoint import Endpoint
from specclient.providers.errors import embedded_error_of, invalid_response_error
from specclient.providers.openai.dialect import OpenAIDialect
from specclient.providers.usage import usage_of
from specclient.providers.vertex.place import ANTHROPIC_VERSION, VertexPlace
from specclient.types.api_method import ApiMethod
from specclient.types.chat import ChatCompletion
from specclient.types.model import Model
from specclient.types.request import PerCallOptions, Request
from specclient.types.usage import Usage
from specclient.types.wire import WireRequest, WireResponse

#: The API version to request if the caller's headers name none. The next version, 2026-10-21, rejects
#: ``temperature``, ``top_p`` and ``top_k`` in a chat, which callers of OpenAI's API send ("Migrating to API
#: version 2026-10-21").
VERSION = "2023-06-01"

#: Maximum number of models on a page of the list.
_MOST_MODELS = 1_000
_MESSAGES = ApiMethod(name="messages.create", verb="POST", path="/messages")
_CHAT = "chat.completions.create"
_MODELS = ("models.list", "models.retrieve")


class AnthropicDialect:
    """The wire dialect of Anthropic's API; see :class:`specclient.providers.Dialect`.

    It supports chats and the list of models. A call by path (``client.post("/messages/count_tokens", …)``)
    and its response are not translated.

    Args:
        clock: returns Unix seconds, for ``created``; Anthropic's responses have no creation time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._http = OpenAIDialect()  # for URLs, keys and all methods except chat

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        method = request.method
        if method.name == _CHAT:
            request = _message_request(request, endpoint, model)
        elif method.name == "models.list":
            query = {"limit": _MOST_MODELS, **request.options.query}
            request = replace(request, options=replace(request.options, query=query))
        elif method.name not in _MODELS and not _by_path(method):
            raise NotFoundError(
                f"provider {endpoint.name!r} speaks Anthropic's API, which serves chat.completions.create "
                f"and models alone, not {method.name}; name another provider's model for it"
            )
        wire = self._http.encode(request, endpoint, model)
        named = {name.lower() for name in (*endpoint.headers, *request.options.headers)}
        if "anthropic-version" in named or endpoint.place is not None:  # Vertex AI has it in the body
            return wire
        return replace(wire, headers={"anthropic-version": VERSION, **wire.headers})

    def decode(self, method: ApiMethod, reply: WireResponse) -> Any:
        kind = method.response_type
        if method.name == _CHAT and isinstance(kind, type) and issubclass(kind, ChatCompletion):
            return self._completion(kind, reply)
        if method.name in _MODELS:
            return self._http.decode(method, replace(reply, content=_renamed(reply.content)))
        return self._http.decode(method, reply)

    def events(self, method: ApiMethod) -> EventReader:
        if method.name == _CHAT:
            return AnthropicStreamReader(int(self._clock()))
        return self._http.events(method)

    def usage(self, answer: Any) -> Usage | None:
        return usage_of(answer)

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        listed = ApiMethod(name="models.list", verb="GET", path="/models")
        return self.encode(Request(listed, options=PerCallOptions()), endpoint, "")

    def decode_models(self, reply: WireResponse) -> list[Model]:
        return self._http.decode_models(replace(reply, content=_renamed(reply.content)))

    def _completion(self, kind: type[ChatCompletion], reply: WireResponse) -> ChatCompletion:
        """Decode a message into a chat completion.

        Raises:
            APIResponseValidationError: the response is not a message.
            APIError: the response is an error.
        """
        try:
            return kind.with_defaults(**completion_of(json.loads(reply.content), int(self._clock())))
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}, where a message with a list of content blocks belongs"
        # Raised outside the except block, so that its __context__ is not the error that holds the response.
        failure = embedded_error_of(reply.content) or invalid_response_error(
            reply.content, reply.status, reason
        )
        reply.secrets().clean(failure)
        failure.attempts = reply.attempts
        raise failure


def _message_request(request: Request, endpoint: Endpoint, model: str) -> Request:
    """Return the request of ``POST /messages``: as the caller wrote it, or else encoded from a chat."""
    options, written = replace(request.options, body={}), request.native("anthropic")
    if written is None:
        body: Mapping[str, Any] = body_of(request, endpoint, model)
    else:
        body = {**written.body, "model": model}
        headers, query = {**options.headers, **written.headers}, {**options.query, **written.query}
        if endpoint.place is not None:  # the version is in the body there, and beta methods have no path
            headers, query = {**headers, "anthropic-version": None}, dict(options.query)
        options = replace(options, headers=headers, query=query)
    method = _MESSAGES
    if endpoint.place is not None:
        method, body = _placed(endpoint.place, endpoint.base_url, body, stream=request.stream)
    return replace(request, method=method, params={}, content=json_of(body), options=options)


def _placed(
    place: VertexPlace, base_url: str, body: Mapping[str, Any], *, stream: bool
) -> tuple[ApiMethod, dict[str, Any]]:
    """Return method and body of a message in Vertex AI: the model is in the path, the version in the body.

    https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai
    """
    rest = {name: value for name, value in body.items() if name != "model"}
    path = place.path(base_url, body["model"], "streamRawPredict" if stream else "rawPredict")
    return replace(_MESSAGES, path=path), {"anthropic_version": ANTHROPIC_VERSION, **rest}


def _by_path(method: ApiMethod) -> bool:
    """Return whether a method is ``client.get``, ``client.post``, …; other methods have dotted names."""
    return "." not in method.name


def _renamed(content: bytes) -> bytes:
    """Add OpenAI's fields to Anthropic's model, or list of models."""
    try:
        body = json.loads(content)
        rows = body.get("data", [body])
        for row in rows:
            if row.get("type") == "model":
                row |= {
                    "object": "model",
                    "owned_by": "anthropic",
                    "created": _seconds(row.get("created_at")),
                }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return content  # not a list of models, or an error: reported by the decoder
    return json.dumps(body).encode()


def _seconds(moment: Any) -> int:
    """Convert an RFC 3339 time to Unix seconds; 0 if it is invalid."""
    try:
        return int(datetime.fromisoformat(moment).timestamp())
    except (TypeError, ValueError, OverflowError):
        return 0
