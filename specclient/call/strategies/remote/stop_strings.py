"""Turn text as it comes into text without stop strings, held back while one may be beginning."""

from __future__ import annotations

from typing import Any

from specclient.errors import BadRequestError


class StopStringMatcher:
    """Ends a text at a stop string, which is no part of it.

    The one that is complete first ends the text; of several complete at once, the longest: so it does not
    matter in what pieces the text came.

    Attributes:
        length: characters up to the end of the stop string that ended the text; None while none has.
    """

    length: int | None = None

    def __init__(self, stop: Any) -> None:
        stops = [stop] if isinstance(stop, str) else list(stop or ())
        if not all(isinstance(each, str) and each for each in stops):
            raise BadRequestError(f"stop is {stop!r}; it must be a string, or a list of strings, none empty")
        self._stops: list[str] = stops
        self._held = ""
        self._gone = 0

    def push(self, text: str) -> tuple[str, bool]:
        """Return what may go out, and whether a stop string has ended the text."""
        self._held += text
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            end, at = min(found)
            self.length = self._gone + end
            out, self._held = self._held[:at], ""
            return out, True
        kept = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - kept
        out, self._held = self._held[:cut], self._held[cut:]
        self._gone += cut
        return out, False

    def flush(self) -> str:
        """Return what was held back; the text has ended."""
        out, self._held = self._held, ""
        return out

    def _overlap(self, stop: str) -> int:
        """Return the length of the longest end of what is held that begins ``stop``, the whole excluded."""
        most = min(len(self._held), len(stop) - 1)
        return next((n for n in range(most, 0, -1) if self._held.endswith(stop[:n])), 0)
