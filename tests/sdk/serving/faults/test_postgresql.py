"""PostgreSQL, which holds ledger, keys and budgets, is stopped, restarted and made slow under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from counting_upstream import CountingUpstream
from database_gateway import MAX_TOKENS, PRICES, DatabaseGateway, Load
from gateway_server import wait_until
from postgres_server import PostgresServer
from slow_proxy import SlowProxy

from specclient import Budget, LedgerError
from specclient.budgets.budgets import Budgets
from specclient.config import Settings
from specclient.ledger.ledger import Ledger
from specclient.ledger.postgres import PostgresStore
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import Cost, Usage

NANO = 10**9
#: The most that a call of the clients may cost, in dollars.
BOUND = Decimal(20 * PRICES["mine/m-large"]["input"] + MAX_TOKENS * PRICES["mine/m-large"]["output"]) / 10**6


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """Run a server that the tests may stop; each test leaves it running."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def upstream() -> Iterator[CountingUpstream]:
    with CountingUpstream(failing=False) as server:
        yield server


def _disturb(gateway: DatabaseGateway, seconds: float) -> None:
    """Stop the database for some seconds, start it, make it slow, and stall it; a time of rest after each."""
    gateway.postgres.stop()
    time.sleep(seconds)
    gateway.postgres.start()
    time.sleep(2 + seconds / 4)
    gateway.proxy.delay_s = 0.3
    time.sleep(seconds)
    gateway.proxy.delay_s = 0.0
    gateway.proxy.stall()
    time.sleep(seconds)
    gateway.proxy.go_on()
    time.sleep(2 + seconds / 4)


LONG = pytest.param(6, 10.0, marks=[pytest.mark.soak, pytest.mark.timeout(900)])


@pytest.mark.parametrize(("times", "seconds"), [(1, 1.5), LONG])
def test_calls_go_on_and_no_budget_reopens(
    postgres: PostgresServer, upstream: CountingUpstream, times: int, seconds: float
) -> None:
    with DatabaseGateway(upstream, postgres) as gateway:
        gateway.make("free")
        gateway.make("rich", usd=Decimal(1000))
        gateway.make("small", usd=Decimal("0.6"))
        with Load(gateway, {"free": 4, "rich": 2, "small": 2}) as load:
            assert wait_until(lambda: min(load.statuses(each)["200"] for each in gateway.keys) > 3)
            for _ in range(times):
                _disturb(gateway, seconds)
            before = load.statuses("rich")["200"]
            assert wait_until(lambda: load.statuses("rich")["200"] > before + 5), "its budget stays refused"
            assert wait_until(lambda: load.statuses("small")["429 insufficient_quota"] > 0, 60)
        free, rich = load.seen["free"], load.seen["rich"]
        assert set(free.statuses) == {"200"}, "a call without a budget was refused"
        assert free.slowest_s < 5, "a call without a budget waited for the database"
        assert load.pings_s < 2, "the event loop waited for the database"
        assert set(rich.statuses) == {"200", "503 ledger_unavailable"}
        assert rich.slowest_s < 10
        refused = rich.errors["ledger_unavailable"]
        assert refused.headers["retry-after"] == "5"
        message = refused.json()["error"]["message"]
        assert "budget cannot be counted" in message
        assert "127.0.0.1" not in message, "a client reads the address of the database"

        answered = sum(each.statuses["200"] for each in load.seen.values())
        assert wait_until(lambda: len(gateway.rows()) >= answered), "rows are missing"
        rows = gateway.rows()
        billed = [each for calls in upstream.billed.values() for each in calls]
        assert len(rows) == answered == len(billed)
        assert sum(row.completion_tokens or 0 for row in rows) == sum(each.completion for each in billed)
        for name in ("rich", "small"):
            assert wait_until(lambda name=name: gateway.standing(name).reserved == 0, 10)
            spent = sum((row.cost_nano or 0) for row in rows if row.tags.get("key") == name)
            assert gateway.standing(name).spent == spent, "a call was charged twice, or not at all"
        left = Decimal(gateway.standing("small").remaining) / NANO
        assert 0 <= left < 3 * BOUND, "two open calls cannot take what is left"


def test_keys_while_the_database_is_away(postgres: PostgresServer, upstream: CountingUpstream) -> None:
    with DatabaseGateway(upstream, postgres) as gateway:
        known, revoked, limited = (gateway.make(each) for each in ("known", "revoked", "limited"))
        assert gateway.ask(known).status_code == 200
        gateway.revoke("revoked")
        assert wait_until(lambda: gateway.ask(revoked).status_code == 401)
        new = gateway.make("new")
        postgres.stop()
        try:
            assert wait_until(lambda: gateway.ask(new).status_code == 503), "a new key is called wrong"
            for key in (new, revoked, "sk-unknown"):
                refused = gateway.ask(key)
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "keys_unavailable")
                assert refused.headers["retry-after"] == "5"
            assert gateway.ask(known).status_code == gateway.ask(limited).status_code == 200
            assert gateway.ask("").status_code == 401
        finally:
            postgres.start()
        assert wait_until(lambda: gateway.ask(new).status_code == 200)
        assert gateway.ask(revoked).status_code == gateway.ask("sk-unknown").status_code == 401
        gateway.proxy.stall()
        begun = time.monotonic()
        time.sleep(0.6)  # the keys are due to be read again
        assert gateway.ask(known).status_code == 200
        assert time.monotonic() - begun < 5, "a request waits for a database that does not answer"


def test_a_server_started_without_its_database_serves_nobody_without_a_key(
    postgres: PostgresServer, upstream: CountingUpstream
) -> None:
    gateway = DatabaseGateway(upstream, postgres)
    token = gateway.make("alice")
    postgres.stop()
    try:
        with gateway:
            for key in ("", token):
                answer = gateway.ask(key)
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "keys_unavailable")
            postgres.start()
            assert wait_until(lambda: gateway.ask(token).status_code == 200)
            assert gateway.ask("").status_code == 401
    finally:
        postgres.stop()
        postgres.start()


