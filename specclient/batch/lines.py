"""Parsing of batch lines into requests.

There are two formats, which a file may mix:

OpenAI's (https://platform.openai.com/docs/guides/batch), ``{"custom_id": …, "method": "POST", "url":
"/v1/chat/completions", "body": {…}}``, for chat completions, completions, embeddings and responses.

Plain, ``{"prompt": …}`` or ``{"messages": […]}``, with any other parameters of the call, and an optional
``id``, a string or whole number; the default is the line's number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import pydantic_core

from specclient.routing.router import AUTO
from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, RESPONSE
from specclient.types.policy import Policy
from specclient.types.request import PerCallOptions, Request

LineFormat = Literal["openai", "plain"]
PromptForm = Literal["text", "chat"]

#: Allowed values of ``url`` in OpenAI lines, each with the API method and the required field of the body.
METHODS: Mapping[str, tuple[ApiMethod, str]] = MappingProxyType(
    {
        "/v1/chat/completions": (CHAT, "messages"),
        "/v1/completions": (COMPLETION, "prompt"),
        "/v1/embeddings": (EMBEDDING, "input"),
        "/v1/responses": (RESPONSE, "input"),
    }
)
_OPENAIS = frozenset({"custom_id", "method", "url", "body"})
_LIMITS = ("max_tokens", "max_completion_tokens")
_LOCAL = "local/"


class LineProblem(NamedTuple):
    """The error of an invalid line: a code for programs and a message for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDefaults:
    """Arguments that apply to every line.

    Attributes:
        default_model: model of lines without a model.
        model: model of all lines, even if they name another; None uses the model of each line.
        policy: routing policy of every line, which also chooses the model.
        form: ``text`` completes a plain ``prompt``, ``chat`` sends it as a user message. None uses text for
            local models and chat for all others.
        params: parameters of lines that do not set them and whose API method has them.
        tags: tags of every call in the ledger.
    """

    default_model: str
    model: str | None = None
    policy: Policy | str | None = None
    form: PromptForm | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """A parsed line.

    Attributes:
        number: line number, from 1.
        kind: the format of the line.
        id: its ``custom_id`` or ``id``; None for an OpenAI line without a valid one.
        request: the request; None if there is a ``problem``.
        problem: the error of an invalid line.
    """

    number: int
    kind: LineFormat = "plain"
    id: str | int | None = None
    request: Request | None = None
    problem: LineProblem | None = None

    @property
    def key(self) -> str:
        """The key of the line, which is the same in all runs; see :func:`key_of`."""
        return key_of(self.kind, self.id, None if self.problem is None else self.number)


def key_of(kind: LineFormat, identity: object, number: object) -> str:
    """Return a line's key.

    Args:
        kind: the format of the line.
        identity: its id.
        number: its number if it is invalid, which is then its key; else None.
    """
    if number is not None:
        return f"line {number}"
    return f"{'id' if kind == 'plain' else 'custom_id'} {json.dumps(identity)}"


def parse_line(number: int, raw: bytes | str | Mapping[str, Any], defaults: BatchDefaults) -> BatchLine:
    """Parse a line. An invalid line has a ``problem`` with the line's number."""
    try:
        given = raw if isinstance(raw, Mapping) else pydantic_core.from_json(raw, cache_strings="keys")
    except (ValueError, RecursionError) as error:
        empty = not isinstance(raw, Mapping) and not raw.strip()
        text = "is empty" if empty else f"is not JSON: {error}"
        return _wrong(number, "plain", number, "empty_line" if empty else "invalid_json", text)
    if not isinstance(given, Mapping):
        return _wrong(number, "plain", number, "invalid_line", "is not a JSON object")
    return _openai(number, given, defaults) if _OPENAIS & given.keys() else _plain(number, given, defaults)


def duplicate_line(line: BatchLine, first: int) -> BatchLine:
    """Return a line as invalid because an earlier line has the same id."""
    name = "custom_id" if line.kind == "openai" else "id"
    text = f"has the {name} {line.id!r} of line {first}; every line needs its own"
    return _wrong(line.number, line.kind, line.id, f"duplicate_{name}", text)


