"""Streamed chat completions: variants of other servers, cost per chunk, and the stream objects."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pydantic
import pytest

from specclient.errors import APIResponseValidationError, LengthFinishReasonError
from specclient.lib.streaming.chat import (
    AsyncChatCompletionStreamManager,
    ChatCompletionStream,
    ChatCompletionStreamManager,
    ChatCompletionStreamState,
    ChunkEvent,
    ContentDeltaEvent,
)
from specclient.structured.tools import pydantic_function_tool
from specclient.types.chat import ChatCompletionChunk

pytestmark = pytest.mark.anyio


class City(pydantic.BaseModel):
    name: str
    rivers: list[str] = []


STRICT = {"type": "function", "function": {"name": "search", "strict": True, "parameters": {}}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def chunk(*deltas: dict[str, Any], **more: Any) -> ChatCompletionChunk:
    choices = [{"index": 0, **delta} for delta in deltas]
    body = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        **more,
    }
    return ChatCompletionChunk.received(json.dumps(body).encode())


def text_delta(text: str | None, **more: Any) -> dict[str, Any]:
    return {"delta": {"role": "assistant", "content": text, **more}}


def tool_delta(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"delta": {"tool_calls": list(calls)}, **more}


END = {"delta": {}, "finish_reason": "stop"}


def feed(state: ChatCompletionStreamState[Any], *chunks: ChatCompletionChunk) -> list[Any]:
    return [event for one in chunks for event in state.handle_chunk(one)]


def types(events: list[Any]) -> list[str]:
    return [event.type for event in events if event.type != "chunk"]


def test_a_repeated_role_id_or_name_is_kept_once() -> None:
    state: Any = ChatCompletionStreamState()
    begin = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{"}}
    more = {"index": 0, "id": "call_1", "type": None, "function": {"name": "search", "arguments": "}"}}
    feed(
        state,
        chunk(text_delta("a")),
        chunk(text_delta("b")),
        chunk(tool_delta(begin)),
        chunk(tool_delta(more)),
        chunk(END),
    )
    message = state.get_final_completion().choices[0].message
    assert (message.role, message.content) == ("assistant", "ab")
    [call] = message.tool_calls
    assert (call.id, call.function.name, call.function.arguments) == ("call_1", "search", "{}")


def test_a_complete_tool_call_in_the_last_chunk_gets_a_done_event() -> None:
    state: Any = ChatCompletionStreamState(input_tools=[STRICT])
    calls = [
        {"index": i, "id": f"c{i}", "type": "function", "function": {"name": "search", "arguments": f"[{i}]"}}
        for i in range(2)
    ]
    events = feed(state, chunk(text_delta("")), chunk(tool_delta(*calls, finish_reason="tool_calls")))
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [(event.index, event.parsed_arguments) for event in done] == [(0, [0]), (1, [1])]


def test_tool_calls_may_lack_an_index_or_come_out_of_order() -> None:
    state: Any = ChatCompletionStreamState()
    nameless = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    rest = {"function": {"arguments": " "}}
    feed(state, chunk(text_delta(None)), chunk(tool_delta(nameless)), chunk(tool_delta(rest)), chunk(END))
    [call] = state.get_final_completion().choices[0].message.tool_calls
    assert (call.id, call.function.arguments) == ("c", "{} ")
    state = ChatCompletionStreamState()
    late = [{"index": i, "id": f"c{i}", "type": "function", "function": {"arguments": "{}"}} for i in (3, 1)]
    feed(state, chunk(text_delta(None)), chunk(tool_delta(late[0])), chunk(tool_delta(late[1])), chunk(END))
    assert [call.id for call in state.get_final_completion().choices[0].message.tool_calls] == ["c3", "c1"]


def test_text_may_be_a_list_of_parts() -> None:
    state: Any = ChatCompletionStreamState()
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hel"}]
    events = feed(
        state,
        chunk(text_delta("")),
        chunk({"delta": {"content": parts}}),
        chunk(text_delta("lo")),
        chunk(END),
    )
    assert [event.delta for event in events if event.type == "content.delta"] == ["", "Hel", "lo"]
    assert state.get_final_completion().choices[0].message.content == "Hello"


def test_choices_may_start_in_any_order_and_share_chunks() -> None:
    state: Any = ChatCompletionStreamState()
    first = {"index": 1, **text_delta("b")}
    probs = {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": []}], "refusal": None}
    second = {"index": 0, **text_delta("a"), "logprobs": probs}
    feed(state, chunk(first), chunk(second), chunk(END, {**END, "index": 1}))
    final = state.get_final_completion()
    assert [(choice.index, choice.message.content) for choice in final.choices] == [(0, "a"), (1, "b")]
    assert len(final.choices[0].logprobs.content) == 1  # each token once, even if a choice starts late


def test_later_chunks_do_not_change_earlier_log_probabilities() -> None:
    state: Any = ChatCompletionStreamState()
    probs = {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": []}], "refusal": None}
    chunks = [chunk({**text_delta("a"), "logprobs": probs}) for _ in range(3)]
    events = [event for event in feed(state, *chunks) if event.type == "logprobs.content.delta"]
    assert [len(event.snapshot) for event in events] == [1, 2, 3]
    assert [len(one.choices[0].logprobs.content) for one in chunks] == [1, 1, 1]


def test_usage_and_fingerprint_are_kept_across_chunks_without_them() -> None:
    state: Any = ChatCompletionStreamState()
    feed(state, chunk(text_delta("a"), system_fingerprint="fp"), chunk(END, usage=USAGE), chunk())
    final = state.get_final_completion()
    assert (final.usage.total_tokens, final.system_fingerprint) == (3, "fp")


def test_text_that_is_not_json_raises_only_when_parsed() -> None:
    state: Any = ChatCompletionStreamState(response_format=City)
    events = feed(state, chunk(text_delta("")), chunk(text_delta("Sorry, ")), chunk(text_delta("no.")))
    with pytest.raises(ValueError, match="expected value"):
        print(events[-1].parsed)
    with pytest.raises(pydantic.ValidationError):
        feed(state, chunk(END))


def test_a_truncated_answer_raises_at_once() -> None:
    state: Any = ChatCompletionStreamState(response_format=City)
    feed(state, chunk(text_delta("")), chunk(text_delta('{"na')))
    with pytest.raises(LengthFinishReasonError) as caught:
        feed(state, chunk({"delta": {}, "finish_reason": "length"}))
    assert caught.value.completion.choices[0].message.content == '{"na'


def test_a_stream_without_chunks_has_no_completion() -> None:
    state: Any = ChatCompletionStreamState()
    with pytest.raises(APIResponseValidationError, match="No chunk"):
        state.get_final_completion()


def test_lazily_parsed_values_are_in_every_view_of_an_event() -> None:
    state: Any = ChatCompletionStreamState(response_format=City)
    texts = ['{"name": "U', 'lm", "rivers": ["Don', 'au"]}']
    deltas = [event for text in texts for event in feed(state, chunk(text_delta(text)))[1:]]
    feed(state, chunk(END))
    seen = [None, {"name": "Ulm", "rivers": []}, {"name": "Ulm", "rivers": ["Donau"]}]
    for views in (
        [event.parsed for event in deltas],
        [event.to_dict()["parsed"] for event in copy.deepcopy(deltas)],
        [json.loads(event.model_dump_json())["parsed"] for event in deltas],
        [event.parsed for event in pickle.loads(pickle.dumps(deltas))],
        [event.model_copy().parsed for event in deltas],
    ):
        assert views == seen
    assert "parsed={'name': 'Ulm', 'rivers': []}" in repr(deltas[1])
    same = ContentDeltaEvent(type="content.delta", delta=texts[2], snapshot="".join(texts), parsed=seen[2])
    assert deltas[2] == same
    assert deltas[1] != same
    assert not hasattr(deltas[1], "other")
    assert state.current_completion_snapshot.choices[0].message.parsed == City(name="Ulm", rivers=["Donau"])


def test_a_snapshot_grows_and_is_parsed_so_far() -> None:
    state: Any = ChatCompletionStreamState(response_format=City, input_tools=[pydantic_function_tool(City)])
    first = feed(state, chunk(text_delta("")))[0]
    assert isinstance(first, ChunkEvent)
    feed(state, chunk(text_delta('{"name": "Ulm"')))
    message = first.snapshot.choices[0].message
    assert message.parsed == {"name": "Ulm"}
    assert first.to_dict()["snapshot"]["choices"][0]["message"]["parsed"] == {"name": "Ulm"}
    begin = {"index": 0, "id": "c", "type": "function", "function": {"name": "City", "arguments": ""}}
    feed(state, chunk(text_delta(', "rivers": []}')), chunk(tool_delta(begin)))
    feed(state, chunk(tool_delta({"index": 0, "function": {"arguments": '{"name": "Köln", "ri'}})))
    assert first.snapshot.choices[0].message is message
    assert message.parsed == City(name="Ulm")
    assert message.tool_calls[0].function.parsed_arguments == {"name": "Köln"}
    feed(state, chunk(tool_delta({"index": 0, "function": {"arguments": 'vers": []}'}})), chunk(END))
    call = first.snapshot.choices[0].message.tool_calls[0]
    assert call.function.parsed_arguments == City(name="Köln")


def calls_made(work: Callable[[], object]) -> int:
    """Return the number of Python and C function calls that ``work`` makes."""
    count = 0

    def count_call(frame: object, what: str, arg: object) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", ["text", "json", "arguments", "logprobs"])
def test_the_cost_of_a_chunk_does_not_grow_with_the_stream(shape: str) -> None:
    probs = {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": []}], "refusal": None}
    arguments = {"index": 0, "function": {"arguments": "1,"}}
    begin = {"index": 0, "id": "c", "type": "function", "function": {"name": "search", "arguments": "["}}
    start, piece = {
        "text": (text_delta("a"), text_delta("b")),
        "json": (text_delta("["), text_delta("1,")),
        "arguments": (tool_delta(begin), tool_delta(arguments)),
        "logprobs": (text_delta("a"), {**text_delta("b"), "logprobs": probs}),
    }[shape]
    state: Any = ChatCompletionStreamState(
        response_format=City if shape == "json" else None, input_tools=[STRICT]
    )
    feed(state, chunk(start), *(chunk(piece) for _ in range(10)))
    one = chunk(piece)
    early = calls_made(lambda: state.handle_chunk(one))
    for _ in range(3_000):
        state.handle_chunk(one)
    assert calls_made(lambda: state.handle_chunk(one)) == early


class Chunks:
    """A stream of chunks that counts how often it was closed."""

    meta = None
    response = "the response"

    def __init__(self, *chunks: ChatCompletionChunk) -> None:
        self._chunks = chunks
        self.closed = 0

    def __iter__(self) -> Iterator[ChatCompletionChunk]:
        yield from self._chunks

    async def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        for one in self._chunks:
            yield one

    def close(self) -> None:
        self.closed += 1


class AsyncChunks(Chunks):
    async def close(self) -> None:  # type: ignore[override]
        self.closed += 1


STREAM = (
    chunk(text_delta("")),
    chunk(text_delta('{"name": ')),
    chunk(text_delta("x"), object=""),  # as sent by Azure's asynchronous filter
    chunk(text_delta('"Ulm"}')),
    chunk(END),
)


def test_the_request_is_sent_on_entering_the_block_and_closed_on_leaving() -> None:
    sent: list[Chunks] = []

    def send() -> Any:
        sent.append(Chunks(*STREAM))
        return sent[0]

    manager: ChatCompletionStreamManager[City] = ChatCompletionStreamManager(send, response_format=City)
    assert sent == []
    with manager as stream:
        first = next(stream)
        assert isinstance(first, ChunkEvent)
        assert types(list(stream)) == ["content.delta"] * 3 + ["content.done"]
        assert stream.response == "the response"
        assert stream.get_final_completion().choices[0].message.parsed == City(name="Ulm")
        assert sent[0].closed == 0
    assert sent[0].closed == 1


def test_leaving_the_block_early_closes_the_stream() -> None:
    chunks: Any = Chunks(*STREAM)
    with ChatCompletionStream(raw_stream=chunks) as stream:
        for _ in stream:
            break
        assert stream.current_completion_snapshot.id == "c"
    assert chunks.closed == 1


async def test_the_asynchronous_stream_gives_the_same_events() -> None:
    chunks: Any = AsyncChunks(*STREAM)

    async def send() -> Any:
        return chunks

    manager: AsyncChatCompletionStreamManager[City] = AsyncChatCompletionStreamManager(
        send, response_format=City
    )
    async with manager as stream:
        assert (await anext(stream)).type == "chunk"
        events = [event async for event in stream]
        assert types(events) == ["content.delta"] * 3 + ["content.done"]
        assert (await stream.get_final_completion()).choices[0].message.parsed == City(name="Ulm")
        assert (await stream.until_done()).current_completion_snapshot.id == "c"
    assert chunks.closed == 1