ROUTE = Decision(chosen="mine/m", provider="mine", model="m")
DOLLARS = Prices(Settings.model_validate({"prices": {"mine/m": {"input": 0, "output": 1_000_000}}}))


def _request(dollars: int) -> Request:
    return Request(CHAT, "mine/m", {"messages": [{"role": "user", "content": "x"}], "max_tokens": dollars})


def _ended(id_: str, dollars: int) -> Call:
    usage, cost = Usage(prompt=3, completion=dollars), Cost(total=Decimal(dollars))
    return Call(
        id=id_, started_at=datetime.now(UTC), operation="chat", model="m", route=ROUTE, status="ok",
        usage=usage, cost=cost,
    )  # fmt: skip


class _Accounts:
    """Budgets of 10 dollars in a database behind a proxy."""

    def __init__(self, postgres: PostgresServer, proxy: SlowProxy) -> None:
        database = postgres.create_database()
        self._url = postgres.url_of(database)
        self.ledger = Ledger(postgres.url_of(database, proxy.port))
        self.budgets = self._made(self.ledger)

    def _made(self, ledger: Ledger) -> Budgets:
        return Budgets([Budget(name="b", usd=10)], DOLLARS, Estimator(), ledger, patience_s=3.0)

    async def reserve(self, id_: str, dollars: int) -> None:
        await self.budgets.reserve(id_, _request(dollars), ROUTE, price_provider=None)

    async def settle(self, id_: str, dollars: int) -> None:
        charged: Any = self.budgets.settle(_ended(id_, dollars))
        await charged

    def sums(self) -> tuple[int, int, int]:
        """Return the dollars spent and reserved and the number of calls, as another process reads them."""
        ledger = Ledger(self._url)
        try:
            (found,) = self._made(ledger).standings()
        finally:
            ledger.close()
        return found.spent // NANO, found.reserved // NANO, found.calls


@pytest.mark.anyio
async def test_a_charge_whose_commit_was_not_confirmed_counts_once(postgres: PostgresServer) -> None:
    """The database commits the charge, but the connection breaks before its answer arrives."""
    with SlowProxy(postgres.port) as proxy:
        accounts = _Accounts(postgres, proxy)
        for number in range(3):
            await accounts.reserve(f"c{number}", 3)
        proxy.lose_answer_to(b"COMMIT")
        await accounts.settle("c0", 2)
        assert proxy.has_lost_an_answer
        await accounts.settle("c1", 3)
        assert await asyncio.to_thread(wait_until, lambda: accounts.sums() == (5, 3, 2)), accounts.sums()
        await asyncio.sleep(1.5)
        assert accounts.sums() == (5, 3, 2)
        accounts.ledger.close()


@pytest.mark.anyio
async def test_a_failed_charge_is_made_without_another_call(postgres: PostgresServer) -> None:
    """Otherwise its reservation would expire uncharged, and other processes could spend the amount again."""
    with SlowProxy(postgres.port) as proxy:
        accounts = _Accounts(postgres, proxy)
        await accounts.reserve("a", 9)
        postgres.stop()
        try:
            await accounts.settle("a", 8)
            with pytest.raises(LedgerError, match="cannot be counted"):
                await accounts.reserve("b", 1)
        finally:
            postgres.start()
        assert await asyncio.to_thread(wait_until, lambda: accounts.sums() == (8, 0, 1)), accounts.sums()
        accounts.ledger.close()


@pytest.mark.anyio
async def test_a_hard_budget_refuses_in_time_when_the_database_hangs(postgres: PostgresServer) -> None:
    with SlowProxy(postgres.port) as proxy:
        accounts = _Accounts(postgres, proxy)
        await accounts.reserve("a", 4)
        proxy.stall()
        begun = time.monotonic()
        with pytest.raises(LedgerError, match="has not answered for 3 s"):
            await accounts.reserve("b", 4)
        assert time.monotonic() - begun < 10
        proxy.go_on()
        await accounts.settle("a", 4)
        assert await asyncio.to_thread(wait_until, lambda: accounts.sums() == (4, 0, 1)), (
            "the refused call holds a reservation"
        )
        accounts.ledger.close()


def test_a_server_that_stays_silent_is_given_up_and_used_again(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a connection that was used before, and on a new one; no thread waits for ever."""
    monkeypatch.setattr("specclient.ledger.postgres.SILENT_S", 0.5)
    with SlowProxy(postgres.port) as proxy:
        store = PostgresStore(postgres.url_of(postgres.create_database(), proxy.port))
        assert store.transact(lambda execute: execute("SELECT 1")) == [(1,)]
        proxy.stall()
        for _ in range(2):
            begun = time.monotonic()
            with pytest.raises(LedgerError):
                store.transact(lambda execute: execute("SELECT 1"))
            assert time.monotonic() - begun < 30
        proxy.go_on()
        assert store.transact(lambda execute: execute("SELECT 1")) == [(1,)]
        store.close()


def test_a_statement_and_an_open_transaction_have_limits_at_the_server(postgres: PostgresServer) -> None:
    """For the transaction alone: a pooler hands the connection to others afterwards."""
    store = PostgresStore(postgres.url_of(postgres.create_database()))
    names = ("statement_timeout", "idle_in_transaction_session_timeout")
    found = store.transact(lambda execute: [execute(f"SHOW {name}")[0][0] for name in names])
    assert found == ["30s", "1min"]
    assert [*store.query("SELECT current_setting('statement_timeout')")] == [("0",)]
    store.close()
