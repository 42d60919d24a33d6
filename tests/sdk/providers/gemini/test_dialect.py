"""Encoding of OpenAI chats, embeddings and model lists as requests of the Gemini API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gemini_bodies import BODIES, ENDPOINT, GEMINI, SIGNATURE, body, encode

from specclient.errors import (
    APIResponseValidationError,
    BadRequestError,
    NotFoundError,
    UnsupportedParameterError,
)
from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import COMPLETION, EMBEDDING, RESPONSE
from specclient.types.request import PerCallOptions, Request
from specclient.types.usage import Usage
from specclient.types.wire import WireResponse


def test_the_url_and_the_headers_of_a_chat() -> None:
    whole, stream = encode(), encode(stream=True)
    base = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash"
    assert (whole.method, whole.url) == ("POST", f"{base}:generateContent")
    assert stream.url == f"{base}:streamGenerateContent?alt=sse"
    assert whole.headers["x-goog-api-key"] == "AIza-key"
    assert "authorization" not in whole.headers
    assert whole.deployment == "gemini/gemini-2.5-flash"
    assert encode(model="tunedModels/mine").url.endswith("/v1beta/tunedModels/mine:generateContent")
    assert encode(model="models/x").url.endswith("/v1beta/models/x:generateContent")
    assert encode(model="../a?b").url.endswith("/v1beta/models/..%2Fa%3Fb:generateContent")
    assert "AIza" not in repr(whole)


def test_a_conversation_with_tools_is_encoded() -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "one", "arguments": '{"x": 1}'},
             "extra_content": {"google": {"thought_signature": SIGNATURE}}},
            {"id": "b", "type": "function", "function": {"name": "two", "arguments": ""}},
        ]},
        {"role": "tool", "tool_call_id": "b", "content": "no JSON"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": '{"sun": true}'}]},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip
    sent = body(messages)
    assert sent["systemInstruction"]["parts"] == [{"text": "Be brief."}, {"text": "Be kind."}]
    assert sent["contents"] == [
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "one", "args": {"x": 1}, "id": "a"}, "thoughtSignature": SIGNATURE},
                {"functionCall": {"name": "two", "args": {}, "id": "b"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "b", "name": "two", "response": {"output": "no JSON"}}},
                {"functionResponse": {"id": "a", "name": "one", "response": {"sun": True}}},
            ],
        },
        {"role": "user", "parts": [{"text": "And?"}]},
    ]


def test_tool_results_of_two_turns_are_not_merged() -> None:
    def turn(identity: str, content: str) -> list[dict[str, Any]]:
        call = {"id": identity, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        result = {"role": "tool", "tool_call_id": identity, "content": content}
        return [{"role": "assistant", "content": "", "tool_calls": [call]}, result]

    contents = body([*turn("a", '{"x": NaN}'), *turn("b", "[1]")])["contents"]
    assert [content["role"] for content in contents] == ["model", "user", "model", "user"]
    results = [content["parts"][0]["functionResponse"] for content in contents[1::2]]
    assert [result["response"] for result in results] == [{"output": '{"x": NaN}'}, {"output": "[1]"}]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "x"}, {"text": "x"}),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO", "detail": "auto"}},
            {"inlineData": {"mimeType": "image/png", "data": "iVBO"}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://h/a.JPG?x=.png"}},
            {"fileData": {"fileUri": "https://h/a.JPG?x=.png", "mimeType": "image/jpeg"}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "gs://bucket/cat"}},
            {"fileData": {"fileUri": "gs://bucket/cat"}},
        ),
        (
            {"type": "video_url", "video_url": {"url": "https://youtu.be/9hE5-98ZeCg"}},
            {"fileData": {"fileUri": "https://youtu.be/9hE5-98ZeCg"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "UklG"}},
        ),
        (
            {"type": "file", "file": {"file_data": "JVBE", "filename": "a.pdf"}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}},
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/csv;charset=utf-8;base64,YSxi"}},
            {"inlineData": {"mimeType": "text/csv", "data": "YSxi"}},
        ),
        (
            {"type": "file", "file": {"file_id": "https://generativelanguage.googleapis.com/v1beta/files/a"}},
            {"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/a"}},
        ),
        ({"text": "x", "videoMetadata": {"fps": 1}}, {"text": "x", "videoMetadata": {"fps": 1}}),
    ],
)
def test_content_parts_are_encoded(part: Any, expected: Any) -> None:
    assert body([{"role": "user", "content": [part]}])["contents"][0]["parts"] == [expected]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hello", "messages is a str"),
        (["hello"], r"messages\[0\].role is None"),
        ([{"role": "robot", "content": "x"}], r"messages\[0\].role is 'robot'"),
        ([{"role": "user", "content": 7}], r"messages\[0\].content is a int"),
        ([{"role": "user", "content": ["x"]}], r"messages\[0\].content\[0\] is a str"),
        ([{"role": "user", "content": [{"type": "hologram"}]}], r"content\[0\] has type 'hologram'"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], r"content\[0\] has type 'text'"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "/tmp/cat.png"}}]}],
            "'/tmp/cat.png'; it must be an http, https, gs or data: URL",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,xx"}}]}],
            "must be 'data:<type>;base64,<data>'",
        ),
        (
            [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-abc"}}]}],
            "'file-abc'; it must be the URI",
        ),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "file", "file": {"file_data": "AA", "filename": "a.xyz"}}],
                }
            ],
            "ends in one of .png",
        ),
        ([{"role": "tool", "tool_call_id": "a", "content": "x"}], r"messages\[0\].tool_call_id is 'a'"),
        (
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "[1"}}],
                }
            ],
            "must be a JSON object",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f"}}]}],
            "no custom tools",
        ),
    ],
)
def test_the_error_of_an_invalid_message_names_its_place(messages: Any, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        encode(messages)
    assert not isinstance(caught.value, UnsupportedParameterError)


def test_sampling_parameters_are_encoded() -> None:
    sent = body(
        temperature=0.5, top_p=0.9, n=2, max_tokens=7, max_completion_tokens=9, stop=["a", "b"], seed=3,
        presence_penalty=0.1, frequency_penalty=-0.2, logprobs=True, top_logprobs=4,
        modalities=["text", "image"], service_tier="flex", stream_options={"include_usage": True},
        parallel_tool_calls=True, store=False, metadata={}, user=None,
    )  # fmt: skip
    assert sent.pop("serviceTier") == "flex"
    assert sent["generationConfig"] == {
        "temperature": 0.5, "topP": 0.9, "candidateCount": 2, "maxOutputTokens": 9, "seed": 3,
        "stopSequences": ["a", "b"], "presencePenalty": 0.1, "frequencyPenalty": -0.2,
        "responseLogprobs": True, "logprobs": 4, "responseModalities": ["TEXT", "IMAGE"],
    }  # fmt: skip
    assert body().keys() == {"contents"}
    assert body(stop="x")["generationConfig"] == {"stopSequences": ["x"]}
    with pytest.raises(BadRequestError, match=r"stop holds 6 sequences; Gemini takes .* up to 5"):
        encode(stop=list("abcdef"))


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-2.5-pro", "low", {"thinkingBudget": 1024}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("models/gemini-2.5-flash-lite", "high", {"thinkingBudget": 24576}),
        ("gemini-3-pro-preview", "low", {"thinkingLevel": "LOW"}),
        ("gemini-3.1-flash", "minimal", {"thinkingLevel": "MINIMAL"}),
        ("gemini-flash-latest", "high", {"thinkingLevel": "HIGH"}),
        ("gemini-3-pro-preview", "none", "it is 'none', and gemini-3-pro-preview takes minimal, low"),
        ("gemini-2.5-flash", "xhigh", "gemini-2.5-flash takes none, minimal, low, medium, high"),
        ("gemini-2.0-flash", "low", "gemini-2.0-flash does not think"),
        ("gemini-2.0-flash", "none", None),
    ],
)
def test_reasoning_effort_is_encoded_by_model(model: str, effort: str, thinking: Any) -> None:
    if isinstance(thinking, str):
        with pytest.raises(UnsupportedParameterError, match=thinking) as caught:
            encode(model=model, reasoning_effort=effort)
        assert caught.value.param == "reasoning_effort"
        assert "generationConfig" not in body(model=model, reasoning_effort=effort, drop=True)
    else:
        config = body(model=model, reasoning_effort=effort).get("generationConfig", {})
        assert config.get("thinkingConfig") == thinking


def _tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **more}}


@pytest.mark.parametrize(
    ("choice", "strict", "calling"),
    [
        (None, False, None),
        ("auto", False, {"mode": "AUTO"}),
        ("none", False, {"mode": "NONE"}),
        ("required", True, {"mode": "ANY"}),
        (None, True, {"mode": "VALIDATED"}),
        ("auto", True, {"mode": "VALIDATED"}),
        (
            {"type": "function", "function": {"name": "f"}},
            False,
            {"mode": "ANY", "allowedFunctionNames": ["f"]},
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [_tool("f")]}},
            False,
            {"mode": "ANY", "allowedFunctionNames": ["f"]},
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [_tool("f")]}},
            False,
            {"mode": "VALIDATED", "allowedFunctionNames": ["f"]},
        ),
    ],
)
def test_tools_and_tool_choice_are_encoded(choice: Any, strict: bool, calling: Any) -> None:
    sent = body(
        tools=[_tool("f", description="Does f.", strict=strict), {"googleSearch": {}}], tool_choice=choice
    )
    declared = {"name": "f", "description": "Does f.", "parametersJsonSchema": {"type": "object"}}
    assert sent["tools"] == [{"functionDeclarations": [declared]}, {"googleSearch": {}}]
    assert sent.get("toolConfig", {}).get("functionCallingConfig") == calling


def test_response_format_is_encoded() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    json_type = {"responseMimeType": "application/json"}
    assert body(response_format=wanted)["generationConfig"] == {**json_type, "responseJsonSchema": schema}
    assert body(response_format={"type": "json_object"})["generationConfig"] == json_type
    assert "generationConfig" not in body(response_format={"type": "text"})
    with pytest.raises(BadRequestError, match=r"response_format\.type is 'grammar'"):
        encode(response_format={"type": "grammar"})


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ({"store": True}, "store"),
        ({"metadata": {"a": "b"}}, "metadata"),
        ({"user": "u"}, "user"),
        ({"verbosity": "low"}, "verbosity"),
        ({"prompt_cache_key": "k"}, "prompt_cache_key"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"audio": {"voice": "alloy", "format": "wav"}}, "audio"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"service_tier": "scale"}, "service_tier"),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0]"),
        ({"tool_choice": {"type": "custom", "custom": {"name": "c"}}}, "tool_choice"),
        ({"messages": [{"role": "user", "name": "Ann", "content": "hi"}]}, "messages[0].name"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {}}]}
                ]
            },
            "messages[0].content[0].cache_control",
        ),
    ],
)
def test_unsupported_parameters_raise_or_are_dropped(params: Any, named: str) -> None:
    with pytest.raises(UnsupportedParameterError) as caught:
        encode(**params)
    assert caught.value.param == named
    assert f"provider 'gemini' does not take '{named}'" in caught.value.message
    assert "drop_params=True" in caught.value.message
    assert body(**params, drop=True) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


def test_extra_body_is_merged_last() -> None:
    extra = {
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}, "temperature": 1},
        "top_k": 40,
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "cachedContent": "cachedContents/1",
        "tools": [{"googleSearch": {}}],
        "toolConfig": {"retrievalConfig": {"languageCode": "de"}},
    }
    before = json.dumps(extra)
    sent = body(
        extra=extra,
        temperature=0,
        max_tokens=5,
        reasoning_effort="low",
        tools=[_tool("f")],
        tool_choice="auto",
    )
    assert sent["generationConfig"] == {
        "temperature": 1,
        "maxOutputTokens": 5,
        "thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": True},
        "topK": 40,
    }
    assert sent["safetySettings"] == extra["safety_settings"]
    assert sent["cachedContent"] == "cachedContents/1"
    assert [list(tool) for tool in sent["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert sent["toolConfig"] == {
        "functionCallingConfig": {"mode": "AUTO"},
        "retrievalConfig": {"languageCode": "de"},
    }
    assert json.dumps(extra) == before, "the caller's object is not changed"


@pytest.mark.parametrize(
    "method", [COMPLETION, RESPONSE, ApiMethod(name="files.list", verb="GET", path="/files")]
)
def test_methods_that_gemini_does_not_serve_raise(method: ApiMethod) -> None:
    with pytest.raises(NotFoundError, match=f"'gemini'.*chat.completions.create, emb.*not {method.name}"):
        GEMINI.encode(Request(method, "gemini-2.5-flash", {}), ENDPOINT, "gemini-2.5-flash")


def test_embeddings_are_encoded_and_decoded() -> None:
    request = Request(
        EMBEDDING,
        "gemini/gemini-embedding-001",
        {"input": ["a", "b"], "dimensions": 3, "encoding_format": "base64"},
        options=PerCallOptions(body={"taskType": "RETRIEVAL_QUERY"}),
    )
    sent = GEMINI.encode(request, ENDPOINT, "gemini-embedding-001")
    assert sent.url.endswith("/models/gemini-embedding-001:batchEmbedContents")
    shared = {
        "model": "models/gemini-embedding-001",
        "outputDimensionality": 3,
        "taskType": "RETRIEVAL_QUERY",
    }
    assert json.loads(sent.content) == {
        "requests": [{**shared, "content": {"role": "user", "parts": [{"text": text}]}} for text in "ab"]
    }
    answer = GEMINI.decode(EMBEDDING, WireResponse(200, {}, (BODIES / "embeddings.json").read_bytes()))
    assert [(row.index, row.embedding) for row in answer.data] == [
        (0, [0.5, -0.25, 1.0]),
        (1, [0.125, 0.0, 0.75]),
    ]
    assert GEMINI.usage(answer) is None
    counted_body = (BODIES / "embeddings_counted.json").read_bytes()
    counted = GEMINI.decode(EMBEDDING, WireResponse(200, {}, counted_body))
    assert GEMINI.usage(counted) == Usage(prompt=3, completion=0)
    one = GEMINI.decode(EMBEDDING, WireResponse(200, {}, b'{"embedding": {"values": [1, 2]}}'))
    assert one.data[0].embedding == [1, 2]


@pytest.mark.parametrize("text", [[1, 2], [[1, 2]], [], None, 7])
def test_embedding_inputs_that_are_not_text_raise(text: Any) -> None:
    with pytest.raises(BadRequestError, match="takes no token ids"):
        GEMINI.encode(Request(EMBEDDING, "m", {"input": text}), ENDPOINT, "m")


@pytest.mark.parametrize(
    "answer",
    [{}, {"embeddings": []}, {"embeddings": 7}, {"embeddings": [{"values": ["x"]}]}, {"embedding": None}],
)
def test_invalid_embedding_responses_raise(answer: Any) -> None:
    with pytest.raises(APIResponseValidationError, match="it has no embeddings"):
        GEMINI.decode(EMBEDDING, WireResponse(200, {}, json.dumps(answer).encode()))


def test_model_lists_are_encoded_and_decoded() -> None:
    sent = GEMINI.encode_models(ENDPOINT)
    assert (sent.method, sent.content) == ("GET", None)
    assert sent.url == "https://generativelanguage.googleapis.com/v1beta/models?pageSize=1000"
    models = GEMINI.decode_models(WireResponse(200, {}, (BODIES / "models.json").read_bytes()))
    assert [model.id for model in models] == ["gemini-2.5-flash", "gemini-embedding-001"]
    assert (models[0].model_extra or {})["inputTokenLimit"] == 1048576
    assert GEMINI.decode_models(WireResponse(200, {}, b"{}")) == []
    for content in (b'{"data": [{"id": "m"}]}', b'{"models": [{}]}', b'{"models": 7}', b"<html>"):
        with pytest.raises(APIResponseValidationError):
            GEMINI.decode_models(WireResponse(200, {}, content))
