"""Turn limits on what calls may cost into a refusal before, and a sum after, each call that they count.

A hard budget holds the most that a call may come to before it is sent, and puts what it came to in its
place afterwards. Both are transactions of the ledger's database, so whatever shares it shares the budgets,
and calls that run at once cannot spend the same dollar twice. A hold ends with its lease, should its process
be gone; a call under way renews its own.

A hard budget whose database fails refuses every call (fails closed): what cannot be counted could cost
anything, and whoever sets a hard limit has said that this is worse than no answer. A soft one lets calls go
on, and counts them when the database works again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from specclient.budgets import messages as words
from specclient.budgets import tables as book
from specclient.budgets.bounds import RouteHistory, bound_of
from specclient.budgets.tables import (
    BudgetAccount,
    BudgetCharge,
    BudgetStatus,
    BudgetTransaction,
    CallBound,
    ThresholdReached,
)
from specclient.budgets.worker import BudgetTask, BudgetWorker, MemoryDatabase, Transact
from specclient.errors import LedgerError, OpenAIError
from specclient.ledger.location import OFF
from specclient.ledger.store import Execute
from specclient.prices.prices import Prices
from specclient.types.budget import Budget, BudgetScope
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.route import Decision

if TYPE_CHECKING:
    from specclient.ledger.ledger import Ledger

__all__ = ["Budgets"]

logger = logging.getLogger("specclient")

#: Seconds for which what a call holds outlives its process.
LEASE_S = 300.0


@dataclass(slots=True, eq=False)
class _OpenCall:
    """A call under way: the accounts that count it, and those of them on which something is held for it."""

    route: str
    counted: Sequence[BudgetAccount]
    held: Sequence[BudgetAccount]
    measure: Callable[[], CallBound]
    size: CallBound | None = None
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def sized(self) -> CallBound:
        """Return the most that the call may come to; worked out once."""
        if self.size is None:
            self.size = self.measure()
        return self.size

    def measured(self) -> None:
        """Work that out, which takes a while, before it is asked for in a transaction."""
        self.sized()


class Budgets:
    """The budgets of a client.

    Args:
        budgets: no two of one name.
        prices, past: what calls are estimated by; see :mod:`specclient.budgets.bounds`.
        ledger: whose database they are kept in. Where it is off they are kept in this process alone.
        now: the clock; periods begin at midnight UTC.
        lease_s: seconds for which holds outlive their process.

    Attributes:
        further: asked for each call which other budgets count it, where there are too many to go through.
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
    ) -> None:
        self.budgets = tuple(budgets)
        self.further: Callable[[BudgetScope], Iterable[Budget]] = _none_further
        self._prices = prices
        self._past = past
        self._now = now
        self._lease_s = lease_s
        self._transact: Transact = _in_memory() if ledger.location == OFF else ledger.transact
        self._desk = BudgetWorker(self._transact, _warn_unwritten)
        self._open: dict[str, _OpenCall] = {}

    async def reserve(
        self, id_: str, request: Request, route: Decision, *, price_provider: str | None
    ) -> None:
        """Hold what a call may come to in every hard budget that counts it, or in none.

        Args:
            id_: of its record, by which :meth:`settle` knows it; whoever reserves must settle.
            price_provider: as in :meth:`specclient.prices.prices.Prices.price`.

        Raises:
            BudgetExceededError: one of them has not enough left.
            LedgerError: the database of a hard budget fails.
        """
        entry = self._entry(request, route, price_provider)
        if not entry.counted:
            return
        self._open[id_] = entry
        if not entry.held:
            return
        work = BudgetTask(partial(self._reserved, id_, entry), before=entry.measured)
        failure: OpenAIError
        try:
            refusing: BudgetStatus | None = await asyncio.wrap_future(self._desk.submit(work))
        except LedgerError as error:
            self._open.pop(id_, None)
            failure = words.ledger_failure(entry.held, error)
        except BaseException:
            self._release(id_)  # in order: after what is being reserved
            raise
        else:
            if refusing is None:
                self._lease(id_, asyncio.get_running_loop())
                return
            self._open.pop(id_, None)
            failure = words.refusal_error(refusing, entry.route, entry.sized())
        raise failure

    def settle(self, call: Call) -> Awaitable[object] | None:
        """Count what a finished call came to; done whether or not what is returned is awaited.

        A call that failed counts as what its record says. Each try that was sent, and that no answer came to,
        counts as what was estimated: its provider may bill it.
        """
        entry = self._open.pop(call.id, None)
        if entry is None:
            return None
        if entry.timer is not None:
            entry.timer.cancel()
        before = entry.measured if _unanswered(call) else None
        work = BudgetTask(partial(_settled, call, entry), before, words.announce_thresholds, lasting=True)
        return asyncio.wrap_future(self._desk.submit(work))

    def flush(self) -> None:
        """Count what could not be counted yet; for the end of a program. Waits for the database."""
        self._desk.flush()

    def standings(self) -> list[BudgetStatus]:
        """Return how the accounts of the client's own budgets stand in their running periods.

        Raises:
            LedgerError: they cannot be read.
        """
        now = self._now()

        def read(execute: Execute) -> list[BudgetStatus]:
            page = BudgetTransaction(execute)
            page.create()
            page.lapse(now.timestamp())
            return [page.stand(each) for each in self._accounts(page, now)]

        return self._transact(read)

    def _accounts(self, page: BudgetTransaction, now: datetime) -> Iterable[BudgetAccount]:
        for budget in self.budgets:
            own = book.account(budget, "", now)
            if budget.parted:
                for subject in page.subjects(own) or [""]:
                    yield book.account(budget, subject, now)
            else:
                yield own

    def _entry(self, request: Request, route: Decision, price_provider: str | None) -> _OpenCall:
        options = request.options
        models = (f"{route.provider}/{route.model}", route.model, route.chosen)
        scope = BudgetScope(route.provider, models, options.tags, options.session)
        now = self._now()
        counted = [
            book.account(budget, subject, now)
            for budget in (*self.budgets, *self.further(scope))
            if (subject := budget.subject(scope)) is not None
        ]
        return _OpenCall(
            models[0],
            counted,
            [each for each in counted if each.budget.mode == "hard"],
            partial(bound_of, request, route, self._prices, self._past, price_provider),
        )

    def _reserved(self, id_: str, entry: _OpenCall, page: BudgetTransaction) -> BudgetStatus | None:
        """Hold what a call may come to; returns the account that refuses it."""
        now, size = self._now().timestamp(), entry.sized()
        if not size.priced:
            for each in entry.held:
                if each.budget.usd is not None and each.budget.unpriced == "refuse":
                    return page.stand(each)
                if each.budget.usd is not None:
                    _warn_unpriced(each.budget.name, entry.route)
        page.lapse(now)
        return page.reserve(id_, entry.held, size, now + self._lease_s)

    def _lease(self, id_: str, loop: asyncio.AbstractEventLoop) -> None:
        """Renew what is held for a call each third of the lease, while it runs."""
        if (entry := self._open.get(id_)) is not None:
            entry.timer = loop.call_later(self._lease_s / 3, self._renew, id_, loop)

    def _renew(self, id_: str, loop: asyncio.AbstractEventLoop) -> None:
        if (entry := self._open.get(id_)) is not None:
            until = self._now().timestamp() + self._lease_s
            self._desk.submit(BudgetTask(lambda page: page.renew(id_, entry.held, until)))
            self._lease(id_, loop)

    def _release(self, id_: str) -> None:
        """Let go of what is held, or being held, for a call that is not made."""
        entry = self._open.pop(id_, None)
        if entry is not None:
            self._desk.submit(BudgetTask(lambda page: page.release(id_, entry.held), lasting=True))


