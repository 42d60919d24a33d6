"""Decoding of Gemini's responses and streams, recorded and invalid, to OpenAI objects or errors."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from gemini_bodies import ASK, BODIES, GEMINI, PAIRS, SIGNATURE, body, decoded, recorded
from hypothesis import given
from hypothesis import strategies as st

from specclient.errors import (
    APIError,
    APIResponseValidationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    RateLimitError,
)
from specclient.http_transport.sse import SSEDecoder
from specclient.structured.deltas import accumulate
from specclient.types.chat import ChatCompletionChunk
from specclient.types.inference_methods import CHAT
from specclient.types.usage import Usage
from specclient.types.wire import Secrets, WireResponse


def _streamed(content: bytes, sizes: list[int] | None = None) -> list[ChatCompletionChunk]:
    read, decoder, chunks = GEMINI.events(CHAT), SSEDecoder(), []
    pieces, at = [], 0
    for size in sizes or []:
        pieces.append(content[at : at + size])
        at += size
    events = [event for piece in [*pieces, content[at:]] for event in decoder.feed(piece)] + decoder.flush()
    for event in events:
        chunks += read(event.data, event.event) or []
    return chunks


def _summed(chunks: list[ChatCompletionChunk]) -> dict[str, Any]:
    """Return the sum of chunks in the form of a complete response."""
    whole: dict[str, Any] = {}
    for chunk in chunks:
        accumulate(whole, chunk.to_dict())
    for choice in whole["choices"]:
        choice["message"] = choice.pop("delta")
        for call in choice["message"].get("tool_calls", ()):
            call.pop("index")
    whole["object"] = "chat.completion"
    whole["id"], whole["model"] = chunks[0].id, chunks[0].model
    return whole


def test_a_text_response_is_decoded() -> None:
    answer = recorded("text.json")
    (choice,) = answer.choices
    assert choice.message.content == "The quick brown fox – a naïve one 🦊 – jumps."
    assert (choice.finish_reason, choice.message.role, answer.id) == ("stop", "assistant", "kQx1aPr0")
    assert answer.model == "gemini-2.5-flash"
    assert choice.model_extra == {"avgLogprobs": -0.12, "native_finish_reason": "STOP"}
    assert GEMINI.usage(answer) == Usage(prompt=9, completion=12, cached=4)


def test_thoughts_and_tool_calls_are_decoded_and_sent_back() -> None:
    answer = recorded("thinking_tools.json")
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content == "Let me look."
    assert message.model_extra == {"reasoning_content": "**Weather.** Two towns are asked for."}
    assert GEMINI.usage(answer) == Usage(prompt=48, completion=98, reasoning=67)
    calls: Any = message.tool_calls
    assert [json.loads(call.function.arguments) for call in calls] == [
        {"city": "Zürich", "days": 2},
        {"city": "Oslo"},
    ]
    assert len({call.id for call in calls}) == 2
    assert calls[0].model_extra == {"extra_content": {"google": {"thought_signature": SIGNATURE}}}
    results = [{"role": "tool", "tool_call_id": call.id, "content": "{}"} for call in calls]
    _, model, user = body([*ASK, message, *results])["contents"]
    assert model["parts"] == [
        {"text": "Let me look."},
        {
            "functionCall": {"name": "get_weather", "args": {"city": "Zürich", "days": 2}, "id": calls[0].id},
            "thoughtSignature": SIGNATURE,
        },
        {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}, "id": calls[1].id}},
    ]
    assert [part["functionResponse"]["id"] for part in user["parts"]] == [call.id for call in calls]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("signed_text.json", [{"text": "Four.", "thoughtSignature": SIGNATURE}]),
        (
            "image.json",
            [
                {"text": "Here it is."},
                {
                    "inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="},
                    "thoughtSignature": SIGNATURE,
                },
            ],
        ),
        (
            "code.json",
            [
                {"executableCode": {"language": "PYTHON", "code": "print(6*7)"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42\n"}},
                {"text": "It is 42."},
            ],
        ),
    ],
)
def test_parts_that_are_not_text_are_sent_back_unchanged(name: str, parts: Any) -> None:
    message = recorded(name).choices[0].message
    for sent in (message, message.to_dict()):
        assert body([*ASK, sent, *ASK])["contents"][1] == {"role": "model", "parts": parts}


def test_an_image_is_in_the_images_of_the_message() -> None:
    answer = recorded("image.json")
    (image,) = (answer.choices[0].message.model_extra or {})["images"]
    assert image["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.image_tokens == 1290


@pytest.mark.parametrize(
    ("name", "finish", "native"),
    [
        ("cut_while_thinking.json", "length", "MAX_TOKENS"),
        ("withheld.json", "content_filter", "SAFETY"),
        ("blocked.json", "content_filter", "PROHIBITED_CONTENT"),
        ("malformed_call.json", "malformed_function_call", "MALFORMED_FUNCTION_CALL"),
    ],
)
def test_answers_without_text_have_a_finish_reason(name: str, finish: str, native: str) -> None:
    (choice,) = recorded(name).choices
    assert (choice.finish_reason, choice.message.content) == (finish, None)
    assert (choice.model_extra or {})["native_finish_reason"] == native


@pytest.mark.parametrize(
    "reason",
    ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_RECITATION"],
)
def test_reasons_of_filters_become_content_filter(reason: str) -> None:
    assert decoded({"candidates": [{"finishReason": reason}]}).choices[0].finish_reason == "content_filter"


def test_the_block_reason_of_a_prompt_is_kept() -> None:
    assert recorded("blocked.json").model_extra == {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}


def test_grounding_ratings_and_citations_are_kept() -> None:
    answer = recorded("grounded.json")
    extra = answer.choices[0].model_extra or {}
    assert extra["groundingMetadata"]["webSearchQueries"] == ["who won euro 2024"]
    assert extra["citationMetadata"]["citationSources"][0]["uri"] == "https://uefa.com"
    assert extra["safetyRatings"][0]["probability"] == "NEGLIGIBLE"
    usage = Usage(prompt=7 + 95, completion=8, searches=1)
    assert GEMINI.usage(answer) == usage, "tool results count as prompt"


def test_log_probabilities_are_decoded() -> None:
    logprobs = recorded("logprobs.json").choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [(token.token, token.logprob) for token in logprobs.content] == [("Hi", -0.25), ("!", -0.5)]
    assert [top.token for top in logprobs.content[0].top_logprobs] == ["Hi", "Hey"]


@pytest.mark.parametrize(
    ("metadata", "usage"),
    [
        ({"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7},
         Usage(prompt=5, completion=2)),
        ({"promptTokenCount": 5, "totalTokenCount": 5}, Usage(prompt=5, completion=0)),
        ({"promptTokenCount": 5, "thoughtsTokenCount": 4, "totalTokenCount": 9},
         Usage(prompt=5, completion=4, reasoning=4)),
        ({"promptTokenCount": 5, "thoughtsTokenCount": 4}, Usage(prompt=5, reasoning=4)),
        ({"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": "4"}, Usage(prompt=5)),
        ({"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": "4", "totalTokenCount": 11},
         Usage(prompt=5, completion=6)),
        ({"promptTokenCount": 5, "candidatesTokenCount": -2}, Usage(prompt=5)),
        ({"promptTokenCount": None, "candidatesTokenCount": 2}, Usage(completion=2)),
        ({"promptTokenCount": True, "candidatesTokenCount": 2}, Usage(completion=2)),
        ({"promptTokenCount": float("nan"), "candidatesTokenCount": 2.5, "totalTokenCount": True}, None),
        ({"promptTokenCount": 5, "candidatesTokenCount": 2, "cachedContentTokenCount": 6},
         Usage(prompt=5, completion=2)),
        ({"promptTokenCount": 5, "candidatesTokenCount": 2, "cachedContentTokenCount": 4,
          "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 3}]},
         Usage(prompt=5, completion=2, cached=4, cached_audio=3)),
        ({"promptTokenCount": 5, "candidatesTokenCount": 2, "cacheTokensDetails": "all"},
         Usage(prompt=5, completion=2)),
        ({"promptTokenCount": 9, "totalTokenCount": 5}, Usage(prompt=9)),
        ({}, None),
        ("seven", None),
    ],
)  # fmt: skip
def test_invalid_counts_are_unknown(metadata: Any, usage: Usage | None) -> None:
    answer = decoded({"candidates": [{"content": {"parts": [{"text": "x"}]}}], "usageMetadata": metadata})
    assert GEMINI.usage(answer) == usage
    shown = answer.usage.to_dict() if answer.usage else {}
    known = usage or Usage()
    assert (shown.get("prompt_tokens"), shown.get("completion_tokens")) == (known.prompt, known.completion)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        "text",
        {},
        {"candidates": []},
        {"candidates": [], "promptFeedback": {"safetyRatings": []}},
        {"candidates": "none"},
        {"candidates": [7]},
        {"candidates": [{"content": "text"}]},
        {"candidates": [{"content": {"parts": {"text": "x"}}}]},
        {"candidates": [{"content": {"parts": [{"text": 7}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "\ud800"}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {"args": {}}}]}}]},
        {"choices": [{"message": {"content": "OpenAI's"}}]},
        [{"candidates": [{"content": {"parts": [{"text": "an array, where no stream was asked for"}]}}]}],
    ],
)
def test_invalid_responses_raise(answer: Any) -> None:
    with pytest.raises(APIResponseValidationError, match="does not match the API") as caught:
        decoded(answer)
    assert caught.value.status_code == 200


def test_keys_are_redacted_from_errors() -> None:
    secrets = Secrets([("x-goog-api-key", "AIza-key")])
    reply = WireResponse(200, {}, b'{"error": {"code": 400, "message": "bad AIza-key"}}', 3, lambda: secrets)
    with pytest.raises(BadRequestError, match="bad \\[redacted\\]") as caught:
        GEMINI.decode(CHAT, reply)
    assert caught.value.attempts == 3


@pytest.mark.parametrize(
    ("error", "cls"),
    [
        ({"code": 429, "status": "RESOURCE_EXHAUSTED"}, RateLimitError),
        ({"status": "RESOURCE_EXHAUSTED"}, RateLimitError),
        ({"status": "UNAVAILABLE"}, InternalServerError),
        ({"status": "NOT_FOUND"}, NotFoundError),
        ({"status": "SOMETHING_NEW"}, APIError),
        ("a text", APIError),
    ],
)
def test_errors_amid_a_stream_are_raised_with_their_class(error: Any, cls: type[APIError]) -> None:
    for sent in ({"error": error}, [{"error": error}]):
        with pytest.raises(APIError) as caught:
            GEMINI.events(CHAT)(json.dumps(sent).encode(), None)
        assert type(caught.value) is cls


@pytest.mark.parametrize("name", PAIRS)
def test_a_stream_equals_the_complete_response(name: str) -> None:
    whole = recorded(f"{name}.json")
    chunks = _streamed((BODIES / f"{name}.sse").read_bytes())
    assert [bool(chunk.usage) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    expected, found = whole.to_dict(), _summed(chunks)
    for choice in expected["choices"]:
        choice.pop("avgLogprobs", None)  # not in streams
        choice["message"].setdefault("content", None)
    for choice in found["choices"]:
        choice["message"].setdefault("content", None)
        choice["message"].setdefault("role", "assistant")
    assert found == expected


@given(name=st.sampled_from(PAIRS), sizes=st.lists(st.integers(1, 400), max_size=30))
def test_a_stream_may_be_split_anywhere(name: str, sizes: list[int]) -> None:
    content = (BODIES / f"{name}.sse").read_bytes()
    assert _streamed(content, sizes) == _streamed(content)


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(("", "STOP", "\ud800")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def _some(**fields: Any) -> st.SearchStrategy[Any]:
    """Return objects with some of these fields; the value of each may also be junk."""
    return st.fixed_dictionaries({}, optional={name: _JUNK | kind for name, kind in fields.items()})


_TEXT = st.text(max_size=3)
_CALL = _some(name=_TEXT, args=_JUNK, id=_TEXT)
_PART = _some(
    text=_TEXT,
    thought=st.booleans(),
    thoughtSignature=_TEXT,
    functionCall=_CALL,
    inlineData=_some(mimeType=st.just("image/png"), data=_TEXT),
)
_TOKENS = st.lists(_JUNK | _some(token=_TEXT, tokenId=st.integers(), logProbability=st.floats()), max_size=2)
_CANDIDATE = _some(
    content=_some(parts=st.lists(_PART, max_size=3)),
    finishReason=st.sampled_from(("STOP", "SAFETY")),
    index=st.integers(0, 2),
    logprobsResult=_some(
        chosenCandidates=_TOKENS, topCandidates=st.lists(_some(candidates=_TOKENS), max_size=2)
    ),
    delta=_JUNK,
    cls=_JUNK,
)
_ANSWER = _some(
    candidates=st.lists(_CANDIDATE, max_size=3),
    promptFeedback=_some(blockReason=_JUNK),
    usageMetadata=_some(
        promptTokenCount=st.integers(), totalTokenCount=st.integers(), promptTokensDetails=_JUNK
    ),
    modelVersion=_TEXT,
    responseId=_TEXT,
    created=_JUNK,
    service_tier=_JUNK,
    choices=_JUNK,
    cls=_JUNK,
    error=_some(code=st.integers(), status=st.just("INTERNAL"), message=_TEXT),
)


@given(answer=_ANSWER | _JUNK)
def test_arbitrary_json_is_decoded_or_raises_an_api_error(answer: Any) -> None:
    with contextlib.suppress(APIError):
        GEMINI.usage(decoded(answer))
    read = GEMINI.events(CHAT)
    with contextlib.suppress(APIError):
        for _ in range(2):
            for chunk in read(json.dumps(answer).encode(), None) or ():
                GEMINI.usage(chunk)


def test_events_without_content_are_skipped() -> None:
    read = GEMINI.events(CHAT)
    assert read(b"[DONE]", None) is None
    assert read(b"{}", "ping") is None
    assert read(b'{"usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4}}', None) == []


def test_usage_after_the_finish_reason_is_read() -> None:
    read = GEMINI.events(CHAT)
    (last,) = read(b'{"candidates": [{"finishReason": "STOP"}]}', None)
    assert (last.choices[0].finish_reason, last.usage) == ("stop", None)
    (usage,) = read(b'{"usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 6}}', None)
    assert GEMINI.usage(usage) == Usage(prompt=4, completion=2)
