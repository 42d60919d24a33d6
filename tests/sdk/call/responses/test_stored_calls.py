"""Stored responses: the official client of the server, over the transport, and ours in this process agree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from stored_responses import ASK, local_settings, outcome, plain

import specclient

TURNS: Any = [
    {"role": "user", "content": "def f(x):"},
    {"type": "function_call", "call_id": "c", "name": "sky", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "blue"},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
]


def responses(client: Any) -> Any:
    """Create, continue, retrieve, list and delete."""
    api, items = client.responses, client.responses.input_items
    first = api.create(**ASK, input="def f(x):", metadata={"a": "b"})
    second = api.create(**ASK, input="more", previous_response_id=first.id, instructions="brief")
    third = api.create(**ASK, input=[{"role": "user", "content": "again"}], previous_response_id=second.id)
    unstored = api.create(**ASK, input="def f(x):", store=False)
    whole = list(items.list(third.id, order="asc", limit=2))
    yield [first, second, third, unstored]
    yield [second.previous_response_id == first.id, api.retrieve(third.id).to_dict() == third.to_dict()]
    yield [third.usage.input_tokens > second.usage.input_tokens > first.usage.input_tokens]
    yield whole
    yield [[item.id for item in items.list(third.id)] == [item.id for item in reversed(whole)]]
    yield [
        [item.id for item in items.list(third.id, order="asc", after=whole[1].id)]
        == [i.id for i in whole[2:]]
    ]
    page = items.list(third.id, limit=3)
    yield [len(page.data), page.has_more, page.last_id == page.data[-1].id]
    yield outcome(lambda: api.retrieve(unstored.id))
    yield outcome(lambda: api.create(**ASK, input="x", previous_response_id=unstored.id))
    yield outcome(lambda: api.create(**ASK, input="x", previous_response_id="resp_67ab"))
    yield outcome(lambda: api.cancel(first.id))
    yield outcome(lambda: api.create(**ASK, input="x", background=True))
    for wrong in ({"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "msg_0"}, {"include": ["all"]}):
        yield outcome(lambda wrong=wrong: items.list(third.id, **wrong))
    yield [
        api.delete(first.id),
        outcome(lambda: api.delete(first.id)),
        outcome(lambda: api.retrieve(first.id)),
    ]
    yield api.create(**ASK, input="on", previous_response_id=second.id)  # has all that it needs


def conversations(client: Any) -> Any:
    """Create, use in responses, update, list and delete."""
    api = client.conversations
    made = api.create(metadata={"a": "b"}, items=TURNS)
    yield [made, api.retrieve(made.id), api.update(made.id, metadata={"c": "d"}), api.retrieve(made.id)]
    yield list(api.items.list(made.id, order="asc", limit=3))
    yield list(api.items.list(made.id, include=["message.input_image.image_url"]))
    with_image = api.items.list(made.id).data[0]
    yield [
        api.items.retrieve(with_image.id, conversation_id=made.id),
        api.items.delete(with_image.id, conversation_id=made.id),
    ]
    yield outcome(lambda: api.items.retrieve(with_image.id, conversation_id=made.id))
    added = api.items.create(made.id, items=[{"role": "user", "content": "and?"}])
    yield [added, len(added.data)]
    answer = client.responses.create(**ASK, input="go on", conversation=made.id)
    events = list(client.responses.create(**ASK, input="more", conversation={"id": made.id}, stream=True))
    yield [answer, events[-1].response, events[-1].response.usage.input_tokens > answer.usage.input_tokens]
    listed = list(api.items.list(made.id, order="asc"))
    yield [getattr(item, "role", item.type) for item in listed]
    yield [len({item.id for item in listed}) == len(listed)]
    first = client.responses.create(**ASK, input="x")
    yield outcome(
        lambda: client.responses.create(**ASK, input="x", conversation=made.id, previous_response_id=first.id)
    )
    yield outcome(lambda: api.items.create(made.id, items=[{"role": "user", "content": "x"}] * 21))
    yield outcome(lambda: api.items.create(made.id, items=[{"content": "x"}]))
    yield outcome(lambda: api.update(made.id, metadata={"long": "x" * 600}))
    yield [api.delete(made.id), outcome(lambda: api.retrieve(made.id))]
    yield outcome(lambda: client.responses.create(**ASK, input="x", conversation=made.id))
    yield outcome(lambda: api.items.list(made.id))


FORM: Any = {"format": {"type": "json_schema", "name": "n", "schema": {"enum": ["Ulm"]}}}


def streams(client: Any) -> Any:
    """Stream a stored response again, from its start and from its middle."""
    api = client.responses
    events = list(api.create(**ASK, input="def f(x):", stream=True, include=["message.output_text.logprobs"]))
    done = events[-1].response
    assert [e.to_dict() for e in api.retrieve(done.id, stream=True)] == [e.to_dict() for e in events]
    after = list(api.retrieve(done.id, stream=True, starting_after=4))
    assert [e.to_dict() for e in after] == [e.to_dict() for e in events[5:]]
    whole = api.create(**ASK, input="def f(x):")
    yield list(api.retrieve(whole.id, stream=True))
    yield outcome(lambda: list(api.retrieve("resp_local_0", stream=True)))
    complete = api.create(**{**ASK, "max_output_tokens": 60}, input="x", text=FORM)
    with api.stream(response_id=complete.id) as again:
        yield again.get_final_response().output_text == complete.output_text
    with api.stream(response_id=done.id) as again:
        yield [event.type for event in again if "delta" not in event.type]


@pytest.mark.parametrize("scenario", [responses, conversations, streams])
def test_the_clients_agree(
    here: specclient.OpenAI, there: openai.OpenAI, scenario: Callable[[Any], Any]
) -> None:
    transport = specclient.transport(client=here)
    with openai.OpenAI(http_client=httpx.Client(transport=transport), api_key="specclient-no-key") as over:
        ours = [_plain(step) for step in scenario(here)]
        assert ours == [_plain(step) for step in scenario(there)]
        assert ours == [_plain(step) for step in scenario(over)]


def test_the_asynchronous_client_reads_what_another_stored(here: specclient.OpenAI, folder: Path) -> None:
    made = here.responses.create(**ASK, input="def f(x):")

    async def run() -> list[Any]:
        async with specclient.AsyncOpenAI(config=local_settings(folder / "here.sqlite3")) as client:
            read = await client.responses.retrieve(made.id)
            items = [item async for item in client.responses.input_items.list(made.id)]
            stream = await client.responses.retrieve(made.id, stream=True)
            kinds = [event.type async for event in stream]
            await client.responses.delete(made.id)
            return [read.to_dict() == made.to_dict(), len(items), kinds[0], kinds[-1]]

    assert asyncio.run(run()) == [True, 1, "response.created", "response.incomplete"]
    with pytest.raises(specclient.NotFoundError):
        here.responses.retrieve(made.id)


def _plain(step: Any) -> Any:
    return [_plain(each) for each in step] if isinstance(step, list) else plain(step)
