"""The ledger's writer: accepted rows are written in the window, at exit, on SIGTERM and despite SIGKILL."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from forked_program import STRICT, ForkedProgram
from paths import KITS

from specclient.errors import ConfigurationError
from specclient.ledger import writer
from specclient.ledger.ledger import Ledger

pytestmark = pytest.mark.anyio

CHILD = KITS / "ledger_writer_process.py"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite3"


@pytest.fixture
def open_ledger():
    """Make ledgers that are closed when the test ends."""
    made = []

    def make(setting, **options):
        made.append(Ledger(str(setting), **options))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def setting(request, path):
    """A ledger on each kind of database."""
    return str(path) if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def start(*arguments):
    command = [sys.executable, *STRICT, str(CHILD), *map(str, arguments)]
    return ForkedProgram(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stored(path):
    """Return the ids in an SQLite file in the order of writing, after an integrity check."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [key for (key,) in connection.execute("SELECT id FROM calls ORDER BY rowid")]
    finally:
        connection.close()


# -- batch and sync --------------------------------------------------------------------------------


async def test_a_call_does_not_wait_and_its_row_is_written_in_the_background(path, open_ledger, make_call):
    ledger = open_ledger(path, window_s=0.02)
    async with asyncio.timeout(0):  # any suspension would raise
        await ledger.record(make_call("c1"))
    while not path.exists() or not Ledger(str(path))._writer.store.exists() or not _ids(path):
        await asyncio.sleep(0.005)
    assert stored(path) == ["c1"]


def _ids(path):
    try:
        return stored(path)
    except sqlite3.OperationalError:  # the file exists, but its tables do not yet
        return None


async def test_rows_within_a_window_are_written_in_batches(path, open_ledger, make_call, monkeypatch):
    ledger = open_ledger(path, window_s=0.2)
    store, batches = ledger._writer.store, []
    write = store.write
    monkeypatch.setattr(store, "write", lambda rows, _: (batches.append(len(rows)), write(rows)))
    for n in range(20):
        await ledger.record(make_call(f"c{n}"))
        await asyncio.sleep(0.001)
    while sum(batches) < 20:
        await asyncio.sleep(0.005)
    assert len(batches) < 10


async def test_a_full_batch_is_written_before_the_window_ends(path, open_ledger, make_call, monkeypatch):
    monkeypatch.setattr(writer, "_BATCH", 3)
    ledger = open_ledger(path, window_s=3600)
    for n in range(3):
        await ledger.record(make_call(f"c{n}"))
        await asyncio.sleep(0.02)
    while ledger._writer.waiting():
        await asyncio.sleep(0.005)
    assert stored(path) == ["c0", "c1", "c2"]


async def test_calls_wait_when_too_many_rows_are_unwritten(path, open_ledger, make_call, monkeypatch):
    monkeypatch.setattr(writer, "_MAX_UNAWAITED", 3)
    ledger = open_ledger(path, window_s=3600)
    with ledger._writer.exclusive():
        async with asyncio.timeout(0):
            for n in range(3):
                await ledger.record(make_call(f"c{n}"))
        fourth = asyncio.create_task(ledger.record(make_call("c3")))
        for _ in range(3):
            await asyncio.sleep(0.02)
        assert not fourth.done()
    await fourth
    assert stored(path) == ["c0", "c1", "c2", "c3"]


async def test_with_sync_durability_a_row_is_written_before_the_call_returns(path, open_ledger, make_call):
    ledger = open_ledger(path, durability="sync")
    for n in range(5):
        await ledger.record(make_call(f"c{n}"))
        assert stored(path)[-1] == f"c{n}"


@pytest.mark.parametrize(("durability", "level"), [("batch", 1), ("sync", 2)])
async def test_sqlite_synchronous_mode_by_durability(path, open_ledger, make_call, durability, level):
    """https://sqlite.org/pragma.html#pragma_synchronous: 1 is NORMAL, 2 is FULL."""
    ledger = open_ledger(path, durability=durability)
    ledger.submit(make_call())
    ledger.flush()
    connection = ledger._writer.store._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_another_ledger_of_this_process_reads_unwritten_rows(path, open_ledger, make_call, tmp_path):
    ledger = open_ledger(path, window_s=3600)
    await ledger.record(make_call("c1"))
    assert [row.id for row in open_ledger(path).rows()] == ["c1"]
    assert [row.id for row in open_ledger(path).iterate()] == ["c1"]
    assert [sums.calls for sums in open_ledger(path).rollup()] == [1]
    assert open_ledger(tmp_path / "other.sqlite3").rows() == []


