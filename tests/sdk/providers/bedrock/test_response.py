"""Converse answers as chat completions, whole and streamed, and odd ones."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from bedrock_bodies import DIALECT, SAMPLES, chunks, completion, frame, frames, sample
from hypothesis import given, settings
from hypothesis import strategies as st

from specclient import APIError, APIResponseValidationError, InternalServerError, RateLimitError
from specclient.providers.bedrock.response import usage_of
from specclient.providers.bedrock.stream import _READERS
from specclient.types.inference_methods import CHAT


def _joined(found: list[Any]) -> dict[str, Any]:
    """Return the fields of all deltas, with texts joined and arguments by the index of their call."""
    joined: dict[str, Any] = {}
    calls: dict[int, list[str]] = {}
    for chunk in found:
        for choice in chunk.choices:
            fields = {**choice.delta.to_dict(), **(choice.delta.model_extra or {})}
            for call in choice.delta.tool_calls or ():
                known = calls.setdefault(call.index, [call.id or "", call.function.name or "", ""])
                known[2] += call.function.arguments or ""
            for name, value in fields.items():
                if name in ("content", "reasoning_content"):
                    joined[name] = joined.get(name, "") + (value or "")
                elif name not in ("role", "tool_calls"):
                    joined[name] = value
            if choice.finish_reason:
                joined["reasons"] = [choice.finish_reason, choice.stop_reason]
    return {**joined, "calls": list(calls.values())}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_stream_gives_what_a_whole_answer_gives(name: str) -> None:
    made = completion(sample(name)["answer"])
    found = chunks(frames(name))
    message, choice = made.choices[0].message, made.choices[0]
    joined = _joined(found)
    assert (joined.get("content") or "") == (message.content or "")
    for field in ("reasoning_content", "thinking_blocks", "content_blocks"):
        assert joined.get(field) == getattr(message, field, None)
    cited = [each.to_dict() for each in message.annotations or ()]
    assert joined.get("annotations", []) == cited
    assert len(cited) == (name == "citations")
    assert joined["reasons"] == [choice.finish_reason, choice.stop_reason]
    assert [call[:2] for call in joined["calls"]] == [
        [c.id, c.function.name] for c in message.tool_calls or ()
    ]
    last = found[-1]
    assert not last.choices
    assert last.usage == made.usage
    assert (last.metrics, last.service_tier) == (made.metrics, made.service_tier)
    assert getattr(last, "trace", None) == getattr(made, "trace", None)
    assert last.model == made.model


def test_usage_holds_cached_tokens_and_those_kept_for_an_hour() -> None:
    usage = DIALECT.usage(completion(sample("text")["answer"]))
    assert usage is not None
    assert (usage.prompt, usage.cached, usage.cache_write, usage.cache_write_1h) == (2_325, 2_000, 200, 150)
    assert usage.completion == 12
    made = completion(sample("text")["answer"])
    assert made.service_tier == "default"
    assert made.metrics == {"latencyMs": 412}


@pytest.mark.parametrize(
    ("reported", "prompt"),
    [
        ({"inputTokens": 10, "outputTokens": 2, "totalTokens": 12, "cacheReadInputTokens": 4}, 10),
        ({"inputTokens": 10, "outputTokens": 2, "totalTokens": 16, "cacheReadInputTokens": 4}, 14),
        ({"inputTokens": 10, "outputTokens": 2, "cacheWriteInputTokens": 4}, 14),
        ({"inputTokens": -1, "outputTokens": 2, "totalTokens": 1}, None),
    ],
)
def test_input_tokens_include_the_cache_only_if_the_total_shows_it(
    reported: dict[str, Any], prompt: int | None
) -> None:
    usage = usage_of({"usage": reported})
    assert usage is not None
    assert usage.get("prompt_tokens") == prompt
    assert usage["completion_tokens"] == 2


def test_usage_that_is_none_is_none() -> None:
    assert usage_of({}) is None
    assert usage_of({"usage": {"inputTokens": "3"}}) is None


def test_the_model_that_a_router_chose_is_the_answers_model() -> None:
    chosen = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-pro-v1:0"
    assert completion(sample("router")["answer"]).model == chosen
    assert chunks(frames("router"))[-1].model == chosen


@pytest.mark.parametrize("body", [{}, [], {"output": {}}, {"output": {"message": {"content": 3}}}, None])
def test_an_answer_that_is_none_is_an_error(body: Any) -> None:
    with pytest.raises(APIResponseValidationError, match="where an answer with a message"):
        completion(body)


def test_an_error_with_status_200_is_raised_by_its_class() -> None:
    with pytest.raises(APIError, match="No"):
        completion({"message": "No."})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("throttlingException", RateLimitError),
        ("serviceUnavailableException", InternalServerError),
        ("modelStreamErrorException", APIError),
        ("newException", APIError),
    ],
)
def test_an_exception_in_a_stream_is_raised_by_its_class(name: str, expected: type[Exception]) -> None:
    data = b"".join(frame(*event) for event in sample("text")["events"][:2])
    with pytest.raises(expected, match="Slow down") as caught:
        chunks(data + frame(name, {"message": "Slow down."}, "exception"))
    assert caught.value.type == name  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("contentBlockDelta", {"contentBlockIndex": 0}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": 3}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {}}),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": 3}),
        ("contentBlockStop", []),
        ("messageStop", "x"),
    ],
)
def test_a_malformed_event_is_one_clear_error(name: str, payload: Any) -> None:
    with pytest.raises(APIResponseValidationError, match="where an event of ConverseStream belongs"):
        chunks(frame(name, payload))


def test_unknown_events_blocks_and_deltas_are_kept_or_passed_over() -> None:
    data = frame("newEvent", {"x": 1}) + frame("messageStart", {"role": "assistant"})
    data += frame("contentBlockStart", {"contentBlockIndex": 0, "start": {"hologram": {"id": "h"}}})
    data += frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"hologram": {"ray": 1}}})
    data += frame("contentBlockStop", {"contentBlockIndex": 0}) + frame(
        "contentBlockStop", {"contentBlockIndex": 7}
    )
    data += frame("messageStop", {"stopReason": "malformed_tool_use"})
    found = chunks(data)
    last = found[-1].choices[0]
    assert last.delta.content_blocks == [{"hologram": {"id": "h", "deltas": [{"ray": 1}]}}]
    assert last.finish_reason == last.stop_reason == "malformed_tool_use"
    made = completion(
        {"output": {"message": {"content": [{"hologram": {}}]}}, "stopReason": "end_turn", "usage": None}
    )
    assert made.choices[0].message.content_blocks == [{"hologram": {}}]
    assert made.usage is None


def test_a_json_body_in_place_of_frames_is_an_error() -> None:
    read = DIALECT.events(CHAT)
    with pytest.raises(APIResponseValidationError, match="a whole response where a stream was requested"):
        read(b'{"output": {}}', None)
    with pytest.raises(APIError, match="Denied"):
        read(b'{"message": "Denied."}', None)


_NAMES = (
    *("text", "toolUse", "reasoningContent", "reasoningText", "citationsContent", "citations", "citation"),
    *(
        "content",
        "delta",
        "start",
        "contentBlockIndex",
        "input",
        "name",
        "toolUseId",
        "signature",
        "location",
    ),
    *(
        "location",
        "url",
        "usage",
        "inputTokens",
        "outputTokens",
        "totalTokens",
        "cacheReadInputTokens",
        "trace",
    ),
    *(
        "cacheDetails",
        "ttl",
        "stopReason",
        "serviceTier",
        "type",
        "message",
        "output",
        "promptRouter",
        "role",
    ),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "a", "1h", "tool_use"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=8,
)
_BLOCK = st.fixed_dictionaries(
    {"contentBlockIndex": st.just(0)},
    optional={
        name: st.dictionaries(st.sampled_from(_NAMES), _JSON, max_size=2) for name in ("start", "delta")
    },
)


@settings(max_examples=80)
@given(st.lists(st.tuples(st.sampled_from([*_READERS, "error", "xException"]), _BLOCK | _JSON), max_size=6))
def test_arbitrary_events_are_decoded_or_raise_an_api_error(events: list[tuple[str, Any]]) -> None:
    read = DIALECT.events(CHAT)
    for name, payload in events:
        try:
            found = read(json.dumps(payload).encode(), name)
        except APIError:
            continue
        for chunk in found if isinstance(found, list) else [] if found is None else [found]:
            counted = DIALECT.usage(chunk)
            assert counted is None or (counted.prompt or 0) >= 0


@settings(max_examples=80)
@given(_JSON, _JSON, _JSON)
def test_arbitrary_answers_are_decoded_or_raise_an_api_error(blocks: Any, usage: Any, other: Any) -> None:
    body = {"output": {"message": {"content": blocks}}, "stopReason": other, "usage": usage, "trace": other}
    with suppress(APIError):
        counted = DIALECT.usage(completion(body))
        assert counted is None or (counted.prompt or 0) >= 0
