"""Decoding of Anthropic's responses and streams to equal OpenAI objects; invalid counts become None."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from anthropic_bodies import DIALECT, PAIRS, body, chunks, completion, sse
from hypothesis import given
from hypothesis import strategies as st

from specclient import (
    APIError,
    APIResponseValidationError,
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
)
from specclient.providers.anthropic.stream import _READERS
from specclient.structured.chat.state import ChatCompletionStreamState
from specclient.types.inference_methods import CHAT


def _final(stream: bytes) -> Any:
    state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
    for chunk in chunks(stream):
        state.handle_chunk(chunk)
    return state.current_completion_snapshot


def _content(answer: Any) -> dict[str, Any]:
    """Return the fields that a stream and a complete response have in common, with parsed arguments."""
    fields: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
    fields.pop("object")
    fields.pop("container", None)  # the stream state keeps only the message of a choice
    for choice in fields["choices"]:
        for name in ("stop_reason", "stop_sequence", "stop_details"):
            choice.pop(name, None)
        message = choice["message"]
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
        message.pop("parsed", None)
    return fields


@pytest.mark.parametrize("name", PAIRS)
def test_a_stream_equals_the_complete_response(name: str) -> None:
    streamed, whole = _content(_final(body(f"{name}.sse"))), _content(completion(body(f"{name}.json")))
    assert streamed == whole
    assert chunks(body(f"{name}.sse"))[-1].usage == completion(body(f"{name}.json")).usage


def test_text_and_usage_are_decoded() -> None:
    answer = completion(body("text.json"))
    assert answer.choices[0].message.content == "The quick brown fox jumps."
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.id, answer.model, answer.created) == ("msg_text", "claude-sonnet-5", 1000)
    assert answer.service_tier == "default"
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2125, 12, 2137)
    assert usage.prompt_tokens_details.cached_tokens == 2000
    assert usage.prompt_tokens_details.cache_write_tokens == 100
    assert usage.cache_creation == {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40}
    assert usage.speed == "standard"
    counted = DIALECT.usage(answer)
    assert counted is not None
    assert (counted.prompt, counted.cached, counted.cache_write) == (2125, 2000, 100)


def test_a_stream_begins_with_the_role_and_ends_with_finish_reason_and_usage() -> None:
    found = chunks(body("text.sse"))
    assert found[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].delta.content for c in found[1:-2]] == ["The quick", " brown", " fox", " jumps."]
    assert found[-2].choices[0].finish_reason == "stop"
    assert found[-2].choices[0].delta.content is None
    assert not found[-1].choices
    assert {(c.id, c.model, c.object) for c in found} == {
        ("msg_text", "claude-sonnet-5", "chat.completion.chunk")
    }


def test_streamed_tool_calls_have_their_indices() -> None:
    calls = [call for c in chunks(body("tools.sse")) for x in c.choices for call in x.delta.tool_calls or ()]
    assert [(c.index, c.id, c.function.name) for c in calls if c.id] == [
        (0, "toolu_1", "get_weather"),
        (1, "toolu_2", "now"),
    ]
    texts = ["".join(c.function.arguments for c in calls if c.index == at) for at in (0, 1)]
    assert texts == ['{"location": "Zürich", "unit": "celsius"}', "{}"]
    message = completion(body("tools.json")).choices[0].message
    assert message.content == "Let me look."
    assert message.model_extra == {}, "text followed by tool calls needs no content_blocks"


def test_thinking_blocks_keep_their_signature_and_position() -> None:
    message = completion(body("thinking.json")).choices[0].message
    assert message.content == "27 is no prime."
    assert message.reasoning_content == "Is 27 divisible by 3? 27 = 3 * 9."
    assert [b.get("signature") or b["data"] for b in message.thinking_blocks] == [
        "EqQBCgIYAhIM",
        "EmwKAhgBEgy3",
        "SigOmitted",
    ]
    assert message.content_blocks == json.loads(body("thinking.json"))["content"]
    reasoning = completion(body("thinking.json")).usage.completion_tokens_details.reasoning_tokens
    assert reasoning == 120


def test_server_tools_are_kept_as_blocks_and_are_not_tool_calls() -> None:
    answer = completion(body("web_search.json"))
    choice = answer.choices[0]
    assert choice.message.tool_calls is None
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "pause_turn")
    assert choice.message.content_blocks == json.loads(body("web_search.json"))["content"]
    (note,) = choice.message.annotations
    place = note.url_citation
    assert choice.message.content[place.start_index : place.end_index] == "It is 63°F."
    assert (place.url, place.title) == ("https://example.com/nyc", "Weather in New York")
    assert answer.usage.server_tool_use["web_search_requests"] == 1
    assert answer.container["id"] == "container_1"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "stop"),
        ("of_a_later_day", "of_a_later_day"),
    ],
)
def test_stop_reasons_become_finish_reasons(reason: str, finish: str) -> None:
    message_body = {**json.loads(body("text.json")), "stop_reason": reason, "stop_sequence": "END"}
    choice = completion(json.dumps(message_body).encode()).choices[0]
    assert (choice.finish_reason, choice.stop_reason, choice.stop_sequence) == (finish, reason, "END")


def test_a_refusal_keeps_its_stop_details() -> None:
    assert chunks(body("refusal.sse"))[-2].choices[0].stop_details["category"] == "cyber"
    choice = completion(body("refusal.json")).choices[0]
    assert choice.finish_reason == "content_filter"
    assert choice.message.content == ""
    assert choice.stop_details["category"] == "cyber"


@pytest.mark.parametrize("odd", ["12", -3, 1.5, True, float("nan"), [], {}])
def test_invalid_counts_are_unknown(odd: Any) -> None:
    message_body = json.loads(body("text.json"))
    for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"):
        usage = {**message_body["usage"], name: odd}
        counted = DIALECT.usage(completion(json.dumps({**message_body, "usage": usage}).encode()))
        assert counted is not None
        assert (counted.prompt, counted.completion) == (None, 12), name
    usage = {**message_body["usage"], "output_tokens": odd, "output_tokens_details": {"thinking_tokens": odd}}
    counted = DIALECT.usage(completion(json.dumps({**message_body, "usage": usage}).encode()))
    assert counted is not None
    assert (counted.prompt, counted.completion, counted.reasoning) == (2125, None, None)


@pytest.mark.parametrize("usage", [None, "many", {}, {"input_tokens": None, "output_tokens": "7"}])
def test_an_answer_without_counts_has_no_usage(usage: Any) -> None:
    message_body = {**json.loads(body("text.json")), "usage": usage}
    assert DIALECT.usage(completion(json.dumps(message_body).encode())) is None


def test_more_thinking_tokens_than_output_tokens_are_unknown() -> None:
    message_body = json.loads(body("thinking.json"))
    message_body["usage"]["output_tokens_details"]["thinking_tokens"] = 151
    counted = DIALECT.usage(completion(json.dumps(message_body).encode()))
    assert counted is not None
    assert counted.reasoning is None


def test_missing_counts_are_unknown_and_not_zero() -> None:
    counted = DIALECT.usage(completion(body("thinking.json")))
    assert counted is not None
    assert (counted.prompt, counted.cached, counted.cache_write) == (40, None, None)


@pytest.mark.parametrize(
    ("kind", "expected", "status"),
    [
        ("invalid_request_error", BadRequestError, 400),
        ("authentication_error", AuthenticationError, 401),
        ("billing_error", APIStatusError, 402),
        ("permission_error", PermissionDeniedError, 403),
        ("not_found_error", NotFoundError, 404),
        ("request_too_large", APIStatusError, 413),
        ("rate_limit_error", RateLimitError, 429),
        ("api_error", InternalServerError, 500),
        ("timeout_error", InternalServerError, 504),
        ("overloaded_error", InternalServerError, 529),
        ("of_a_later_day", APIError, None),
    ],
)
def test_errors_in_streams_and_with_status_200_have_their_class(
    kind: str, expected: type[APIError], status: int | None
) -> None:
    message_body = {"type": "error", "error": {"type": kind, "message": "no"}}
    for read in (lambda: chunks(sse(message_body)), lambda: completion(json.dumps(message_body).encode())):
        with pytest.raises(APIError, match=r"^no$") as caught:
            read()
        assert type(caught.value) is expected
        assert caught.value.type == kind
        assert getattr(caught.value, "status_code", None) == status


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"<html>",
            b"[]",
            b"{}",
            b'{"content": "text"}',
            b'{"content": ["text"]}',
            b'{"choices": []}',
            b"null",
        ),
        *(b'{"content": {}}', b'{"content": [{"type": "text", "text": 5}]}', b'{"content": null}'),
    ],
)
def test_invalid_responses_raise(content: bytes) -> None:
    with pytest.raises(APIResponseValidationError):
        completion(content)


@pytest.mark.parametrize(
    "event",
    [
        b"{",
        b"[]",
        b'{"type": "message_start"}',
        b'{"type": "message_start", "message": 5}',
        b'{"type": "content_block_start", "index": 0, "content_block": "x"}',
        b'{"type": "content_block_delta", "index": 0}',
        b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}}',
        b'{"type": "message_delta", "delta": 5}',
    ],
)
def test_invalid_events_raise(event: bytes) -> None:
    with pytest.raises(APIResponseValidationError):
        DIALECT.events(CHAT)(event, None)


def test_events_without_content_are_skipped() -> None:
    for event in (
        b'{"type": "ping"}',
        b'{"type": "a_later_event"}',
        b'{"type": ["odd"]}',
        b'{"type": "content_block_delta", "index": 7, "delta": {"type": "signature_delta", "signature": ""}}',
        b'{"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": ""}}',
        b'{"type": "content_block_stop", "index": 7}',
        b"[DONE]",
    ):
        assert DIALECT.events(CHAT)(event, None) is None


def test_concurrent_streams_do_not_share_state() -> None:
    first, second = DIALECT.events(CHAT), DIALECT.events(CHAT)
    events = [b.split(b"data: ")[1].strip() for b in body("tools.sse").split(b"\n\n") if b]
    for event in events[:-2]:
        first(event, None)
        second(event, None)
    assert first(events[-2], None) == second(events[-2], None)


def test_the_finish_reason_is_emitted_once_and_the_last_usage_applies() -> None:
    begun = {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}
    other = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "of_a_later_day", "text": "x"},
    }
    end = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 2}}
    stop = {"type": "message_stop"}
    found = chunks(sse(begun, other, end, {**end, "usage": {"output_tokens": 3}}, stop))
    choices = [choice for chunk in found for choice in chunk.choices]
    assert [choice.finish_reason for choice in choices] == [None, "length"]
    assert [choice.delta.content for choice in choices] == [None, ""]
    assert [chunk.usage.completion_tokens for chunk in found if chunk.usage] == [2, 3]
    without_reason = chunks(sse(begun, stop))
    assert [choice.finish_reason for chunk in without_reason for choice in chunk.choices] == [None, "stop"]


def test_tool_arguments_in_content_block_start_are_read() -> None:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    stream = sse(
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": use},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    calls = [call for c in chunks(stream) for x in c.choices for call in x.delta.tool_calls or ()]
    assert "".join(call.function.arguments for call in calls) == '{"a": 1}'


def _pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(places)] or [""]


_TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
_CUTS = st.lists(st.integers(0, 40), max_size=6)
_VALUES = st.dictionaries(_TEXT, st.none() | st.integers(-9, 9) | _TEXT, max_size=3)
_BLOCKS = st.lists(
    st.one_of(
        st.builds(lambda t: {"type": "text", "text": t}, _TEXT),
        st.builds(lambda t: {"type": "thinking", "thinking": t, "signature": "s"}, _TEXT),
        st.builds(lambda v: {"type": "tool_use", "id": "t", "name": "f", "input": v}, _VALUES),
        st.builds(
            lambda v: {"type": "server_tool_use", "id": "s", "name": "web_search", "input": v}, _VALUES
        ),
    ),
    max_size=5,
)
_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
}
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}


@given(_BLOCKS, st.data())
def test_blocks_split_anywhere_give_the_same_message(
    blocks: list[dict[str, Any]], data: st.DataObject
) -> None:
    for at, block in enumerate(blocks):
        if "id" in block:
            block["id"] += str(at)
    usage = {"input_tokens": 1, "output_tokens": 2}
    message_body = {"id": "m", "model": "c", "content": blocks, "stop_reason": "end_turn", "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message_body, "content": [], "usage": {}}}
    ]
    for index, block in enumerate(blocks):
        begun = {**block, **_EMPTY[block["type"]]}
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        kind, field = _DELTAS.get(block["type"], ("input_json_delta", "partial_json"))
        text = json.dumps(block["input"]) if "input" in block else block[field]
        for piece in _pieces(text, data.draw(_CUTS)):
            delta = {"type": kind, field: piece}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        if kind == "thinking_delta":
            delta = {"type": "signature_delta", "signature": block["signature"]}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    assert _content(_final(sse(*events))) == _content(completion(json.dumps(message_body).encode()))


_FIELDS = [
    *(
        "type",
        "index",
        "delta",
        "content_block",
        "message",
        "usage",
        "content",
        "text",
        "thinking",
        "citations",
    ),
    *("partial_json", "signature", "citation", "stop_reason", "error", "input", "input_tokens", "id"),
    "url",
]
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.sampled_from(["", "a", "text", "tool_use"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=4),
    max_leaves=8,
)
_EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from([*_READERS, "error", "ping"])},
    optional={name: _JSON for name in _FIELDS if name != "type"},
)
_DELTA = st.fixed_dictionaries(
    {
        "type": st.just("content_block_delta"),
        "index": st.just(0),
        "delta": st.fixed_dictionaries(
            {
                "type": st.sampled_from(
                    ["text_delta", "input_json_delta", "signature_delta", "citations_delta"]
                )
            },
            optional={name: _JSON for name in _FIELDS if name != "type"},
        ),
    }
)


@given(st.lists(_EVENT | _DELTA, max_size=6))
def test_arbitrary_events_are_decoded_or_raise_an_api_error(events: list[Any]) -> None:
    read = DIALECT.events(CHAT)
    for event in events:
        try:
            found = read(json.dumps(event).encode(), None)
        except APIError:
            continue
        for chunk in found if isinstance(found, list) else [] if found is None else [found]:
            counted = DIALECT.usage(chunk)
            assert counted is None or (counted.prompt or 0) >= 0


@given(_JSON | _EVENT)
def test_arbitrary_responses_are_decoded_or_raise_an_api_error(message_body: Any) -> None:
    with suppress(APIError):
        counted = DIALECT.usage(completion(json.dumps(message_body).encode()))
        assert counted is None or (counted.prompt or 0) >= 0
