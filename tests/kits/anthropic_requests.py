"""Chats as this client and the anthropic package write them; the requests of both must be equal."""

from __future__ import annotations

import base64
from typing import Any

PNG = base64.b64encode(b"\x89PNG").decode()
PDF = base64.b64encode(b"%PDF").decode()
CONTROL = {"type": "ephemeral", "ttl": "1h"}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
USER = [{"role": "user", "content": "u"}]
FUNCTION = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
TOOL = {"name": "f", "description": "d", "input_schema": SCHEMA}


def _call(id_: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}


def _base64_block(kind: str, media: str, data: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media, "data": data}, **more}


_CALLS = [_call("t1", '{"a": 1}'), _call("t2", '{"a": 2}')]
ANSWER = {"role": "assistant", "content": "ok", "tool_calls": _CALLS}
SEARCH = {"type": "web_search_20260318", "name": "web_search", "max_uses": 2}
OWN = {
    "speed": "fast",
    "inference_geo": "eu",
    "thinking": {"type": "between_tools"},
    "cache_control": CONTROL,
}
_IMAGE = {"url": f"data:image/png;base64,{PNG}"}
_FILE = {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a"}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}

#: Pairs of equal requests: parameters of OpenAI's API, and of Anthropic's.
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"messages": USER, "max_tokens": 9}, {"messages": USER, "max_tokens": 9}),
    "system": (
        {"messages": [{"role": "system", "content": "s"}, *USER], "max_completion_tokens": 9},
        {"system": "s", "messages": USER, "max_tokens": 9},
    ),
    "cached system": (
        {
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "s", "cache_control": CONTROL}]},
                *USER,
            ]
        },
        {"system": [{"type": "text", "text": "s", "cache_control": CONTROL}], "messages": USER},
    ),
    "sampling": (
        {"messages": USER, "stop": ["a", "b"], "user": "id", "service_tier": "default"},
        {
            "messages": USER,
            "stop_sequences": ["a", "b"],
            "metadata": {"user_id": "id"},
            "service_tier": "standard_only",
        },
    ),
    "images and a document": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": _IMAGE, "cache_control": CONTROL},
                        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                        {"type": "file", "file": _FILE},
                    ],
                }
            ]
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        _base64_block("image", "image/png", PNG, cache_control=CONTROL),
                        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                        _base64_block("document", "application/pdf", PDF, title="a"),
                    ],
                }
            ]
        },
    ),
    "tools": (
        {
            "messages": USER,
            "tools": [{**FUNCTION, "cache_control": CONTROL}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
        {
            "messages": USER,
            "tools": [{**TOOL, "cache_control": CONTROL}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
    ),
    "a named tool": (
        {
            "messages": USER,
            "tools": [FUNCTION],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
    ),
    "a strict tool and a search": (
        {
            "messages": USER,
            "tools": [
                {"type": "function", "function": {**FUNCTION["function"], "strict": True}},
                SEARCH,
            ],
        },
        {"messages": USER, "tools": [{**TOOL, "strict": True}, SEARCH]},
    ),
    "results of tools": (
        {
            "messages": [
                *USER,
                ANSWER,
                {"role": "tool", "tool_call_id": "t1", "content": "1"},
                {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "2"}]},
                {"role": "user", "content": "so?"},
            ]
        },
        {
            "messages": [
                *USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "ok"},
                        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                        {"type": "tool_use", "id": "t2", "name": "f", "input": {"a": 2}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "1"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "t2",
                            "content": [{"type": "text", "text": "2"}],
                        },
                    ],
                },
                {"role": "user", "content": "so?"},
            ]
        },
    ),
    "a result with an image, and instructions amid the turns": (
        {
            "messages": [
                *USER,
                {"role": "assistant", "content": None, "tool_calls": [_CALLS[0]]},
                {
                    "role": "tool",
                    "tool_call_id": "t1",
                    "content": [{"type": "text", "text": "seen"}, {"type": "image_url", "image_url": _IMAGE}],
                },
                {"role": "system", "content": "Be brief."},
            ]
        },
        {
            "system": "Be brief.",
            "messages": [
                *USER,
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [
                                {"type": "text", "text": "seen"},
                                _base64_block("image", "image/png", PNG),
                            ],
                        }
                    ],
                },
            ],
        },
    ),
    "thinking": (
        {"messages": USER, "reasoning_effort": "xhigh"},
        {"messages": USER, "thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}},
    ),
    "no thinking": (
        {"messages": USER, "reasoning_effort": "none"},
        {"messages": USER, "thinking": {"type": "disabled"}},
    ),
    "a form and thinking": (
        {
            "messages": USER,
            "reasoning_effort": "low",
            "response_format": FORM,
        },
        {
            "messages": USER,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        },
    ),
    "its own fields": (
        {"messages": USER, "extra_body": OWN},
        {"messages": USER, **OWN},
    ),
    "prefill": (
        {"messages": [*USER, {"role": "assistant", "content": "It"}]},
        {"messages": [*USER, {"role": "assistant", "content": "It"}]},
    ),
}
