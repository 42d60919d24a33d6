"""Sessions of containers: several calls that run code in one container are billed for it once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from specclient.prices.tool_prices import session_minutes
from specclient.runtime.forks import register_fork_reset
from specclient.types.usage import Usage, UsageUnit

__all__ = ["ContainerSessions"]

#: Containers that are remembered.
_MOST = 10_000


class ContainerSessions:
    """The containers that the calls of one client have used.

    A container counts when a call first uses it, and again when it is used after its session has ended.
    Another process that uses the same container counts it, too.
    """

    def __init__(self) -> None:
        self._begun: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._lock = threading.Lock()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may have held."""
        self._lock = threading.Lock()

    def new_in(self, usage: Usage, provider: str, vendor: str | None, at: datetime) -> Usage:
        """Return a usage with those of its containers alone that begin a session.

        Args:
            vendor: the one whose prices apply.
            at: the time of the call.
        """
        if not any(unit.names for unit in usage.units):
            return usage
        session = timedelta(minutes=session_minutes(vendor))
        units = [self._counted(unit, provider, session, at) for unit in usage.units]
        return replace(usage, units=tuple(unit for unit in units if unit.amount))

    def _counted(self, unit: UsageUnit, provider: str, session: timedelta, at: datetime) -> UsageUnit:
        if not unit.names:
            return unit
        with self._lock:
            new = [name for name in unit.names if self._begins(provider, name, session, at)]
        return replace(unit, amount=Decimal(len(new)), names=tuple(new))

    def _begins(self, provider: str, name: str, session: timedelta, at: datetime) -> bool:
        begun = self._begun.get((provider, name))
        if begun is not None and abs(at - begun) < session:
            return False
        self._begun[provider, name] = at
        self._begun.move_to_end((provider, name))
        if len(self._begun) > _MOST:
            self._begun.popitem(last=False)
        return True