async def test_rows_are_iterated_oldest_first(path, open_ledger, make_call):
    ledger = open_ledger(path)
    calls = [make_call(f"c{n}") for n in (3, 1, 2)]
    for n, call in zip((3, 1, 2), calls, strict=True):
        at = call.started_at.replace(minute=n)
        await ledger.record(make_call(call.id, started_at=at))
    assert [row.id for row in ledger.iterate()] == ["c1", "c2", "c3"]
    since = calls[0].started_at.replace(minute=2)
    assert [row.id for row in ledger.iterate(since)] == ["c2", "c3"]
    assert [row.id for row in ledger.iterate(None, since)] == ["c1"]
    assert list(Ledger("off").iterate()) == []


def test_an_unknown_durability_raises():
    with pytest.raises(
        ConfigurationError, match="ledger_durability is 'eventual'; it must be one of batch, sync"
    ):
        Ledger(durability="eventual")


# -- the end of the program ------------------------------------------------------------------------

PROGRAM = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(CHILD.parent)!r})
from ledger_writer_process import *
from specclient.ledger import shutdown
ledger = Ledger(sys.argv[1], window_s=3600)
def ready():
    print("ready", flush=True)
"""


def terminated(script, setting, send=signal.SIGTERM, warns=""):
    """Run a program until it is ready, send it a signal, and return its exit status and output."""
    command = [sys.executable, *STRICT, "-c", PROGRAM + script, str(setting)]
    with ForkedProgram(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if send is not None:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            process.send_signal(send)
        out, err = process.communicate(timeout=60)
    assert warns in err if warns else err == "", err
    return process.returncode, out


ASYNC = """
async def run():
    await ledger.record(call("c1"))
    ready()
    await asyncio.sleep(60)
asyncio.run(run())
"""
BLOCKED = """
ledger.submit(call("c1"))
ready()
threading.Event().wait(60)
"""
IN_A_THREAD = """
ledger.prepare()
worker = threading.Thread(target=lambda: (ledger.submit(call("c1")), ready()))
worker.start()
worker.join()
time.sleep(60)
"""
AMID_ITS_OWN_WRITE = """
write = ledger._writer.store.write
def interrupted(rows, _):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0)
    write(rows)
ledger._writer.store.write = interrupted
threading.Thread.start = lambda self: None  # so that the main thread writes
ledger.submit(call("c1"))
ledger.flush()
print("survived", flush=True)
"""


@pytest.mark.parametrize("script", [ASYNC, BLOCKED, IN_A_THREAD])
async def test_sigterm_writes_waiting_rows_and_ends_the_process(script, setting):
    assert terminated(script, setting) == (-signal.SIGTERM, "")
    assert [row.id for row in Ledger(setting).rows()] == ["c1"]


async def test_sigterm_during_a_write_of_the_main_thread_completes_the_write(setting):
    assert terminated(AMID_ITS_OWN_WRITE, setting, send=None) == (-signal.SIGTERM, "")
    assert [row.id for row in Ledger(setting).rows()] == ["c1"]


@pytest.mark.parametrize("first", [True, False])
async def test_a_programs_own_sigterm_handler_is_not_replaced(path, first):
    own = """
def own(*_):
    os.write(1, b"mine\\n")  # print() is not reentrant
    os._exit(3)
signal.signal(signal.SIGTERM, own)
"""
    record = 'ledger.submit(call("c1"))\n'
    script = (own + record if first else record + own) + "ready()\ntime.sleep(60)"
    assert terminated(script, path) == (3, "mine\n")


async def test_an_ignored_sigterm_stays_ignored(path):
    script = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ledger.submit(call("c1"))
os.kill(os.getpid(), signal.SIGTERM)
print("alive", flush=True)
"""
    assert terminated(script, path, send=None) == (0, "alive\n")
    assert stored(path) == ["c1"]


async def test_sigterm_ends_the_process_even_if_the_ledger_is_locked(path, make_call):
    ledger = Ledger(str(path))
    ledger.submit(make_call("c0"))
    ledger.close()
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    script = "shutdown.EXIT_S = 0.1\nimport specclient.ledger.sqlite as s\ns.BUSY_S = 0.1\n" + BLOCKED
    assert terminated(script, path, warns="is locked") == (-signal.SIGTERM, "")
    held.close()
    assert stored(path) == ["c0"]


