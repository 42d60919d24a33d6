"""The asynchronous client in consecutive and concurrent event loops; cancelled, closed and dropped calls."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from loopback_server import TEXT, OpenAIServer, broken_stream, hang, reset

from specclient import APIConnectionError, AsyncOpenAI, OpenAIError

ASK = [{"role": "user", "content": "hello"}]
FRAME = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'


def make_client(server: OpenAIServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.base_url, api_key="k")


async def create(client: AsyncOpenAI) -> str | None:
    answer = await client.chat.completions.create(model="m", messages=ASK)
    return answer.choices[0].message.content


async def open_stream(client: AsyncOpenAI) -> Any:
    return await client.chat.completions.create(model="m", messages=ASK, stream=True)


async def read_stream(client: AsyncOpenAI) -> str:
    return "".join([chunk.choices[0].delta.content or "" async for chunk in await open_stream(client)])


def test_a_client_works_in_consecutive_loops_and_after_closing(openai_server: OpenAIServer) -> None:
    client = make_client(openai_server)
    assert asyncio.run(create(client)) == TEXT
    asyncio.run(client.close())
    assert asyncio.run(read_stream(client)) == TEXT

    async def use_and_reuse() -> None:
        async with client:
            assert await create(client) == TEXT
        assert await create(client) == TEXT

    asyncio.run(use_and_reuse())
    asyncio.run(client.close())


def test_a_client_works_in_concurrent_loops_of_several_threads(openai_server: OpenAIServer) -> None:
    client, seen = make_client(openai_server), list[str]()

    def work() -> None:
        for _ in range(3):
            seen.append(asyncio.run(read_stream(client)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [TEXT] * 18


def test_a_stream_whose_loop_was_closed_is_cancelled(openai_server: OpenAIServer) -> None:
    openai_server.script(broken_stream(FRAME, how="hang"))
    client = make_client(openai_server)

    async def begin() -> Any:
        stream = await open_stream(client)
        await anext(stream)
        return stream

    stream = asyncio.run(begin())
    assert openai_server.wait_left(1)
    assert stream.meta.status == "cancelled"

    async def rest() -> list[Any]:
        return [chunk async for chunk in stream]

    assert asyncio.run(rest()) == []
    asyncio.run(stream.close())


def test_a_call_outside_asyncio_raises_an_error_that_names_asyncio_run(openai_server: OpenAIServer) -> None:
    client = make_client(openai_server)
    for call in (create(client), read_stream(client), client.close(), client.with_options(timeout=1).close()):
        with pytest.raises(OpenAIError, match=r"runs on asyncio.*asyncio\.run"):
            call.send(None)


@pytest.mark.parametrize("name", ["trio", "uvloop"])
def test_uvloop_works_and_trio_raises(openai_server: OpenAIServer, name: str) -> None:
    library = pytest.importorskip(name, reason=f"{name} is not installed")
    client = make_client(openai_server)
    if name == "uvloop":
        assert library.run(read_stream(client)) == TEXT
        return
    with pytest.raises(OpenAIError, match="Under trio"):
        library.run(create, client)


class TestOneLoop:
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    async def client(self, openai_server: OpenAIServer) -> AsyncIterator[AsyncOpenAI]:
        client = make_client(openai_server)
        yield client
        await client.close()

    async def test_a_dropped_stream_frees_its_connection(
        self, openai_server: OpenAIServer, client: AsyncOpenAI
    ) -> None:
        openai_server.script(broken_stream(FRAME, how="hang"))
        stream = await open_stream(client)
        await anext(stream)
        del stream
        gc.collect()
        assert await asyncio.to_thread(openai_server.wait_left, 1)

    @pytest.mark.parametrize("call", [create, read_stream], ids=["complete", "during its stream"])
    @pytest.mark.parametrize("how", ["cancel", "timeout"])
    async def test_a_cancelled_call_frees_its_connection_at_once(
        self,
        openai_server: OpenAIServer,
        client: AsyncOpenAI,
        call: Callable[[AsyncOpenAI], Awaitable[Any]],
        how: str,
    ) -> None:
        openai_server.script(hang if call is create else broken_stream(FRAME, how="hang"))

        async def bounded() -> None:
            async with asyncio.timeout(0.3 if how == "timeout" else None):
                await call(client)

        task = asyncio.create_task(bounded())
        while not openai_server.requests:
            await asyncio.sleep(0.01)
        if how == "cancel":
            await asyncio.sleep(0.1)
            task.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancel" else TimeoutError):
            await task
        assert await asyncio.to_thread(openai_server.wait_left, 1)
        assert await create(client) == TEXT, "the client remains usable"

    async def test_closing_ends_running_streams_with_an_error(
        self, openai_server: OpenAIServer, client: AsyncOpenAI
    ) -> None:
        openai_server.script(*[broken_stream(FRAME, how="hang")] * 3)
        streams = [await open_stream(client) for _ in range(3)]
        readers = [asyncio.create_task(_rest(stream)) for stream in streams]
        await asyncio.sleep(0.1)
        await client.close()
        for reader in readers:
            with pytest.raises(APIConnectionError, match="client was closed"):
                await reader
        assert await asyncio.to_thread(openai_server.wait_left, 3)
        assert await create(client) == TEXT

    async def test_a_task_group_in_which_one_call_fails_closes_all_connections(
        self, openai_server: OpenAIServer, client: AsyncOpenAI
    ) -> None:
        openai_server.script(hang, reset)
        with pytest.raises(ExceptionGroup):  # noqa: PT012 - the task group raises
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(create(client))
                while not openai_server.requests:
                    await asyncio.sleep(0.01)
                tasks.create_task(create(client.with_options(max_retries=0)))
        assert await asyncio.to_thread(openai_server.wait_left, 2)


async def _rest(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]
