"""Streams of a client over a loopback server, with their records: read to the end, left, or broken off."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from loopback_server import TEXT, OpenAIServer, broken_stream, events

from specclient import APIConnectionError, AsyncOpenAI, Settings
from specclient.config import PriceSettings, ProviderSettings

pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "Say something about foxes."}]
PRICES = {"mine/m-large": PriceSettings(input=Decimal(2), output=Decimal(8))}


def _settings(server: OpenAIServer, **more: object) -> Settings:
    return Settings.model_validate(
        {"providers": {"mine": ProviderSettings(base_url=server.base_url)}, "prices": PRICES, **more}
    )


async def _rows(client: AsyncOpenAI) -> list[tuple[str, str, str | None, int | None]]:
    return [(row.route, row.status, row.error, row.completion_tokens) for row in client.ledger.rows()]


async def test_a_streamed_call_costs_the_same_as_one_that_is_not(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        whole = await client.chat.completions.create(model="mine/m-large", messages=ASK)
        stream = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True)
        assert stream.meta.status == "open"
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == TEXT
        assert all(chunk.choices for chunk in chunks), (
            "the usage chunk is withheld from a caller who did not ask"
        )
        assert openai_server.requests[1].json["stream_options"] == {"include_usage": True}
        assert stream.meta.status == "ok"
        assert stream.meta.cost == whole.meta.cost
        assert stream.meta.usage == whole.meta.usage
        assert stream.meta.ttft_s is not None
        assert 0 <= stream.meta.ttft_s <= stream.meta.latency_s


async def test_the_usage_chunk_is_yielded_if_requested(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        stream = await client.chat.completions.create(
            model="mine/m-large", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None
    assert not chunks[-1].choices


async def test_leaving_a_stream_early_is_recorded_and_closes_the_connection(
    openai_server: OpenAIServer,
) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    openai_server.script(broken_stream(frame, frame, how="hang"))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        async with await client.chat.completions.create(
            model="mine/m-large", messages=ASK, stream=True
        ) as stream:
            async for _ in stream:
                break
        assert await asyncio.to_thread(openai_server.wait_left, 1)
        assert stream.meta.status == "cancelled"
        assert stream.meta.usage.estimated
        assert stream.meta.cost.estimated
        assert stream.meta.cost.total is not None
        assert stream.meta.cost.total > 0
        assert [row[1] for row in await _rows(client)] == ["cancelled"]


async def test_closing_a_stream_ends_a_reader_in_another_task(openai_server: OpenAIServer) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    openai_server.script(broken_stream(frame, how="hang"))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        stream = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True)
        seen: list[object] = []

        async def read() -> str:
            async for chunk in stream:
                seen.append(chunk)
            return "went on"

        reader = asyncio.create_task(read())
        while not seen:
            await asyncio.sleep(0.001)
        await stream.close()
        await stream.close()
        assert await reader == "went on"
        assert reader.cancelling() == 0
        assert openai_server.wait_left(1)
        assert stream.meta.status == "cancelled"


async def test_the_error_of_a_disconnected_stream_has_its_partial_text(openai_server: OpenAIServer) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    openai_server.script(broken_stream(frame, frame, how="reset"))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        stream = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True)
        with pytest.raises(APIConnectionError) as caught:
            async for _ in stream:
                pass
        assert caught.value.partial == "word word "
        assert stream.meta.status == "error"
        assert await _rows(client) == [
            ("mine/m-large", "error", "APIConnectionError", stream.meta.usage.completion)
        ]


async def test_the_partial_text_is_of_the_first_choice(openai_server: OpenAIServer) -> None:
    frame = b'data: {"choices": [{"index": %d, "delta": {"content": "%b"}}]}\n\n'
    openai_server.script(broken_stream(*(frame % (i, t) for i, t in ((0, b"a"), (1, b"B"), (0, b"c")))))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        stream = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True, n=2)
        with pytest.raises(APIConnectionError) as caught:
            async for _ in stream:
                pass
    assert caught.value.partial == "ac"


async def test_a_stream_that_ends_before_all_its_choices_raises(openai_server: OpenAIServer) -> None:
    frame = b'data: {"choices": [{"index": %d, "delta": {"content": "a"}, "finish_reason": %b}]}\n\n'
    first = [frame % (0, b"null"), frame % (1, b"null"), frame % (0, b'"stop"')]
    openai_server.script(events(*first), events(*first, frame % (1, b'"stop"'), frame % (0, b"null")))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        cut = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True, n=2)
        with pytest.raises(APIConnectionError, match="ended before the answer did"):
            [chunk async for chunk in cut]
        whole = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True, n=2)
        assert len([chunk async for chunk in whole]) == 5