def _openai(number: int, given: Mapping[str, Any], defaults: BatchDefaults) -> BatchLine:
    custom_id, url, body = given.get("custom_id"), given.get("url"), given.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        text = f"has custom_id {_shown(custom_id)}; it must be a string"
        return _wrong(number, "openai", None, "invalid_custom_id", text)

    def wrong(code: str, text: str) -> BatchLine:
        return _wrong(number, "openai", custom_id, code, text)

    verb = given.get("method", "POST")
    if not isinstance(verb, str) or verb.upper() != "POST":
        return wrong("invalid_method", f"has method {_shown(verb)}; it must be POST")
    path = url if isinstance(url, str) else ""
    known = METHODS.get(path if path.startswith("/v1/") else f"/v1{path}")
    if known is None:
        return wrong("invalid_url", f"has url {_shown(url)}; it must be one of {', '.join(METHODS)}")
    if not isinstance(body, Mapping):
        return wrong("invalid_body", f"has body {_shown(body)}; it must be an object")
    return _with_request(BatchLine(number=number, kind="openai", id=custom_id), known, body, defaults)


def _plain(number: int, given: Mapping[str, Any], defaults: BatchDefaults) -> BatchLine:
    body = dict(given)
    identity = body.pop("id", number)
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        text = f"has id {_shown(identity)}; it must be a string or a whole number"
        return _wrong(number, "plain", number, "invalid_id", text)
    prompt, line = body.get("prompt"), BatchLine(number=number, id=identity)
    if "messages" in body:
        return _with_request(line, (CHAT, "messages"), body, defaults)
    if not isinstance(prompt, str):
        text = "has neither prompt (a string) nor messages, and no custom_id, url and body"
        return _wrong(number, "plain", identity, "invalid_line", text)
    if _form(body, defaults) == "text":
        return _with_request(line, (COMPLETION, "prompt"), body, defaults)
    body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    return _with_request(line, (CHAT, "messages"), body, defaults)


def _form(body: Mapping[str, Any], defaults: BatchDefaults) -> PromptForm:
    return defaults.form or ("text" if str(_model(body, defaults)).startswith(_LOCAL) else "chat")


def _model(body: Mapping[str, Any], defaults: BatchDefaults) -> Any:
    if defaults.policy is not None:
        return AUTO
    return defaults.model or body.get("model") or defaults.default_model


def _with_request(
    line: BatchLine, known: tuple[ApiMethod, str], body: Mapping[str, Any], defaults: BatchDefaults
) -> BatchLine:
    """Return a line with its request, or with its problem."""
    method, needed = known
    model = _model(body, defaults)
    text = _body_problem(line.kind, needed, body)
    if not isinstance(model, str):
        text = f"has model {_shown(model)}; it must be a name"
    if text is not None:
        return _wrong(line.number, line.kind, line.id, "invalid_body", text)
    given = {name: value for name, value in body.items() if name not in ("model", "stream")}
    given |= {name: value for name, value in defaults.params.items() if _takes(method, given, name)}
    params = {name: value for name, value in given.items() if name in method.params}
    extra = {name: value for name, value in given.items() if name not in method.params}
    options = PerCallOptions(body=extra, tags=defaults.tags)
    request = Request(method, model, params, policy=defaults.policy, options=options)
    return replace(line, request=request)


def _body_problem(kind: LineFormat, needed: str, body: Mapping[str, Any]) -> str | None:
    """Return why a body cannot be used in a batch; None if it can."""
    if body.get("stream"):
        return "requests a stream, but a record needs a complete answer; omit stream"
    value = body.get(needed)
    if needed == "messages":
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            return f"has messages {_shown(value)}; it must be a list of objects"
    elif value is None and "prompt" not in body:  # a response may have a stored prompt instead of input
        return f"has no {needed}"
    if kind == "plain" and body.get("n") not in (None, 1):
        return f"requests n = {_shown(body['n'])} answers, but its record has only one; use the OpenAI format"
    return None


def _takes(method: ApiMethod, given: Mapping[str, Any], name: str) -> bool:
    names = _LIMITS if name in _LIMITS else (name,)
    return name in method.params and not any(each in given for each in names)


def _wrong(number: int, kind: LineFormat, identity: str | int | None, code: str, text: str) -> BatchLine:
    return BatchLine(
        number=number, kind=kind, id=identity, problem=LineProblem(code, f"line {number} {text}")
    )


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"
