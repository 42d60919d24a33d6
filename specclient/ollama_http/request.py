"""Parsing of Ollama's requests, and their translation to a chat completion, or to a completion if ``raw``.

Fields: https://github.com/ollama/ollama/blob/main/docs/api.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specclient.ollama_http.messages import chat_messages, user_content
from specclient.ollama_http.options import extra_fields, format_params, option_params
from specclient.openai_http.errors import bad_request, shown
from specclient.openai_http.model_names import check_name
from specclient.openai_http.request import (
    EXTENSION,
    FORWARDED_HEADERS,
    IncomingCall,
    asks_meta,
    boolean_field,
    forwarded_headers,
    with_extension,
)
from specclient.types.inference_methods import CHAT, COMPLETION
from specclient.types.permit import RoutePermit
from specclient.types.request import PerCallOptions, Request

__all__ = ["FIELDS", "AnswerKind", "OllamaCall", "model_field", "ollama_call"]

AnswerKind = Literal["chat", "generate"]

#: The tag that clients append to a name without one.
_LATEST = ":latest"
_BOTH = frozenset(
    {"format", "keep_alive", "logprobs", "options", "stream", "think", "top_logprobs", "truncate", "shift"}
)
#: The fields of each route besides ``model``.
FIELDS: Mapping[AnswerKind, frozenset[str]] = {
    "chat": _BOTH | {"messages", "tools"},
    "generate": _BOTH | {"context", "images", "prompt", "raw", "suffix", "system", "template"},
}
_LEVELS = ("low", "medium", "high", "max")


@dataclass(frozen=True, slots=True)
class OllamaCall:
    """A parsed request.

    Attributes:
        call: the call of the pipeline.
        kind: the route that was requested.
        thinks: whether the answer shows reasoning.
        unload: whether the request only unloads the model; None unless it has no prompt, and so only loads
            or unloads one.
    """

    call: IncomingCall
    kind: AnswerKind
    thinks: bool = True
    unload: bool | None = None


def ollama_call(
    kind: AnswerKind,
    given: Mapping[str, Any],
    headers: Mapping[str, str],
    *,
    engine: bool = False,
    permit: RoutePermit | None = None,
) -> OllamaCall:
    """Return the call of a request.

    Args:
        kind: the route that is requested.
        given: the body.
        headers: request headers.
        engine: whether an engine in this process serves the model. Engines have no reasoning effort.
        permit: the routes that the call may be sent to.

    Raises:
        ServingError: 400; the message names the field and what is allowed.
    """
    fields = {name: value for name, value in given.items() if value is not None}
    ours, model = fields.pop(EXTENSION, None), model_field(fields.pop("model", None))
    known = FIELDS[kind]
    unknown = extra_fields({name: fields[name] for name in fields if name not in known}, known)
    stream = boolean_field(fields.get("stream", True), "stream")
    idle = not fields.get("messages" if kind == "chat" else "prompt")
    raw = kind == "generate" and (boolean_field(fields.get("raw"), "raw") or bool(fields.get("suffix")))
    params, extra = option_params(fields.get("options"))
    params |= {} if idle else _raw_prompt(fields) if raw else _prompt(kind, fields)
    thinks, effort = _thinking(fields.get("think"))
    if effort is not None and not engine:
        params["reasoning_effort"] = effort
    if stream:
        params["stream_options"] = {"include_usage": True}
    options = PerCallOptions(
        headers=forwarded_headers(headers, FORWARDED_HEADERS), body={**unknown, **extra}, permit=permit
    )
    request = Request(COMPLETION if raw else CHAT, model, params, stream=stream, options=options)
    call = with_extension(IncomingCall(request, asks_meta(headers)), ours, headers)
    unload = _unloads(fields.get("keep_alive"))
    return OllamaCall(call, kind, thinks, unload if idle else None)


def model_field(model: object) -> str:
    """Return the name of a model, without the tag that clients append to names without one.

    Raises:
        ServingError: 400, it is not the name of a model.
    """
    if isinstance(model, str) and (name := model.removesuffix(_LATEST)):
        check_name(name)
        return name
    raise bad_request(
        "model", f"model is {shown(model)}; it must be the name of a model; GET /api/tags lists the models"
    )


def _prompt(kind: AnswerKind, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a chat completion that hold the prompt, and say what the answer has."""
    for name in ("context", "template"):
        if fields.get(name):
            raise bad_request(
                name,
                f"{name} is not supported; send messages to /api/chat, or a prompt with raw=true",
            )
    params: dict[str, Any] = {}
    if kind == "chat":
        params["messages"] = chat_messages(fields.get("messages"))
    else:
        system = [{"role": "system", "content": _text(fields, "system")}] if fields.get("system") else []
        content = user_content(_text(fields, "prompt"), fields.get("images"), "prompt")
        params["messages"] = [*system, {"role": "user", "content": content}]
    if fields.get("tools"):
        params["tools"] = _tools(fields["tools"])
    params |= format_params(fields.get("format"))
    most = fields.get("top_logprobs", 0)
    if boolean_field(fields.get("logprobs"), "logprobs") or most:
        params |= {"logprobs": True, "top_logprobs": most}
    return params


def _raw_prompt(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a completion, whose prompt no template changes."""
    for name in ("context", "format", "images", "logprobs", "system", "template"):
        if fields.get(name):
            raise bad_request(name, f"{name} is not supported together with raw=true or suffix; omit it")
    suffix = {"suffix": _text(fields, "suffix")} if fields.get("suffix") else {}
    return {"prompt": _text(fields, "prompt"), **suffix}


def _tools(tools: object) -> list[Any]:
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise bad_request("tools", f"tools is {shown(tools)}; it must be an array of objects")
    return [{"type": "function", **tool} for tool in tools]


def _thinking(think: object) -> tuple[bool, str | None]:
    """Return whether reasoning is shown, and the effort that is asked for."""
    if think is None or isinstance(think, bool):
        return think is not False, None
    if isinstance(think, str) and think in _LEVELS:
        return True, think
    raise bad_request(
        "think", f"think is {shown(think)}; it must be true, false or one of {', '.join(_LEVELS)}"
    )


def _unloads(keep_alive: object) -> bool:
    if isinstance(keep_alive, str | int | float) or keep_alive is None:
        return keep_alive is not None and str(keep_alive).rstrip("hmnsu") in ("0", "0.0")
    raise bad_request(
        "keep_alive", f"keep_alive is {shown(keep_alive)}; it must be seconds, or a duration such as '5m'"
    )


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if isinstance(value, str):
        return value
    raise bad_request(name, f"{name} is {shown(value)}; it must be a string")
