"""Budgets: limits on the cost of calls, checked before each call and charged after it.

A hard budget reserves the upper bound of a call before the call is sent, and replaces it by the actual cost
afterwards. Both are transactions of the ledger's database, so all processes that share the database share
the budgets, and concurrent calls cannot spend the same dollar twice. A reservation has a lease, which an open
call renews. If the process dies, the lease ends and the reservation counts as spent.

A hard budget whose database fails, or does not answer in time, refuses every call (it fails closed), as a
call that cannot be counted may exceed the limit. A soft budget lets calls go on. They are counted when the
database works again, as are calls that were open when the database of a hard budget failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from specclient.budgets.accounts import (
    BudgetAccount,
    BudgetCharge,
    BudgetStatus,
    CallBound,
    account_at,
    scope_of,
)
from specclient.budgets.bounds import EngineContext, RouteHistory, bound_of
from specclient.budgets.messages import (
    announce_thresholds,
    ledger_failure,
    refusal_error,
    strict_account,
    warn_unwritten,
)
from specclient.budgets.tables import BudgetTransaction
from specclient.budgets.worker import BudgetTask, BudgetWorker, MemoryDatabase, Transact
from specclient.errors import LedgerError, OpenAIError
from specclient.ledger.location import OFF
from specclient.ledger.store import LEDGER_HINT, Execute
from specclient.prices.prices import Prices
from specclient.runtime.time_limit import TimeLimit
from specclient.types.budget import Budget, BudgetScope
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.route import Decision

if TYPE_CHECKING:
    from specclient.ledger.ledger import Ledger

__all__ = ["Budgets"]

logger = logging.getLogger("specclient")

#: Seconds after which a reservation counts as spent unless it is renewed.
LEASE_S = 300.0
#: Seconds between two looks for reservations whose lease has ended. Until then they reserve what they are
#: charged with afterwards, so that as much is left for other calls.
EXPIRY_S = 1.0
#: Seconds that a call waits at most for the database, before it is refused and after it has ended.
PATIENCE_S = 5.0


@dataclass(slots=True, eq=False)
class _OpenCall:
    """An open call: the accounts that count it (``counted``) and those that reserve its bound (``held``)."""

    route: str
    counted: Sequence[BudgetAccount]
    held: Sequence[BudgetAccount]
    measure: Callable[[], CallBound]
    bound: CallBound | None = None
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def upper_bound(self) -> CallBound:
        """Return the upper bound of the call; computed once."""
        if self.bound is None:
            self.bound = self.measure()
        return self.bound

    def prepare(self) -> None:
        """Compute the upper bound before a transaction, because it may take long."""
        self.upper_bound()


class Budgets:
    """The budgets of a client.

    Args:
        budgets: each with a name of its own.
        prices, past: prices and the newest calls, for upper bounds; see :mod:`specclient.budgets.bounds`.
        ledger: its database holds the budgets. If it is off, they are kept in memory, by this process alone.
        now: the clock; periods begin at midnight UTC.
        lease_s: seconds after which a reservation counts as spent unless it is renewed.
        patience_s: see :data:`PATIENCE_S`.

    Attributes:
        prices, past, now, patience_s: as given.
        worker: runs the tasks of the database.
        extra_budgets: returns further budgets that count a call, such as that of the API key of a request.
    """

    def __init__(
        self,
        budgets: Iterable[Budget],
        prices: Prices,
        past: RouteHistory,
        ledger: Ledger,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        lease_s: float = LEASE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.budgets = tuple(budgets)
        self.extra_budgets: Callable[[BudgetScope], Iterable[Budget]] = _no_extra_budgets
        self.prices = prices
        self.past = past
        self.now = now
        self._lease_s = lease_s
        self.patience_s = patience_s
        self._location = ledger.location
        self._transact: Transact = _in_memory() if ledger.location == OFF else ledger.transact
        self.worker = BudgetWorker(self._transact, announce_thresholds, warn_unwritten)
        self._expired_at = float("-inf")  # by the clock, in seconds since the epoch
        self._open: dict[str, _OpenCall] = {}

    async def reserve(
        self,
        id_: str,
        request: Request,
        route: Decision,
        *,
        price_provider: str | None,
        engine_context: EngineContext | None = None,
    ) -> CallBound | None:
        """Reserve the upper bound of a call in every hard budget that counts it, or in none.

        Args:
            id_: of the call's record. :meth:`settle` must be called for it afterwards.
            price_provider: as in :meth:`specclient.prices.prices.Prices.price`.
            engine_context: of the engine that serves the call; None for a hosted provider.

        Returns:
            The bound, which holds only if the call is sent with its ``limit``; None if no hard budget counts
            the call.

        Raises:
            BudgetExceededError: a budget has too little left.
            LedgerError: the database of a hard budget fails, or has not answered for ``patience_s``.
        """
        entry = self._entry(request, route, price_provider, engine_context)
        if not entry.counted:
            return None
        self._open[id_] = entry
        if not entry.held:
            return None
        task = BudgetTask(partial(self._reserve_in, id_, entry), before=entry.prepare)
        failure: OpenAIError
        try:
            with TimeLimit(self.patience_s):
                refusal: BudgetStatus | None = await self.worker.awaited(task)
        except TimeoutError:
            self._release(id_)  # as below
            late = f"the ledger {self._location} has not answered for {self.patience_s:g} s; {LEDGER_HINT}"
            failure = ledger_failure(entry.held, LedgerError(late))
        except LedgerError as error:
            if task.first_try:  # the transaction began, and may have been committed
                self._release(id_)
            self._open.pop(id_, None)
            failure = ledger_failure(entry.held, error)
        except BaseException:
            self._release(id_)  # runs after the reservation, as tasks run in order
            raise
        else:
            if refusal is None:
                self._lease(id_, asyncio.get_running_loop())
                return entry.upper_bound()
            self._open.pop(id_, None)
            failure = refusal_error(refusal, entry.route, entry.upper_bound())
        raise failure

    def count(self, id_: str, request: Request, route: Decision, *, price_provider: str | None) -> None:
        """Count a call that has begun already, without a check; arguments as for :meth:`reserve`."""
        entry = self._entry(request, route, price_provider)
        if entry.counted:
            entry.held = ()
            self._open[id_] = entry

    def settle(self, call: Call) -> Awaitable[object] | None:
        """Charge a finished call to its budgets; this happens whether or not the result is awaited.

        A failed call is charged with the cost in its record. Each attempt that was sent and got no response
        is charged with its upper bound, as the provider may bill it; so is an answer of unknown cost to a
        call with a reservation.
        """
        entry = self._open.pop(call.id, None)
        if entry is None:
            return None
        if entry.timer is not None:
            entry.timer.cancel()
        before = entry.prepare if _unanswered(call) else None
        task = BudgetTask(partial(_settle, call, entry), before, is_kept=True)
        return self.worker.awaited(task)

    def flush(self) -> None:
        """Charge the calls that could not be charged yet, and wait for it; for the end of a program."""
        self.worker.flush()

    def standings(self) -> list[BudgetStatus]:
        """Return the status of the accounts of the client's own budgets in their current periods.

        Raises:
            LedgerError: the database cannot be read.
        """
        now = self.now()

        def read(execute: Execute) -> list[BudgetStatus]:
            tables = BudgetTransaction(execute)
            tables.create()
            tables.expire(now.timestamp())
            return [tables.status(each) for each in self._accounts(tables, now)]

        return self._transact(read)

    def _accounts(self, tables: BudgetTransaction, now: datetime) -> Iterable[BudgetAccount]:
        for budget in self.budgets:
            own = account_at(budget, "", now)
            if budget.per_subject:
                for subject in tables.subjects(own) or [""]:
                    yield account_at(budget, subject, now)
            else:
                yield own

    def accounts_of(self, scope: BudgetScope, at: datetime | None = None) -> list[BudgetAccount]:
        """Return the accounts that count a call at a time; None for now."""
        now = at or self.now()
        return [
            account_at(budget, subject, now)
            for budget in (*self.budgets, *self.extra_budgets(scope))
            if (subject := budget.subject(scope)) is not None
        ]

    def _entry(
        self,
        request: Request,
        route: Decision,
        price_provider: str | None,
        engine_context: EngineContext | None = None,
    ) -> _OpenCall:
        options = request.options
        scope = scope_of(route, options.tags, options.session, by_judge=options.by_judge)
        counted = self.accounts_of(scope)
        held = [each for each in counted if each.budget.mode == "hard"]
        strict = any(each.budget.unpriced == "refuse" for each in held)
        measure = partial(
            bound_of,
            request,
            route,
            self.prices,
            self.past,
            price_provider,
            engine_context=engine_context,
            strict=strict,
        )
        return _OpenCall(scope.models[0], counted, held, measure)

    def _reserve_in(self, id_: str, entry: _OpenCall, tables: BudgetTransaction) -> BudgetStatus | None:
        """Reserve the upper bound of a call; return the status of an account that has too little left."""
        now, bound = self.now().timestamp(), entry.upper_bound()
        strict = strict_account(((each, bound) for each in entry.held), entry.route)
        if strict is not None:
            return tables.status(strict)
        if abs(now - self._expired_at) >= EXPIRY_S:
            self._expired_at = now
            tables.expire(now)
        return tables.reserve(id_, entry.held, bound, now + self._lease_s)

    def _lease(self, id_: str, loop: asyncio.AbstractEventLoop) -> None:
        """Renew the reservation of a call after each third of the lease, while the call is open."""
        if (entry := self._open.get(id_)) is not None:
            entry.timer = loop.call_later(self._lease_s / 3, self._renew, id_, loop)

    def _renew(self, id_: str, loop: asyncio.AbstractEventLoop) -> None:
        if (entry := self._open.get(id_)) is not None:
            until = self.now().timestamp() + self._lease_s
            self.worker.submit(BudgetTask(lambda tables: tables.renew(id_, entry.held, until)))
            self._lease(id_, loop)

    def _release(self, id_: str) -> None:
        """Remove the reservation of a call that is not made."""
        entry = self._open.pop(id_, None)
        if entry is not None:
            self.worker.submit(BudgetTask(lambda tables: tables.release(id_, entry.held), is_kept=True))


def _no_extra_budgets(_: BudgetScope) -> tuple[Budget, ...]:
    return ()


def _settle(call: Call, entry: _OpenCall, tables: BudgetTransaction) -> None:
    tables.release(call.id, entry.held)
    tables.spend(entry.counted, _charge(call, entry))


def _charge(call: Call, entry: _OpenCall) -> BudgetCharge:
    """Return the charge of a call: its record, and its upper bound for each attempt of unknown cost."""
    usage, nano = call.usage, call.cost.nano
    unanswered = _unanswered(call)
    if not unanswered:
        bound = entry.bound
        if nano is None and bound is not None and bound.nano is not None:
            # The answer does not state its usage, or is not finished (a response in the background).
            return BudgetCharge(bound.nano, bound.tokens, assumed=1)
        tokens = (usage.prompt or 0) + (usage.completion or 0)
        return BudgetCharge(nano or 0, tokens, unpriced=nano is None)
    bound = entry.upper_bound()
    return BudgetCharge(
        (nano or 0) + unanswered * (bound.nano or 0),
        (usage.prompt or 0) + (usage.completion or 0) + unanswered * bound.tokens,
        unpriced=bound.nano is None,
        assumed=unanswered,
    )


def _unanswered(call: Call) -> int:
    """Return the number of attempts that may have been billed although their usage is unknown."""
    unknown = call.cost.total is None and call.usage.prompt is None and call.usage.completion is None
    return len(call.lost_attempts) + (unknown and call.status != "ok")


@lru_cache(maxsize=1)
def _in_memory() -> Transact:
    logger.warning(
        "the ledger is off, so budgets start at 0, count this process alone, and are lost at its end; set "
        "SPECCLIENT_LEDGER to a file to share and keep them"
    )
    return MemoryDatabase().transact
