"""The state that a client shares with its copies: settings, connections, engines, ledger, estimates."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from specclient.client.options import budgets_of, settings_of
from specclient.http_transport.http import Transport
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.prompt_scale import PromptTokenScale
from specclient.routing.learn.quality import QualityModel
from specclient.routing.pools.fleet_routing import FleetRouting
from specclient.routing.prior_catalogue import PriorCatalogue
from specclient.routing.router import Router
from specclient.runtime.background_tasks import BackgroundTasks
from specclient.runtime.event_loop import run_in_thread
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.runtime.made_once import made_once
from specclient.runtime.time_limit import TimeLimit
from specclient.types.backend import Backend
from specclient.types.call import BOOKED_LATER, Call
from specclient.types.call_score import CallScore

if TYPE_CHECKING:
    from specclient.budgets.budgets import Budgets
    from specclient.call.cached.flights import Flights
    from specclient.call.failover.executor import FailoverState
    from specclient.ledger.ledger import Ledger
    from specclient.ledger.row import LedgerRow
    from specclient.response_cache.cache import ResponseCache
    from specclient.routing.load_poller import LoadPoller
    from specclient.stored.store import ObjectStore

#: Seconds that the program's exit waits for the ledger to write pending rows.
FLUSH_S = 2.0
_MOST_ACCOUNTS = 4096


class SharedState:
    """The state of a client and all its copies. Expensive parts are made on first use.

    Attributes:
        settings: the configuration.
        prices: the prices of models.
        estimates: learned latency, load and acceptance per destination.
        sizes: learned tokens per character of prompts.
        fleets: the pools of fleets with their speed and load; None without fleets.
        qualities: the scores of answers.
        backends: engines that run in this process, by provider.
        transport: sends HTTP requests; holds connections, rate limits and circuits.
        prepared: the kinds of calls for which the pipeline has done its one-time preparation.
        closed: whether :meth:`close` was called.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.settings = settings_of(options)
        self.prices = Prices(self.settings)
        history = _LedgerHistory(self)
        self.estimates = Estimator(history, priors=PriorCatalogue(self.settings))
        self.sizes = PromptTokenScale()
        self.fleets = FleetRouting(self.settings.fleets, history) if self.settings.fleets else None
        self.qualities = QualityModel(_LedgerScores(self))
        self.judgements = BackgroundTasks()
        self.backends: dict[str, Backend] = {}
        self.closed = False
        self.prepared: set[str] = set()
        settings = self.settings
        self.transport = Transport(
            http_client=options.get("http_client"),
            kind=settings.transport,
            connections=settings.connections,
            limits={name: table.limit() for name, table in settings.limits.items()},
            pacing=settings.pacing,
            response_limits=settings.response_limits.limits(),
            circuit=settings.circuit.circuit() if settings.circuit else None,
        )
        self._budgets = budgets_of(self.settings, options.get("budgets"))
        self._accounts: OrderedDict[int, str] = OrderedDict()
        self._numbers = count()
        self._lock = threading.Lock()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may hold."""
        self._lock = threading.Lock()

    def account_mark(self, identity: int) -> str:
        """Return a suffix that distinguishes accounts at providers, so that each has its own rate limits.

        The first account has an empty mark. The marks of the 4,096 most recently used accounts are kept.

        Args:
            identity: a hash of the account's base URL and credentials.
        """
        with self._lock:
            mark = self._accounts.pop(identity, None)
            if mark is None:
                number = next(self._numbers)
                mark = f" #{number}" if number else ""
            self._accounts[identity] = mark
            if len(self._accounts) > _MOST_ACCOUNTS:
                self._accounts.popitem(last=False)
            return mark

    @made_once
    def ledger(self) -> Ledger:
        """The record of every call."""
        from specclient.ledger.ledger import Ledger  # noqa: PLC0415 - with the first call

        return Ledger(self.settings.ledger, durability=self.settings.ledger_durability)

    @made_once
    def stored(self) -> ObjectStore | None:
        """The stored responses and conversations of local models; None if nothing is stored."""
        from specclient.stored.store import ObjectStore  # noqa: PLC0415 - with the first response

        return ObjectStore.of(self.settings.ledger, self.settings.stored.limits())

    @made_once
    def cache(self) -> tuple[ResponseCache, Flights]:
        """The response cache, and its calls in flight; imported by the first call that uses it."""
        from specclient.call.cached.flights import Flights  # noqa: PLC0415
        from specclient.response_cache.cache import ResponseCache  # noqa: PLC0415

        table = self.settings.cache
        cache = ResponseCache(
            table.store,
            table.limits(),
            shared=table.shared,
            random=table.random,
            across_processes=table.across_processes,
        )
        return cache, Flights()

    def open_ledger(self) -> None:
        """Import the ledger and let SIGTERM write its pending rows.

        Raises:
            ConfigurationError: the ``ledger`` setting is invalid.
        """
        self.ledger.prepare()

    @made_once
    def budgets(self) -> Budgets | None:
        """Checks and counts calls by the budgets; None without budgets, and then not imported."""
        return self.ensure_budgets() if self._budgets else None

    def ensure_budgets(self) -> Budgets:
        """Return :attr:`budgets`, made even if no budget is configured."""
        with import_lock:
            from specclient.budgets.budgets import Budgets  # noqa: PLC0415 - as above

            budgets: Budgets | None = self.__dict__.get("budgets")
            if budgets is None:
                budgets = Budgets(self._budgets, self.prices, self.estimates, self.ledger)
                self.__dict__["budgets"] = budgets
        return budgets

    @made_once
    def polls(self) -> LoadPoller:
        """Reads the load of destinations; imported by the first routed call."""
        from specclient.routing.load_poller import LoadPoller  # noqa: PLC0415

        return LoadPoller(self.estimates)

    @made_once
    def failover_state(self) -> FailoverState:
        """The state that routed calls share: hedge delays and sessions. The first one imports it."""
        from specclient.call.failover.executor import FailoverState  # noqa: PLC0415

        return FailoverState(self.prices)

    def poll_loads(self, router: Router, transport: Transport) -> None:
        """Start reading the loads of a router's candidates, and new scores, where the last ones are old."""
        self.polls.call_routed(router, transport)
        self.qualities.refresh()

    def record(self, call: Call) -> Awaitable[None] | None:
        """Add a finished call to the estimates, the budgets and the ledger.

        A call that the response cache answered teaches nothing of a route, and is no part of a budget; nor
        is what is booked later, such as a line of a vendor's batch job, which
        :mod:`specclient.budgets.late_charges` charges.

        Returns:
            The charge of the budgets and the commit of the ledger, which the call waits for; None if there is
            nothing to wait for.
        """
        if call.cached or call.purpose in BOOKED_LATER:
            # Also, many of them would crowd calls out of the queue of those to be learned from.
            return self.ledger.add(call)
        self.estimates.observe(call)
        if self.fleets is not None:
            call = self.fleets.observe(call)
        self.sizes.observe(call)
        self.qualities.note(call)
        budgets = self.budgets
        settled = None if budgets is None else budgets.settle(call)
        committed = self.ledger.add(call)
        if budgets is None or settled is None:
            return committed
        return _recorded(committed, settled, budgets.patience_s)

    def flush(self) -> None:
        """Write pending budget counts and ledger rows; called at the program's exit."""
        if "budgets" in self.__dict__ and self.budgets is not None:
            self.budgets.flush()
        if "ledger" in self.__dict__:
            self.ledger.flush(FLUSH_S)

    async def close(self) -> None:
        """Close the connections, unload the engines and write pending ledger rows."""
        self.closed = True
        await self.judgements.end()
        if "polls" in self.__dict__:
            await self.polls.aclose()
        if self.fleets is not None:
            await self.fleets.aclose()
        await self.transport.aclose()
        backends = list(self.backends.values())
        self.backends.clear()
        for backend in backends:
            await backend.aclose()
        if self.budgets is not None:
            await run_in_thread(self.budgets.flush)
        if "ledger" in self.__dict__:
            await run_in_thread(self.ledger.close)
        if (stored := self.__dict__.get("stored")) is not None:
            await run_in_thread(stored.close)
        if (cache := self.__dict__.get("cache")) is not None:
            await run_in_thread(cache[0].close)


async def _recorded(committed: Awaitable[None] | None, settled: Awaitable[object], patience_s: float) -> None:
    if committed is not None:
        await committed
    with suppress(TimeoutError), TimeLimit(patience_s):  # a slow database charges the call later
        await settled


class _LedgerHistory:
    """The rows of the ledger for the estimates; the first read makes the ledger."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[LedgerRow]:
        return self._shared.ledger.rows(since, until, limit=limit)


class _LedgerScores:
    """The scores in the ledger; the first one makes it."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def submit_score(self, score: CallScore) -> None:
        self._shared.ledger.submit_score(score)

    def scores(self, since: datetime, most: int) -> list[CallScore]:
        return self._shared.ledger.scores(since, most)

    def answered(self, call_id: str, since: datetime) -> tuple[str, str | None] | None:
        return self._shared.ledger.answered(call_id, since)
