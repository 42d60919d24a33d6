"""Requests for content as chat completions, and the request that an endpoint of Gemini's gets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gemini_bodies import ENDPOINT, GEMINI

from specclient.gemini_http.request import content_call, shows_thoughts
from specclient.gemini_http.schema import json_schema_of
from specclient.openai_http.errors import ServingError
from specclient.tokens import count_prompt

PIXEL = "iVBORw0KGgo="
SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
USER: Any = [{"role": "user", "parts": [{"text": "x"}]}]
CALL: Any = {"functionCall": {"name": "sky", "args": {"city": "Ulm"}}}
DECLARED: Any = {
    "functionDeclarations": [{"name": "sky", "description": "d", "parametersJsonSchema": SCHEMA}]
}
FUNCTION: Any = {"type": "function", "function": {"name": "sky", "description": "d", "parameters": SCHEMA}}


def _call(native: bool = False, engine: bool = False, stream: bool = False, **body: Any) -> Any:
    given = {"contents": USER, **body}
    return content_call(given, "m", {}, stream=stream, native=native, engine=engine)


def _params(**body: Any) -> dict[str, Any]:
    params: dict[str, Any] = dict(_call(**body).request.params)
    return params


def test_parameters_have_their_names_in_chat_completions() -> None:
    call = _call(
        stream=True,
        system_instruction={"parts": [{"text": "brief"}]},
        generation_config={
            "temperature": 0.5, "top_p": 0.9, "topK": 5, "candidateCount": 2, "maxOutputTokens": 9, "seed": 1,
            "stopSequences": ["a"], "presencePenalty": 0.1, "frequencyPenalty": 0.2, "responseLogprobs": True,
            "logprobs": 2, "thinkingConfig": {"thinkingBudget": 5000, "includeThoughts": True},
            "responseMimeType": "application/json", "responseJsonSchema": SCHEMA,
        },
        safetySettings=[{"category": "x"}],
        specclient={"tags": {"team": "a"}},
    )  # fmt: skip
    named = {"name": "output", "schema": SCHEMA, "strict": False}
    assert call.request.params == {
        "messages": [{"role": "system", "content": "brief"}, {"role": "user", "content": "x"}],
        "temperature": 0.5, "top_p": 0.9, "n": 2, "max_tokens": 9, "seed": 1, "stop": ["a"],
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "logprobs": True, "top_logprobs": 2,
        "reasoning_effort": "medium", "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": named},
    }  # fmt: skip
    assert call.request.options.body == {"top_k": 5}
    assert call.request.options.tags == {"team": "a"}
    assert shows_thoughts(call.request)
    assert not shows_thoughts(_call().request)


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"thinkingLevel": "HIGH"}, "high"),
        ({"thinkingBudget": 0}, "none"),
        ({"thinkingBudget": 1000}, "low"),
        ({"thinkingBudget": 99_999}, "high"),
        ({"thinkingBudget": -1}, None),
    ],
)
def test_thinking_is_a_reasoning_effort_which_engines_lack(thinking: Any, effort: Any) -> None:
    config = {"thinkingConfig": thinking}
    assert _params(generationConfig=config).get("reasoning_effort") == effort
    assert "reasoning_effort" not in _params(generationConfig=config, engine=True)


def test_parts_become_messages_and_parts() -> None:
    contents = [
        {"parts": [{"text": "a"}, {"text": "b"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "look"}, CALL, CALL]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "sky", "response": {"output": "blue"}}},
            {"function_response": {"name": "sky", "response": {"a": 1}}},
            {"inline_data": {"mime_type": "image/png", "data": PIXEL}},
            {"text": "c"}]},
        {"role": "user", "parts": [
            {"inlineData": {"mimeType": "audio/wav", "data": "a-_b"}},
            {"inlineData": {"mimeType": "application/pdf", "data": PIXEL, "displayName": "p.pdf"}},
            {"fileData": {"mimeType": "image/png", "fileUri": "https://a.org/b"}}]},
    ]  # fmt: skip
    function = {"name": "sky", "arguments": '{"city": "Ulm"}'}
    assert _params(contents=contents)["messages"] == [
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "look", "tool_calls": [
            {"id": "call_1", "type": "function", "function": function},
            {"id": "call_2", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "blue"},
        {"role": "tool", "tool_call_id": "call_2", "content": '{"a":1}'},
        {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            {"type": "text", "text": "c"}]},
        {"role": "user", "content": [
            {"type": "input_audio", "input_audio": {"data": "a+/b", "format": "wav"}},
            {"type": "file", "file": {"filename": "p.pdf",
                                      "file_data": f"data:application/pdf;base64,{PIXEL}"}},
            {"type": "image_url", "image_url": {"url": "https://a.org/b"}}]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("calling", "choice"),
    [
        ({"mode": "AUTO"}, "auto"),
        ({"mode": "NONE"}, "none"),
        ({"mode": "ANY"}, "required"),
        ({"mode": "any", "allowedFunctionNames": ["sky"]}, {"type": "function", "function": {"name": "sky"}}),
        ({"mode": "VALIDATED", "allowed_function_names": ["sky"]},
         {"type": "allowed_tools", "allowed_tools": {
             "mode": "auto", "tools": [{"type": "function", "function": {"name": "sky"}}]}}),
    ],
)  # fmt: skip
def test_tools_and_the_choice_among_them(calling: Any, choice: Any) -> None:
    params = _params(tools=[DECLARED], toolConfig={"functionCallingConfig": calling})
    assert (params["tools"], params["tool_choice"]) == ([FUNCTION], choice)


def test_schemas_of_openapi_become_json_schemas() -> None:
    numbers = {"anyOf": [{"type": "INTEGER"}]}
    city = {"type": "STRING", "enum": ["Ulm"], "nullable": True, "maxLength": "9"}
    schema = {
        "type": "OBJECT", "property_ordering": ["a"], "required": ["a"],
        "properties": {"any_of": city, "list_of": {"type": "ARRAY", "items": numbers}},
    }  # fmt: skip
    assert json_schema_of(schema) == {
        "type": "object", "required": ["a"], "additionalProperties": False,
        "properties": {
            "any_of": {"type": ["string", "null"], "enum": ["Ulm", None], "maxLength": 9},
            "list_of": {"type": "array", "items": {"anyOf": [{"type": "integer"}]}},
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"contents": []}, "contents is an array of 0"),
        ({"contents": [3]}, "contents[0] is 3"),
        ({"contents": [{"role": "assistant"}]}, "contents[0].role is 'assistant'"),
        ({"contents": [{"parts": [3]}]}, "contents[0].parts[0] is 3"),
        ({"contents": [{"parts": [{"executableCode": {}}]}]},
         "contents[0].parts[0] is a part with 'executableCode'; models of other providers than Gemini take "
         "parts with text, inlineData, fileData, functionCall, functionResponse here"),
        ({"contents": [{"role": "model", "parts": [{"inlineData": {}}]}]}, "with text, functionCall"),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "gs://a"}}]}]}, "of Gemini's"),
        ({"contents": [{"parts": [{"inlineData": {"mimeType": "image/png"}}]}]}, "data is missing"),
        ({"contents": [{"parts": [{"functionResponse": {"name": "f"}}]}]}, "no earlier content"),
        ({"contents": [{"role": "model", "parts": [{"functionCall": {"name": 3}}]}]}, "name is 3"),
        ({"cachedContent": "c"}, "cachedContent is not supported"),
        ({"generationConfig": 3}, "generationConfig is 3"),
        ({"generationConfig": {"top_p": 1, "topP": 1}}, "generationConfig has 'topP' twice"),
        ({"generationConfig": {"speechConfig": {}}}, "generationConfig.speechConfig is not supported"),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "must be ['TEXT']"),
        ({"generationConfig": {"responseSchema": 3}}, "generationConfig.responseSchema is 3"),
        ({"tools": [{"googleSearch": {}}]}, "tools[0] has 'googleSearch', which only"),
        ({"tools": [{"functionDeclarations": [{}]}]}, "functionDeclarations[0].name is missing"),
        ({"tools": [DECLARED], "toolConfig": {"functionCallingConfig": {"mode": "X"}}}, "mode is 'X'"),
        ({"specclient": 3}, "specclient is 3"),
    ],
)  # fmt: skip
def test_the_wrong_field_or_part_is_named(body: dict[str, Any], words: str) -> None:
    with pytest.raises(ServingError) as caught:
        _call(**body)
    assert (caught.value.status, words in caught.value.message) == (400, True), caught.value.message


def test_geminis_endpoints_get_the_request_as_it_was_written() -> None:
    image, signed = {"mime_type": "image/png", "data": PIXEL}, {**CALL, "thoughtSignature": "s"}
    body = {
        "contents": [
            {"role": "user", "parts": [{"hologram": 1}, {"inline_data": image}]},
            {"role": "model", "parts": [{"executableCode": {"code": "1"}}, signed]},
            {"role": "user", "parts": [{"functionResponse": {"name": "sky", "response": {"a": 1}}}]},
        ],
        "tools": [{"googleSearch": {}}, DECLARED], "cachedContent": "c", "invented": {"a": 1},
        "generationConfig": {"speechConfig": {}, "maxOutputTokens": 7},
    }  # fmt: skip
    call = _call(native=True, **body)
    wire = GEMINI.encode(call.request, ENDPOINT, "gemini-3-pro")
    assert json.loads(wire.content or b"") == body
    assert wire.url.endswith("/v1beta/models/gemini-3-pro:generateContent")
    assert count_prompt(call.request, "gemini-3-pro").tokens > 0
    changed = replace(call.request, params={**call.request.params, "max_tokens": 8})
    again = json.loads(GEMINI.encode(changed, ENDPOINT, "gemini-3-pro").content or b"")
    assert again["contents"][1]["parts"][-1]["thoughtSignature"] == "s"
    assert (again["cachedContent"], again["generationConfig"]["maxOutputTokens"]) == ("c", 8)
    assert {"googleSearch": {}} in again["tools"]
