"""Errors that an event of a stream reports: the OpenAI client's exception, and not a subclass."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from both_clients import Both, Side, differences, error_values
from loopback_server import events

from specclient import APIError, OpenAI

HI = [{"role": "user", "content": "hi"}]

STREAMS: dict[str, tuple[Callable[[Any], Any], dict[str, Any], bytes]] = {
    "chat.completions": (
        lambda c: c.chat.completions,
        {"model": "m", "messages": HI},
        b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"content":"The"},"finish_reason":null}]}\n\n',
    ),
    "completions": (
        lambda c: c.completions,
        {"model": "m", "prompt": "Once"},
        b'data: {"id":"1","object":"text_completion","created":1,"model":"m","choices":'
        b'[{"index":0,"text":"The","finish_reason":null,"logprobs":null}]}\n\n',
    ),
    "responses": (
        lambda c: c.responses,
        {"model": "m", "input": "hi"},
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"i",'
        b'"output_index":0,"content_index":0,"sequence_number":1,"delta":"The","logprobs":[]}\n\n',
    ),
    "audio.transcriptions": (
        lambda c: c.audio.transcriptions,
        {"model": "m", "file": ("a.wav", b"x")},
        b'data: {"type":"transcript.text.delta","delta":"The"}\n\n',
    ),
    "beta.threads.runs": (
        lambda c: c.beta.threads.runs,
        {"thread_id": "t", "assistant_id": "a"},
        b'event: thread.message.delta\ndata: {"id":"m","object":"thread.message.delta","delta":{}}\n\n',
    ),
}

FAULT = {"message": "broken", "type": "server_error", "code": "x", "param": "p"}
BODIES: dict[str, Any] = {
    "an object": {"error": FAULT},
    "a status": {"error": {"message": "slow", "type": "rate_limit_error", "code": 429, "param": None}},
    "no message": {"error": {"type": "server_error"}},
    "a message of another type": {"error": {"message": 3, "type": "invalid_request_error"}},
    "within a chunk": {"error": FAULT, "choices": [], "id": "1"},
    "a typed event": {"type": "error", "error": FAULT, "code": "x", "message": "m", "param": None},
}


def _read(side: Side, stream: Any, into: list[Any]) -> None:
    """Read a stream; its items before an error are kept."""

    async def read() -> None:
        async for item in stream:
            into.append(item)

    if side.is_async:
        side.runner.run(read())
    else:
        into.extend(stream)


def _as_parsed(side: Side, resource: Any, arguments: Any, read: Callable[[Any], None]) -> None:
    read(side.get_unread(resource.create(**arguments, stream=True)))


def _as_raw(side: Side, resource: Any, arguments: Any, read: Callable[[Any], None]) -> None:
    read(side.get_unread(resource.with_raw_response.create(**arguments, stream=True)).parse())


def _as_streaming(side: Side, resource: Any, arguments: Any, read: Callable[[Any], None]) -> None:
    with side.within(resource.with_streaming_response.create(**arguments, stream=True)) as response:
        read(side.get_unread(response.parse()))


FORMS = {"parsed": _as_parsed, "raw": _as_raw, "streaming": _as_streaming}


def _scenario(kind: str, form: str) -> Callable[[Side], Any]:
    def scenario(side: Side) -> Any:
        find, arguments, _ = STREAMS[kind]
        items: list[Any] = []
        with pytest.raises(Exception) as caught:  # noqa: PT011 - errors are compared
            FORMS[form](side, find(side.client), arguments, lambda stream: _read(side, stream, items))
        error: Any = caught.value
        values = error_values(error, side.url)
        return {
            "items": [item.to_dict() for item in items],
            "class": type(error).__name__,
            "values": {**values, "classes": sorted(values["classes"])},
            "attributes": [hasattr(error, name) for name in ("status_code", "response", "request_id")],
            "request": [error.request.method, error.request.url.path],
            "context": error.__context__ is None,
        }

    return scenario


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("place", ["first", "later", "in one piece"])
def test_an_error_in_every_kind_of_stream(both: Both, kind: str, form: str, place: str) -> None:
    first = STREAMS[kind][2]
    fault = b"data: %b\n\n" % json.dumps(BODIES["an object"]).encode()
    pieces = {"first": [fault], "later": [first, fault], "in one piece": [first + fault]}[place]
    happened = both.same(_scenario(kind, form), events(*pieces, gap=0.02)).result
    assert happened["class"] == "APIError"
    assert len(happened["items"]) == (place != "first")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("event", [None, "error"])
@pytest.mark.parametrize("kind", STREAMS)
def test_each_form_of_an_error(both: Both, kind: str, event: str | None, body: str) -> None:
    name = b"" if event is None else b"event: %b\n" % event.encode()
    fault = b"%bdata: %b\n\n" % (name, json.dumps(BODIES[body]).encode())
    assert both.same(_scenario(kind, "parsed"), events(fault)).result["class"] == "APIError"


@pytest.mark.parametrize("value", ["overloaded", ["overloaded"], True, 3])
def test_an_error_that_is_no_object(both: Both, value: Any) -> None:
    """Our message has the text, where the OpenAI client's is the same for all."""
    fault = b"data: %b\n\n" % json.dumps({"error": value}).encode()
    theirs, ours = both.run(_scenario("chat.completions", "parsed"), events(fault))
    theirs.result["values"].pop("text")
    text = ours.result["values"].pop("text")
    assert text == ("overloaded" if value == "overloaded" else "An error occurred during streaming")
    assert list(differences(ours.result, theirs.result)) == []


def test_the_error_tells_the_status_that_it_stands_for(openai_server: Any) -> None:
    error = {**BODIES["a status"]["error"], "message": "slow down, sk-secret-key"}
    fault = b"data: %b\n\n" % json.dumps({"error": error}).encode()
    with OpenAI(base_url=openai_server.base_url, api_key="sk-secret-key", max_retries=0) as client:
        openai_server.script(events(STREAMS["chat.completions"][2], fault))
        stream = client.chat.completions.create(model="m", messages=HI, stream=True)
        with pytest.raises(APIError) as caught:
            list(stream)
    assert (type(caught.value), caught.value.reported_status) == (APIError, 429)
    assert caught.value.partial == "The"
    shown = (str(caught.value), caught.value.body, dict(caught.value.request.headers))
    assert "slow down" in shown[0]
    assert "sk-secret-key" not in str(shown)
    assert (stream.meta.status, stream.meta.error) == ("error", "RateLimitError")
