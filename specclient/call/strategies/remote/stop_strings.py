"""Ends text at stop strings, and buffers output that may be the beginning of one."""

from __future__ import annotations

from typing import Any

from specclient.errors import BadRequestError
from specclient.runtime.short_repr import short_repr


class StopStringMatcher:
    """Finds the first stop string in a text that arrives in pieces.

    The stop string that is completed first ends the text; of several completed at the same character, the
    longest. The result does not depend on how the text is split into pieces. Stop strings are not part of the
    output.

    Attributes:
        length: characters of the text up to the end of the stop string that ended it; None until then.
    """

    length: int | None = None

    def __init__(self, stop: Any) -> None:
        stops = [stop] if isinstance(stop, str) else list(stop or ())
        if not all(isinstance(each, str) and each for each in stops):
            raise BadRequestError(
                f"stop is {short_repr(stop)}; it must be a string, or a list of strings, none empty"
            )
        self._stops: list[str] = stops
        self._buffer = ""
        self._emitted = 0  # characters output before the buffer

    def push(self, text: str) -> tuple[str, bool]:
        """Return the text that can be output, and whether a stop string has ended it."""
        self._buffer += text
        matches = [(at + len(stop), at) for stop in self._stops if (at := self._buffer.find(stop)) >= 0]
        if matches:
            end, start = min(matches)
            self.length = self._emitted + end
            output, self._buffer = self._buffer[:start], ""
            return output, True
        kept = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._buffer) - kept
        output, self._buffer = self._buffer[:cut], self._buffer[cut:]
        self._emitted += cut
        return output, False

    def flush(self) -> str:
        """Return the buffered text, at the end of the answer."""
        output, self._buffer = self._buffer, ""
        return output

    def _overlap(self, stop: str) -> int:
        """Return the length of the longest end of the buffer that is an incomplete beginning of ``stop``."""
        longest = min(len(self._buffer), len(stop) - 1)
        return next((n for n in range(longest, 0, -1) if self._buffer.endswith(stop[:n])), 0)
