"""Ollama's requests as calls of the pipeline: prompts, options, formats, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from specclient.ollama_http.request import model_field, ollama_call
from specclient.openai_http.errors import ServingError
from specclient.types.model_aliases import LONGEST_NAME

USER: Any = [{"role": "user", "content": "x"}]


def sent(kind: Any = "chat", *, engine: bool = False, **fields: Any) -> Any:
    given = {"model": "m", **({"messages": USER} if kind == "chat" else {"prompt": "x"}), **fields}
    return ollama_call(kind, given, {}, engine=engine).call.request


def test_streams_are_the_default_and_ask_for_usage():
    assert sent().stream is True
    assert sent().params["stream_options"] == {"include_usage": True}
    assert sent(stream=False).params == {"messages": USER}


@pytest.mark.parametrize(("given", "name"), [("demo:latest", "demo"), ("demo", "demo"), ("a/b:8b", "a/b:8b")])
def test_the_default_tag_of_a_name_is_dropped(given, name):
    assert model_field(given) == name


def test_the_length_of_a_name_is_checked_without_the_default_tag():
    assert model_field("m" * LONGEST_NAME + ":latest") == "m" * LONGEST_NAME
    with pytest.raises(ServingError, match=f"at most {LONGEST_NAME} printable characters"):
        model_field("m" * (LONGEST_NAME + 1) + ":latest")


def test_options_become_parameters_extra_fields_or_nothing():
    options = {"num_predict": 4, "temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": "a", "min_p": 0.1,
               "typical_p": 0.9, "repeat_penalty": 1.1, "mirostat": 1, "num_gpu": 1, "draft_length": 3,
               "presence_penalty": 0.1, "frequency_penalty": 0.2, "num_keep": None}  # fmt: skip
    request = sent(options=options, stream=False)
    assert request.params == {
        "messages": USER, "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["a"],
        "presence_penalty": 0.1, "frequency_penalty": 0.2,
    }  # fmt: skip
    extra = {"min_p": 0.1, "typical_p": 0.9, "repetition_penalty": 1.1, "draft_length": 3}
    assert request.options.body == extra
    for unlimited in (-1, -2):
        assert "max_tokens" not in sent(options={"num_predict": unlimited}).params


def test_formats_become_response_formats():
    schema = {"type": "object"}
    assert sent(format="json").params["response_format"] == {"type": "json_object"}
    named = {"name": "output", "schema": schema}
    assert sent(format=schema).params["response_format"] == {"type": "json_schema", "json_schema": named}
    assert "response_format" not in sent(format="").params


def test_thinking_levels_are_efforts_of_hosted_models():
    assert sent(think="high").params["reasoning_effort"] == "high"
    for request in (sent(think="high", engine=True), sent(think=True), sent(think=False), sent()):
        assert "reasoning_effort" not in request.params
    given = {"model": "m", "messages": USER}
    assert ollama_call("chat", {**given, "think": False}, {}).thinks is False
    assert ollama_call("chat", {**given, "think": "low"}, {}).thinks is True


@pytest.mark.parametrize(
    ("keep_alive", "unload"),
    [(None, False), ("5m", False), (-1, False), (30.5, False), (0, True), ("0", True), ("0s", True)],
)
def test_a_request_without_a_prompt_says_whether_it_unloads(keep_alive, unload):
    for kind, name, empty in (("chat", "messages", []), ("generate", "prompt", "")):
        call = ollama_call(kind, {"model": "m", name: empty, "keep_alive": keep_alive}, {})
        assert call.unload is unload
        assert ollama_call(kind, {"model": "m", name: USER if kind == "chat" else "x"}, {}).unload is None


def test_a_raw_prompt_and_a_suffix_are_completions():
    assert sent("generate", raw=True, stream=False).params == {"prompt": "x"}
    request = sent("generate", suffix="y", stream=False)
    assert (request.operation, request.params) == ("completion", {"prompt": "x", "suffix": "y"})
    for name, value in (("system", "x"), ("format", "json"), ("images", ["x"]), ("template", "x")):
        with pytest.raises(ServingError, match=f"{name} is not supported together with raw=true"):
            sent("generate", raw=True, **{name: value})


@pytest.mark.parametrize(
    ("start", "kind"),
    [("/9j/", "jpeg"), ("iVBOR", "png"), ("R0lGOD", "gif"), ("UklGR", "webp"), ("AAAA", "png")],
)
def test_images_are_parts_with_their_type(start, kind):
    content = sent("generate", images=[f"{start}xyz"]).params["messages"][0]["content"]
    assert content == [
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{start}xyz"}},
    ]


@pytest.mark.parametrize("fields", [{"context": [1]}, {"template": "x"}])
def test_what_a_chat_completion_cannot_do_is_refused(fields):
    with pytest.raises(ServingError, match="is not supported; send messages to /api/chat"):
        sent("generate", **fields)
    assert sent("generate", **{name: value[:0] for name, value in fields.items()})


def test_results_answer_calls_by_id_by_name_or_in_order():
    calls = [{"id": "a", "function": {"name": "f"}}, {"function": {"name": "g", "arguments": "{}"}}]
    results = [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2", "tool_name": "g"},
               {"role": "tool", "content": "3", "tool_call_id": "own"},
               {"role": "tool", "content": "4"}]  # fmt: skip
    turns = [{"role": "assistant", "tool_calls": calls}, *results]
    messages = sent(messages=turns).params["messages"]
    assert [message.get("tool_call_id") for message in messages] == [None, "a", "call_0_1", "own", "call_4"]
    assert [call["function"]["arguments"] for call in messages[0]["tool_calls"]] == ["{}", "{}"]
