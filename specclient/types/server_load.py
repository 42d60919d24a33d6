"""How busy what serves a model is, as it tells, and how an engine in this process tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["ServerLoad", "SupportsLoad"]


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """How busy a place is. ``None`` means unknown, never zero.

    Attributes:
        running: requests that are being answered; ``waiting``: that stand in line.
        slots: requests that it answers at a time.
        cache_use: share of its key-value cache that is taken, from 0 to 1.
        acceptance_rate: of drafted tokens, over all its requests of late.
        tokens_per_verification: likewise, the target's own token included.
    """

    running: float = 0.0
    waiting: float = 0.0
    slots: int | None = None
    cache_use: float | None = None
    acceptance_rate: float | None = None
    tokens_per_verification: float | None = None

    @property
    def utilisation(self) -> float | None:
        """Return the share of what it can do that it does, from 0 to 1: 1 where requests stand in line."""
        if self.waiting >= 1:
            return 1.0
        if not self.running:
            return 0.0
        if self.slots:
            return min(self.running / self.slots, 1.0)
        return self.cache_use


@runtime_checkable
class SupportsLoad(Protocol):
    """What a backend may offer beside: how busy it is."""

    def busy(self, model: str) -> ServerLoad | None:
        """Return how busy a model of its own is; at once, None where it is not loaded.

        Raises:
            NotFoundError: for a model that is not known.
        """
        ...
