"""The HTTP client of a transport: the user's, which stays open, or one of its own for each event loop."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest
from loopback_server import OpenAIServer, broken_stream, events, hang, reply, reset

from specclient.errors import (
    APIConnectionError,
    APIError,
    APITimeoutError,
    ConfigurationError,
    NotFoundError,
)
from specclient.http_transport import Transport
from specclient.types.wire import WireRequest

httpx2 = pytest.importorskip("httpx2", reason="httpx2 is not installed")

pytestmark = pytest.mark.anyio


def post(server: OpenAIServer, **options: Any) -> WireRequest:
    body = json.dumps({"model": "m", "messages": [], "stream": options.pop("stream", False)}).encode()
    return WireRequest("POST", f"{server.base_url}/chat/completions", {"x-ours": "1"}, body, **options)


async def collect(transport: Transport, request: WireRequest) -> list[bytes]:
    async with transport.stream(request) as stream:
        return [event.data async for event in stream]


CLIENTS = [httpx.AsyncClient, httpx.Client, httpx2.AsyncClient, httpx2.Client]


@pytest.fixture(params=CLIENTS, ids=lambda cls: f"{cls.__module__.partition('.')[0]}.{cls.__name__}")
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    made = request.param(headers={"x-theirs": "2"})
    yield made
    if hasattr(made, "aclose"):
        await made.aclose()
    else:
        made.close()


async def test_a_users_client_keeps_its_headers_and_is_not_closed(
    openai_server: OpenAIServer, client: Any
) -> None:
    transport = Transport(http_client=client)
    assert (await transport.fetch(post(openai_server))).status == 200
    assert (await collect(transport, post(openai_server, stream=True)))[-1] == b"[DONE]"
    await transport.aclose()
    assert not client.is_closed
    for received in openai_server.requests:
        assert (received.headers["x-ours"], received.headers["x-theirs"]) == ("1", "2")


async def test_failures_of_a_users_client_raise_our_errors(openai_server: OpenAIServer, client: Any) -> None:
    transport = Transport(http_client=client, max_retries=0)
    openai_server.script(reply(404, {"error": {"message": "no"}}), reset, hang, broken_stream(b"data: 1\n\n"))
    with pytest.raises(NotFoundError):
        await collect(transport, post(openai_server))
    with pytest.raises(APIConnectionError, match="No answer from"):
        await transport.fetch(post(openai_server))
    with pytest.raises(APITimeoutError, match=r"read timeout of 0\.1 s"):
        await transport.fetch(post(openai_server, timeout=0.1))
    with pytest.raises(APIConnectionError, match="broke off"):
        await collect(transport, post(openai_server))


async def test_a_sync_client_does_not_block_the_loop(openai_server: OpenAIServer) -> None:
    openai_server.script(events(b"data: 1\n\n", b"data: 2\n\n", gap=0.05))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    with httpx.Client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            assert await collect(Transport(http_client=client), post(openai_server)) == [b"1", b"2"]
            tasks.cancel_scope.cancel()
    assert ticks > 3


async def test_a_cancelled_call_over_a_sync_client_returns_at_once_and_closes_its_connection(
    openai_server: OpenAIServer,
) -> None:
    release = threading.Event()

    async def late(received: Any, wire: Any) -> None:
        await asyncio.to_thread(release.wait)
        await events(b"data: 1\n\n", b"data: 2\n\n")(received, wire)
        await wire.client_left()

    openai_server.script(late)
    with httpx.Client() as client:
        with anyio.move_on_after(0.1) as scope:
            await collect(Transport(http_client=client), post(openai_server))
        assert scope.cancelled_caught
        release.set()
        assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_the_timeout_of_a_users_client_applies(openai_server: OpenAIServer) -> None:
    openai_server.script(hang)
    async with httpx.AsyncClient(timeout=0.15) as client:
        with pytest.raises(APITimeoutError, match=r"0\.15 s"):
            await Transport(http_client=client, max_retries=0).fetch(post(openai_server))


async def test_a_users_client_without_a_timeout_gets_the_transports() -> None:
    seen: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions["timeout"])
        return httpx.Response(200, json={})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await Transport(http_client=client).fetch(WireRequest("GET", "http://any.invalid/"))
        await Transport(http_client=client, timeout=7).fetch(WireRequest("GET", "http://any.invalid/"))
    assert [limits["read"] for limits in seen] == [600.0, 7]
    assert seen[0]["connect"] == 5.0


async def test_a_response_already_read_by_a_users_hook_can_still_be_streamed(
    openai_server: OpenAIServer,
) -> None:
    async def read(response: httpx.Response) -> None:
        await response.aread()

    async with httpx.AsyncClient(event_hooks={"response": [read]}) as client:
        data = await collect(Transport(http_client=client), post(openai_server, stream=True))
    assert data[-1] == b"[DONE]"


@pytest.fixture(params=["aiohttp", "httpx"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


class TestLoops:
    """Synchronous tests, which start and close their own event loops."""

    def test_one_transport_serves_several_loops_in_turn(self, openai_server: OpenAIServer, kind: Any) -> None:
        transport = Transport(kind=kind)
        for count in (1, 2, 3):
            assert asyncio.run(transport.fetch(post(openai_server))).status == 200
            assert openai_server.wait_left(count)  # closed with its loop
        gc.collect()

    def test_a_loop_closed_without_closing_the_client_first(
        self, openai_server: OpenAIServer, kind: Any
    ) -> None:
        transport = Transport(kind=kind)
        for _ in range(2):
            loop = asyncio.new_event_loop()
            assert loop.run_until_complete(transport.fetch(post(openai_server))).status == 200
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
        assert asyncio.run(transport.fetch(post(openai_server))).status == 200

    def test_one_transport_serves_loops_in_several_threads(
        self, openai_server: OpenAIServer, kind: Any
    ) -> None:
        transport = Transport(kind=kind)
        statuses: list[int] = []

        def work() -> None:
            statuses.append(asyncio.run(transport.fetch(post(openai_server))).status)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 8

    def test_a_transport_can_be_closed_twice_and_used_again(
        self, openai_server: OpenAIServer, kind: Any
    ) -> None:
        async def main() -> None:
            transport = Transport(kind=kind)
            await transport.aclose()
            await transport.fetch(post(openai_server))
            await transport.aclose()
            await transport.aclose()
            assert openai_server.connections == 1
            await transport.fetch(post(openai_server))
            assert openai_server.connections == 2

        asyncio.run(main())

    def test_a_garbage_collected_transport_closes_its_client(
        self, openai_server: OpenAIServer, kind: Any
    ) -> None:
        async def main() -> bool:
            await Transport(kind=kind).fetch(post(openai_server))
            gc.collect()
            return await asyncio.to_thread(openai_server.wait_left, 1)

        assert asyncio.run(main())

    def test_nothing_is_printed_to_stderr_at_exit(self, openai_server: OpenAIServer, kind: Any) -> None:
        """Subprocesses that read a stream to its end, stop amid a stream, or abandon a loop."""
        script = textwrap.dedent(f"""
            import asyncio, sys
            from specclient.http_transport import Transport
            from specclient.types.wire import WireRequest
            transport = Transport(kind={kind!r})
            request = WireRequest("POST", {openai_server.base_url!r} + "/chat/completions",
                                  content=b'{{"model": "m", "messages": [], "stream": true}}')
            async def read(to_the_end):
                async with transport.stream(request) as stream:
                    async for event in stream:
                        if not to_the_end:
                            return
            asyncio.run(read(True))
            asyncio.run(read(False))
            if "abandon" in sys.argv:
                loop = asyncio.new_event_loop()
                loop.run_until_complete(read(True))
                loop.close()
                asyncio.run(read(True))
        """)
        for arguments in ([], ["abandon"]):
            options = ["-X", "dev", "-W", "error"] if not arguments else []
            done = subprocess.run(
                [sys.executable, *options, "-c", script, *arguments],
                capture_output=True,
                text=True,
                check=False,
            )
            lines = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
            assert (done.returncode, lines) == (0, [])


async def test_proxies_from_environment_variables_are_used(
    openai_server: OpenAIServer, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", openai_server.url)
    transport = Transport(kind=kind)
    url = "http://model.invalid/v1/chat/completions"
    answer = await transport.fetch(WireRequest("POST", url, content=b'{"model": "m", "messages": []}'))
    await transport.aclose()
    assert answer.status == 200
    assert openai_server.requests[0].path == url


@pytest.mark.parametrize(
    "proxy", ["http://me:hun/ter2@proxy.invalid:1", "gopher://me:hunter2@proxy.invalid:1"]
)
async def test_an_invalid_proxy_is_an_error_without_its_password(
    kind: Any, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    transport = Transport(kind=kind)
    with pytest.raises(ConfigurationError, match=r"proxy of the environment.*proxy\.invalid") as caught:
        await transport.fetch(WireRequest("POST", "http://model.invalid/v1", content=b"{}"))
    await transport.aclose()
    text = "".join(traceback.format_exception(caught.value))
    assert "hun" not in text
    assert "ter2" not in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # httpx-aiohttp's use of aiohttp
@pytest.mark.parametrize("answer", [None, 407])
async def test_a_failing_proxy_is_an_error_without_its_password(
    openai_server: OpenAIServer, kind: Any, answer: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = openai_server.port
    if answer is None:
        openai_server.close()
    else:
        openai_server.script(*[reply(answer, {"error": {"message": "no"}})] * 5)
    monkeypatch.setenv("HTTP_PROXY", f"http://me:hunter2@127.0.0.1:{port}")
    transport = Transport(kind=kind)
    with pytest.raises(APIError) as caught:
        await transport.fetch(WireRequest("POST", "http://model.invalid/v1", content=b"{}"))
    await transport.aclose()
    shown = f"{caught.value} {vars(caught.value)} {''.join(traceback.format_exception(caught.value))}"
    assert "hunter2" not in shown
