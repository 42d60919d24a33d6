"""An httpx transport whose requests are sent by Ray Data, from the nodes of a fleet's cluster.

A client with it behaves as any other: retries, telemetry, the ledger and budgets are where calls are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

from specclient_local.fleets.fleet import Fleet
from specclient_local.fleets.ray_cluster import REQUESTS, FleetCluster

from specclient.errors import ConfigurationError, EngineError
from specclient.http_transport import lazy_httpx as httpx

__all__ = ["RayTransport", "ray_client"]

_LINE_BYTES = 2**28
"""The longest answer; the client's own limit of a response is lower."""

_START_S = 180.0
_HOP_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "host", "transfer-encoding"}
)


@contextlib.asynccontextmanager
async def ray_client(
    fleet: Fleet, on_end: Callable[[], None], cluster: FleetCluster | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, RayTransport]]:
    """Yield a client that sends requests to a fleet by Ray Data, and its transport.

    Args:
        fleet: the fleet, which must be running.
        on_end: called if Ray's program ends before the block does.
        cluster: its cluster; None for the one that it names.

    Raises:
        ConfigurationError: Ray is not installed, or the cluster is away.
        EngineError: the cluster cannot be used, or the fleet is not running.
    """
    if fleet.python is None and importlib.util.find_spec("ray") is None:
        raise ConfigurationError(
            "this environment has no Ray; pip install 'specclient[ray]', or name the interpreter of an "
            f"environment with ray[data,serve] as 'python' in [fleets.{fleet.name}]"
        )
    transport = RayTransport(FleetCluster(fleet) if cluster is None else cluster, fleet.name, on_end)
    try:
        await transport.start()
        parts = urlsplit(fleet.url)
        async with httpx.AsyncClient(mounts={f"{parts.scheme}://{parts.netloc}": transport}) as client:
            yield client, transport
    finally:
        await transport.aclose()


class RayTransport(httpx.AsyncBaseTransport):
    """Hands requests to a process of :mod:`specclient_local.fleets.ray_requests`.

    Args:
        cluster: the cluster of the fleet.
        fleet: the fleet's name.
        on_end: called if the process ends by itself.

    Attributes:
        failure: why the process ended by itself; None while it runs.
    """

    def __init__(self, cluster: FleetCluster, fleet: str, on_end: Callable[[], None]) -> None:
        self.failure: str | None = None
        self._cluster, self._fleet, self._on_end = cluster, fleet, on_end
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._errors: list[str] = []
        self._readers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect to the cluster.

        Raises:
            ConfigurationError: the cluster is away.
            EngineError: it cannot be used, or the fleet is not running.
        """
        command, environment = await asyncio.to_thread(self._cluster.invocation, REQUESTS, self._fleet)
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, limit=_LINE_BYTES,
            start_new_session=True,  # an interrupt lets lines in progress finish
        )  # fmt: skip
        self._readers.append(asyncio.create_task(self._read_errors(process)))
        try:
            first = await asyncio.wait_for(_next_answer(process), _START_S)
        except TimeoutError:
            raise EngineError(f"Ray: no answer within {_START_S:g} s") from None
        if first is None:
            raise EngineError(f"Ray: {await self._last_words(process)}")
        if "error" in first:
            raise EngineError(f"Ray: {first['error']}")
        self._readers.append(asyncio.create_task(self._read_answers(process)))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request from a node of the cluster, and return its whole response."""
        number, process = next(self._numbers), self._process
        limits = request.extensions.get("timeout", {})
        message = {
            "id": number,
            "method": request.method,
            "url": str(request.url),
            "headers": {k: v for k, v in request.headers.items() if k not in _HOP_HEADERS},
            "body": (await request.aread()).decode(),
            "seconds": limits.get("read"),
        }
        if process is None or process.stdin is None or self.failure is not None:
            raise httpx.ConnectError(f"Ray: {self.failure or 'not connected'}", request=request)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            await process.stdin.drain()
            answer = await future
        except ConnectionError as error:
            raise httpx.WriteError(f"Ray: {error}", request=request) from None
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise httpx.ReadError(answer["error"], request=request)
        headers = [(k, v) for k, v in answer["headers"] if k.lower() not in _HOP_HEADERS]
        return httpx.Response(
            answer["status"], headers=headers, content=answer["body"].encode(), request=request
        )

    async def aclose(self) -> None:
        """End the process; requests in progress fail."""
        process, self._process = self._process, None
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._fail_all("the client was closed")

    async def _read_answers(self, process: asyncio.subprocess.Process) -> None:
        try:
            while (answer := await _next_answer(process)) is not None:
                future = self._waiting.get(answer["id"])
                if future is not None and not future.done():
                    future.set_result(answer)
        except (ValueError, LookupError) as error:  # no JSON, or longer than _LINE_BYTES
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            self.failure = f"its output cannot be read ({type(error).__name__}: {str(error)[:200]})"
        else:
            self.failure = await self._last_words(process)
        self._fail_all(f"Ray: {self.failure}")
        self._on_end()

    def _fail_all(self, why: str) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_result({"error": why})

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self._errors = [*self._errors[-20:], line.decode("utf-8", "replace").strip()]

    async def _last_words(self, process: asyncio.subprocess.Process) -> str:
        status = await process.wait()
        said = " | ".join(filter(None, self._errors[-3:]))[-600:]
        return f"the process ended with status {status}" + (f": {said}" if said else "")


async def _next_answer(process: asyncio.subprocess.Process) -> dict[str, Any] | None:
    """Return the next answer of the process; None at the end of its output."""
    assert process.stdout is not None
    async for line in process.stdout:
        if line.startswith(b"@"):
            answer: dict[str, Any] = json.loads(line[1:])
            return answer
    return None
