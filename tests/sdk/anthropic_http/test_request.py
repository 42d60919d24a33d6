"""Messages API requests as chat completions, and the request that an endpoint of Anthropic's gets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from anthropic_bodies import DIALECT, ENDPOINT

from specclient.anthropic_http.request import message_call
from specclient.openai_http.errors import ServingError
from specclient.tokens import count_prompt

PIXEL = "iVBORw0KGgo="
IMAGE: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
IMAGE_PART: Any = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
CACHED: Any = {"cache_control": {"type": "ephemeral"}}
SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
WEB: Any = {"type": "web_search_20250305", "name": "w"}
NOVEL: Any = {"type": "hologram", "data": {"x": [1]}}
CALL: Any = {"type": "tool_use", "id": "toolu_1", "name": "sky", "input": {"city": "Ulm"}}


def _text(text: str) -> Any:
    return {"type": "text", "text": text}


def _result(content: Any, number: str = "toolu_1", **more: Any) -> Any:
    return {"type": "tool_result", "tool_use_id": number, "content": content, **more}


def _call(native: bool = False, engine: bool = False, **fields: Any) -> Any:
    given = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], **fields}
    return message_call(given, {}, "", native=native, engine=engine)


def _params(**fields: Any) -> dict[str, Any]:
    params: dict[str, Any] = dict(_call(**fields).request.params)
    return params


def _refused(**fields: Any) -> str:
    with pytest.raises(ServingError) as caught:
        _call(**fields)
    assert caught.value.status == 400
    return caught.value.message


def test_parameters_have_their_names_in_chat_completions() -> None:
    call = _call(
        system="brief", temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["a"], stream=True,
        metadata={"user_id": "u"}, service_tier="auto", cache_control={"type": "ephemeral"},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}},
        specclient={"tags": {"team": "a"}, "meta": True, "min_p": 0.1},
    )  # fmt: skip
    named = {"name": "output", "schema": SCHEMA, "strict": False}
    assert call.request.params == {
        "messages": [{"role": "system", "content": "brief"}, {"role": "user", "content": "x"}],
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stop": ["a"],
        "reasoning_effort": "high", "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": named},
    }  # fmt: skip
    assert call.request.options.body == {"top_k": 5, "specclient": {"min_p": 0.1}}
    assert (call.request.stream, call.meta, call.request.options.tags) == (True, True, {"team": "a"})


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, "low"),
        ({"type": "enabled", "budget_tokens": 8000}, "medium"),
        ({"type": "enabled", "budget_tokens": 60_000}, "high"),
        ({"type": "adaptive"}, None),
        ({"type": "disabled"}, None),
    ],
)
def test_a_thinking_budget_is_a_reasoning_effort_which_engines_lack(thinking: Any, effort: Any) -> None:
    assert _params(thinking=thinking).get("reasoning_effort") == effort
    assert "reasoning_effort" not in _params(thinking=thinking, engine=True)


def test_blocks_become_messages_and_parts() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    result = _result([_text("blue"), IMAGE])
    failed = _result("no", "toolu_2", is_error=True)
    plain = {"type": "text", "media_type": "text/plain", "data": "D"}
    document = {"type": "document", "title": "T", "source": plain}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL}}
    found = {
        "type": "search_result",
        "title": "A",
        "source": "b.org",
        "content": [_text("c")],
    }
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a", **CACHED}, _text("b")]},
        {"role": "assistant", "content": [thought, _text("look"), CALL]},
        {"role": "user", "content": [result, failed, _text("go on")]},
        {"role": "user", "content": [document, found, pdf]},
    ]
    function = {"name": "sky", "arguments": '{"city":"Ulm"}'}
    assert _params(messages=messages, system=[{"type": "text", "text": "s", **CACHED}])["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "look",
         "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "blue"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: no"},
        {"role": "user", "content": [IMAGE_PART, _text("go on")]},
        {"role": "user", "content": [
            _text("T"), _text("D"),
            _text("A (b.org)"), _text("c"),
            {"type": "file", "file": {"filename": "document.pdf",
                                      "file_data": f"data:application/pdf;base64,{PIXEL}"}}]},
    ]  # fmt: skip


def test_tools_and_the_choice_among_them() -> None:
    tool = {"name": "sky", "description": "d", "input_schema": SCHEMA, "strict": True, **CACHED}
    chosen = _params(tools=[tool], tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert chosen["tools"] == [
        {"type": "function",
         "function": {"name": "sky", "description": "d", "parameters": SCHEMA, "strict": True}}
    ]  # fmt: skip
    assert (chosen["tool_choice"], chosen["parallel_tool_calls"]) == ("required", False)
    named = _params(tools=[tool], tool_choice={"type": "tool", "name": "sky"})
    assert named["tool_choice"] == {"type": "function", "function": {"name": "sky"}}
    assert "tool_choice" not in _params(tool_choice={"type": "auto"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"messages": []}, "messages is an array of 0"),
        ({"messages": [3]}, "messages[0] is 3"),
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"max_tokens": True}, "max_tokens is true"),
        ({"model": 3}, "model is 3"),
        ({"stream": "yes"}, "stream is 'yes'"),
        ({"mcp_servers": []}, "mcp_servers is not supported"),
        ({"system": 3}, "system is 3"),
        ({"system": [IMAGE]}, "system[0] is a block of the type 'image'"),
        ({"tools": {}}, "tools is an object"),
        ({"tools": [3]}, "tools[0] is 3"),
        ({"tools": [WEB]}, "the type 'web_search_20250305', which"),
        ({"tools": [{"name": "a", "input_schema": 3}]}, "tools[0] must have a name and an input_schema"),
        ({"tools": [{"name": "a", "input_schema": {}}], "tool_choice": {"type": "x"}}, "of the type 'x'"),
        ({"tools": [{"name": "a", "input_schema": {}}], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"output_config": {"effort": "much"}}, "output_config.effort is 'much'"),
        ({"output_config": {"format": {"type": "x"}}}, "output_config.format must have"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role is 'tool'"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content is 3"),
        ({"messages": [{"role": "user", "content": [CALL]}]},
         "messages[0].content[0] is a block of the type 'tool_use'; models of other providers than Anthropic "
         "take blocks of the types text, image, document, search_result, tool_result here"),
        ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "the type 'image'"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "content[0].text is missing"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
         "messages[0].content[0].source.type is 'file'"),
        ({"messages": [{"role": "assistant", "content": [{**CALL, "input": 3}]}]}, "content[0].input is 3"),
        ({"specclient": 3}, "specclient is 3"),
    ],
)  # fmt: skip
def test_the_wrong_field_or_block_is_named(fields: dict[str, Any], words: str) -> None:
    assert words in _refused(**fields)


def test_anthropics_endpoints_get_the_request_as_it_was_written() -> None:
    body = {
        "model": "claude-opus-5", "max_tokens": 9, "stream": True, "invented": {"a": 1}, "top_k": 3,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "system": [{"type": "text", "text": "s", **CACHED}],
        "tools": [WEB, {"name": "sky", "input_schema": SCHEMA, **CACHED}],
        "tool_choice": {"type": "auto"},
        "messages": [
            {"role": "user", "content": [NOVEL, {"type": "text", "text": "a", **CACHED}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": "s"}, CALL]},
            {"role": "user", "content": [_result([NOVEL])]},
        ],
    }  # fmt: skip
    headers = {"anthropic-version": "2026-10-21", "anthropic-beta": "a,b", "x-api-key": "secret"}
    call = message_call(dict(body), headers, "beta=true&model=other", native=True)
    wire = DIALECT.encode(call.request, ENDPOINT, "claude-sonnet-5")
    assert json.loads(wire.content or b"") == {**body, "model": "claude-sonnet-5"}
    assert wire.url == "https://api.anthropic.com/v1/messages?beta=true"
    assert (wire.headers["anthropic-version"], wire.headers["anthropic-beta"]) == ("2026-10-21", "a,b")
    assert "secret" not in str(wire.headers)
    assert count_prompt(call.request, "claude-sonnet-5").tokens > 0


def test_a_changed_request_is_encoded_from_its_messages() -> None:

    signed = {"type": "thinking", "thinking": "h", "signature": "s"}
    messages: Any = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [signed, _text("t"), CALL]},
        {
            "role": "user",
            "content": [_result("b", **CACHED)],
        },
    ]
    tools: Any = [{"name": "sky", "input_schema": SCHEMA}, WEB]
    call = _call(native=True, messages=messages, tools=tools, thinking={"type": "adaptive"}, system="s")
    request = replace(call.request, params={**call.request.params, "temperature": 1})
    sent = json.loads(DIALECT.encode(request, ENDPOINT, "claude-opus-5").content or b"")
    assert sent == {
        "model": "claude-opus-5", "max_tokens": 9, "messages": messages, "tools": tools, "system": "s",
        "thinking": {"type": "adaptive"}, "temperature": 1,
    }  # fmt: skip


def test_thinking_without_a_signature_is_not_sent_to_anthropic() -> None:
    unsigned = {"type": "thinking", "thinking": "h", "signature": ""}
    messages: Any = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [unsigned, _text("t")]},
    ]
    call = _call(native=True, messages=messages)
    sent = json.loads(DIALECT.encode(call.request, ENDPOINT, "claude-opus-5").content or b"")
    assert sent["messages"][1]["content"] == [_text("t")]
