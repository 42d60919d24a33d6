"""Streamed responses: inconsistent streams, resumption, and the stream objects."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pydantic
import pytest

from specclient.lib.streaming.responses import (
    AsyncResponseStreamManager,
    ResponseStream,
    ResponseStreamManager,
    ResponseStreamState,
)
from specclient.structured import output_format, text_with_format
from specclient.types.base import read_as
from specclient.types.params import NOT_GIVEN
from specclient.types.responses import ResponseStreamEvent

pytestmark = pytest.mark.anyio

read = read_as(ResponseStreamEvent)


class City(pydantic.BaseModel):
    name: str


def event(kind: str, number: int = 0, **fields: Any) -> Any:
    return read(json.dumps({"type": f"response.{kind}", "sequence_number": number, **fields}).encode())


def whole(status: str, output: Any, name: str = "resp_1") -> dict[str, Any]:
    return {
        "id": name,
        "object": "response",
        "created_at": 1.0,
        "status": status,
        "model": "m",
        "output": output,
    }


def message(text: str | None, **more: Any) -> dict[str, Any]:
    content = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **more,
    }


def call(name: str = "fc", call_id: str = "call") -> dict[str, Any]:
    return {"id": name, "type": "function_call", "call_id": call_id, "name": "search", "arguments": ""}


PLACE = {"output_index": 0, "item_id": "msg", "content_index": 0}
CREATED = event("created", 0, response=whole("in_progress", []))
ADDED = event("output_item.added", 1, item=message(None), output_index=0)
PART = event("content_part.added", 2, part={"type": "output_text", "text": "", "annotations": []}, **PLACE)
DELTA = event("output_text.delta", 3, delta='{"name": "Ulm"}', logprobs=[], **PLACE)
DONE = event("output_text.done", 4, text='{"name": "Ulm"}', logprobs=[], **PLACE)
ITEM_DONE = event("output_item.done", 5, item=message('{"name": "Ulm"}'), output_index=0)
COMPLETED = event("completed", 6, response=whole("completed", [message('{"name": "Ulm"}')]))
STREAM = (CREATED, ADDED, PART, DELTA, DONE, ITEM_DONE, COMPLETED)


def fed(*events: Any) -> ResponseStreamState[Any]:
    state: ResponseStreamState[Any] = ResponseStreamState()
    for one in events:
        state.handle_event(one)
    return state


FUNCTION = event("output_item.added", 1, item=call(), output_index=0)
FUNCTION_DONE = event("output_item.done", 2, item=call(), output_index=0)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((ADDED,), "`response.created` before `response.output_item.added`"),
        ((CREATED, DELTA), "output index 0 before receiving its output item"),
        ((CREATED, ADDED, DELTA), "where no text has begun"),
        ((CREATED, FUNCTION, DELTA), "where no text has begun"),
        ((CREATED, ADDED, ADDED), "Duplicate response output index 0"),
        (
            (CREATED, event("in_progress", 1, response=whole("in_progress", [], "resp_2"))),
            "from 'resp_1' to 'resp_2'",
        ),
        ((CREATED, ADDED, event("output_item.done", 2, item=call(), output_index=0)), "identity changed"),
        (
            (CREATED, ITEM_DONE, event("output_item.done", 6, item=message("x"), output_index=1)),
            "conflicting output identities",
        ),
        (
            (CREATED, event("in_progress", 1, response=whole("in_progress", [call(), call("b")]))),
            "conflicting",
        ),
        (
            (CREATED, FUNCTION_DONE, event("in_progress", 3, response=whole("in_progress", [call("other")]))),
            "conflicting",
        ),
        (
            (CREATED, FUNCTION_DONE, event("completed", 3, response=whole("completed", [call("other")]))),
            "changed",
        ),
        ((CREATED, ADDED, event("completed", 2, response=whole("completed", []))), "unfinished output items"),
        (
            (CREATED, ADDED, event("completed", 2, response=whole("completed", None))),
            "unfinished output items",
        ),
    ],
)
def test_an_inconsistent_stream_is_refused(events: tuple[Any, ...], message: str) -> None:
    fed(*events[:-1])
    with pytest.raises(RuntimeError, match=message):
        fed(*events)


def test_the_last_version_of_an_item_counts() -> None:
    early = event("output_item.done", 2, item=message("early"), output_index=0)
    later = whole("in_progress", [message("later")])
    state = fed(CREATED, early, ITEM_DONE, event("in_progress", 3, response=later))
    [received] = state.handle_event(event("completed", 4, response=whole("completed", None)))
    assert received.response.output_text == "later"


def test_an_announced_item_without_content_is_omitted() -> None:
    state = fed(CREATED)
    assert state.handle_event(event("output_item.added", 1, item=None, output_index=0)) == []
    [received] = state.handle_event(event("completed", 2, response=whole("completed", [])))
    assert received.response.output == []


def test_an_incomplete_response_keeps_the_received_text() -> None:
    state = fed(CREATED, ADDED, PART, DELTA)
    [received] = state.handle_event(event("incomplete", 4, response=whole("incomplete", None)))
    assert received.response.output[0].content[0].text == '{"name": "Ulm"}'
    assert state.completed is None


def test_the_cost_of_a_delta_does_not_grow_with_the_stream() -> None:
    def calls_made() -> int:
        count = 0

        def count_call(frame: object, what: str, arg: object) -> None:
            nonlocal count
            count += what in ("call", "c_call")

        sys.setprofile(count_call)
        try:
            state.handle_event(DELTA)
        finally:
            sys.setprofile(None)
        return count

    state = fed(CREATED, ADDED, PART, DELTA, DELTA)
    early = calls_made()
    for _ in range(3_000):
        state.handle_event(DELTA)
    assert calls_made() == early


class Events:
    """A stream of events that counts how often it was closed."""

    meta = None
    response = None

    def __init__(self, *events: Any) -> None:
        self._events = events
        self.closed = 0

    def __iter__(self) -> Iterator[Any]:
        yield from self._events

    async def __aiter__(self) -> AsyncIterator[Any]:
        for one in self._events:
            yield one

    def close(self) -> None:
        self.closed += 1


class AsyncEvents(Events):
    async def close(self) -> None:  # type: ignore[override]
        self.closed += 1


def test_a_stream_yields_events_and_the_final_response() -> None:
    events: Any = Events(*STREAM)
    manager: ResponseStreamManager[City] = ResponseStreamManager(lambda: events, text_format=City)
    with manager as stream:
        received = list(stream)
        assert [one.type for one in received] == [one.type for one in STREAM]
        assert received[3].snapshot == '{"name": "Ulm"}'
        assert received[4].parsed == received[6].response.output_parsed == City(name="Ulm")
        assert stream.get_final_response().output_parsed == City(name="Ulm")
    assert events.closed == 1


def test_a_resumed_stream_yields_only_new_events() -> None:
    events: Any = Events(*STREAM)
    manager: ResponseStreamManager[Any] = ResponseStreamManager(lambda: events, starting_after=4)
    with manager as stream:
        assert [one.sequence_number for one in stream] == [5, 6]
        assert stream.get_final_response().output_text == '{"name": "Ulm"}'


@pytest.mark.parametrize(
    ("events", "last"), [((), "no event"), ((CREATED, ADDED), "`response.output_item.added`")]
)
def test_a_stream_without_a_completed_event_has_no_response(events: tuple[Any, ...], last: str) -> None:
    raw: Any = Events(*events)
    with pytest.raises(RuntimeError, match=rf"Didn't receive a `response.completed` event.*{last}"):
        ResponseStream(raw_stream=raw).get_final_response()


async def test_the_asynchronous_stream_gives_the_same_events() -> None:
    raw: Any = AsyncEvents(*STREAM)

    async def send() -> Any:
        return raw

    for request in (send, send()):  # a function that sends the request, or its awaitable
        manager: AsyncResponseStreamManager[City] = AsyncResponseStreamManager(
            request, text_format=City, starting_after=5
        )
        async with manager as stream:
            assert [one.type async for one in stream] == ["response.completed"]
            assert (await stream.get_final_response()).output_parsed == City(name="Ulm")
    assert raw.closed == 2


def test_text_format_is_merged_into_text_and_conflicts_are_errors() -> None:
    received = text_with_format({"verbosity": "low"}, City)
    assert received["verbosity"] == "low"
    assert (received["format"]["type"], received["format"]["name"]) == ("json_schema", "City")
    assert text_with_format(NOT_GIVEN, NOT_GIVEN) is NOT_GIVEN
    with pytest.raises(TypeError, match=r"text\.format with text_format"):
        text_with_format({"format": {"type": "text"}}, City)


def test_the_input_may_change_the_output_format() -> None:
    def update(given: Any) -> list[Any]:
        return [{"type": "configuration_update", "text": {"format": given}}, {"type": "message"}]

    schema = {"type": "json_schema", "name": "x"}
    assert output_format("hello", NOT_GIVEN, City, NOT_GIVEN) is City
    assert output_format("hello", NOT_GIVEN, NOT_GIVEN, City) is City
    assert output_format("hello", NOT_GIVEN, City, None) is None
    assert output_format(update(None), NOT_GIVEN, City, NOT_GIVEN) is City
    assert output_format(update({"type": "text"}), NOT_GIVEN, City, NOT_GIVEN) is None
    assert output_format(update(schema), {"format": schema}, City, NOT_GIVEN) is City
    assert output_format(update(schema), NOT_GIVEN, City, dict) is dict
    with pytest.raises(TypeError, match="Cannot use parse_as"):
        output_format(update({"type": "text"}), NOT_GIVEN, City, City)
    with pytest.raises(TypeError, match="Pass parse_as"):
        output_format(update(schema), NOT_GIVEN, City, NOT_GIVEN)
