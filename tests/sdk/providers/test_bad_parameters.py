"""Invalid chat parameters are sent, or refused by an error that names them; no other exception is raised."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from specclient import BadRequestError, OpenAIError, UnsupportedParameterError
from specclient.providers.dialects import dialect_of
from specclient.providers.presets.registry import preset
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request

_PNG = {"url": "data:image/png;base64,AAAA", "detail": "auto"}
_PDF = {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}
_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_BREAK = {"type": "text", "text": "x", "prompt_cache_breakpoint": {"ttl": "30m"}}
EVERYTHING: dict[str, Any] = {
    "max_tokens": 100, "temperature": 0.5, "top_p": 0.4, "stop": ["a"], "metadata": {"user_id": "x"},
    "presence_penalty": 0.0, "modalities": ["text"], "parallel_tool_calls": False, "service_tier": "auto",
    "reasoning_effort": "low", "prediction": {"type": "content", "content": "x"},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "messages": [
        {"role": "system", "content": [_BREAK]},
        {"role": "user", "content": [
            {"type": "text", "text": "t"},
            {"type": "image_url", "image_url": _PNG},
            {"type": "file", "file": _PDF},
        ]},
        {
            "role": "assistant", "content": "c", "tool_calls": [_CALL],
            "thinking_blocks": [{"type": "thinking", "thinking": "x", "signature": "s"}],
            "content_blocks": [{"type": "text", "text": "c"}],
            "extra_content": {"google": {"thought_signature": "s", "parts": [{"a": 1}]}},
            "images": [{"type": "image_url", "image_url": _PNG}],
        },
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "t"}]},
    ],
}  # fmt: skip
BAD: tuple[Any, ...] = (
    None,
    "",
    "x",
    5,
    -1.5,
    True,
    [],
    {},
    ["x"],
    [None],
    [[]],
    {"a": 1},
    b"x",
    float("nan"),
    object(),
)
MODELS = {
    "anthropic": "claude-sonnet-4-0",
    "gemini": "gemini-2.5-pro",
    "openai": "gpt-4.1",
    "mistral": "m",
    "groq": "m",
}


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from _paths(value[key], (*path, key))


def _encoded(name: str, params: dict[str, Any], *, drop: bool | None = None) -> Any:
    endpoint = preset(name).endpoint(key=SecretStr("k"))
    request = Request(CHAT, MODELS[name], params, options=PerCallOptions(drop_params=drop))
    return dialect_of(endpoint).encode(request, endpoint, MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_invalid_values_at_every_place_are_sent_or_refused(name: str) -> None:
    refused = 0
    for path in _paths(EVERYTHING):
        for bad in BAD:
            params = copy.deepcopy(EVERYTHING)
            place = params
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = bad
            try:
                _encoded(name, params, drop=True)
            except OpenAIError:
                refused += 1
    assert refused > 100


@pytest.mark.parametrize("name", ["anthropic", "gemini"])
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_tokens": "9"}, "max_tokens is a str; it must be a whole number"),
        ({"max_tokens": True}, "max_tokens is a bool; it must be a whole number"),
        ({"stop": 5}, "stop is a int; it must be text or a list"),
        ({"tools": {"a": 1}}, "tools is a dict; it must be a list"),
        ({"response_format": "json"}, "response_format is a str; it must be an object"),
        ({"messages": "hi"}, "messages is a str; it must be a list"),
        (
            {"messages": [{"role": "assistant", "tool_calls": 5}]},
            r"messages\[0\].tool_calls is a int; it must be a list",
        ),
    ],
)
def test_the_error_names_the_invalid_parameter(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        _encoded(name, {"messages": [{"role": "user", "content": "u"}], **params})


@pytest.mark.parametrize(
    ("name", "refused", "defaults"),
    [
        ("mistral", {"logprobs": True, "user": "u"}, {"logprobs": False, "store": False, "logit_bias": {}}),
        ("groq", {"n": 2, "top_logprobs": 1}, {"n": 1, "logprobs": False}),
    ],
)
def test_parameters_that_the_server_refuses_raise_unless_they_have_their_default(
    name: str, refused: dict[str, Any], defaults: dict[str, Any]
) -> None:
    chat = {"messages": [{"role": "user", "content": "u"}]}
    for parameter, value in refused.items():
        with pytest.raises(UnsupportedParameterError, match=f"'{name}' does not take '{parameter}'"):
            _encoded(name, {**chat, parameter: value})
    bare = _encoded(name, chat).content
    assert _encoded(name, {**chat, **refused}, drop=True).content == bare
    assert _encoded(name, {**chat, **defaults}).content == bare
