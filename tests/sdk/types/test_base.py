"""Irregular answers of real servers, and the values that callers read from them.

The OpenAI client accepts each of these bodies without an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from specclient.errors import APIResponseValidationError, InternalServerError
from specclient.providers import OpenAIDialect
from specclient.types import inference_methods
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.model import Model
from specclient.types.usage import Usage
from specclient.types.wire import WireResponse

DIALECT = OpenAIDialect()
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
PARTS = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hello"}]


def whole(message: Any = None, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "hello"} if message is None else message
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return {**body, "usage": USAGE, **fields}


def with_tool_call(**call: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, **call}
    return whole({"role": "assistant", "content": None, "tool_calls": [call]})


def chunk(**fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": "hello"}, "finish_reason": None}
    body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return {**body, **fields}


Read = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("body", "read", "expected"),
    [
        (whole(object=""), lambda a: a.object, ""),
        (whole(object=None), lambda a: a.object, "chat.completion"),
        (whole({"role": None, "content": "hello"}), lambda a: a.choices[0].message.role, "assistant"),
        (whole({"role": None, "content": "hello"}), lambda a: a.choices[0].message.content, "hello"),
        (whole({"role": "assistant", "content": PARTS}), lambda a: a.choices[0].message.content, PARTS),
        (whole(model=None), lambda a: a.model, ""),
        (whole(id=None, created=None), lambda a: (a.id, a.created), ("", 0)),
        (whole(id=7), lambda a: a.id, "7"),
        (whole(created=1.5), lambda a: a.created, 1),
        (whole(usage={**USAGE, "total_tokens": None}), lambda a: a.usage.total_tokens, 0),
        (with_tool_call(id=None), lambda a: a.choices[0].message.tool_calls[0].id, ""),
        (
            with_tool_call(function={"name": "f", "arguments": {"a": [1]}}),
            lambda a: a.choices[0].message.tool_calls[0].function.arguments,
            '{"a": [1]}',
        ),
        (
            with_tool_call(function={"name": "f", "arguments": None}),
            lambda a: a.choices[0].message.tool_calls[0].function.arguments,
            "",
        ),
        (whole(choices=[{"index": 0, "message": None}]), lambda a: a.choices[0].message.content, None),
        (whole(choices=[{"index": None, "message": {}}] * 2), lambda a: [c.index for c in a.choices], [0, 0]),
        (whole(choices=[]), lambda a: a.choices, []),
    ],
)
def test_irregular_answers_are_read(body: Any, read: Read, expected: Any) -> None:
    answer = DIALECT.decode(inference_methods.CHAT, WireResponse(200, {}, json.dumps(body).encode()))
    assert read(answer) == expected
    assert type(read(answer)) is type(expected)


@pytest.mark.parametrize(
    ("body", "read", "expected"),
    [
        (  # Azure's first chunk, with the content filter's results for the prompt
            {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": [{}]},
            lambda c: (c.object, c.choices, c.model_extra),
            ("", [], {"prompt_filter_results": [{}]}),
        ),
        (  # Azure's chunk with the asynchronous content filter's results for the answer
            chunk(choices=[{"index": 0, "finish_reason": None, "content_filter_results": {}}]),
            lambda c: c.choices[0].delta.content,
            None,
        ),
        (chunk(choices=None, usage=USAGE), lambda c: (c.choices, c.usage.prompt_tokens), ([], 5)),
        ({"object": "chat.completion.chunk", "usage": USAGE}, lambda c: c.choices, []),
        ({"usage": USAGE}, lambda c: c.usage.total_tokens, 12),
        (
            chunk(choices=[{"index": 0, "delta": None, "finish_reason": "stop"}]),
            lambda c: (c.choices[0].delta.content, c.choices[0].finish_reason),
            (None, "stop"),
        ),
        (
            chunk(choices=[{"index": 0, "delta": {"content": PARTS}}]),
            lambda c: c.choices[0].delta.content,
            PARTS,
        ),
        (
            chunk(
                choices=[{"delta": {"tool_calls": [{"index": None, "function": {"arguments": {"a": 1}}}]}}]
            ),
            lambda c: [(call.index, call.function.arguments) for call in c.choices[0].delta.tool_calls],
            [(0, '{"a": 1}')],
        ),
        (chunk(created=1.5, model=None), lambda c: (c.created, c.model), (1, "")),
    ],
)
def test_irregular_chunks_are_read(body: Any, read: Read, expected: Any) -> None:
    assert read(DIALECT.decode_event(inference_methods.CHAT, json.dumps(body).encode())) == expected


def test_irregular_text_completions_are_read() -> None:
    body = {"object": "", "created": 2.5, "model": None, "choices": [{"index": None, "text": None}]}
    for answer in (
        DIALECT.decode(inference_methods.COMPLETION, WireResponse(200, {}, json.dumps(body).encode())),
        DIALECT.decode_event(inference_methods.COMPLETION, json.dumps(body).encode()),
    ):
        assert isinstance(answer, Completion)
        assert (answer.created, answer.model, answer.choices[0].index, answer.choices[0].text) == (
            2,
            "",
            0,
            "",
        )


@pytest.mark.parametrize(
    ("data", "event"),
    [
        (b"[DONE]", None),
        (b"[DONE] ", None),
        (b" [DONE]\t", None),
        (b'{"type": "ping"}', "ping"),
        (b"", "ping"),
    ],
)
def test_empty_done_and_ping_events_are_skipped(data: bytes, event: str | None) -> None:
    assert DIALECT.decode_event(inference_methods.CHAT, data, event) is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "strange"},
        {"choices": 3},
        {"choices": [3]},
        {"choices": [None]},
        {"usage": 3},
        {"choices": [{"delta": {"content": {"a": 1}}}]},
        {"choices": [{"delta": 3}]},
        whole(),
    ],
)
def test_an_invalid_chunk_is_an_error(body: Any) -> None:
    with pytest.raises(APIResponseValidationError):
        DIALECT.decode_event(inference_methods.CHAT, json.dumps(body).encode())


def test_an_error_object_in_a_stream_raises() -> None:
    body = {"object": "error", "message": "oom", "code": 500, "id": None}
    with pytest.raises(InternalServerError, match="oom"):
        DIALECT.decode_event(inference_methods.CHAT, json.dumps(body).encode())


@pytest.mark.parametrize("body", [{"id": "x"}, whole(choices=None), {"detail": "Not Found"}])
def test_an_answer_without_choices_is_an_error(body: Any) -> None:
    with pytest.raises(APIResponseValidationError, match="no choices"):
        DIALECT.decode(inference_methods.CHAT, WireResponse(200, {}, json.dumps(body).encode()))


def test_a_null_count_is_unknown_and_not_zero() -> None:
    body = whole(usage={"prompt_tokens": 5, "completion_tokens": None, "total_tokens": None})
    answer = DIALECT.decode(inference_methods.CHAT, WireResponse(200, {}, json.dumps(body).encode()))
    assert DIALECT.usage(answer) == Usage(prompt=5)
    assert answer.to_dict()["usage"] == {"prompt_tokens": 5}


def test_models_with_null_fields_are_read() -> None:
    rows = {
        "data": [{"id": "a", "created": None, "object": None, "owned_by": None}, {"id": "b", "created": 1.5}]
    }
    models = DIALECT.decode_models(WireResponse(200, {}, json.dumps(rows).encode()))
    assert models == [Model(id="a"), Model(id="b", created=1)]


def test_a_regular_answer_keeps_every_field_unchanged() -> None:
    for cls, body in (
        (ChatCompletion, whole(vendor={"x": None})),
        (ChatCompletionChunk, chunk(vendor=[None])),
    ):
        assert cls.received(json.dumps(body).encode()).to_dict() == body
