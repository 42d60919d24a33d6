"""The limits of stored responses and conversations."""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class StoredLimits:
    """Limits on the responses and conversations that are kept. The oldest go first.

    Attributes:
        enabled: whether anything is stored.
        max_age_days: days after which a response, or a conversation without new items, is removed.
        max_bytes: bytes of all that is stored.
        max_bytes_per_key: likewise, of each API key of a server, and of the operator.
    """

    enabled: bool = True
    max_age_days: float = 30.0
    max_bytes: int = 2**30
    max_bytes_per_key: int = 2**27

    @property
    def max_age_ms(self) -> int:
        """The maximum age in milliseconds."""
        return int(self.max_age_days * DAY_S * 1000)
