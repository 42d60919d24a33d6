"""The SQLite and PostgreSQL stores, the settings that select one, and the imports of the default store."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from specclient.errors import ConfigurationError, LedgerError
from specclient.ledger import sqlite
from specclient.ledger.figures import COUNTED
from specclient.ledger.ledger import Ledger
from specclient.ledger.location import locate
from specclient.ledger.row import COLUMN_NAMES, COLUMNS, LedgerRow, encoded_row
from specclient.ledger.schema import SCHEMA_VERSION
from specclient.ledger.sqlite import SQLiteStore

#: The schema of version 1 as SQLAlchemy created it.
VERSION_1 = """
CREATE TABLE specclient_schema (
	version INTEGER NOT NULL
);
CREATE TABLE calls (
	id TEXT NOT NULL,
	started_at TEXT NOT NULL,
	operation TEXT NOT NULL,
	provider TEXT NOT NULL,
	model TEXT NOT NULL,
	served_model TEXT,
	route TEXT NOT NULL,
	streamed BOOLEAN NOT NULL,
	status TEXT NOT NULL,
	error TEXT,
	http_status INTEGER,
	prompt_tokens BIGINT,
	completion_tokens BIGINT,
	cached_tokens BIGINT,
	cache_write_tokens BIGINT,
	reasoning_tokens BIGINT,
	usage_estimated BOOLEAN NOT NULL,
	method TEXT,
	drafted BIGINT,
	accepted BIGINT,
	steps BIGINT,
	predicted_accepted BIGINT,
	predicted_rejected BIGINT,
	cost_nano BIGINT,
	cost_by_kind TEXT NOT NULL,
	price_source TEXT NOT NULL,
	cost_estimated BOOLEAN NOT NULL,
	attempts INTEGER NOT NULL,
	ttft_s DOUBLE,
	latency_s DOUBLE NOT NULL,
	engine_s DOUBLE,
	request_id TEXT,
	tags TEXT NOT NULL,
	decision TEXT NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX ix_calls_started_at ON calls (started_at);
INSERT INTO specclient_schema VALUES (1);
"""


class SQLiteDatabase:
    """An SQLite file, its contents and its schema."""

    def __init__(self, path):
        self.path = path

    def store(self):
        return SQLiteStore(str(self.path))

    def run(self, script):
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(script)

    def fetch(self, sql):
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql).fetchall()

    def columns(self):
        return {(name, kind, null) for _, name, kind, null, *_ in self.fetch("PRAGMA table_info(calls)")}

    def indexes(self):
        return {row[1:] for row in self.fetch("PRAGMA index_list(calls)")}


class PostgresDatabase:
    """A database of a PostgreSQL server, its contents and its schema."""

    def __init__(self, url):
        self.url = url

    def store(self):
        return locate(self.url)

    def run(self, script):
        import psycopg

        with psycopg.connect(self.url) as connection:
            connection.execute(script.replace("DOUBLE", "DOUBLE PRECISION"))

    def fetch(self, sql):
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(sql).fetchall()

    def columns(self):
        sql = "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
        return set(self.fetch(f"{sql} WHERE table_name = 'calls'"))

    def indexes(self):
        return set(self.fetch("SELECT indexname FROM pg_indexes WHERE tablename = 'calls'"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite3"


@pytest.fixture(params=["sqlite", "postgresql"])
def make_database(request, tmp_path):
    """Return a function that makes an empty database of each kind."""

    def make():
        if request.param == "sqlite":
            return SQLiteDatabase(tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite3")
        return PostgresDatabase(request.getfixturevalue("postgres_url"))

    return make


@pytest.fixture
def base(make_database):
    return make_database()


@pytest.fixture
def open_store(base):
    """Return a function that opens stores of one database; they are closed when the test ends."""
    stores = []

    def make():
        stores.append(base.store())
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def all_of(store):
    names = ", ".join(COLUMN_NAMES)
    return list(store.query(f"SELECT {names} FROM calls ORDER BY started_at, id"))


def test_columns_have_the_order_of_the_fields_of_a_row(make_call):
    values = dict(zip(COLUMN_NAMES, encoded_row(make_call(streamed=True)), strict=True))
    counts = {each.name for each in COUNTED}
    stored = tuple(name for name in LedgerRow.__dataclass_fields__ if name != "counts")
    assert tuple(name for name in COLUMN_NAMES if name not in counts) == stored
    assert (values["id"], values["route"], values["streamed"]) == ("c1", "openai/gpt-4.1", True)
    assert LedgerRow.from_values(tuple(values.values())) == LedgerRow.of(make_call(streamed=True))


def test_a_second_store_appends_to_the_rows_of_the_first(base, open_store, make_call):
    first = encoded_row(make_call("c1", streamed=True, latency_s=1.5, tags={"team": "rød"}))
    second = encoded_row(make_call("c2", http_status=429))
    store = open_store()
    store.write([first])
    store.close()
    assert base.fetch("SELECT version FROM specclient_schema") == [(SCHEMA_VERSION,)]
    open_store().write([first, second])  # the first exists already, and is not changed
    changed = {**dict(zip(COLUMN_NAMES, second, strict=True)), "session": "another"}
    open_store().write([tuple(changed.values())])
    assert all_of(open_store()) == [first, second]


OLD_ROW = """
INSERT INTO calls VALUES ('old', '2026-01-31T12:00:00.000000+00:00', 'chat', 'openai', 'gpt', NULL,
    'openai/gpt', true, 'ok', NULL, NULL, 10, 5, NULL, NULL, NULL, false, 'draft', 8, 6, 2, NULL, NULL, 3,
    '{"input":3}', 'somewhere', false, 1, 0.25, 1.5, NULL, 'req', '{"team":"red"}', '{}');
"""


def test_migrating_a_ledger_of_version_1_keeps_its_rows(base, open_store, make_database, make_call):
    base.run(VERSION_1 + OLD_ROW)
    new = encoded_row(make_call("new", session="s", metadata={"a": "b"}))
    open_store().write([new])
    new_too, old = all_of(open_store())
    assert new_too == new
    assert old[: len([each for each in COLUMNS if each.since == 1])] == (
        "old", "2026-01-31T12:00:00.000000+00:00", "chat", "openai", "gpt", None, "openai/gpt",
        True, "ok", None, None, 10, 5, None, None, None, False, "draft", 8, 6, 2, None, None, 3,
        '{"input":3}', "somewhere", False, 1, 0.25, 1.5, None, "req", '{"team":"red"}', "{}",
    )  # fmt: skip
    row = LedgerRow.from_values(old)
    assert (row.purpose, row.parent, row.speculation, row.metadata) == ("call", None, None, {})


def test_a_migrated_ledger_of_version_1_has_the_schema_of_a_new_one(
    base, open_store, make_database, make_call
):
    base.run(VERSION_1)
    open_store().write([encoded_row(make_call())])
    new = make_database()
    store = new.store()
    store.write([encoded_row(make_call())])
    store.close()
    assert new.columns() == base.columns()
    assert {index[:1] for index in new.indexes()} == {index[:1] for index in base.indexes()}
    assert base.fetch("SELECT version FROM specclient_schema") == [(SCHEMA_VERSION,)]


def test_an_old_ledger_is_migrated_when_it_is_first_read(base, open_store):
    base.run(VERSION_1 + OLD_ROW)
    assert [row[0] for row in all_of(open_store())] == ["old"]


def test_columns_of_later_versions_are_nullable():
    assert all(column.null for column in COLUMNS if column.since > 1)


def test_a_batch_is_written_completely_or_not_at_all(open_store, make_call):
    store = open_store()
    good = encoded_row(make_call())
    bad = ("c2", None, *good[2:])
    for rows in ([good, bad], [bad]):
        with pytest.raises(LedgerError, match=r"(?i)cannot write the ledger .*not.null.*SPECCLIENT_LEDGER"):
            store.write(rows)
        assert all_of(store) == []
    store.write([good])
    assert all_of(store) == [good]


def test_a_table_of_another_program_is_not_changed(base, open_store, make_call):
    base.run("CREATE TABLE calls (number TEXT)")
    before = base.columns()
    for use in (
        lambda s: s.write([encoded_row(make_call())]),
        all_of,
        lambda s: s.transact(lambda execute: 1),
    ):
        with pytest.raises(LedgerError, match=r"its table 'calls' is another program's.*SPECCLIENT_LEDGER"):
            use(open_store())
    assert base.columns() == before
    assert base.fetch("SELECT * FROM calls") == []


# -- transactions ----------------------------------------------------------------------------------


def test_a_transaction_returns_the_result_of_its_function(open_store, make_call):
    store = open_store()

    def work(execute):
        execute("CREATE TABLE limits (name TEXT PRIMARY KEY, spent BIGINT NOT NULL)")
        execute("INSERT INTO limits VALUES (:name, :spent)", {"name": "day", "spent": 2**62})
        execute(
            "INSERT INTO limits VALUES (:name, :spent) "
            "ON CONFLICT (name) DO UPDATE SET spent = limits.spent + excluded.spent",
            {"name": "day", "spent": -1},
        )
        return execute("SELECT name, SUM(spent) FROM limits GROUP BY name")

    assert store.transact(work) == [("day", 2**62 - 1)]
    assert list(store.query("SELECT spent FROM limits WHERE name = :name", {"name": "day"})) == [(2**62 - 1,)]


def test_a_transaction_that_raises_changes_nothing(open_store, make_call):
    store = open_store()
    store.write([encoded_row(make_call())])

    def work(execute):
        execute("DELETE FROM calls")
        raise KeyError("no")

    with pytest.raises(KeyError):
        store.transact(work)
    assert len(all_of(store)) == 1
    with pytest.raises(LedgerError, match=r"cannot write the ledger .*nowhere.*SPECCLIENT_LEDGER"):
        store.transact(lambda execute: execute("DELETE FROM nowhere"))
    store.transact(lambda execute: execute("DELETE FROM calls"))
    assert all_of(store) == []


def test_transactions_are_serialized_with_each_other_and_with_writes(open_store, make_call):
    """Each transaction reads, then writes; if another ran in between, an increment would be lost."""
    open_store().transact(lambda execute: execute("CREATE TABLE tally (n BIGINT)"))
    open_store().transact(lambda execute: execute("INSERT INTO tally VALUES (0)"))

    def add(execute):
        ((n,),) = execute("SELECT n + (SELECT COUNT(*) FROM calls) * 0 FROM tally")
        ((calls,),) = execute("SELECT COUNT(*) FROM calls")
        execute("UPDATE tally SET n = :n", {"n": n + 1})
        assert execute("SELECT COUNT(*) FROM calls") == [(calls,)]

    def work(number):
        store = open_store()
        for n in range(10):
            store.transact(add)
            store.write([encoded_row(make_call(f"{number}-{n}"))])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert list(open_store().query("SELECT n FROM tally")) == [(40,)]
    assert len(all_of(open_store())) == 40


def test_a_write_waits_for_a_lock_for_a_limited_time(path, make_call, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    store = SQLiteStore(str(path))
    store.write([encoded_row(make_call("c1"))])
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        for rows in ([encoded_row(make_call("c2"))], [encoded_row(make_call(f"c{n}")) for n in (3, 4)]):
            with pytest.raises(LedgerError, match="locked"):
                store.write(rows)
        assert len(all_of(store)) == 1  # readers do not wait
    store.close()


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "file"),
    [
        ("/a/b.sqlite3", "/a/b.sqlite3"),
        ("b.sqlite3", "b.sqlite3"),
        ("sqlite:///b.sqlite3", "b.sqlite3"),
        ("sqlite:////a/b c%20.sqlite3", "/a/b c%20.sqlite3"),
        ("sqlite+pysqlite:////a/b.sqlite3", "/a/b.sqlite3"),
        ("sqlite:///file:/a/b?mode=ro&uri=true", "file:/a/b?mode=ro"),
        ("sqlite:///file:/a/b?uri=true", "file:/a/b"),
    ],
)
def test_file_settings_select_the_sqlite_store_of_the_standard_library(setting, file):
    store = locate(setting)
    assert isinstance(store, SQLiteStore)
    assert store.name == file == Ledger(setting).location


def test_a_tilde_is_expanded_to_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Ledger("~/calls.db").location == str(tmp_path / "calls.db")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_the_name_of_a_server_masks_its_password(scheme):
    store = locate(f"{scheme}://me:hunter2@db.example/costs")
    assert store.exists()
    assert store.name == f"{scheme}://me:***@db.example/costs"


@pytest.mark.parametrize(
    "url", ["mysql://me:hunter2@h/costs", "nonsense://me:hunter2@h", "x y://me:hunter2@h"]
)
def test_other_databases_raise_without_the_password(url):
    with pytest.raises(ConfigurationError, match=r"SQLite file or a PostgreSQL.*SPECCLIENT_LEDGER") as raised:
        locate(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "setting",
    [
        "postgresql:/me:hunter2@h/costs",
        "postgresql:me:hunter2@h/costs",
        "postgresql://me:hun/ter2@h/costs",
        "mysql://me:hun/ter2@h/costs",
        "host=h user=me password=hunter2",
        "password = hunter2",
    ],
)
def test_no_part_of_a_password_is_shown(setting):
    try:
        shown = locate(setting).name
    except ConfigurationError as error:
        shown = str(error)
    assert "hun" not in shown
    assert "ter2" not in shown


def test_options_of_a_url_are_shown_without_passwords():
    store = locate("postgresql://db.example/costs?user=me&password=hunter2&sslmode=require")
    assert store.name == "postgresql://db.example/costs?user=me&password=***&sslmode=require"


def test_a_missing_sqlalchemy_raises_and_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "specclient.ledger.postgres")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'specclient\[postgres\]'") as raised:
        locate("postgresql://me:hunter2@h/costs")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "setting",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite+pysqlite://",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file:x?mode=memory&uri=true",
    ],
)
def test_an_sqlite_database_in_memory_raises(setting):
    with pytest.raises(ConfigurationError, match=r"a database in memory.*SPECCLIENT_LEDGER"):
        locate(setting)


def test_unsupported_url_options_raise():
    with pytest.raises(ConfigurationError, match=r"'timeout=30' is not supported.*SPECCLIENT_LEDGER"):
        locate("sqlite:///ledger.db?timeout=30")


def test_the_default_ledger_does_not_import_sqlalchemy(path):
    script = """
import asyncio, sys
from datetime import UTC, datetime
from specclient.ledger.ledger import Ledger
from specclient.types.call import Call
from specclient.types.route import Decision

call = Call(id="c1", started_at=datetime.now(UTC), operation="chat", model="m", route=Decision("m", "p", "m"))
ledger = Ledger(sys.argv[1])
asyncio.run(ledger.record(call))
assert [row.id for row in ledger.rows()] == ["c1"]
ledger.close()
sys.exit("sqlalchemy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == 0
