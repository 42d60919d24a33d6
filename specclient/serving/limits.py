"""Limits of a server: concurrency, sizes and timeouts, validated."""

from __future__ import annotations

from dataclasses import dataclass, fields

from specclient.errors import ConfigurationError
from specclient.openai_http.json_body import JSON_VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a server.

    Attributes:
        running: maximum of concurrent requests.
        waiting: maximum of waiting requests; further ones get status 429.
        body_bytes: maximum size of a request body; a longer one gets status 413.
        bodies_bytes: maximum size of all bodies that a process holds, beyond the first 64 KiB of each; one
            key may have half of it. Further ones get status 429. Messages of WebSockets that are being
            received or wait to be sent to a provider have a separate limit of the same size.
        sockets: maximum of open WebSockets; further ones get status 429.
        message_bytes: maximum size of a message over WebSocket, in both directions; a longer one closes it
            with code 1009. A part of audio may have 15 MiB in the Realtime API.
        json_values: maximum number of values in a JSON body, where a name counts as four, and 4 escape
            sequences or 32 bytes of other than ASCII text count as one; one with more gets
            status 400.
        head_bytes: maximum size of a request head; a longer one gets status 431.
        head_s: seconds for a request head to arrive, from the start of the connection or its first byte.
        body_s: seconds for a request body to arrive.
        send_s: seconds without progress after which a client that does not read a response is disconnected.
        idle_s: seconds that an idle connection stays open; longer than most clients keep theirs, so that they
            do not send a request while the connection is being closed.
        grace_s: seconds for running requests to end when the server stops.

    Raises:
        ConfigurationError: a number is too low.
    """

    running: int = 1000
    waiting: int = 1000
    body_bytes: int = 32 * 2**20
    bodies_bytes: int = 2**30
    sockets: int = 200
    message_bytes: int = 16 * 2**20
    json_values: int = JSON_VALUES
    head_bytes: int = 64 * 2**10
    head_s: float = 10.0
    body_s: float = 60.0
    send_s: float = 60.0
    idle_s: int = 75
    grace_s: int = 30

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name in ("waiting", "grace_s") else 1
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigurationError(f"limit {field.name} is {value!r}; it must be a number")
            if not (value >= least or (field.name.endswith("_s") and value > 0)):
                raise ConfigurationError(f"limit {field.name} is {value!r}; it must be at least {least}")
