"""Requests in the dialect of the Converse API: what is refused and why, and the model's own fields."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from bedrock_bodies import DIALECT, ENDPOINT, MODEL, sent

from specclient import BadRequestError, NotFoundError, UnsupportedParameterError
from specclient.providers.dialects import unsupported_operation
from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.wire import WireResponse

USER: list[Any] = [{"role": "user", "content": "u"}]
TOOL = {"type": "function", "function": {"name": "f"}}
CALLED: list[Any] = [
    *USER,
    {
        "role": "assistant",
        "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "t", "content": ""},
]


def _content(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def _image(url: Any, **more: Any) -> dict[str, Any]:
    return _content({"type": "image_url", "image_url": {"url": url, **more}})


def _file(**fields: Any) -> dict[str, Any]:
    return _content({"type": "file", "file": fields})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "choices": ({"messages": USER, "n": 2}, "send one request for each answer"),
    "seed": ({"messages": USER, "seed": 1}, "additionalModelRequestFields"),
    "parallel": ({"messages": USER, "parallel_tool_calls": False}, "the model's own field"),
    "a temperature": ({"messages": USER, "temperature": 1.5}, "range is 0 to 1"),
    "an effort": ({"messages": USER, "reasoning_effort": "huge"}, "must be one of none, minimal"),
    "a form": ({"messages": USER, "response_format": {"type": "json_object"}}, "use json_schema"),
    "a tier": ({"messages": USER, "service_tier": "scale"}, "must be auto, default, flex, priority"),
    "no calls": (
        {"messages": CALLED, "tools": [TOOL], "tool_choice": "none"},
        "conversation with tool calls",
    ),
    "a custom tool": ({"messages": USER, "tools": [{"type": "custom", "custom": {}}]}, "custom tool"),
    "a name": ({"messages": [{**USER[0], "name": "x"}]}, "have no name"),
    "detail": (_image("data:image/png;base64,eA==", detail="high"), "detail of images"),
    "a web image": (_image("https://x.test/a.png"), "fetches no web addresses"),
    "a file id": (_file(file_id="f"), "keeps no files"),
    "a ttl": (_content({"type": "text", "text": "x", "cache_control": {"ttl": "2h"}}), "for 5m or 1h"),
    "a part": (_content({"type": "hologram"}), "its type is 'hologram'"),
}
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "a role": ({"messages": [{"role": "narrator"}]}, "must be one of system"),
    "content": ({"messages": [{"role": "user", "content": 3}]}, r"messages\[0\].content is a int"),
    "a part": (_content(3), r"content\[0\] is a int"),
    "text": (_content({"type": "text", "text": 3}), r"content\[0\].text is a int"),
    "a url": (_image(3), "has no url"),
    "no data url": (_image("fox.png"), "is not a data: URL"),
    "a medium": (_image("data:image/tiff;base64,eA=="), "takes png, jpeg, gif, webp"),
    "a document": (_file(file_data="data:x/y;base64,eA==", filename="a.zip"), "takes pdf, csv"),
    "arguments": (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
        "is not valid JSON",
    ),
    "a function call": ({"messages": [{"role": "assistant", "function_call": {"x": 1}}]}, "use 'tool_calls'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_equivalent_is_refused_by_name(name: str) -> None:
    params, why = REFUSED[name]
    with pytest.raises(UnsupportedParameterError, match=why) as caught:
        sent(params)
    assert caught.value.param
    assert "bedrock" in str(caught.value).lower()


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_messages_are_refused_by_place(name: str) -> None:
    params, why = MALFORMED[name]
    with pytest.raises(BadRequestError, match=why):
        sent(params)


def test_unsupported_parameters_can_be_dropped_but_not_content() -> None:
    params = {
        "messages": USER,
        "n": 2,
        "seed": 1,
        "temperature": 2,
        "service_tier": "scale",
        "top_logprobs": 2,
    }
    assert sent(params, drop_params=True) == {"messages": [{"role": "user", "content": [{"text": "u"}]}]}
    with pytest.raises(UnsupportedParameterError, match="fetches no web addresses"):
        sent(_image("https://x.test/a.png"), drop_params=True)


@pytest.mark.parametrize(
    ("model", "effort", "fields"),
    [
        (
            "anthropic.claude-opus-5",
            "high",
            {
                "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
                "outputConfig": {"effort": "high"},
            },
        ),
        (
            "anthropic.claude-opus-5",
            "none",
            {"additionalModelRequestFields": {"thinking": {"type": "disabled"}}},
        ),
        ("openai.gpt-oss-120b-1:0", "low", {"additionalModelRequestFields": {"reasoning_effort": "low"}}),
        ("us.amazon.nova-2-lite-v1:0", "minimal", {"outputConfig": {"effort": "low"}}),
        ("us.amazon.nova-2-lite-v1:0", "none", {}),
    ],
)
def test_reasoning_effort_has_the_form_of_the_models_family(
    model: str, effort: str, fields: dict[str, Any]
) -> None:
    body = sent({"messages": USER, "reasoning_effort": effort}, model=model)
    assert {name: value for name, value in body.items() if name != "messages"} == fields


def test_consecutive_turns_are_one_and_empty_messages_are_left_out() -> None:
    body = sent(
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": ""},
                {"role": "user", "content": [{"type": "text", "text": ""}, "b"], "cache_control": {}},
            ]
        }
    )
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "a"}, {"text": "b"}, {"cachePoint": {"type": "default"}}]}
    ]


def test_the_blocks_of_an_answer_are_sent_back_unless_it_was_edited() -> None:
    blocks = [{"text": "a"}, {"searchResult": {"source": "s", "title": "t", "content": []}}, {"text": "b"}]
    message = {"role": "assistant", "content": "ab", "content_blocks": blocks}
    assert sent({"messages": [*USER, message]})["messages"][1]["content"] == blocks
    message["content"] = "abc"
    assert sent({"messages": [*USER, message]})["messages"][1]["content"] == [{"text": "abc"}]


def test_a_stream_has_its_own_path_and_the_same_body() -> None:
    request = Request(CHAT, f"bedrock/{MODEL}", {"messages": USER, "stream_options": {"include_usage": True}})
    whole = DIALECT.encode(request, ENDPOINT, MODEL)
    stream = DIALECT.encode(replace(request, stream=True), ENDPOINT, MODEL)
    assert stream.url == f"{whole.url}-stream"
    assert stream.content == whole.content
    assert stream.headers["accept"] == "application/vnd.amazon.eventstream"
    assert whole.headers["authorization"] == "Bearer bedrock-api-key-1"


def test_methods_without_an_equivalent_are_refused_and_calls_by_path_are_not() -> None:
    with pytest.raises(NotFoundError, match=r"Converse API.*not embeddings\.create"):
        DIALECT.encode(
            Request(ApiMethod(name="embeddings.create", verb="POST", path="/embeddings")), ENDPOINT, "m"
        )
    by_path = Request(ApiMethod(name="post", verb="POST", path="/model/m/count-tokens"), content=b"{}")
    assert DIALECT.encode(by_path, ENDPOINT, "").url == f"{ENDPOINT.base_url}/model/m/count-tokens"
    assert unsupported_operation("bedrock", "embedding") is not None
    assert unsupported_operation("bedrock", "chat") is None


def test_models_are_listed_by_the_other_api_of_the_region() -> None:
    wire = DIALECT.encode_models(ENDPOINT)
    assert wire.url == "https://bedrock.eu-west-1.amazonaws.com/foundation-models"
    body = {"modelSummaries": [{"modelId": "amazon.nova-pro-v1:0", "providerName": "Amazon"}]}
    (model,) = DIALECT.decode_models(WireResponse(200, {}, json.dumps(body).encode()))
    assert (model.id, model.owned_by) == ("amazon.nova-pro-v1:0", "Amazon")
    one = Request(
        ApiMethod(name="models.retrieve", verb="GET", path="/models/{model}"), path_params={"model": "a/b:0"}
    )
    assert DIALECT.encode(one, ENDPOINT, "").url.endswith("/foundation-models/a%2Fb:0")


def test_a_body_of_an_engine_may_hold_any_field_of_the_api() -> None:
    options = PerCallOptions(body={"promptVariables": {"x": {"text": "y"}}})
    wire = DIALECT.encode(Request(CHAT, "bedrock/p", {}, options=options), ENDPOINT, "p")
    assert json.loads(wire.content) == {"promptVariables": {"x": {"text": "y"}}}
