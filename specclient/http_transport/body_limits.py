"""Bodies read within limits of size, compression and time."""

from __future__ import annotations

import time

from specclient.errors import ResponseTooLargeError
from specclient.http_transport.clients.timeouts import AnswerTimeoutError
from specclient.types.limit import RATIO_FROM_BYTES, ResponseLimits

#: Bytes of an error response that are read. The rest is dropped, so that the error keeps its status.
MAX_ERROR_BODY_BYTES = 4 * 2**20

DEFAULT_RESPONSE_LIMITS = ResponseLimits()


class BodyReader:
    """Collects the pieces of a body that is read whole.

    Args:
        limits: the limits of size and compression.
        seconds: the time from now in which the body must be complete; None for no limit.
        cut_at: bytes after which the body is cut off without an error; None for never.
    """

    __slots__ = ("_cut_at", "_ends_at", "_limits", "_pieces", "_seconds", "_size")

    def __init__(self, limits: ResponseLimits, seconds: float | None, *, cut_at: int | None = None) -> None:
        self._limits = limits
        self._cut_at = cut_at
        self._seconds = seconds
        self._ends_at = None if seconds is None else time.monotonic() + seconds
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes, received: int | None) -> bool:
        """Add a piece; return False if the body is cut off here.

        Args:
            piece: the next bytes, decompressed.
            received: the compressed bytes received so far; None for a body that is not compressed.

        Raises:
            ResponseTooLargeError: the body exceeds a limit.
            AnswerTimeoutError: the time has passed.
        """
        self._pieces.append(piece)
        self._size += len(piece)
        if self._cut_at is not None and self._size > self._cut_at:
            return False
        if self._size > self._limits.max_body_bytes:
            raise body_too_large(self._limits, self._size)
        if received is not None:
            check_ratio(self._limits, self._size, received)
        if self._ends_at is not None and time.monotonic() > self._ends_at:
            assert self._seconds is not None
            raise AnswerTimeoutError("did not complete its answer", self._seconds)
        return True

    def content(self) -> bytes:
        """Return the body."""
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        return whole if self._cut_at is None else whole[: self._cut_at]


def check_ratio(limits: ResponseLimits, size: int, received: int) -> None:
    """Raise ResponseTooLargeError if a body of ``size`` bytes came from too few compressed bytes."""
    if size > RATIO_FROM_BYTES and size > limits.max_compression_ratio * received:
        raise response_too_large(
            f"The response was decompressed to {size} bytes from {received}",
            "max_compression_ratio",
            limits.max_compression_ratio,
            size,
        )


def body_too_large(limits: ResponseLimits, size: int) -> ResponseTooLargeError:
    """Return the error for a body, or a whole stream of events, that exceeds its limit."""
    return response_too_large(
        "The response is longer than allowed", "max_body_bytes", limits.max_body_bytes, size
    )


def event_too_large(limit: float, size: int) -> ResponseTooLargeError:
    """Return the error for an event of a stream that exceeds its limit."""
    return response_too_large("An event of the stream is longer than allowed", "max_event_bytes", limit, size)


def response_too_large(what: str, setting: str, limit: float, size: int) -> ResponseTooLargeError:
    """Return the error for a response that exceeds a limit; the message names the limit and its setting."""
    return ResponseTooLargeError(
        f"{what}: {setting} is {limit:.15g}, and reading ended after {size} bytes. If such responses are "
        f"expected, raise it by response_limits=ResponseLimits({setting}=…) of the client, or in "
        "[response_limits] of specclient.toml.",
        setting=setting,
        limit=limit,
        read=size,
    )
