"""Budgets in their database (holds, leases, periods, scopes, thresholds), and without a database."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from specclient import Budget, BudgetExceededError, BudgetNotice, LedgerError
from specclient.budgets import budgets as module
from specclient.budgets.accounts import account_at, resets_at
from specclient.budgets.budgets import Budgets
from specclient.config import Settings
from specclient.ledger.ledger import Ledger
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Decision
from specclient.types.usage import Cost, Usage

pytestmark = pytest.mark.anyio

PRICES = Prices(Settings.model_validate({"prices": {"mine/m": {"input": 0, "output": 1_000_000}}}))
ROUTE = Decision(chosen="mine/m", provider="mine", model="m")


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 31, 23, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def forward(self, **span: float) -> None:
        self.at += timedelta(**span)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    made = Ledger(str(tmp_path / "l.sqlite3"))
    yield made
    made.close()


def asking(dollars: int, model: str = "m", **options: Any) -> Request:
    """Return a request whose answer may cost ``dollars`` at most: one dollar per token."""
    params = {"messages": [{"role": "user", "content": "x"}], "max_tokens": dollars}
    return Request(CHAT, f"mine/{model}", params, options=PerCallOptions(**options))


def ended(id_: str, dollars: int | None, status: Any = "ok", error: str | None = None) -> Call:
    usage = Usage() if dollars is None else Usage(prompt=3, completion=dollars)
    cost = Cost(total=None if dollars is None else Decimal(dollars))
    return Call(
        id=id_, started_at=datetime.now(UTC), operation="chat", model="m", route=ROUTE, status=status,
        error=error, usage=usage, cost=cost,
    )  # fmt: skip


class BudgetFactory:
    """Makes budgets for several clients on one ledger."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.ledger, self.clock = ledger, clock

    def open(self, *budgets: Budget, **more: Any) -> Budgets:
        return Budgets(budgets, PRICES, Estimator(), self.ledger, now=self.clock, **more)


@pytest.fixture
def factory(ledger: Ledger, clock: Clock) -> BudgetFactory:
    return BudgetFactory(ledger, clock)


async def reserve(budgets: Budgets, id_: str, dollars: int, route: Decision = ROUTE, **options: Any) -> None:
    await budgets.reserve(id_, asking(dollars, **options), route, price_provider=None)


async def settle(budgets: Budgets, call: Call) -> None:
    waiting = budgets.settle(call)
    if waiting is not None:
        await waiting


