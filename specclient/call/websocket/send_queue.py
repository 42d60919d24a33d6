"""Messages that wait for a WebSocket to open."""

from __future__ import annotations

import threading
from collections import deque

from specclient.errors import WebSocketQueueFullError

__all__ = ["SendQueue"]


class SendQueue:
    """Messages in the order of sending, up to a size. It may be used by several threads.

    Args:
        max_bytes: of all waiting messages together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: deque[str | bytes] = deque()
        self._lock = threading.Lock()

    def put(self, message: str | bytes) -> None:
        """Add a message.

        Raises:
            WebSocketQueueFullError: the messages would exceed ``max_bytes``; the message is not added.
        """
        size = _size(message)
        with self._lock:
            if self._bytes + size > self._max_bytes:
                raise WebSocketQueueFullError(
                    f"{self._bytes} bytes wait to be sent, and {size} more exceed the limit of "
                    f"{self._max_bytes}, so the message is discarded; pass a larger max_queue_size"
                )
            self._messages.append(message)
            self._bytes += size

    def take(self) -> str | bytes | None:
        """Remove and return the first message; None if there is none."""
        with self._lock:
            if not self._messages:
                return None
            message = self._messages.popleft()
            self._bytes -= _size(message)
            return message

    def drain(self) -> list[str | bytes]:
        """Remove and return all messages."""
        with self._lock:
            messages = list(self._messages)
            self._messages.clear()
            self._bytes = 0
            return messages

    def __len__(self) -> int:
        return len(self._messages)


def _size(message: str | bytes) -> int:
    return len(message.encode() if isinstance(message, str) else message)