def _none_further(_: BudgetScope) -> tuple[Budget, ...]:
    return ()


def _settled(call: Call, entry: _OpenCall, page: BudgetTransaction) -> list[ThresholdReached]:
    page.release(call.id, entry.held)
    return page.spend(entry.counted, _bill(call, entry))


def _bill(call: Call, entry: _OpenCall) -> BudgetCharge:
    """Return what a call counts as: its record, and its size for each try that no answer came to."""
    usage, nano = call.usage, call.cost.nano
    unanswered = _unanswered(call)
    if not unanswered:
        tokens = (usage.prompt or 0) + (usage.completion or 0)
        return BudgetCharge(nano or 0, tokens, unpriced=nano is None)
    size = entry.sized()
    return BudgetCharge(
        (nano or 0) + unanswered * (size.nano or 0),
        (usage.prompt or 0) + (usage.completion or 0) + unanswered * size.tokens,
        unpriced=size.nano is None,
        assumed=unanswered,
    )


def _unanswered(call: Call) -> int:
    """Return how many of a call's tries may have been billed though nothing is known of what they used."""
    unknown = call.cost.total is None and call.usage.prompt is None and call.usage.completion is None
    return len(call.lost) + (unknown and call.status != "ok")


@lru_cache(maxsize=1)
def _in_memory() -> Transact:
    logger.warning(
        "the ledger is off, so budgets count what this process spends, from nothing, and forget it at its "
        "end; set SPECCLIENT_LEDGER to a file to share and keep them"
    )
    return MemoryDatabase().transact


@lru_cache(maxsize=1024)
def _warn_unpriced(budget: str, route: str) -> None:
    logger.warning(
        "budget %r counts calls of %s as nothing: no price is known; set [prices.%s] in specclient.toml, or "
        'unpriced = "refuse"',
        budget,
        route,
        f'"{route}"',
    )


@lru_cache(maxsize=64)
def _warn_unwritten(trouble: str) -> None:
    logger.warning("%s. What calls cost is kept in memory, and counted in their budgets later", trouble)
