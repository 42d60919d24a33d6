"""Closing a transport while its calls and streams are running."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from loopback_server import OpenAIServer, broken_stream, events, hang, reply

from specclient.errors import APIConnectionError
from specclient.http_transport import Transport
from specclient.types.wire import WireRequest

pytestmark = pytest.mark.anyio

CLOSED = "The client was closed before the answer of http.* was complete"
Make = Callable[..., Transport]


@pytest.fixture(params=["aiohttp", "httpx"])
def make(request: pytest.FixtureRequest) -> Make:
    return lambda **options: Transport(kind=request.param, **options)


def post(server: OpenAIServer) -> WireRequest:
    body = json.dumps({"model": "m", "messages": [], "stream": True}).encode()
    return WireRequest("POST", f"{server.base_url}/chat/completions", {"x-ours": "1"}, body)


async def read(transport: Transport, request: WireRequest, first: asyncio.Event) -> list[bytes]:
    seen = []
    async with transport.stream(request) as stream:
        async for event in stream:
            seen.append(event.data)
            first.set()
    return seen


async def test_closing_raises_in_a_reader_amid_its_stream(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(broken_stream(b"data: 1\n\n", how="hang"))
    transport, first = make(), asyncio.Event()
    reader = asyncio.create_task(read(transport, post(openai_server), first))
    await first.wait()
    await transport.aclose()
    with pytest.raises(APIConnectionError, match=CLOSED) as caught:
        await reader
    assert caught.value.attempts == 1
    assert reader.cancelling() == 0
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_closing_raises_in_a_call_that_waits_for_its_response(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(hang)
    transport = make()
    call = asyncio.create_task(transport.fetch(post(openai_server)))
    while not openai_server.requests:
        await asyncio.sleep(0.005)
    await transport.aclose()
    with pytest.raises(APIConnectionError, match=CLOSED):
        await call
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_closing_raises_in_a_call_that_waits_for_its_next_attempt(
    openai_server: OpenAIServer, make: Make
) -> None:
    waits = asyncio.Event()

    async def sleep(_: float) -> None:
        waits.set()
        await asyncio.Event().wait()

    openai_server.script(reply(500))
    transport = make(sleep=sleep)
    call = asyncio.create_task(transport.fetch(post(openai_server)))
    await waits.wait()
    await transport.aclose()
    with pytest.raises(APIConnectionError, match=CLOSED):
        await call


async def test_closing_raises_at_the_next_event_of_a_reader_that_is_processing_one(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(events(b"data: 1\n\n", b"data: 2\n\n", gap=0.05))
    transport = make()
    seen = []

    async def close_at_first() -> None:
        async with transport.stream(post(openai_server)) as stream:
            async for event in stream:
                seen.append(event.data)
                await transport.aclose()

    with pytest.raises(APIConnectionError, match=CLOSED):
        await close_at_first()
    assert seen == [b"1"]


async def test_a_reader_that_is_also_cancelled_raises_cancelled_error(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(broken_stream(b"data: 1\n\n", how="hang"))
    transport, first = make(), asyncio.Event()
    reader = asyncio.create_task(read(transport, post(openai_server), first))
    await first.wait()
    reader.cancel()
    await transport.aclose()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_closing_raises_in_a_reader_inside_an_asyncio_timeout(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(broken_stream(b"data: 1\n\n", how="hang"))
    transport, first = make(), asyncio.Event()

    async def patient() -> list[bytes]:
        async with asyncio.timeout(60):
            return await read(transport, post(openai_server), first)

    reader = asyncio.create_task(patient())
    await first.wait()
    await transport.aclose()
    with pytest.raises(APIConnectionError, match=CLOSED):
        await reader


@pytest.mark.parametrize("cls", [httpx.AsyncClient, httpx.Client])
async def test_closing_ends_streams_over_a_users_client_and_leaves_the_client_open(
    openai_server: OpenAIServer, cls: Any
) -> None:
    openai_server.script(broken_stream(b"data: 1\n\n", how="hang"))
    client = cls()
    transport, first = Transport(http_client=client), asyncio.Event()
    reader = asyncio.create_task(read(transport, post(openai_server), first))
    await first.wait()
    await transport.aclose()
    with pytest.raises(APIConnectionError, match=CLOSED):
        await reader
    assert not client.is_closed
    await client.aclose() if isinstance(client, httpx.AsyncClient) else client.close()


async def test_ended_calls_are_no_longer_tracked(openai_server: OpenAIServer, make: Make) -> None:
    transport = make(max_retries=0)
    await transport.fetch(post(openai_server))
    await read(transport, post(openai_server), asyncio.Event())
    openai_server.script(reply(500), reply(500))
    for call in (transport.fetch(post(openai_server)), read(transport, post(openai_server), asyncio.Event())):
        with pytest.raises(Exception, match="500"):
            await call
    assert not transport._running
    await transport.aclose()


class TestLoops:
    """Synchronous tests, which start and close their own event loops."""

    def test_closing_in_one_loop_does_not_end_streams_of_other_loops(
        self, openai_server: OpenAIServer, make: Make
    ) -> None:
        may_end = threading.Event()

        async def late(received: Any, wire: Any) -> None:
            await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
            await wire.chunk(b"data: 1\n\n")
            await asyncio.to_thread(may_end.wait)
            await wire.chunk(b"data: [DONE]\n\n")
            await wire.chunk(b"")

        openai_server.script(late)
        transport, began, seen = make(), threading.Event(), []

        async def watch() -> None:
            first = asyncio.Event()
            reader = asyncio.create_task(read(transport, post(openai_server), first))
            await first.wait()
            began.set()
            seen.extend(await reader)

        thread = threading.Thread(target=lambda: asyncio.run(watch()))
        thread.start()
        assert began.wait(30)
        asyncio.run(transport.aclose())
        may_end.set()
        thread.join()
        assert seen == [b"1", b"[DONE]"]

    @pytest.mark.parametrize("kind", ["aiohttp", "httpx"])
    def test_interpreter_exit_does_not_break_a_running_stream(
        self, openai_server: OpenAIServer, kind: str
    ) -> None:
        """A stream in a daemon thread continues at interpreter exit until its owner has joined the thread."""
        openai_server.script(events(b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n", gap=0.3))
        script = textwrap.dedent(f"""
            import asyncio, atexit, threading, weakref
            from specclient.http_transport import Transport
            from specclient.types.wire import WireRequest
            began = threading.Event()
            async def main():
                request = WireRequest("POST", {openai_server.base_url!r} + "/chat/completions")
                async with transport.stream(request) as stream:
                    async for event in stream:
                        began.set()
                        print(event.data.decode(), flush=True)
            def run():
                asyncio.run(main())
            thread = threading.Thread(target=run, daemon=True)
            atexit.register(thread.join)  # registered before any finalizer, so it runs after them
            transport = Transport(kind={kind!r})
            thread.start()
            began.wait()
        """)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (done.stdout.split(), done.stderr, done.returncode) == (["1", "2", "[DONE]"], "", 0)
