"""Turn a client's options into what it shares with its copies: settings, connections, engines, the ledger."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from specclient.client.options import budgets_of, settings_of
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.prompt_scale import PromptTokenScale
from specclient.routing.router import Router
from specclient.runtime.event_loop import run_in_thread
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.transport.http import Transport
from specclient.types.backend import Backend
from specclient.types.call import Call

if TYPE_CHECKING:
    from specclient.budgets.budgets import Budgets
    from specclient.call.failover.executor import FailoverState
    from specclient.ledger.ledger import Ledger
    from specclient.ledger.row import LedgerRow
    from specclient.routing.load_poller import LoadPoller

#: Seconds that the end of a program waits for the ledger.
FLUSH_S = 2.0
_MOST_ACCOUNTS = 4096


class SharedState:
    """What a client and its copies share: settings, connections, engines, the ledger and what was learned."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.settings = settings_of(options)
        self.prices = Prices(self.settings)
        self.estimates = Estimator(_LedgerHistory(self))
        self.sizes = PromptTokenScale()
        self.backends: dict[str, Backend] = {}
        self.closed = False
        self.prepared: set[str] = set()
        settings = self.settings
        self.transport = Transport(
            http_client=options.get("http_client"),
            kind=settings.transport,
            connections=settings.connections,
            limits={name: table.limit() for name, table in settings.limits.items()},
            circuit=settings.circuit.circuit() if settings.circuit else None,
        )
        self._budgets = budgets_of(self.settings, options.get("budgets"))
        self._accounts: OrderedDict[int, str] = OrderedDict()
        self._numbered = count()
        self._lock = threading.Lock()
        self._failover_state: FailoverState | None = None
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """In a forked child: a lock that another thread of the parent holds is never released there."""
        self._lock = threading.Lock()

    def account(self, identity: int) -> str:
        """Return what marks an account at a provider: its limits and failures are those of no other.

        Args:
            identity: a hash of address and key; the first one seen has no mark. One that was not named for
                long, while thousands of others were, gets a new mark.
        """
        with self._lock:
            mark = self._accounts.pop(identity, None)
            if mark is None:
                number = next(self._numbered)
                mark = f" #{number}" if number else ""
            self._accounts[identity] = mark
            if len(self._accounts) > _MOST_ACCOUNTS:
                self._accounts.popitem(last=False)
            return mark

    @cached_property
    def ledger(self) -> Ledger:
        """The record of every call; the database toolkit is imported when it is first needed."""
        from specclient.ledger.ledger import Ledger  # noqa: PLC0415 - keeps `import specclient` light

        return Ledger(self.settings.ledger, durability=self.settings.ledger_durability)

    def open_ledger(self) -> None:
        """Import what the ledger needs, and refuse a setting that cannot name one."""
        self.ledger.prepare()

    @cached_property
    def budgets(self) -> Budgets | None:
        """What keeps the budgets; None where there are none, and nothing of theirs is imported."""
        return self.ensure_budgets() if self._budgets else None

    def ensure_budgets(self) -> Budgets:
        """Return what keeps the budgets, made where there is none yet."""
        if (kept := self.__dict__.get("budgets")) is None:
            from specclient.budgets.budgets import Budgets  # noqa: PLC0415 - as above

            kept = self.__dict__["budgets"] = Budgets(self._budgets, self.prices, self.estimates, self.ledger)
        return kept

    @cached_property
    def polls(self) -> LoadPoller:
        """What reads how busy places are; imported when the first call is routed."""
        with import_lock:
            from specclient.routing.load_poller import LoadPoller  # noqa: PLC0415

        return LoadPoller(self.estimates)

    def failover_state(self) -> FailoverState:
        """Return what routed calls share (hedge delays, sessions); imported by the first routed call."""
        with self._lock:
            if self._failover_state is None:
                with import_lock:
                    from specclient.call.failover.executor import FailoverState  # noqa: PLC0415

                self._failover_state = FailoverState(self.prices)
            return self._failover_state

    def poll_loads(self, router: Router, transport: Transport) -> None:
        """Start reading the loads of a router's candidates, where their last readings are old."""
        self.polls.flowing(router, transport)

    async def record(self, call: Call) -> None:
        """Add a finished call to the estimates, the budgets and the ledger."""
        self.estimates.observe(call)
        self.sizes.observe(call)
        counted = None if self.budgets is None else self.budgets.settle(call)
        await self.ledger.record(call)
        if counted is not None:
            await counted

    def flush(self) -> None:
        """Write what the ledger still holds; for the end of a program."""
        if "budgets" in self.__dict__ and self.budgets is not None:
            self.budgets.flush()
        if "ledger" in self.__dict__:
            self.ledger.flush(FLUSH_S)

    async def close(self) -> None:
        """Close connections, free the engines and write what the ledger still holds."""
        self.closed = True
        if "polls" in self.__dict__:
            await self.polls.aclose()
        await self.transport.aclose()
        backends = list(self.backends.values())
        self.backends.clear()
        for backend in backends:
            await backend.aclose()
        if self.budgets is not None:
            await run_in_thread(self.budgets.flush)
        if "ledger" in self.__dict__:
            await run_in_thread(self.ledger.close)


class _LedgerHistory:
    """A client's ledger as its estimates read it: opened when they first ask."""

    def __init__(self, parts: SharedState) -> None:
        self._parts = parts

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[LedgerRow]:
        return self._parts.ledger.rows(since, until, limit=limit)
