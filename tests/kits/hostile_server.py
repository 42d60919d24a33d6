"""A hostile server on loopback, clients of every kind that call it, and what must hold after every call."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import socket
import struct
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Self

import httpx
import pydantic
from hostile_scripts import Script
from loop_thread import LoopThread

from specclient import AsyncOpenAI, OpenAI, OpenAIError, ResponseLimits, Settings
from specclient.providers.custom import Provider

MIB = 2**20
#: Seconds in which every call ends, far more than the timeouts of the clients add up to.
LONGEST_CALL_S = 20.0
LIMITS = ResponseLimits(max_body_bytes=2 * MIB, max_event_bytes=MIB)
#: Items that are taken of a body that the caller reads, which may be endless.
_MOST_ITEMS = 50
#: Growth of the resident memory over a run: that of parsed bodies at the limit, not of what was sent.
MOST_GROWTH = 192 * MIB
_ASK: Mapping[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


class Answer(pydantic.BaseModel):
    """A structured answer."""

    title: str


class HostileServer(LoopThread):
    """Sends the script that is set, whatever the request; used as a context manager.

    Attributes:
        script: the next response.
        open: the number of connections that are open.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script = Script((b"",))
        self.open = 0

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            script: Script | None = None
            while True:
                await _receive(reader)
                script = self.script if script is None or script.follows is None else script.follows
                await self._play(script, reader, writer)
                if script.end != "keep":
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _play(self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in script.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(script.gap_s)
        if script.end == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        elif script.end == "hang":
            while await reader.read(65536):
                pass
        elif script.end == "endless":
            while True:
                writer.write(script.tail)
                await writer.drain()
                await asyncio.sleep(0.0005)


async def _receive(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = next((line for line in head.split(b"\r\n") if line.startswith(b"content-length:")), b": 0")
    await reader.readexactly(int(length.partition(b":")[2]))


async def _drained(stream: Any) -> list[Any]:
    async with stream:
        return [item async for item in stream]


Operation = Callable[[Any, str], Any]


def _streamed(call: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **options: Any) -> Any:
        made = call(*args, **options)
        if not asyncio.iscoroutine(made):
            with made as stream:
                return list(stream)

        async def read() -> list[Any]:
            return await _drained(await made)

        return read()

    return run


def _managed(call: Callable[..., Any], use: str) -> Any:
    made = call()
    if not hasattr(made, "__aenter__"):
        with made as response:
            taken = getattr(response, use)()
            return list(islice(taken, _MOST_ITEMS)) if use.startswith("iter") else taken

    async def read() -> Any:
        async with made as response:
            taken = getattr(response, use)()
            if not use.startswith("iter"):
                return await taken
            items = []
            async for item in taken:
                items.append(item)
                if len(items) == _MOST_ITEMS:
                    break
            return items

    return read()


def _events(call: Callable[[], Any]) -> Any:
    made = call()
    if not hasattr(made, "__aenter__"):
        with made as stream:
            return [list(stream), stream.get_final_completion()]

    async def read() -> Any:
        async with made as stream:
            return [[event async for event in stream], await stream.get_final_completion()]

    return read()


#: What is called, by name. Those whose name begins with an underscore have no row in the ledger.
OPERATIONS: Mapping[str, Operation] = {
    "chat": lambda c, m: c.chat.completions.create(model=m, **_ASK),
    "chat stream": lambda c, m: _streamed(c.chat.completions.create)(model=m, stream=True, **_ASK),
    "chat parse": lambda c, m: c.chat.completions.parse(model=m, response_format=Answer, **_ASK),
    "chat events": lambda c, m: _events(lambda: c.chat.completions.stream(model=m, **_ASK)),
    "chat raw": lambda c, m: c.chat.completions.with_raw_response.create(model=m, **_ASK),
    "chat bytes": lambda c, m: _managed(
        lambda: c.chat.completions.with_streaming_response.create(model=m, **_ASK), "iter_bytes"
    ),
    "chat lines": lambda c, m: _managed(
        lambda: c.chat.completions.with_streaming_response.create(model=m, stream=True, **_ASK), "iter_lines"
    ),
    "chat text": lambda c, m: _managed(
        lambda: c.chat.completions.with_streaming_response.create(model=m, **_ASK), "text"
    ),
    "completion stream": lambda c, m: _streamed(c.completions.create)(model=m, prompt="hi", stream=True),
    "responses": lambda c, m: c.responses.create(model=m, input="hi"),
    "responses stream": lambda c, m: _streamed(c.responses.create)(model=m, input="hi", stream=True),
    "embeddings": lambda c, m: c.embeddings.create(model=m, input="hi"),
    "anthropic": lambda c, m: c.chat.completions.create(model=f"a/{m}", max_tokens=9, **_ASK),
    "anthropic stream": lambda c, m: _streamed(c.chat.completions.create)(
        model=f"a/{m}", max_tokens=9, stream=True, **_ASK
    ),
    "gemini": lambda c, m: c.chat.completions.create(model=f"g/{m}", **_ASK),
    "gemini stream": lambda c, m: _streamed(c.chat.completions.create)(model=f"g/{m}", stream=True, **_ASK),
    "_models": lambda c, m: c.models.retrieve(m),
    "_file": lambda c, m: c.files.content(m),
    "_get": lambda c, m: c.get(f"/{m}", cast_to=object),
}
CLIENTS = ("async", "sync", "async httpx", "sync httpx")


class Arena:
    """A hostile server with one client of every kind; used as a context manager.

    Args:
        folder: where the ledger is written.
        timeout: seconds of the clients.

    Attributes:
        server: the server.
        counts: the number of calls by their outcome.
    """

    def __init__(self, folder: Path, timeout: float = 0.1) -> None:
        self._ledger = folder / "hostile.sqlite3"
        self.server = HostileServer()
        self.counts: Counter[str] = Counter()
        self._metered: list[str] = []
        self._number = 0
        self._timeout = timeout
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self.server.__enter__()
        root = f"http://127.0.0.1:{self.server.port}"
        options: dict[str, Any] = {
            "config": Settings(circuit=False, ledger=str(self._ledger), ledger_durability="sync"),
            "timeout": self._timeout,
            "max_retries": 0,
            "response_limits": LIMITS,
            "providers": [
                Provider(name="openai", base_url=f"{root}/v1", key="sk-hostile"),
                Provider(name="a", base_url=f"{root}/a", dialect="anthropic", key="sk-a"),
                Provider(name="g", base_url=f"{root}/g", dialect="gemini", key="sk-g"),
            ],
        }
        self._http = httpx.Client(follow_redirects=True, trust_env=False)
        self._async_http = httpx.AsyncClient(follow_redirects=True, trust_env=False)
        self.clients = {
            "async": AsyncOpenAI(**options),
            "sync": OpenAI(**options),
            "async httpx": AsyncOpenAI(**options, http_client=self._async_http),
            "sync httpx": OpenAI(**options, http_client=self._http),
        }
        self._memory = 0
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients.values():
            closed: Any = client.close()
            if asyncio.iscoroutine(closed):
                self._runner.run(closed)
        self._http.close()
        self._runner.run(self._async_http.aclose())
        self._runner.close()
        self.server.__exit__()

    def call(self, kind: str, operation: str, script: Script) -> Any:
        """Make a call and return its result, or None after an OpenAIError; any other exception is raised."""
        self.server.script = script
        self._number += 1
        model = f"m-{self._number}"
        if not operation.startswith("_"):
            self._metered.append(model)
        began = time.monotonic()
        outcome: str
        result = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of pydantic, when odd values are dumped
                result = self._run(kind, OPERATIONS[operation], model)
            outcome = "result"
        except OpenAIError as error:
            outcome = type(error).__name__
            _ = f"{error} {error!r}"  # can be shown
        except pydantic.ValidationError:
            # As in the openai package, for a structured answer that does not match its class.
            if operation != "chat parse":
                raise
            outcome = "ValidationError"
        took = time.monotonic() - began
        assert took < LONGEST_CALL_S, f"{operation} of the {kind} client took {took:.1f} s"
        self.counts[outcome] += 1
        if self._number == 100:  # everything is imported, and every pool is filled
            self._memory = resident()
        return result

    def _run(self, kind: str, operation: Operation, model: str) -> Any:
        made = operation(self.clients[kind], model)
        if not asyncio.iscoroutine(made):
            return made

        async def bounded() -> Any:
            before = len(asyncio.all_tasks())
            async with asyncio.timeout(LONGEST_CALL_S):
                result = await made
            for _ in range(50):
                if len(asyncio.all_tasks()) <= before:
                    break
                await asyncio.sleep(0.01)
            assert len(asyncio.all_tasks()) <= before, asyncio.all_tasks()
            return result

        return self._runner.run(bounded())

    def check(self) -> None:
        """Check what must hold after all calls: ledger rows, connections, memory."""
        rows = Counter(row.model.rpartition("/")[2] for row in self.clients["sync"].ledger.rows())
        expected = Counter(self._metered)
        assert rows == expected, (rows - expected, expected - rows)
        for name in ("async", "async httpx"):
            self._runner.run(self.clients[name].close())
        self.clients["sync"].close()
        self._http.close()
        self._runner.run(self._async_http.aclose())
        until = time.monotonic() + 10
        while self.server.open and time.monotonic() < until:
            time.sleep(0.01)
        assert self.server.open == 0
        if self._memory:
            grown = resident() - self._memory
            assert grown < MOST_GROWTH, f"{grown / MIB:.0f} MiB more memory"


def resident() -> int:
    """Return the resident memory of this process in bytes, without what it has freed."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
