"""The load of servers and engines, as they report it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["ServerLoad", "SupportsLoad"]


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """The load of a destination. ``None`` means unknown, never zero.

    Attributes:
        running: the number of requests being served; ``waiting``: the number of queued requests.
        slots: the maximum of requests served at a time.
        cache_use: the used share of the KV cache, from 0 to 1.
        acceptance_rate: accepted / drafted tokens over its recent requests.
        tokens_per_verification: over its recent requests, including the target's own token.
    """

    running: float = 0.0
    waiting: float = 0.0
    slots: int | None = None
    cache_use: float | None = None
    acceptance_rate: float | None = None
    tokens_per_verification: float | None = None

    @property
    def utilisation(self) -> float | None:
        """The used share of the capacity, from 0 to 1; 1 if requests are queued, None if unknown."""
        if self.waiting >= 1:
            return 1.0
        if not self.running:
            return 0.0
        if self.slots:
            return min(self.running / self.slots, 1.0)
        return self.cache_use


@runtime_checkable
class SupportsLoad(Protocol):
    """Optional interface of a backend: the load of its engines."""

    def current_load(self, model: str) -> ServerLoad | None:
        """Return the load of a model without blocking; None if it is not loaded.

        Raises:
            NotFoundError: the model is unknown.
        """
        ...