async def test_waiting_rows_are_written_at_exit(setting):
    assert terminated('ledger.submit(call("last"))', setting, send=None) == (0, "")
    assert [row.id for row in Ledger(setting).rows()] == ["last"]


# -- killed ----------------------------------------------------------------------------------------


def killed(path, durability, prefix, delay_s, window_s):
    """Kill a program during its calls; return the time, and the ids accepted by then with their times."""
    process = start(path, durability, prefix, 0, window_s)
    first = process.stdout.readline()
    time.sleep(delay_s)
    at = time.monotonic()
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()  # continues after the first line, which `communicate` does not
    process.communicate(timeout=60)
    lines = [first.rstrip("\n"), *rest.split("\n")[:-1]]  # a last line without its end was cut by the kill
    return at, [(key, float(moment)) for key, moment in map(str.split, lines)]


def check_batch(path, at, taken, grace_s):
    """Check that only the newest rows are missing, and none older than ``grace_s``."""
    found = stored(path)
    order = [key for key, _ in taken]
    assert found[: len(order)] == order[: len(found)]
    assert {key for key, moment in taken if moment < at - grace_s} <= set(found)
    assert sum(sums.calls for sums in Ledger(str(path)).rollup()) == len(found)


async def test_after_sigkill_only_the_newest_rows_are_missing(tmp_path):
    """The grace is much longer than the window, because a busy machine may delay the writer."""
    rng = random.Random(3)
    delays = [rng.uniform(0, 3) for _ in range(8)]
    paths = [tmp_path / f"{n}.sqlite3" for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        ends = threads.map(lambda path, delay: killed(path, "batch", "c", delay, 0.1), paths, delays)
        for path, (at, taken) in zip(paths, ends, strict=True):
            if path.exists() and _ids(path) is not None:
                check_batch(path, at, taken, grace_s=2.5)
            else:
                assert at - taken[0][1] < 2.5


async def test_after_sigkill_with_sync_durability_no_row_is_missing(tmp_path):
    rng = random.Random(4)
    delays = [rng.uniform(0, 0.7) for _ in range(8)]
    paths = [tmp_path / f"{n}.sqlite3" for n in range(8)]
    with ThreadPoolExecutor(4) as threads:
        ends = threads.map(lambda path, delay: killed(path, "sync", "c", delay, 0.5), paths, delays)
        for path, (_, taken) in zip(paths, ends, strict=True):
            assert {key for key, _ in taken} <= set(stored(path))


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["batch", "sync"])
async def test_after_fifty_sigkills_on_one_file_rows_older_than_the_window_are_written(path, durability):
    """With the default window, on an idle machine: rows older than the window are in the file."""
    rng, everything, window_s = random.Random(5), set(), 0.5
    for n in range(50):
        at, taken = killed(path, durability, f"r{n}", rng.uniform(0, 1.5), window_s)
        due = {key for key, moment in taken if durability == "sync" or moment < at - window_s}
        found = set(stored(path)) if path.exists() and _ids(path) is not None else set()
        assert due <= found
        assert everything <= found
        everything = found
    assert sum(sums.calls for sums in Ledger(str(path)).rollup()) == len(everything)


# -- many processes --------------------------------------------------------------------------------


def run_processes(setting, durability, processes, calls):
    running = [start(setting, durability, f"p{n}", calls) for n in range(processes)]
    taken = []
    for process in running:
        out, err = process.communicate(timeout=900)
        assert (process.returncode, err) == (0, "")
        taken += [line.split()[0] for line in out.splitlines()]
    ledger = Ledger(setting)
    assert len(taken) == len(set(taken))
    assert sorted(row.id for row in ledger.iterate()) == sorted(taken)
    (sums,) = ledger.rollup()
    assert (sums.calls, sums.cost_nano, sums.tokens_in) == (len(taken), 3 * len(taken), 10 * len(taken))
    return len(taken)


@pytest.mark.parametrize("durability", ["batch", "sync"])
async def test_concurrent_processes_lose_and_duplicate_no_row(setting, durability):
    assert run_processes(setting, durability, 4, 42) == 168


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["batch", "sync"])
async def test_sixteen_concurrent_processes_lose_and_duplicate_no_row(setting, durability):
    assert run_processes(setting, durability, 16, 2002) == 16 * 2002
