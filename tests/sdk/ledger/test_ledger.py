"""The ledger: acknowledged calls are written, and a ledger that cannot be written never fails a call."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import traceback
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from forked_program import STRICT, ForkedProgram

from specclient.errors import ConfigurationError, LedgerError
from specclient.ledger.encoding import nano_by_kind
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import COLUMN_NAMES, LedgerRow
from specclient.ledger.schema import SCHEMA_VERSION
from specclient.types.usage import Cost, Speculation, Usage

pytestmark = pytest.mark.anyio

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)

#: A child process that records calls, and prints each id after the ledger has acknowledged it.
CHILD = """
import asyncio, sys
from datetime import UTC, datetime
from specclient.ledger.ledger import Ledger
from specclient.types.call import Call
from specclient.types.route import Decision

def call(id):
    route = Decision(chosen="local/demo", provider="local", model="demo")
    now = datetime.now(UTC)
    return Call(id=id, started_at=now, operation="chat", model="local/demo", route=route, status="ok")

async def one(ledger, id):
    await ledger.record(call(id))
    sys.stdout.write(id + "\\n")  # one write per line, because processes share the pipe
    sys.stdout.flush()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "ledger.sqlite3"


@pytest.fixture
def open_ledger():
    """Make ledgers that are closed when the test ends."""
    made = []

    def make(setting, *, durability="sync", **options):
        made.append(Ledger(str(setting), durability=durability, **options))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


