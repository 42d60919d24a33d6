"""Distinguishes clients that have left from clients that only closed their direction of the connection."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable

__all__ = ["DepartureWatch"]

#: Clients ignore an interim response, even an unrequested one (RFC 9110, section 15.2).
_INTERIM_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
#: Seconds without a piece of a response that had started before the client's data ended.
_MAX_SILENCE_S = 1.0
#: Seconds between checks of the connection: the first, and the longest; each is twice the one before.
_FIRST_CHECK_S, _LAST_CHECK_S = 0.05, 1.0
#: ``tcpi_state`` and ``tcpi_last_data_sent`` of Linux's ``struct tcp_info``, and the state ``TCP_CLOSE``.
_TCP_INFO_BYTES, _LAST_SENT_AT, _CLOSED = 48, 44, 7


class DepartureWatch:
    """Watches a connection whose client has ended its data (FIN) until the response is complete.

    A client that still reads and a client that has closed the connection send the same packet. Only the
    second answers data with a reset. So an interim response is sent as a probe, unless the pieces of a
    started response serve as probes. If no piece is sent for :data:`_MAX_SILENCE_S`, the client counts as
    gone, because streams are seldom silent, and clients often leave during one.

    Args:
        transport: the connection.
        started: whether a response has started.
        probe: whether an interim response may be sent; a client of HTTP/1.0 does not understand it.
        complete: returns whether all responses are complete.
    """

    __slots__ = ("_complete", "_delay_s", "_loop", "_started", "_timer", "_transport")

    def __init__(
        self, transport: asyncio.Transport, *, started: bool, probe: bool, complete: Callable[[], bool]
    ) -> None:
        self._transport, self._started, self._complete = transport, started, complete
        self._loop = asyncio.get_running_loop()
        self._delay_s = _FIRST_CHECK_S
        if probe and not started:
            transport.write(_INTERIM_RESPONSE)
        self._timer = self._loop.call_later(self._delay_s, self._check)

    @staticmethod
    def supported(*, started: bool) -> bool:
        """Return whether a departure can be noticed on this system."""
        return not started or hasattr(socket, "TCP_INFO")

    def cancel(self) -> None:
        """End the watch."""
        self._timer.cancel()

    def _check(self) -> None:
        if self._complete() or self._transport.is_closing():
            return
        if self._has_left():
            self._transport.abort()
            return
        self._delay_s = min(2 * self._delay_s, _LAST_CHECK_S)
        self._timer = self._loop.call_later(self._delay_s, self._check)

    def _has_left(self) -> bool:
        sock = self._transport.get_extra_info("socket")
        try:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return True
            if not hasattr(socket, "TCP_INFO"):
                return False
            info: bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:  # no TCP socket
            return False
        silent_ms = int.from_bytes(info[_LAST_SENT_AT:_TCP_INFO_BYTES], sys.byteorder)
        return info[0] == _CLOSED or (self._started and silent_ms > 1000 * _MAX_SILENCE_S)
