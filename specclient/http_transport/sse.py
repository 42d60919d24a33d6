"""Incremental decoder of server-sent events (``text/event-stream``).

It follows the WHATWG standard (HTML, section 9.2.6 "Interpreting an event stream"): lines end at CR, LF or
CRLF only. ``data`` stays bytes, which JSON parsers accept, so that no character is split between chunks.
"""

from __future__ import annotations

from typing import NamedTuple

from specclient.http_transport.body_limits import DEFAULT_RESPONSE_LIMITS, event_too_large

_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event.

    Attributes:
        data: the ``data`` lines joined by LF, as received.
        event: the event's type, None for the default (``message``).
        id: the last id that the stream has set, None if it has set none.
    """

    data: bytes
    event: str | None = None
    id: str | None = None


class SSEDecoder:
    """The decoder of one stream. Its work is linear in the bytes, however they are split into chunks.

    Args:
        most: the maximum bytes of one event, complete or not.

    Attributes:
        retry_ms: the last reconnection time that the stream has set, in milliseconds, or None.
    """

    __slots__ = (
        *("_after_cr", "_data", "_data_size", "_event", "_id", "_most", "_started", "_tail", "_tail_size"),
        "retry_ms",
    )

    def __init__(self, most: float = DEFAULT_RESPONSE_LIMITS.max_event_bytes) -> None:
        self._most = most
        self.retry_ms: int | None = None
        self._tail: list[bytes] = []  # parts of an unfinished line, joined once at its end
        self._tail_size = 0
        self._data: list[bytes] = []
        self._data_size = 0  # of an event without its end, at the end of a chunk
        self._event: str | None = None
        self._id: str | None = None
        self._after_cr = False
        self._started = False

    @property
    def is_within_event(self) -> bool:
        """Whether an event, or another line, has begun and not ended."""
        return bool(self._tail or self._data)

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Decode a chunk, and return the events that it completes, in order.

        Raises:
            ResponseTooLargeError: an event is longer than allowed.
        """
        if not self._started:
            chunk = self._strip_bom(chunk)
        if self._after_cr:
            if not chunk:
                return []
            self._after_cr = False
            if chunk[0] == 0x0A:  # the LF of a CRLF whose CR ended the last chunk
                chunk = chunk[1:]
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not end:
            if chunk:
                self._tail.append(chunk)
                self._tail_size += len(chunk)
                if self._tail_size + self._data_size > self._most:
                    raise event_too_large(self._most, self._tail_size + self._data_size)
            return []
        self._after_cr = chunk[-1] == 0x0D
        lines, rest = (chunk, b"") if end == len(chunk) else (chunk[:end], chunk[end:])
        if self._tail:
            self._tail.append(lines)
            lines = b"".join(self._tail)
        self._tail = [rest] if rest else []
        self._tail_size = len(rest)
        return self._lines(lines)

    def flush(self) -> list[ServerSentEvent]:
        """Return the event that is still incomplete at the end of the body, if any.

        The standard discards it. It is kept here, because many servers end with ``data: [DONE]`` without a
        blank line. The HTTP layer reports truncated bodies, and a truncated event is invalid JSON and thus an
        error.
        """
        tail = b"".join(self._tail)
        if not self._started and tail == _BOM:
            tail = b""
        self._tail = []
        self._tail_size = 0
        self._after_cr = False
        return self._lines(tail + b"\n\n")

    def _strip_bom(self, chunk: bytes) -> bytes:
        head = b"".join(self._tail) + chunk
        self._tail = []
        self._tail_size = 0
        if len(head) < len(_BOM) and _BOM.startswith(head):
            if head:
                self._tail = [head]
            return b""
        self._started = True
        return head[len(_BOM) :] if head.startswith(_BOM) else head

    def _lines(self, text: bytes) -> list[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        data, most = self._data, self._most
        size = len(text)
        for line in text.splitlines():  # bytes.splitlines splits at CR, LF and CRLF only
            if not line:
                if data:
                    joined = data[0] if len(data) == 1 else b"\n".join(data)
                    if len(joined) > most:
                        raise event_too_large(most, len(joined))
                    events.append(ServerSentEvent(joined, self._event, self._id))
                    data.clear()
                self._event = None
            elif line.startswith(b"data: "):
                data.append(line[6:])
            else:
                self._field(line)
        if data:
            self._data_size = sum(map(len, data)) if events else self._data_size + size
            if self._data_size > most:
                raise event_too_large(most, self._data_size)
        elif self._data_size:
            self._data_size = 0
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace") or None
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value)