def child(script, *arguments):
    return ForkedProgram(
        [sys.executable, *STRICT, "-c", CHILD + script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err == ""
    return out.split()


def stored_ids(path):
    with sqlite3.connect(path) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        assert verdict == "ok"
        found = {key for (key,) in connection.execute("SELECT id FROM calls")}
    connection.close()
    return found


async def test_a_recorded_call_is_read_unchanged(path, make_call, open_ledger):
    call = make_call(
        "c1",
        streamed=True,
        served_model="gpt-4.1-2025-04-14",
        status="error",
        error="RateLimitError",
        http_status=429,
        usage=Usage(prompt=10, completion=5, cached=2, cache_write=1, reasoning=3, estimated=True),
        speculation=Speculation(
            method="draft", drafted=8, accepted=6, steps=2, predicted_accepted=4, predicted_rejected=1
        ),
        cost=Cost(Decimal("0.000000003"), {"input": Decimal("0.000000003")}, "somewhere", estimated=True),
        attempts=3,
        ttft_s=0.25,
        latency_s=1.5,
        engine_s=1.0,
        request_id="req_1",
        tags={"team": "red"},
    )
    ledger = open_ledger(path)
    await ledger.record(call)
    (row,) = open_ledger(path).rows()
    assert row == LedgerRow.of(call)
    assert row.started_at == AT
    assert row.started_at.utcoffset() == timedelta(0)
    assert (row.cost_nano, row.cost_by_kind, row.cost) == (3, {"input": 3}, Decimal("0.000000003"))
    assert row.tags == {"team": "red"}
    assert row.decision["candidates"][0]["verdict"] == "chosen"
    assert tuple(row.to_dict()) == COLUMN_NAMES


async def test_unknown_values_are_read_as_none(path, make_call, open_ledger):
    ledger = open_ledger(path)
    await ledger.record(make_call(usage=Usage(prompt=0)))
    (row,) = ledger.rows()
    assert row.prompt_tokens == 0
    assert row.completion_tokens is row.cost_nano is row.drafted is row.ttft_s is None


async def test_invalid_values_of_a_server_are_replaced_and_the_row_is_kept(path, make_call, open_ledger):
    ledger = open_ledger(path)
    await ledger.record(
        make_call(
            served_model="bad \ud800 text\0",
            usage=Usage(prompt=10**30),
            ttft_s=float("inf"),
            tags={"n": 3, "x": "\udfff"},
        )
    )
    (row,) = open_ledger(path).rows()
    assert row.served_model == "bad ? text"
    assert row.prompt_tokens is row.ttft_s is None
    assert row.tags == {"n": "3", "x": "?"}


async def test_the_files_are_readable_by_their_owner_only(path, make_call, open_ledger):
    before = os.umask(0)
    try:
        ledger = open_ledger(path)
        await ledger.record(make_call())
    finally:
        os.umask(before)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


async def test_no_file_is_created_before_the_first_call(path, make_call, open_ledger):
    ledger = open_ledger(path)
    assert ledger.rows() == []
    ledger.close()
    assert not path.parent.exists()


async def test_a_ledger_that_is_off_stores_nothing(make_call, tmp_path, monkeypatch, open_ledger):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    ledger = open_ledger("OFF")
    await ledger.record(make_call())
    ledger.submit(make_call())
    assert ledger.rows() == []
    assert ledger.location == "off"
    assert not (tmp_path / "data").exists()


async def test_the_default_ledger_is_in_the_users_data_folder(make_call, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ledger = Ledger()
    assert ledger.location == str(tmp_path / "specclient" / "ledger.sqlite3")
    await ledger.record(make_call())
    ledger.close()
    assert ledger.location == str(tmp_path / "specclient" / "ledger.sqlite3")
    assert stored_ids(ledger.location) == {"c1"}


async def test_rows_are_selected_by_since_until_and_limit(path, make_call, open_ledger):
    ledger = open_ledger(path)
    for minute in (2, 0, 1, 3):
        await ledger.record(make_call(f"c{minute}", started_at=AT + timedelta(minutes=minute)))

    def ids(*args, **options):
        return [row.id for row in ledger.rows(*args, **options)]

    assert ids() == ["c0", "c1", "c2", "c3"]
    assert ids(AT + timedelta(minutes=1), AT + timedelta(minutes=3)) == ["c1", "c2"]
    assert ids(limit=2) == ["c2", "c3"]
    assert ids(limit=0) == []


async def test_rows_not_yet_written_are_read_once(path, make_call, open_ledger):
    ledger = open_ledger(path)
    await ledger.record(make_call("c1"))
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    ledger.submit(make_call("c2", started_at=AT + timedelta(minutes=1)))
    ledger.submit(make_call("c1"))  # the same call twice is one row
    assert [row.id for row in ledger.rows()] == ["c1", "c2"]
    assert [row.id for row in ledger.rows(until=AT + timedelta(seconds=1))] == ["c1"]
    held.execute("COMMIT")
    held.close()
    assert ledger.flush()
    assert stored_ids(path) == {"c1", "c2"}


async def test_concurrent_calls_of_several_event_loops_are_written(path, make_call, open_ledger):
    ledger = open_ledger(path)

    def work(worker):
        async def all_at_once():
            await asyncio.gather(*(ledger.record(make_call(f"{worker}-{n}")) for n in range(50)))

        asyncio.run(all_at_once())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stored_ids(path) == {f"{worker}-{n}" for worker in range(4) for n in range(50)}


async def test_waiting_calls_share_one_transaction_and_one_wakeup_of_the_loop(
    path, make_call, open_ledger, monkeypatch
):
    ledger = open_ledger(path)
    await ledger.record(make_call("first"))
    batches, wakes = [], []
    store = ledger._writer.store
    write, wake = store.write, asyncio.get_running_loop().call_soon_threadsafe
    monkeypatch.setattr(store, "write", lambda rows, _: (batches.append(len(rows)), write(rows)))
    monkeypatch.setattr(
        asyncio.get_running_loop(),
        "call_soon_threadsafe",
        lambda *args, **more: (wakes.append(args), wake(*args, **more))[1],
    )
    with ledger._writer.exclusive():
        calls = asyncio.gather(*(ledger.record(make_call(f"c{n}")) for n in range(64)))
        await asyncio.sleep(0)
    await calls
    assert batches == [64]
    assert len(wakes) == 1


async def test_the_idle_writer_thread_ends_and_the_next_call_starts_another(
    path, make_call, open_ledger, monkeypatch
):
    monkeypatch.setattr("specclient.ledger.writer.IDLE_S", 0.01)
    ledger = open_ledger(path)
    for n in range(3):
        await ledger.record(make_call(f"c{n}"))
        while ledger._writer._thread is not None or Path(f"{path}-wal").exists():
            await asyncio.sleep(0.005)
    assert stored_ids(path) == {"c0", "c1", "c2"}


async def test_a_call_cancelled_while_it_is_recorded_is_written(path, make_call, open_ledger):
    ledger = open_ledger(path)
    task = asyncio.create_task(ledger.record(make_call()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.flush()
    assert stored_ids(path) == {"c1"}


async def test_processes_that_start_concurrently_share_one_file(path):
    script = """
async def main():
    ledger = Ledger(sys.argv[1])
    await asyncio.gather(*(one(ledger, f"{sys.argv[2]}-{n}") for n in range(20)))
    ledger.close()
asyncio.run(main())
"""
    running = [child(script, path, n) for n in range(4)]
    acknowledged = {key for process in running for key in finish(process)}
    assert len(acknowledged) == 80
    assert stored_ids(path) == acknowledged


@pytest.mark.parametrize("durability", ["batch", "sync"])
async def test_after_a_fork_parent_and_child_both_write(path, durability):
    script = """
import os
ledger = Ledger(sys.argv[1], durability=sys.argv[2])
asyncio.run(one(ledger, "before"))
ledger.submit(call("waiting"))
pid = os.fork()
if pid == 0:
    asyncio.run(one(ledger, "child"))
    ledger.close()
    os._exit(0)
asyncio.run(one(ledger, "parent"))
assert os.waitpid(pid, 0)[1] == 0
asyncio.run(one(ledger, "after"))
ledger.close()
"""
    assert set(finish(child(script, path, durability))) == {"before", "child", "parent", "after"}
    assert stored_ids(path) == {"before", "waiting", "child", "parent", "after"}


async def test_waiting_rows_are_written_at_exit(path):
    assert finish(child('Ledger(sys.argv[1]).submit(call("last"))', path)) == []
    assert stored_ids(path) == {"last"}


async def test_a_garbage_collected_ledger_still_writes_its_rows(path, make_call):
    Ledger(str(path)).submit(make_call())
    gc.collect()
    while not (path.exists() and stored_ids_or_none(path)):
        await asyncio.sleep(0.01)
    assert stored_ids(path) == {"c1"}


# -- ledgers that cannot be used -------------------------------------------------------------------


def under_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "ledger.sqlite3"


def not_a_database(tmp_path):
    (tmp_path / "notes.txt").write_text("these are my notes, " * 100)
    return tmp_path / "notes.txt"


def a_folder(tmp_path):
    return tmp_path


def newer_schema(tmp_path):
    path = tmp_path / "newer_schema.sqlite3"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE specclient_schema (version INTEGER NOT NULL)")
    connection.execute("INSERT INTO specclient_schema VALUES (99)")
    connection.commit()
    connection.close()
    return path


def another_table(tmp_path):
    path = tmp_path / "other.sqlite3"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE calls (number TEXT)")
    connection.commit()
    connection.close()
    return path


UNUSABLE = [under_a_file, not_a_database, a_folder, newer_schema, another_table]


@pytest.mark.parametrize("obstacle", UNUSABLE)
async def test_calls_succeed_with_one_warning_if_the_ledger_is_unusable(
    obstacle, tmp_path, make_call, caplog, open_ledger
):
    path = obstacle(tmp_path)
    ledger = open_ledger(path, retry_s=0.001)
    for n in range(3):
        await ledger.record(make_call(f"c{n}"))
    assert not ledger.flush()
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert str(path) in warning
    assert "SPECCLIENT_LEDGER" in warning
    with pytest.raises(LedgerError, match="SPECCLIENT_LEDGER") as raised:
        ledger.rows()
    assert str(path) in str(raised.value)


async def test_a_newer_schema_raises_and_names_its_version(tmp_path, open_ledger):
    with pytest.raises(
        LedgerError, match=f"version 99, this specclient knows up to {SCHEMA_VERSION}; upgrade"
    ):
        open_ledger(newer_schema(tmp_path)).rows()


async def test_a_file_of_another_program_is_not_changed(tmp_path, make_call, open_ledger):
    path = not_a_database(tmp_path)
    before = path.read_bytes()
    await open_ledger(path).record(make_call())
    assert path.read_bytes() == before


async def test_the_ledger_recovers_when_it_becomes_usable(tmp_path, make_call, open_ledger):
    path = under_a_file(tmp_path)
    ledger = open_ledger(path, retry_s=0.01)
    await ledger.record(make_call("c1"))
    path.parent.unlink()
    while not path.exists() or not stored_ids_or_none(path):
        await asyncio.sleep(0.01)
    await ledger.record(make_call("c2"))
    assert stored_ids(path) == {"c1", "c2"}


def stored_ids_or_none(path):
    try:
        return stored_ids(path)
    except sqlite3.OperationalError:  # the file exists, but its tables do not yet
        return None


async def test_a_locked_ledger_delays_only_one_call(path, make_call, caplog, open_ledger):
    ledger = open_ledger(path, patience_s=0.05)
    await ledger.record(make_call("c0"))
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    await ledger.record(make_call("c1"))  # stops waiting after patience_s
    async with asyncio.timeout(0):  # does not wait at all: any suspension would raise
        await ledger.record(make_call("c2"))
    held.execute("COMMIT")
    held.close()
    assert ledger.flush()
    await ledger.record(make_call("c3"))
    assert stored_ids(path) == {"c0", "c1", "c2", "c3"}
    assert len([r for r in caplog.records if "slow to write" in r.getMessage()]) == 1


async def test_rows_in_memory_are_limited_and_lost_rows_are_counted(tmp_path, make_call, caplog):
    ledger = Ledger(str(under_a_file(tmp_path)), keep=3)
    for n in range(5):
        await ledger.record(make_call(f"c{n}"))
    ledger.close()
    assert "5 calls are not in the ledger" in caplog.records[-1].getMessage()
    (tmp_path / "file").unlink()
    assert ledger.flush()
    assert stored_ids(ledger.location) == {"c2", "c3", "c4"}
    ledger.close()


async def test_the_error_of_a_missing_driver_does_not_contain_the_password(make_call, caplog, open_ledger):
    ledger = open_ledger("postgresql+pg8000://me:hunter2@db.example/ledger")
    await ledger.record(make_call())
    with pytest.raises(LedgerError) as raised:
        ledger.rows()
    text = f"{raised.value} {caplog.text} {ledger.location} {ledger!r}"
    assert "db.example" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@127.0.0.1:1/x",
        "postgresql://127.0.0.1:1/x?user=me&password=hunter2",
        "postgresql://127.0.0.1:1/x?passwort=hunter2",
        "postgresql://me:hunter2@127.0.0.1:1/x?nosuchoption=1",
    ],
)
async def test_the_error_of_an_unreachable_server_does_not_contain_the_password(url, open_ledger):
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(LedgerError, match=r"the ledger postgresql://.*127\.0\.0\.1:1/x") as raised:
        open_ledger(url).rows()
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("setting", ["sqlite://", "sqlite:///:memory:", "x y://me:hunter2@h"])
async def test_an_invalid_ledger_setting_raises_without_the_password(setting):
    with pytest.raises(ConfigurationError, match="SPECCLIENT_LEDGER") as raised:
        Ledger(setting)
    assert "hunter2" not in str(raised.value)


async def test_a_read_only_ledger_can_be_read(path, make_call, open_ledger):
    ledger = open_ledger(path)
    await ledger.record(make_call())
    ledger.close()
    assert [row.id for row in open_ledger(f"sqlite:///file:{path}?mode=ro&uri=true").rows()] == ["c1"]


async def test_an_empty_file_becomes_a_ledger(path, make_call, open_ledger):
    path.parent.mkdir()
    path.touch()
    ledger = open_ledger(path)
    await ledger.record(make_call())
    assert stored_ids(path) == {"c1"}


async def test_a_closed_ledger_is_reopened_on_use(path, make_call, open_ledger):
    ledger = open_ledger(path)
    await ledger.record(make_call("c1"))
    ledger.close()
    ledger.close()
    assert not Path(f"{path}-wal").exists()
    await ledger.record(make_call("c2"))
    assert stored_ids(path) == {"c1", "c2"}


def test_costs_by_kind_are_rounded_so_that_they_sum_to_the_total():
    thirds = {kind: Decimal("0.0000000375") for kind in ("input", "cached_input", "output")}
    cost = Cost(total=sum(thirds.values()), by_kind=thirds)
    kinds = nano_by_kind(cost)
    assert sum(kinds.values()) == cost.nano == 112
    assert set(kinds.values()) == {37, 38}
