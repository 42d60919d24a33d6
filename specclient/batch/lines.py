"""Turn one line of a batch into the request it stands for, or into what is wrong with it; pure.

Two kinds, which one file may mix:

OpenAI's (https://platform.openai.com/docs/guides/batch), ``{"custom_id": …, "method": "POST", "url":
"/v1/chat/completions", "body": {…}}``, for chat completions, completions, embeddings and responses.

Plain, ``{"prompt": …}`` or ``{"messages": […]}``, with any parameter of the call beside it, and ``id``: a
text or whole number; the line's number where there is none.
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
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Policy

LineFormat = Literal["openai", "plain"]
PromptForm = Literal["text", "chat"]

#: What an OpenAI line's ``url`` may be, and what its body must hold.
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
    """What is wrong with a line: a code for programs, a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDefaults:
    """What holds for every line.

    Attributes:
        model: asked for by all lines, whatever they name; None leaves it to them.
        default_model: for lines that name none.
        policy: routes every line; it chooses the model, too.
        form: whether a plain ``prompt`` is continued as text or sent as a user's message; None does the first
            with local models, the second with all others.
        params: for lines whose call takes them, and that do not set them.
        tags: label every call in the ledger.
    """

    default_model: str
    model: str | None = None
    policy: Policy | str | None = None
    form: PromptForm | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One line, read.

    Attributes:
        number: from 1.
        id: its ``custom_id`` or ``id``; None for an OpenAI line that has none it could be known by.
        request: what is asked; None where there is a ``problem``.
    """

    number: int
    kind: LineFormat = "plain"
    id: str | int | None = None
    request: Request | None = None
    problem: LineProblem | None = None

    @property
    def key(self) -> str:
        """What the line is known by from run to run; see :func:`key_of`."""
        return key_of(self.kind, self.id, None if self.problem is None else self.number)


def key_of(kind: LineFormat, identity: object, number: object) -> str:
    """Return a line's key: its number where that is given, of one with a problem; else its id."""
    if number is not None:
        return f"line {number}"
    return f"{'id' if kind == 'plain' else 'custom_id'} {json.dumps(identity)}"


def parse_line(number: int, raw: bytes | str | Mapping[str, Any], ask: BatchDefaults) -> BatchLine:
    """Read a line; one that cannot be served has a ``problem``, which names the line's number."""
    try:
        given = raw if isinstance(raw, Mapping) else pydantic_core.from_json(raw, cache_strings="keys")
    except (ValueError, RecursionError) as error:
        empty = not isinstance(raw, Mapping) and not raw.strip()
        text = "is empty" if empty else f"is no JSON: {error}"
        return _wrong(number, "plain", number, "empty_line" if empty else "invalid_json", text)
    if not isinstance(given, Mapping):
        return _wrong(number, "plain", number, "invalid_line", "is no JSON object")
    return _openai(number, given, ask) if _OPENAIS & given.keys() else _plain(number, given, ask)


def duplicate_line(line: BatchLine, first: int) -> BatchLine:
    """Return a line as one that is refused, because an earlier one has its id."""
    name = "custom_id" if line.kind == "openai" else "id"
    text = f"has the {name} {line.id!r} of line {first}; every line needs its own"
    return _wrong(line.number, line.kind, line.id, f"duplicate_{name}", text)


def _openai(number: int, given: Mapping[str, Any], ask: BatchDefaults) -> BatchLine:
    custom_id, url, body = given.get("custom_id"), given.get("url"), given.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        text = f"has custom_id {_shown(custom_id)}; it must be a text"
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
    return _asked(BatchLine(number=number, kind="openai", id=custom_id), known, body, ask)


def _plain(number: int, given: Mapping[str, Any], ask: BatchDefaults) -> BatchLine:
    body = dict(given)
    identity = body.pop("id", number)
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        text = f"has id {_shown(identity)}; it must be a text or a whole number"
        return _wrong(number, "plain", number, "invalid_id", text)
    prompt, line = body.get("prompt"), BatchLine(number=number, id=identity)
    if "messages" in body:
        return _asked(line, (CHAT, "messages"), body, ask)
    if not isinstance(prompt, str):
        text = "has neither prompt (a text) nor messages, and no custom_id, url and body"
        return _wrong(number, "plain", identity, "invalid_line", text)
    if _form(body, ask) == "text":
        return _asked(line, (COMPLETION, "prompt"), body, ask)
    body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    return _asked(line, (CHAT, "messages"), body, ask)


def _form(body: Mapping[str, Any], ask: BatchDefaults) -> PromptForm:
    return ask.form or ("text" if str(_model(body, ask)).startswith(_LOCAL) else "chat")


def _model(body: Mapping[str, Any], ask: BatchDefaults) -> Any:
    if ask.policy is not None:
        return AUTO
    return ask.model or body.get("model") or ask.default_model


def _asked(
    line: BatchLine, known: tuple[ApiMethod, str], body: Mapping[str, Any], ask: BatchDefaults
) -> BatchLine:
    """Return a line with the request that it stands for, or with what stands against one."""
    method, needed = known
    model = _model(body, ask)
    text = _misused(line.kind, needed, body)
    if not isinstance(model, str):
        text = f"has model {_shown(model)}; it must be a name"
    if text is not None:
        return _wrong(line.number, line.kind, line.id, "invalid_body", text)
    given = {name: value for name, value in body.items() if name not in ("model", "stream")}
    given |= {name: value for name, value in ask.params.items() if _takes(method, given, name)}
    params = {name: value for name, value in given.items() if name in method.params}
    extra = {name: value for name, value in given.items() if name not in method.params}
    options = PerCallOptions(body=extra, tags=ask.tags)
    request = Request(method, model, params, policy=ask.policy, options=options)
    return replace(line, request=request)


def _misused(kind: LineFormat, needed: str, body: Mapping[str, Any]) -> str | None:
    """Return what of a body cannot be served in a batch, None where all of it can."""
    if body.get("stream"):
        return "asks for a stream, and a record holds a whole answer; leave stream out"
    value = body.get(needed)
    if needed == "messages":
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            return f"has messages {_shown(value)}; it must be a list of objects"
    elif value is None and "prompt" not in body:  # a response may have a stored prompt in the place of input
        return f"has no {needed}"
    if kind == "plain" and body.get("n") not in (None, 1):
        return (
            f"asks for n = {_shown(body['n'])} answers, and has room for one; write it as OpenAI's lines are"
        )
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
