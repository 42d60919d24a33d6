"""Turn aiohttp's pool of connections into one that hands out none its server has closed, nor waits on names.

Imported only where aiohttp does the I/O.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Any

from specclient.transport.sockets import aiohttp
from specclient.transport.vendor import httpx

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler


class Connector(aiohttp.TCPConnector):
    """Connections of one event loop.

    Args:
        idle: how many are kept for later requests; one more that becomes free is closed.
        options: of aiohttp's own connector.

    Raises (when connecting):
        httpx.ConnectTimeout: where looking up the name and connecting together took too long; aiohttp's own
            limit leaves the look-up out.
    """

    def __init__(self, *, idle: int, **options: Any) -> None:
        super().__init__(**options)
        self._idle = idle

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        full = sum(map(len, self._conns.values())) >= self._idle
        super()._release(key, protocol, should_close=should_close or full)

    async def _get(self, *asked: Any) -> Any:
        # The loop learns that a server has closed only on its next turn; the socket knows now. What is sent
        # on it is lost, and a POST may not be sent again unasked (RFC 9110, section 9.2.2).
        while (found := await super()._get(*asked)) is not None and _has_ended(found.protocol):
            found.close()
        return found

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's name
    ) -> ResponseHandler:
        try:
            async with asyncio.timeout(timeout.sock_connect):
                return await super()._create_connection(req, traces, timeout)
        except TimeoutError:
            pass
        raise httpx.ConnectTimeout("")


def _has_ended(protocol: ResponseHandler | None) -> bool:
    """Tell whether an idle connection has something to read: its end, since nothing was asked."""
    transport = None if protocol is None else protocol.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None:
        return False
    number = sock.fileno()
    if not hasattr(select, "poll"):  # Windows
        return number < 0 or bool(select.select([number], [], [], 0)[0])
    if number < 0:
        return True
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))
