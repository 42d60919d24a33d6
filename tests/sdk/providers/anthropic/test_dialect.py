"""Encoding of OpenAI chats as requests of Anthropic's Messages API, and errors that name the parameter."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pydantic
import pytest
from anthropic_bodies import DIALECT, ENDPOINT, KEY, PAIRS, body, completion, sent

from specclient import (
    BadRequestError,
    ConfigurationError,
    NotFoundError,
    UnsupportedParameterError,
    pydantic_function_tool,
)
from specclient.providers import dialect
from specclient.providers.anthropic.dialect import VERSION, AnthropicDialect
from specclient.providers.anthropic.params import SMALLEST_BUDGET, default_max_tokens
from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, MODERATION, RESPONSE
from specclient.types.request import PerCallOptions, Request

ASK = [{"role": "user", "content": "u"}]
PNG = base64.b64encode(b"\x89PNG").decode()


def _turns(*messages: Any) -> Any:
    return sent({"messages": messages})["messages"]


def test_the_url_and_the_headers_of_a_chat() -> None:
    wire = DIALECT.encode(Request(CHAT, "m", {"messages": ASK}), ENDPOINT, "claude-opus-5")
    assert (wire.method, wire.url) == ("POST", "https://api.anthropic.com/v1/messages")
    assert wire.headers["x-api-key"] == KEY
    assert "authorization" not in wire.headers
    assert wire.headers["anthropic-version"] == VERSION
    assert wire.deployment == "anthropic/claude-opus-5"
    assert isinstance(dialect("anthropic"), AnthropicDialect)


def test_empty_content_is_omitted() -> None:
    empty = {"type": "text", "text": ""}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    encoded = sent(
        {
            "messages": [
                {"role": "system", "content": ""},
                {"role": "system", "content": [empty]},
                {"role": "system", "content": "s"},
                {"role": "user", "content": [empty, {"type": "text", "text": "u"}]},
                {"role": "assistant", "content": [empty]},
                {"role": "assistant", "content": [empty], "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": [empty]},
            ]
        }
    )
    assert encoded["system"] == "s"
    assert encoded["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "u"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]},
    ]


@pytest.mark.parametrize("name", ["anthropic-version", "Anthropic-Version"])
def test_a_version_header_of_the_caller_overrides_the_default(name: str) -> None:
    options = PerCallOptions(headers={name: "2026-10-21"})
    wire = DIALECT.encode(Request(CHAT, "m", {"messages": ASK}, options=options), ENDPOINT, "m")
    assert {k: v for k, v in wire.headers.items() if "version" in k} == {"anthropic-version": "2026-10-21"}
    endpoint = replace(ENDPOINT, headers={name: "2026-10-21"})
    wire = DIALECT.encode(Request(CHAT, "m", {"messages": ASK}), endpoint, "m")
    assert wire.headers["anthropic-version"] == "2026-10-21"


def test_a_version_header_of_none_is_removed() -> None:
    options = PerCallOptions(headers={"anthropic-version": None})
    wire = DIALECT.encode(Request(CHAT, "m", {"messages": ASK}, options=options), ENDPOINT, "m")
    assert "anthropic-version" not in wire.headers


def test_the_options_of_the_call_are_applied() -> None:
    options = PerCallOptions(
        query={"beta": "true"}, timeout=3, max_retries=1, deadline_s=9, headers={"x-a": "b"}
    )
    wire = DIALECT.encode(Request(CHAT, "m", {"messages": ASK}, options=options), ENDPOINT, "m")
    assert wire.url.endswith("/messages?beta=true")
    assert (wire.timeout, wire.max_retries, wire.deadline_s) == (3, 1, 9)
    assert wire.headers["x-a"] == "b"


def test_the_error_of_a_missing_key_names_its_variable() -> None:
    endpoint = replace(ENDPOINT, key=None, key_required=True, key_env=("ANTHROPIC_API_KEY",))
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        DIALECT.encode(Request(CHAT, "m", {"messages": ASK}), endpoint, "m")


def test_all_system_and_developer_messages_become_the_system_prompt() -> None:
    encoded = sent(
        {"messages": [{"role": "system", "content": "a"}, *ASK, {"role": "developer", "content": "b"}]}
    )
    assert encoded["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert encoded["messages"] == ASK
    assert sent({"messages": [{"role": "system", "content": "a"}, *ASK]})["system"] == "a"


def test_cache_breakpoints_are_encoded() -> None:
    control = {"type": "ephemeral", "ttl": "1h"}
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": control}]
    encoded = sent({"messages": [{"role": "system", "content": parts}, {**ASK[0], "cache_control": control}]})
    assert encoded["system"] == parts
    assert encoded["messages"][0]["content"] == [{"type": "text", "text": "u", "cache_control": control}]
    for options, expected in ({}, {"type": "ephemeral"}), ({"ttl": "30m"}, control):
        part = {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", **options}}
        (turn,) = _turns({"role": "user", "content": [part]})
        assert turn["content"] == [{"type": "text", "text": "a", "cache_control": expected}]
    part = {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    with pytest.raises(
        UnsupportedParameterError, match=r"messages\[0\].content\[0\].prompt_cache_breakpoint"
    ):
        _turns({"role": "user", "content": [part]})


def test_images_and_files_are_encoded() -> None:
    pdf = base64.b64encode(b"%PDF").decode()
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{pdf}", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": "data:text/plain,a%20b"}},
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "search_result", "source": "s", "title": "t", "content": []},
        "text",
    ]
    (turn,) = _turns({"role": "user", "content": parts})
    assert turn["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": pdf},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a b"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        parts[5],
        {"type": "text", "text": "text"},
    ]


def _call(arguments: Any, id_: str = "t1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_tool_calls_and_results_are_encoded() -> None:
    control = {"type": "ephemeral"}
    turns = _turns(
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [_call('{"a": 1}'), _call("", "t2")]},
        {"role": "tool", "tool_call_id": "t1", "content": "one", "name": "f"},
        {
            "role": "tool",
            "tool_call_id": "t2",
            "content": [{"type": "text", "text": "two"}],
            "is_error": True,
            "cache_control": control,
        },
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "so", "tool_calls": [_call("{}", "t3")]},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
    )
    assert turns[1]["content"] == [
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "t2", "name": "f", "input": {}},
    ]
    assert turns[2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
            {
                "type": "tool_result",
                "tool_use_id": "t2",
                "content": [{"type": "text", "text": "two"}],
                "is_error": True,
                "cache_control": control,
            },
        ],
    }
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "user", "assistant", "user"]
    assert turns[4]["content"][0] == {"type": "text", "text": "so"}
    assert turns[5]["content"] == [{"type": "tool_result", "tool_use_id": "t3"}]


@pytest.mark.parametrize("arguments", ["{", "[]", '"a"', "null"])
def test_tool_arguments_that_are_not_a_json_object_raise(arguments: str) -> None:
    with pytest.raises(
        BadRequestError,
        match=r"messages\[0\].tool_calls\[0\].function.arguments (is not valid|must be a) JSON",
    ):
        _turns({"role": "assistant", "tool_calls": [_call(arguments)]})


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("as_dict", [False, True])
def test_a_received_answer_is_sent_back_unchanged(name: str, as_dict: bool) -> None:
    message = completion(body(f"{name}.json")).choices[0].message
    turns = _turns(*ASK, message.to_dict() if as_dict else message, *ASK)
    received = json.loads(body(f"{name}.json"))["content"]
    if name in ("thinking", "web_search"):
        assert turns[1]["content"] == received
    elif name == "tools":
        assert turns[1]["content"] == [{k: v for k, v in b.items() if k != "caller"} for b in received]
    elif name == "refusal":
        assert turns == [*ASK, *ASK], "an empty message is not sent, because Anthropic refuses it"
    else:
        assert turns[1]["content"] == "".join(block["text"] for block in received)


def test_an_edited_answer_is_sent_back_as_edited() -> None:
    message = completion(body("thinking.json")).choices[0].message.to_dict()
    (turn,) = _turns({**message, "content": "Yes."})
    thoughts = [b for b in json.loads(body("thinking.json"))["content"] if "thinking" in b["type"]]
    assert turn["content"] == [*thoughts, {"type": "text", "text": "Yes."}]
    searched = completion(body("web_search.json")).choices[0].message.to_dict()
    (turn,) = _turns({**searched, "tool_calls": [_call("{}")]})
    assert turn["content"][-1]["type"] == "tool_use"


def test_empty_blocks_are_not_sent_back() -> None:
    blocks = [{"type": "text", "text": ""}, {"type": "thinking", "thinking": "x", "signature": "s"}]
    (turn,) = _turns({"role": "assistant", "content": "", "content_blocks": blocks})
    assert turn["content"] == blocks[1:]


def test_a_system_message_between_tool_results_does_not_separate_them() -> None:
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("a", "b")]
    (turn,) = _turns(results[0], {"role": "system", "content": "s"}, results[1])
    assert [block["tool_use_id"] for block in turn["content"]] == ["a", "b"]


def test_reasoning_without_a_signature_is_not_sent_back() -> None:
    (turn,) = _turns({"role": "assistant", "content": "a", "reasoning_content": "of another model"})
    assert turn == {"role": "assistant", "content": "a"}


def test_a_trailing_assistant_message_is_a_prefill() -> None:
    assert _turns(*ASK, {"role": "assistant", "content": "It is"})[-1] == {
        "role": "assistant",
        "content": "It is",
    }


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "function", "name": "f", "content": "x"}, "messages[0] has the role 'function'"),
        ({"content": "x"}, "messages[0] has the role None"),
        ("hi", "messages[0] has the role None"),
        ({"role": "user", "content": 5}, "messages[0].content is a int"),
        ({"role": "user", "content": [5]}, "messages[0].content[0] is a int"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].image_url has no url"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_data": "AAAA"}}]}, "not a data: URL"),
        (
            {"role": "user", "content": [{"type": "input_audio"}]},
            "content[0]: audio is not supported",
        ),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages[0].audio"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "messages[0].function_call"),
        ({"role": "assistant", "tool_calls": [{"type": "custom"}]}, "messages[0].tool_calls[0]"),
    ],
)
def test_the_error_of_an_invalid_message_names_its_place_even_with_drop_params(
    message: Any, place: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        sent({"messages": [message]}, drop_params=True)
    assert place in str(caught.value)


@pytest.mark.parametrize("messages", ["hi", {"role": "user"}, 5])
def test_messages_that_are_not_a_list_raise(messages: Any) -> None:
    with pytest.raises(BadRequestError, match="messages is a"):
        sent({"messages": messages})


def test_max_tokens_is_encoded_with_a_default_by_model() -> None:
    assert sent({"messages": ASK})["max_tokens"] == default_max_tokens("claude-opus-5") == 64_000
    assert sent({"messages": ASK, "max_tokens": 5})["max_tokens"] == 5
    assert sent({"messages": ASK, "max_tokens": 5, "max_completion_tokens": 6})["max_tokens"] == 6
    assert sent({"messages": ASK, "max_tokens": 0})["max_tokens"] == 0, "allowed: it fills the cache only"
    assert default_max_tokens("claude-3-5-haiku-latest") == 8_192
    assert default_max_tokens("anthropic/claude-opus-4-1-20250805") == 32_000
    assert default_max_tokens("claude-opus-4@20250514") == 32_000  # as Vertex AI names it
    assert default_max_tokens("somebody-elses") == 8_192


@pytest.mark.parametrize(
    ("effort", "model", "expected"),
    [
        ("none", "claude-opus-5", {"thinking": {"type": "disabled"}}),
        *(
            (effort, model, {"thinking": {"type": "adaptive"}, "output_config": {"effort": ours}})
            for effort, ours in [("minimal", "low"), ("medium", "medium"), ("xhigh", "xhigh"), ("max", "max")]
            for model in ("claude-opus-4-6", "claude-sonnet-5-5", "claude-haiku-5-5", "somebody-elses")
        ),
        *(
            ("low", model, {"thinking": {"type": "enabled", "budget_tokens": 4_096}})
            for model in (
                *("claude-haiku-4-5", "claude-haiku-4-5-20251001", "claude-opus-4-5", "claude-sonnet-4.5"),
                *(
                    "claude-opus-4-1-20250805",
                    "claude-sonnet-4-20250514",
                    "claude-sonnet-4",
                    "claude-3-7-sonnet",
                ),
            )
        ),
    ],
)
def test_reasoning_effort_is_encoded_by_model(effort: str, model: str, expected: dict[str, Any]) -> None:
    encoded = sent({"messages": ASK, "reasoning_effort": effort}, model=model)
    assert {k: encoded[k] for k in ("thinking", "output_config") if k in encoded} == expected


def test_a_thinking_budget_is_at_most_half_of_max_tokens() -> None:
    params = {"messages": ASK, "reasoning_effort": "high"}
    encoded = sent({**params, "max_tokens": 2 * SMALLEST_BUDGET}, model="claude-haiku-4-5")
    assert encoded["thinking"]["budget_tokens"] == SMALLEST_BUDGET
    with pytest.raises(UnsupportedParameterError, match="2048"):
        sent({**params, "max_tokens": 2 * SMALLEST_BUDGET - 1}, model="claude-haiku-4-5")


def test_tools_and_tool_choice_are_encoded() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    function = {"name": "f", "description": "d", "parameters": schema, "strict": True}
    search = {"type": "web_search_20260318", "name": "web_search"}
    control = {"type": "ephemeral"}
    tools = [
        {"type": "function", "function": function, "cache_control": control},
        {"type": "function", "function": {"name": "g"}},
        search,
    ]
    encoded = sent({"messages": ASK, "tools": tools})
    assert encoded["tools"] == [
        {"name": "f", "description": "d", "input_schema": schema, "strict": True, "cache_control": control},
        {"name": "g", "input_schema": {"type": "object", "properties": {}}},
        search,
    ]
    assert "tool_choice" not in encoded
    named = {"type": "function", "function": {"name": "f"}}
    for choice, ours in [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        (named, {"type": "tool", "name": "f"}),
        ({"type": "any"}, {"type": "any"}),
    ]:
        assert sent({"messages": ASK, "tools": tools, "tool_choice": choice})["tool_choice"] == ours
        alone = sent({"messages": ASK, "tools": tools, "tool_choice": choice, "parallel_tool_calls": False})
        one = {} if choice == "none" else {"disable_parallel_tool_use": True}
        assert alone["tool_choice"] == {**ours, **one}
    alone = sent({"messages": ASK, "tools": tools, "parallel_tool_calls": False})
    assert alone["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "tool_choice" not in sent({"messages": ASK, "parallel_tool_calls": False})


def test_response_format_is_encoded() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "description": "d"}}
    encoded = sent({"messages": ASK, "response_format": form, "reasoning_effort": "high"})
    assert encoded["output_config"] == {
        "effort": "high",
        "format": {"type": "json_schema", "schema": {"description": "d", **schema}},
    }
    assert "output_config" not in sent({"messages": ASK, "response_format": {"type": "text"}})
    with pytest.raises(UnsupportedParameterError, match="use json_schema"):
        sent({"messages": ASK, "response_format": {"type": "json_object"}})
    assert "output_config" not in sent(
        {"messages": ASK, "response_format": {"type": "json_object"}}, drop_params=True
    )


def test_other_parameters_are_encoded() -> None:
    encoded = sent(
        {
            "messages": ASK,
            "temperature": 1,
            "top_p": 0.5,
            "stop": "x",
            "user": "u1",
            "service_tier": "default",
            "n": 1,
            "logprobs": False,
            "presence_penalty": 0,
            "seed": None,
            "stream_options": {"include_usage": True},
            "modalities": ["text"],
            "store": False,
        },
        stream=True,
    )
    assert encoded == {
        "model": "claude-opus-5",
        "max_tokens": 64_000,
        "messages": ASK,
        "temperature": 1,
        "top_p": 0.5,
        "stop_sequences": ["x"],
        "metadata": {"user_id": "u1"},
        "service_tier": "standard_only",
        "stream": True,
    }
    assert sent({"messages": ASK, "stop": ("a", "b")})["stop_sequences"] == ["a", "b"]
    assert sent({"messages": ASK, "metadata": {"user_id": "m"}, "user": "u"})["metadata"] == {"user_id": "m"}


def test_extra_body_is_sent_unchanged_and_overrides_parameters() -> None:
    extra = {
        "top_k": 3,
        "thinking": {"type": "between_tools"},
        "temperature": 0.1,
        "max_tokens": 7,
        "output_config": {"effort": "max"},
        "stream_options": {"include_usage": True},
    }
    schema = {"type": "object"}
    encoded = sent(
        {
            "messages": ASK,
            "reasoning_effort": "low",
            "temperature": 0.9,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        },
        body=extra,
    )
    assert encoded == {
        "model": "claude-opus-5",
        "max_tokens": 7,
        "messages": ASK,
        "temperature": 0.1,
        "top_k": 3,
        "thinking": {"type": "between_tools"},
        "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": schema}},
    }


_REFUSED: list[tuple[str, Any]] = [
    ("n", 2),
    ("logprobs", True),
    ("top_logprobs", 3),
    ("seed", 0),
    ("frequency_penalty", 0.5),
    ("presence_penalty", -1),
    ("logit_bias", {"5": 1}),
    ("prediction", {"type": "content", "content": "x"}),
    ("audio", {"voice": "alloy", "format": "wav"}),
    ("modalities", ["text", "audio"]),
    ("functions", [{"name": "f"}]),
    ("function_call", "auto"),
    ("store", True),
    ("verbosity", "low"),
    ("web_search_options", {}),
    ("prompt_cache_key", "k"),
    ("moderation", {"model": "m"}),
    ("temperature", 1.5),
    ("temperature", -0.1),
    ("service_tier", "flex"),
    ("metadata", {"team": "a"}),
    ("reasoning_effort", "immense"),
    ("response_format", {"type": "json_object"}),
    ("tool_choice", {"type": "allowed_tools", "allowed_tools": {}}),
    ("tools[0]", None),
    ("messages[0].name", None),
    ("messages[0].content[0].image_url.detail", None),
]
_WITHIN: dict[str, dict[str, Any]] = {
    "tools[0]": {"tools": [{"type": "custom", "custom": {"name": "c"}}]},
    "messages[0].name": {"messages": [{**ASK[0], "name": "Ann"}]},
    "messages[0].content[0].image_url.detail": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "https://x", "detail": "high"}}],
            }
        ]
    },
}


@pytest.mark.parametrize(("name", "value"), _REFUSED, ids=lambda value: str(value)[:30])
def test_unsupported_parameters_raise_or_are_dropped(name: str, value: Any) -> None:
    params = {"messages": ASK, **_WITHIN.get(name, {name: value})}
    with pytest.raises(UnsupportedParameterError) as caught:
        sent(params)
    assert "'anthropic'" in str(caught.value)
    assert repr(name) in str(caught.value)
    assert "drop_params=True" in str(caught.value)
    assert caught.value.param == name
    encoded = sent(params, drop_params=True)
    assert name not in encoded
    assert set(encoded) == {"model", "max_tokens", "messages"}


def test_drop_params_of_the_call_overrides_the_endpoint() -> None:
    request = Request(CHAT, "m", {"messages": ASK, "seed": 1})
    dropping = replace(ENDPOINT, drop_params=True)
    assert b"seed" not in DIALECT.encode(request, dropping, "m").content
    with pytest.raises(UnsupportedParameterError):
        DIALECT.encode(replace(request, options=PerCallOptions(drop_params=False)), dropping, "m")


@pytest.mark.parametrize("method", [COMPLETION, EMBEDDING, MODERATION, RESPONSE], ids=lambda m: m.operation)
def test_methods_that_anthropic_does_not_serve_raise(method: ApiMethod) -> None:
    with pytest.raises(NotFoundError, match=f"'anthropic' .* not {method.name}"):
        DIALECT.encode(Request(method, "m", {}), ENDPOINT, "m")


def test_a_call_by_path_is_sent_unchanged() -> None:
    method = ApiMethod(name="post", verb="POST", path="/messages/count_tokens", response_type=object)
    wire = DIALECT.encode(Request(method, params={"model": "m", "messages": ASK}), ENDPOINT, "")
    assert wire.url.endswith("/v1/messages/count_tokens")
    assert json.loads(wire.content) == {"model": "m", "messages": ASK}
    assert wire.headers["anthropic-version"] == VERSION


def test_the_error_of_a_value_without_a_json_form_names_its_parameter() -> None:
    with pytest.raises(BadRequestError, match=r"'top_p'.*NaN"):
        sent({"messages": ASK, "top_p": float("nan")})


def test_a_tool_from_a_pydantic_model_is_encoded() -> None:
    class Look(pydantic.BaseModel):
        """Looks."""

        at: str

    (tool,) = sent({"messages": ASK, "tools": [pydantic_function_tool(Look)]})["tools"]
    assert (tool["name"], tool["strict"], tool["description"]) == ("Look", True, "Looks.")
    assert tool["input_schema"]["required"] == ["at"]
