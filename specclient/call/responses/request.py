"""Translation of a Responses API request to a chat completion, for destinations that only support the latter.

A response or a conversation that a provider stores (``previous_response_id``, ``conversation``) is refused,
and so are ``background`` and the tools that OpenAI runs itself. Fields:
https://platform.openai.com/docs/api-reference/responses/create.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specclient.call.responses.ids import LOCAL_MARK
from specclient.call.responses.included import LOGPROBS, checked_include
from specclient.call.responses.metadata import checked_metadata
from specclient.call.responses.refusals import invalid, unsupported
from specclient.errors import UnsupportedParameterError
from specclient.runtime.short_repr import short_repr
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request

__all__ = ["chat_request_of"]

#: Fields of both APIs, by their names in chat completions.
_SAME = {
    "max_output_tokens": "max_completion_tokens",
    "metadata": "metadata",
    "parallel_tool_calls": "parallel_tool_calls",
    "temperature": "temperature",
    "top_p": "top_p",
    "user": "user",
    "verbosity": "verbosity",
}
#: Fields without effect on a chat completion.
_IDLE = frozenset(
    {"max_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning",
     "safety_identifier", "service_tier", "store", "stream_options", "truncation"}
)  # fmt: skip
_READ = frozenset({"include", "input", "instructions", "text", "tool_choice", "tools", "top_logprobs"})
_ROLES = frozenset({"assistant", "developer", "system", "user"})
_TEXTS = frozenset({"input_text", "output_text", "text"})


def chat_request_of(request: Request) -> Request:
    """Return the chat completion for a Responses API request.

    Raises:
        BadRequestError: the message names the invalid field.
        UnsupportedParameterError: chat completions cannot express the field that the message names.
    """
    given = {name: value for name, value in request.params.items() if value is not None}
    for name, value in given.items():
        if name not in _READ and name not in _IDLE and name not in _SAME and value is not False:
            raise _without_responses(name, value)
    params: dict[str, Any] = {_SAME[name]: given[name] for name in given if name in _SAME}
    if "metadata" in params:
        params["metadata"] = checked_metadata(params["metadata"])
    params["messages"] = _messages(given)
    params |= _logprobs(given)
    if "text" in given:
        params |= _format(given["text"])
    if given.get("tools"):
        params["tools"] = [_tool(tool, place) for place, tool in enumerate(_array(given["tools"], "tools"))]
        if "tool_choice" in given:
            params["tool_choice"] = _tool_choice(given["tool_choice"])
    if request.stream:
        params["stream_options"] = {"include_usage": True}
    return replace(request, method=CHAT, params=params)


def _without_responses(name: str, value: object) -> UnsupportedParameterError:
    """Return the error for a field that only a provider's own Responses API can have."""
    if name in ("previous_response_id", "conversation"):
        shown = value.get("id") if isinstance(value, Mapping) else value
        return unsupported(
            name,
            f"{name} is {short_repr(shown)}, which is not stored here (such ids contain {LOCAL_MARK!r}), and "
            "this model's provider stores nothing; send the whole conversation as input, or name a model of "
            "the provider that has it",
        )
    if name == "background":
        return unsupported(
            name, "background is not supported by models without a Responses API of their own, such as local "
            "ones; omit it, and use stream=True for long answers"
        )  # fmt: skip
    return unsupported(
        name, f"{name} is not supported by models without a Responses API of their own, such as local ones; "
        "omit it"
    )  # fmt: skip


def _logprobs(given: Mapping[str, Any]) -> dict[str, Any]:
    included = checked_include(given.get("include", []))
    if LOGPROBS not in included and "top_logprobs" not in given:
        return {}
    return {"logprobs": True, "top_logprobs": given.get("top_logprobs", 0)}


def _messages(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if "instructions" in given:
        if not isinstance(given["instructions"], str):
            raise invalid("instructions", "instructions must be a string")
        messages.append({"role": "system", "content": given["instructions"]})
    sent = given.get("input")
    if isinstance(sent, str):
        return [*messages, {"role": "user", "content": sent}]
    for place, item in enumerate(_array(sent, "input")):
        name = f"input[{place}]"
        kind = _object(item, name).get("type") or "message"
        if kind == "message":
            messages.append(_message(item, name))
        elif kind == "function_call":
            _add_call(messages, item)
        elif kind == "function_call_output":
            output = _content(item.get("output"), f"{name}.output")
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
        elif kind != "reasoning":
            raise unsupported(name, f"{name} is an item of an unsupported type; it must be a message, "
                              "a function_call or a function_call_output")  # fmt: skip
    if not messages:
        raise invalid("input", "input is missing; it must be a string or an array of items")
    return messages


def _message(item: Mapping[str, Any], name: str) -> dict[str, Any]:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise invalid(f"{name}.role", f"{name}.role must be one of {', '.join(sorted(_ROLES))}")
    return {"role": role, "content": _content(item.get("content"), f"{name}.content")}


def _add_call(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Add a function call to the assistant message that it belongs to."""
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _content(content: object, name: str) -> Any:
    if isinstance(content, str):
        return content
    parts = []
    for place, part in enumerate(_array(content, name)):
        here = _object(part, f"{name}[{place}]")
        kind = here.get("type")
        if isinstance(kind, str) and kind in _TEXTS:
            parts.append({"type": "text", "text": here.get("text")})
        elif kind == "refusal":
            parts.append({"type": "text", "text": here.get("refusal")})
        elif kind == "input_image":
            parts.append({"type": "image_url", "image_url": {"url": here.get("image_url")}})
        else:
            raise unsupported(f"{name}[{place}]", f"{name}[{place}] is a part of an unsupported type; "
                              "it must be an input_text, output_text or input_image")  # fmt: skip
    return parts


def _format(text: object) -> dict[str, Any]:
    settings = _object(text, "text")
    form = _object(settings.get("format") or {"type": "text"}, "text.format")
    found: dict[str, Any] = {"verbosity": settings["verbosity"]} if settings.get("verbosity") else {}
    if form.get("type") == "json_schema":
        schema = {name: value for name, value in form.items() if name != "type"}
        return {**found, "response_format": {"type": "json_schema", "json_schema": schema}}
    return {**found, "response_format": form} if form.get("type") != "text" else found


def _tool(tool: object, place: int) -> dict[str, Any]:
    given = _object(tool, f"tools[{place}]")
    if given.get("type") != "function":
        raise unsupported(
            f"tools[{place}].type",
            f"tools[{place}] is not a function; models without a Responses API of their own, such as local "
            "ones, come with no tools that run by themselves",
        )
    function = {name: value for name, value in given.items() if name != "type" and value is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: object) -> object:
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _array(value: object, name: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise invalid(name, f"{name} must be {'a string or ' if name == 'input' else ''}an array")


def _object(value: object, name: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise invalid(name, f"{name} must be an object")
