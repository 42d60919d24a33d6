"""Budgets of what is billed after its call: the lines of vendors' batch jobs, trainings, containers.

A job reserves the upper bounds of its lines, at the price of the batch tier, in every hard budget that counts
them, before it is created. Its results are charged as they are read, by this program or any other, and the
reservation is then released. Each line of an output is charged once, because the database has the number of
its lines that have been charged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from specclient.budgets.accounts import BudgetAccount, BudgetCharge, BudgetStatus, CallBound, scope_of
from specclient.budgets.bounds import bound_of
from specclient.budgets.budgets import Budgets
from specclient.budgets.messages import ledger_failure, refusal_error, strict_account
from specclient.budgets.tables import BudgetTransaction
from specclient.budgets.worker import BudgetTask
from specclient.errors import LedgerError
from specclient.prices.tier_rates import BATCH
from specclient.runtime.time_limit import TimeLimit
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.route import Decision

__all__ = ["JobBounds", "LateCharges", "LineBound"]

#: Seconds after which the reservation of a job counts as spent. A job may take a day; results that are read
#: within a week after that replace the charge.
JOB_LEASE_S: Final = 2 * 86_400.0


@dataclass(slots=True)
class JobBounds:
    """The upper bounds of the lines of a job, by the accounts that reserve them.

    Attributes:
        held: the sums by account.
        route: the route of a line, for messages.
        lines: the number of lines.
    """

    held: dict[BudgetAccount, CallBound]
    route: str = ""
    lines: int = 0

    def add(self, line: LineBound) -> None:
        """Add the bound of a line."""
        self.route, self.lines = line.route, self.lines + 1
        for account in line.accounts:
            known = self.held.get(account)
            self.held[account] = line.bound if known is None else _sum(known, line.bound)


class LineBound(NamedTuple):
    """The upper bound of a line, and the accounts that reserve it."""

    accounts: Sequence[BudgetAccount]
    bound: CallBound
    route: str


class LateCharges:
    """The budgets of a client, for jobs and for what is booked when it is read.

    Args:
        budgets: of the client.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets

    def line_bound(self, request: Request, route: Decision, price_provider: str | None) -> LineBound | None:
        """Return the upper bound of a line, at the price of the batch tier.

        It may take long for a long prompt: do not call it on an event loop.

        Returns:
            The bound, which holds only if the line is sent with its ``limit``; None if no hard budget counts
            the line.
        """
        options = request.options
        scope = scope_of(route, options.tags, options.session, by_judge=options.by_judge)
        held = [each for each in self._budgets.accounts_of(scope) if each.budget.mode == "hard"]
        if not held:
            return None
        bound = bound_of(
            request,
            route,
            self._budgets.prices,
            self._budgets.past,
            price_provider,
            strict=any(each.budget.unpriced == "refuse" for each in held),
            tier=BATCH,
        )
        return LineBound(held, bound, route.chosen)

    async def hold(self, token: str, job: JobBounds) -> None:
        """Reserve the bounds of a job in all its accounts, or in none.

        Args:
            token: names the job; :meth:`release` must be called with it.

        Raises:
            BudgetExceededError: a budget has too little left.
            LedgerError: the database of a budget fails.
        """
        if not job.held:
            return
        until = self._budgets.now().timestamp() + JOB_LEASE_S

        def reserve(tables: BudgetTransaction) -> BudgetStatus | None:
            tables.expire(self._budgets.now().timestamp())
            strict = strict_account(job.held.items(), job.route)
            if strict is not None:
                return tables.status(strict)
            return tables.reserve_each(token, job.held, until)

        try:
            refusal: BudgetStatus | None = await self._budgets.worker.awaited(BudgetTask(reserve))
        except LedgerError as error:
            raise ledger_failure(list(job.held), error) from None
        if refusal is not None:
            what = f"this batch job ({job.lines:,} lines)"
            raise refusal_error(refusal, job.route, job.held[refusal.account], what)

    def release(self, token: str) -> None:
        """Release the reservations of a job whose results have been charged, or which was not created."""
        self._budgets.worker.submit(BudgetTask(lambda tables: tables.release_all(token), is_kept=True))

    async def charge(self, output: str, lines: Sequence[tuple[int, Call]]) -> None:
        """Charge lines of an output, those alone that have not been charged.

        Args:
            output: names the output among all of all providers.
            lines: ascending numbers of lines, from 0, and their records. Earlier lines have been charged or
                are never charged.
        """
        charges = [(number, self._accounts_of(call), _charge(call)) for number, call in lines]
        if not any(accounts for _, accounts, _ in charges):
            return
        end = charges[-1][0] + 1
        name = hashlib.sha256(output.encode("utf-8", "replace")).hexdigest()[:32]

        def spend(tables: BudgetTransaction) -> None:
            done = tables.lines_charged(name)
            if done >= end:
                return
            tables.note_charged(name, end)
            for number, accounts, charge in charges:
                if number >= done:
                    tables.spend(accounts, charge)

        with suppress(TimeoutError), TimeLimit(self._budgets.patience_s):  # a slow database charges it later
            await self._budgets.worker.awaited(BudgetTask(spend, is_kept=True))

    def _accounts_of(self, call: Call) -> list[BudgetAccount]:
        """Return the accounts of the period in which the work was done: it may be read much later."""
        at = min(call.started_at, self._budgets.now())
        return self._budgets.accounts_of(scope_of(call.route, call.tags, call.session), at)


def _charge(call: Call) -> BudgetCharge:
    nano, usage = call.cost.nano, call.usage
    return BudgetCharge(nano or 0, (usage.prompt or 0) + (usage.completion or 0), unpriced=nano is None)


def _sum(one: CallBound, other: CallBound) -> CallBound:
    """Return the bound of two lines together."""
    known = one.nano is not None or other.nano is not None
    return replace(
        one,
        nano=(one.nano or 0) + (other.nano or 0) if known else None,
        prompt=one.prompt + other.prompt,
        completion=one.completion + other.completion,
        priced=one.priced and other.priced,
        limit=one.limit or other.limit,
        unbounded=one.unbounded or other.unbounded,
    )
