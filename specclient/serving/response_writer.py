"""The parts of a response and errors of unread requests, as they are written to a connection."""

from __future__ import annotations

from typing import Any

from specclient.openai_http.errors import ServingError

__all__ = ["ResponseWriter", "encoded_error", "head_too_long"]

_JSON = b"application/json"
_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


class ResponseWriter:
    """Writes a response, with its head and the first part of its body in one system call if possible.

    Args:
        connection: the protocol of the connection.
    """

    __slots__ = ("_begun", "_connection", "_head", "_transport")

    def __init__(self, connection: Any) -> None:
        self._connection, self._transport = connection, connection.transport
        self._head, self._begun = b"", False

    def write(self, data: bytes) -> None:
        """Write a part of the response; the head waits for the next part or the loop's next turn."""
        if self._begun:
            head, self._head = self._head, b""
            if head:
                self._transport.writelines((head, data))
            else:
                self._transport.write(data)
        else:
            self._begun, self._head = True, data
            self._connection.loop.call_soon(self._flush)

    def close(self) -> None:
        """Write the head if it waits, and close the connection."""
        self._flush()
        self._connection.end()

    def is_closing(self) -> bool:
        """Return whether the connection is being closed."""
        closing: bool = self._transport.is_closing()
        return closing

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)


def head_too_long(most: int) -> ServingError:
    """Return the error for a head of more than ``most`` bytes."""
    return ServingError(
        431,
        f"the request's head is longer than this server's limit of {most} bytes; shorten path and headers",
        code="invalid_http",
    )


def encoded_error(error: ServingError) -> bytes:
    """Return the whole response for an error that is sent before a request has been read."""
    body = error.body()
    lines = (
        b"HTTP/1.1 %d %b" % (error.status, _REASONS[error.status]),
        b"content-type: " + _JSON,
        b"content-length: %d" % len(body),
        b"connection: close",
    )
    return b"\r\n".join([*lines, b"", b""]) + body
