"""Answers in the form of OpenAI's API to any request for a chat completion or a response.

The answer follows from the request: a tool that may be called is called once, a JSON schema gets an example
of it, and everything else gets :data:`TEXT`. The shapes are those of
https://platform.openai.com/docs/api-reference/chat and https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

TEXT: Final = "The quick brown fox jumps over the lazy dog."
#: The value of every free string in an example of a schema.
WORD: Final = "Ulm"
_USAGE: Final = {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}
_RESPONSE_USAGE: Final = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 16,
}
_PLAIN: Final = {"boolean": True, "integer": 1, "null": None, "number": 1.5, "string": WORD}


def example(schema: dict[str, Any], definitions: dict[str, Any] | None = None) -> Any:
    """Return a value that fulfils a JSON schema with the keywords that libraries use for classes."""
    definitions = definitions if definitions is not None else schema.get("$defs", {})
    if "$ref" in schema:
        return example(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return example(schema[keyword][0], definitions)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [example(schema.get("items", {}), definitions)]
    if schema.get("type") == "object" or "properties" in schema:
        return {name: example(field, definitions) for name, field in schema.get("properties", {}).items()}
    return _PLAIN[schema.get("type", "string")]


def chat_answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return a chat completion for a request body."""
    message = _message(request)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "finish_reason": finish, "logprobs": None, "message": message}
    return {**_head(request, "chat.completion"), "choices": [choice], "usage": _USAGE}


def chat_events(request: dict[str, Any]) -> Iterator[bytes]:
    """Yield the events of a streamed chat completion."""
    message, head = _message(request), _head(request, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if message["content"] else None}]
    deltas += [{"content": piece} for piece in _pieces(message["content"] or "")]
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        opening = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in _pieces(function["arguments"])
        ]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    for choice in choices:
        yield _event({**head, "choices": [choice]})
    if (request.get("stream_options") or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": _USAGE})
    yield b"data: [DONE]\n\n"


def response_answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return a response of the Responses API for a request body."""
    return _response(request, "completed", [_output(request)])


def response_events(request: dict[str, Any]) -> Iterator[bytes]:
    """Yield the events of a streamed response."""
    item = _output(request)
    bodies: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response(request, "in_progress", [])},
        {"type": "response.in_progress", "response": _response(request, "in_progress", [])},
        *(_message_events(item) if item["type"] == "message" else _call_events(item)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": _response(request, "completed", [item])},
    ]
    for number, body in enumerate(bodies):
        yield f"event: {body['type']}\n".encode() + _event({**body, "sequence_number": number})


def _message_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    part = item["content"][0]
    begun = {**item, "content": [], "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *(
            {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
            for piece in _pieces(part["text"])
        ),
        {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
    ]


def _call_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": 0}
    begun = {**item, "arguments": "", "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *(
            {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            for piece in _pieces(item["arguments"])
        ),
        {
            "type": "response.function_call_arguments.done",
            **place,
            "name": item["name"],
            "arguments": item["arguments"],
        },
    ]


def _head(request: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1700000000, "model": request["model"]}


def _message(request: dict[str, Any]) -> dict[str, Any]:
    tools = [tool["function"] for tool in request.get("tools") or [] if tool["type"] == "function"]
    choice = request.get("tool_choice")
    named = choice["function"]["name"] if isinstance(choice, dict) else None
    answered = any(message["role"] == "tool" for message in request["messages"])
    if (tool := _tool(tools, choice, named, answered=answered)) is not None:
        arguments = json.dumps(example(tool.get("parameters") or {"type": "object"}))
        function = {"name": tool["name"], "arguments": arguments}
        call = {"id": "call_1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
    form = request.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema")
    return {"role": "assistant", "content": _text(form.get("type"), schema), "refusal": None}


def _output(request: dict[str, Any]) -> dict[str, Any]:
    tools = [tool for tool in request.get("tools") or [] if tool["type"] == "function"]
    choice = request.get("tool_choice")
    named = choice.get("name") if isinstance(choice, dict) else None
    items = request["input"] if isinstance(request["input"], list) else []
    answered = any(item.get("type") == "function_call_output" for item in items)
    if (tool := _tool(tools, choice, named, answered=answered)) is not None:
        arguments = json.dumps(example(tool.get("parameters") or {"type": "object"}))
        made = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1"}
        return {**made, "name": tool["name"], "arguments": arguments}
    form = (request.get("text") or {}).get("format") or {}
    text = _text(form.get("type"), form.get("schema"))
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def _tool(tools: list[Any], choice: Any, named: str | None, *, answered: bool) -> dict[str, Any] | None:
    """Return the tool to call: the named one; otherwise the first, until a result is in the request."""
    if named is not None:
        return next(tool for tool in tools if tool["name"] == named)
    if not tools or choice == "none" or (answered and choice != "required"):
        return None
    found: dict[str, Any] = tools[-1 if answered else 0]
    return found


def _text(form: str | None, schema: dict[str, Any] | None) -> str:
    if schema is not None:
        return json.dumps(example(schema))
    return json.dumps({"city": WORD}) if form == "json_object" else TEXT


def _response(request: dict[str, Any], status: str, output: list[Any]) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "metadata": {},
        "model": request["model"],
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "text": request.get("text") or {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "top_p": 1.0,
        "usage": _RESPONSE_USAGE if status == "completed" else None,
    }


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [words[0], *(f" {word}" for word in words[1:])] if text else []


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"
