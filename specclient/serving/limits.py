"""What a server takes on at once, and how long it waits for clients: checked numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from specclient.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server allows its clients.

    Attributes:
        running: most requests that are worked on at once.
        waiting: most that wait for their turn; one more is refused with 429.
        body_bytes: most bytes of a request's body; a longer one is refused with 413.
        head_bytes: most bytes of its head; a longer one is refused with 431.
        head_s: seconds that a request's head may take to arrive, from the connection's or its own first byte.
        body_s: seconds that its body may take.
        send_s: seconds that a client may leave an answer unread before it counts as gone.
        idle_s: seconds that a connection is kept between requests; longer than most clients keep theirs, so
            that they never send on one that is being closed.
        grace_s: seconds that running requests have to end when the server stops.

    Raises:
        ConfigurationError: for a number below what makes sense.
    """

    running: int = 1000
    waiting: int = 1000
    body_bytes: int = 32 * 2**20
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