def state(budgets: Budgets) -> list[tuple[str, int, int]]:
    """Return the subject, the dollars spent and the dollars reserved of each standing."""
    return [
        (each.account.subject, each.spent // 10**9, each.reserved // 10**9) for each in budgets.standings()
    ]


async def test_a_reservation_is_not_available_to_other_calls(factory: BudgetFactory) -> None:
    one, other = factory.open(Budget(name="b", usd=10)), factory.open(Budget(name="b", usd=10))
    await reserve(one, "a", 6)
    with pytest.raises(BudgetExceededError, match=r"spent \$0.00, reserved for open calls \$6.00;"):
        await reserve(other, "b", 5)
    await reserve(other, "c", 4)
    assert state(one) == [("", 0, 10)]
    await settle(one, ended("a", 2))
    assert state(other) == [("", 2, 4)]
    await reserve(other, "b", 4)
    await settle(other, ended("c", 5))  # more than was reserved
    await settle(other, ended("b", 0, status="error"))
    assert state(one) == [("", 7, 0)]
    await settle(one, ended("a", 2))  # settled already, so it has no effect
    assert state(one) == [("", 7, 0)]


async def test_a_call_refused_by_one_budget_is_reserved_in_none(factory: BudgetFactory) -> None:
    budgets = factory.open(
        Budget(name="all", usd=10), Budget(name="few", tokens=5), Budget(name="other", usd=1, provider="x")
    )
    with pytest.raises(BudgetExceededError, match="its limit is 5 tokens in all") as caught:
        await reserve(budgets, "a", 6)
    assert (caught.value.limit, caught.value.spent, caught.value.resets_at) == (5, 0, None)
    assert "It never resets" in str(caught.value)
    assert "raise its tokens" in str(caught.value)
    assert [each.reserved for each in budgets.standings()] == [0, 0, 0]


async def test_periods_reset_at_midnight_utc(factory: BudgetFactory, clock: Clock) -> None:
    limits = {"day": 3, "month": 5, "total": 7}
    budgets = factory.open(*(Budget(name=name, usd=usd, period=name) for name, usd in limits.items()))  # type: ignore[arg-type]
    await reserve(budgets, "a", 3)
    clock.forward(hours=2)  # to February
    assert [s.account.period for s in budgets.standings()] == ["2026-02-01", "2026-02", "total"]
    await settle(budgets, ended("a", 3))  # counted in January, when it was sent
    assert [spent for _, spent, _ in state(budgets)] == [0, 0, 3]
    await reserve(budgets, "b", 3)
    with pytest.raises(BudgetExceededError, match=r"'day'.*for 2026-02-01.*resets at 2026-02-02 00:00 UTC"):
        await reserve(budgets, "c", 1)
    await settle(budgets, ended("b", 3))
    clock.forward(days=1)
    with pytest.raises(BudgetExceededError, match=r"'month'.*for 2026-02.*resets at 2026-03-01 00:00 UTC"):
        await reserve(budgets, "c", 3)
    clock.forward(days=330)  # to December, whose next month is in another year
    with pytest.raises(BudgetExceededError, match=r"'total'") as caught:
        await reserve(budgets, "c", 2)
    assert caught.value.resets_at is None
    december = account_at(budgets.budgets[1], "", clock())
    assert resets_at(december) == datetime(2027, 1, 1, tzinfo=UTC)


async def test_the_hold_of_a_killed_process_is_charged_after_its_lease(
    factory: BudgetFactory, clock: Clock
) -> None:
    killed, other = (factory.open(Budget(name="b", usd=10), lease_s=60) for _ in range(2))
    await reserve(killed, "a", 10)
    clock.forward(seconds=59)
    with pytest.raises(BudgetExceededError):
        await reserve(other, "b", 1)
    clock.forward(seconds=1)
    with pytest.raises(BudgetExceededError):
        await reserve(other, "b", 1)
    assert state(other) == [("", 10, 0)]
    await settle(killed, ended("a", 4))  # the process was only suspended: the actual cost counts
    assert state(other) == [("", 4, 0)]
    assert [(each.calls, each.assumed) for each in other.standings()] == [(1, 0)]
    await reserve(other, "b", 6)
    assert state(other) == [("", 4, 6)]


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_opens_no_budget(factory: BudgetFactory, clock: Clock, hours: int) -> None:
    """A reservation whose lease has ended by the new time is counted as spent until its call has ended."""
    holder, other = (factory.open(Budget(name="b", usd=10)) for _ in range(2))
    await reserve(holder, "a", 6)
    for _ in range(2):  # to a wrong time, and to the right one again
        clock.forward(hours=hours)
        with pytest.raises(BudgetExceededError):
            await reserve(other, "b", 5)
        await reserve(other, "c", 4)
        await settle(other, ended("c", 0))
        holder._renew("a", asyncio.get_running_loop())
        await asyncio.to_thread(holder.flush)
        hours = -hours
    await settle(holder, ended("a", 4))
    assert state(other) == [("", 4, 0)]


async def test_a_clock_set_back_before_midnight_fills_the_day_before(
    factory: BudgetFactory, clock: Clock
) -> None:
    """No day's sum exceeds the limit, whichever way the clock is set across midnight."""
    budgets = factory.open(Budget(name="b", usd=10, period="day"))
    for hours, left in ((0, 10), (1, 10), (-1, 4), (1, 4), (-1, 0), (1, 0)):  # from 23:00 and 00:00
        clock.forward(hours=hours)
        with pytest.raises(BudgetExceededError):
            await reserve(budgets, "more", left + 1)
        if left:
            spent = 6 if left == 10 else 4
            id_ = f"{clock()}-{left}"
            await reserve(budgets, id_, spent)
            await settle(budgets, ended(id_, spent))
        assert state(budgets)[0][1] == 10 - left + (spent if left else 0)


async def test_a_long_call_renews_its_lease(factory: BudgetFactory, clock: Clock) -> None:
    budgets = factory.open(Budget(name="b", usd=10), lease_s=0.06)
    await reserve(budgets, "a", 10)
    for _ in range(4):
        clock.forward(seconds=0.05)
        before = _expiry(factory.ledger)
        for _ in range(2000):
            await asyncio.sleep(0.005)
            if _expiry(factory.ledger) > before:
                break
    assert state(budgets) == [("", 0, 10)]
    await settle(budgets, ended("a", 1))
    clock.forward(seconds=0.05)
    await asyncio.sleep(0.05)
    assert state(budgets) == [("", 1, 0)]


def _expiry(ledger: Ledger) -> float:
    found: list[Any] = ledger.transact(lambda execute: execute("SELECT expires_at FROM budget_holds"))
    return float(found[0][0])


async def test_a_call_cancelled_while_it_reserves_holds_nothing(factory: BudgetFactory) -> None:
    budgets = factory.open(Budget(name="b", usd=10))
    await reserve(budgets, "a", 1)
    waiting = [asyncio.create_task(reserve(budgets, f"w{n}", 1)) for n in range(5)]
    await asyncio.sleep(0)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await reserve(budgets, "b", 9)
    assert state(budgets) == [("", 0, 10)]
    assert set(budgets._open) == {"a", "b"}


@pytest.mark.parametrize("mode", ["soft", "hard"])
async def test_each_threshold_is_notified_once(factory: BudgetFactory, caplog: Any, mode: Any) -> None:
    notices: list[BudgetNotice] = []
    shared = {"name": "b", "usd": 10, "period": "month", "mode": mode}
    clients = [factory.open(Budget(**shared, notify=notices.append)) for _ in range(2)]
    for number in range(10):
        client = clients[number % 2]
        await reserve(client, str(number), 1)
        await settle(client, ended(str(number), 1))
    assert [(each.percent, each.spent) for each in notices] == [(50, 5), (80, 8), (100, 10)]
    assert notices[0].resets_at == datetime(2026, 2, 1, tzinfo=UTC)
    assert (notices[0].limit, notices[0].period) == (10, "2026-01")
    assert [record.getMessage() for record in caplog.records if "reached" in record.getMessage()] == [
        f"budget 'b' has reached {percent} % of its $10.00 for 2026-01: spent ${percent // 10}.00; "
        "it resets at 2026-02-01 00:00 UTC"
        for percent in (50, 80, 100)
    ]
    await settle(clients[0], ended("11", 1))
    if mode == "soft":  # no call is refused, and no notice repeated
        await reserve(clients[0], "12", 50)
        await settle(clients[0], ended("12", 50))
        assert state(clients[0]) == [("", 60, 0)]
    else:
        with pytest.raises(BudgetExceededError):
            await reserve(clients[0], "12", 1)
    assert len(notices) == 3


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
async def test_a_call_that_passes_several_thresholds_notifies_each(
    factory: BudgetFactory, caplog: Any, error: type[BaseException]
) -> None:
    def broken(notice: BudgetNotice) -> None:
        raise error("mine")

    budgets = factory.open(Budget(name="b", usd=10, mode="soft", notify=broken))
    await reserve(budgets, "a", 1)
    await settle(budgets, ended("a", 9))
    messages = [record.getMessage() for record in caplog.records]
    assert [text.partition(" % ")[0] for text in messages if "reached" in text] == [
        "budget 'b' has reached 50",
        "budget 'b' has reached 80",
    ]
    assert messages.count("the notify of budget 'b' failed") == 2
    await reserve(budgets, "b", 1)  # the thread that counts the calls still runs


async def test_a_wildcard_gives_each_tag_value_and_each_session_its_own_limit(factory: BudgetFactory) -> None:
    budgets = factory.open(Budget(name="user", usd=5, tag="user=*"), Budget(name="s", usd=9, session="*"))
    await reserve(budgets, "a", 5, tags={"user": "ann"}, session="s1")
    with pytest.raises(BudgetExceededError, match=r"'user' \(user=ann\) refuses"):
        await reserve(budgets, "b", 1, tags={"user": "ann"})
    await reserve(budgets, "c", 5, tags={"user": "bob"}, session="s2")
    with pytest.raises(BudgetExceededError, match=r"'s' \(session s1\) refuses"):
        await reserve(budgets, "d", 5, session="s1")
    await reserve(budgets, "e", 99)  # has neither a user tag nor a session
    await settle(budgets, ended("a", 4))
    assert state(budgets) == [
        ("user=ann", 4, 0), ("user=bob", 0, 5), ("session s1", 4, 0), ("session s2", 0, 5),
    ]  # fmt: skip


async def test_calls_without_a_price_are_counted_with_a_warning_or_refused(
    factory: BudgetFactory, caplog: Any
) -> None:
    unpriced = Decision(chosen="mine/free", provider="mine", model="free")
    kind = asking(1)
    open_ = factory.open(Budget(name="open", usd=2))
    strict = factory.open(Budget(name="strict", usd=2, unpriced="refuse"), Budget(name="t", tokens=9))
    with pytest.raises(
        BudgetExceededError, match=r'no price is known for mine/free.*set \[prices."mine/free"\]'
    ):
        await strict.reserve("a", kind, unpriced, price_provider=None)
    for name in "bc":
        await open_.reserve(name, kind, unpriced, price_provider=None)
        call = ended(name, 1)
        await settle(open_, Call(**{**_fields(call), "cost": Cost()}))
    assert (open_.standings()[0].spent, open_.standings()[0].unpriced) == (0, 2)
    warnings = [record.getMessage() for record in caplog.records if "counts calls of" in record.getMessage()]
    assert len(warnings) == 1
    assert 'set [prices."mine/free"] in specclient.toml' in warnings[0]


async def test_a_strict_budget_refuses_whatever_order_and_the_other_one_warns(
    factory: BudgetFactory, caplog: Any
) -> None:
    unpriced = Decision(chosen="mine/new", provider="mine", model="new")
    pair = Budget(name="lenient", usd=2), Budget(name="strict", usd=2, unpriced="refuse")
    for number, budgets in enumerate((pair, pair[::-1])):
        with pytest.raises(BudgetExceededError, match="budget 'strict' refuses"):
            await factory.open(*budgets).reserve(str(number), asking(1), unpriced, price_provider=None)
    warnings = [record.getMessage() for record in caplog.records if "counts calls of" in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith("budget 'lenient' counts calls of mine/new as $0")


def _fields(call: Call) -> dict[str, Any]:
    return {name: getattr(call, name) for name in call.__dataclass_fields__}


async def test_with_the_ledger_off_budgets_are_kept_in_the_process(
    clock: Clock, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module._in_memory.cache_clear()
    one, other = (BudgetFactory(Ledger("off"), clock).open(Budget(name="b", usd=10)) for _ in range(2))
    await reserve(one, "a", 6)
    await settle(one, ended("a", 6))
    with pytest.raises(BudgetExceededError, match=r"spent \$6.00"):
        await reserve(other, "b", 5)
    assert [r.getMessage().partition(",")[0] for r in caplog.records if "off" in r.getMessage()] == [
        "the ledger is off"
    ]
    module._in_memory.cache_clear()


async def test_when_the_ledger_fails_hard_budgets_refuse_and_soft_budgets_are_settled_later(
    factory: BudgetFactory, caplog: Any
) -> None:
    path = Path(factory.ledger.location)
    path.write_bytes(b"this is no database, however long one looks at it" * 100)
    hard, soft = factory.open(Budget(name="h", usd=10)), factory.open(Budget(name="s", usd=10, mode="soft"))
    with pytest.raises(LedgerError, match=r"hard budget 'h' cannot be counted.*l.sqlite3.*mode = .soft"):
        await reserve(hard, "a", 1)
    assert hard._open == {}
    for name in "bc":
        await reserve(soft, name, 1)
        await settle(soft, ended(name, 1))
    assert sum("counted in their budgets later" in r.getMessage() for r in caplog.records) == 1
    path.unlink()
    await reserve(soft, "d", 1)
    await settle(soft, ended("d", 1))
    assert state(soft) == [("", 3, 0)]


async def test_a_failed_settlement_is_made_before_the_next_reservation(factory: BudgetFactory) -> None:
    budgets = factory.open(Budget(name="b", usd=10))
    await reserve(budgets, "a", 5)
    path = Path(factory.ledger.location)
    factory.ledger.close()
    path.rename(path.with_suffix(".away"))
    path.mkdir()
    await settle(budgets, ended("a", 8))
    path.rmdir()
    path.with_suffix(".away").rename(path)
    with pytest.raises(BudgetExceededError, match=r"spent \$8.00, reserved for open calls \$0.00"):
        await reserve(budgets, "b", 3)


async def test_budgets_in_postgresql(postgres_url: str, clock: Clock) -> None:
    ledger = Ledger(postgres_url)
    try:
        both = Budget(name="b", usd=10, period="day"), Budget(name="u", tokens=99, tag="u=*")
        budgets = BudgetFactory(ledger, clock).open(*both)
        done = await asyncio.gather(
            *(reserve(budgets, str(n), 3, tags={"u": "x"}) for n in range(9)), return_exceptions=True
        )
        assert [type(each) for each in done if each] == [BudgetExceededError] * 6
        await settle(budgets, ended("0", 1))
        assert [(s.spent, s.calls) for s in budgets.standings()] == [(10**9, 1), (4, 1)]
        assert state(budgets)[0] == ("", 1, 6)
    finally:
        ledger.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_a_forked_child_reserves_and_settles_by_itself(factory: BudgetFactory) -> None:
    budgets = factory.open(Budget(name="b", usd=10))
    await reserve(budgets, "a", 4)

    async def call() -> None:
        await reserve(budgets, "c", 3)
        await settle(budgets, ended("c", 2))

    def fork() -> int:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(call())
                code = 0
            finally:
                os._exit(code)
        return os.waitpid(child, 0)[1]

    assert await asyncio.to_thread(fork) == 0
    assert state(budgets) == [("", 2, 4)]
    await settle(budgets, ended("a", 1))
    assert state(budgets) == [("", 3, 0)]
