"""Either store opens what the other made; a setting finds its store, and the default one needs no toolkit."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from specclient.costs import database, schema, sqlite
from specclient.costs.database import Database
from specclient.costs.ledger import Ledger
from specclient.costs.location import locate
from specclient.costs.rows import Row, values_of
from specclient.costs.schema import COLUMNS, NAMES, VERSIONS, Column
from specclient.costs.sqlite import SQLite, upgrade
from specclient.errors import ConfigurationError, LedgerError

#: As version 1 was made by SQLAlchemy.
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


def by_sqlite(path):
    return SQLite(str(path))


def by_sqlalchemy(path):
    return Database(f"sqlite+pysqlite:///{path}")


BOTH = [by_sqlite, by_sqlalchemy]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite3"


@pytest.fixture
def opened(path):
    """Make stores of one file that are closed when the test ends."""
    made = []

    def make(kind):
        made.append(kind(path))
        return made[-1]

    yield make
    for store in made:
        store.close()


def schema_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return {
            "columns": {row[1:] for row in connection.execute("PRAGMA table_info(calls)")},
            "indexes": {row[1:] for row in connection.execute("PRAGMA index_list(calls)")},
            "version": connection.execute("SELECT version FROM specclient_schema").fetchall(),
        }


def test_the_order_of_columns_is_that_of_a_row(make_call):
    values = dict(zip(NAMES, values_of(make_call(streamed=True)), strict=True))
    assert tuple(Row.__dataclass_fields__) == NAMES
    assert (values["id"], values["route"], values["streamed"]) == ("c1", "openai/gpt-4.1", True)
    assert Row.from_values(tuple(values.values())) == Row.of(make_call(streamed=True))


@pytest.mark.parametrize("maker", BOTH)
@pytest.mark.parametrize("other", BOTH)
def test_either_store_goes_on_where_the_other_left(maker, other, path, make_call, opened):
    first = values_of(make_call("c1", streamed=True, latency_s=1.5, tags={"team": "rød"}))
    second = values_of(make_call("c2", http_status=429))
    store = opened(maker)
    store.write([first])
    store.close()
    assert schema_of(path)["version"] == [(1,)]
    opened(other).write([first, second])  # the first is there already, and stays as it is
    for reader in (maker, other):
        assert sorted(opened(reader).read(None, None, None)) == sorted([first, second])


def test_both_make_the_schema_that_version_1_had(tmp_path, make_call):
    old = tmp_path / "old"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(VERSION_1)
    for n, kind in enumerate(BOTH):
        store = kind(tmp_path / str(n))
        store.write([values_of(make_call())])
        store.close()
        assert schema_of(tmp_path / str(n)) == schema_of(old)


@pytest.mark.parametrize("kind", BOTH)
def test_a_ledger_of_version_1_opens_unchanged(kind, path, make_call, opened):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_1)
    before = schema_of(path)
    opened(kind).write([values_of(make_call())])
    assert opened(kind).read(None, None, None) == [values_of(make_call())]
    assert schema_of(path) == before


@pytest.mark.parametrize("kind", BOTH)
def test_a_later_version_adds_its_columns(kind, path, make_call, opened, monkeypatch):
    late = next(column for column in COLUMNS if column.name == "request_id")
    earlier = tuple(column for column in VERSIONS[0] if column is not late)
    with closing(sqlite3.connect(path)) as connection:
        for statement in upgrade(0, [earlier]):
            connection.execute(statement)
        known = {column.name: {"text": "", "flag": 0, "small": 1, "measure": 0.5}[column.kind]
                 for column in earlier if not column.null} | {"id": "old"}  # fmt: skip
        places = ", ".join("?" * len(known))
        connection.execute(f"INSERT INTO calls ({', '.join(known)}) VALUES ({places})", tuple(known.values()))
        connection.commit()
    for module in (schema, sqlite, database):
        monkeypatch.setattr(module, "VERSIONS", (earlier, (late,)))
    new = values_of(make_call(request_id="req_1"))
    opened(kind).write([new])
    assert schema_of(path)["version"] == [(2,)]
    found = {row[0]: row[NAMES.index("request_id")] for row in opened(kind).read(None, None, None)}
    assert found == {"old": None, "c1": "req_1"}


def test_columns_of_later_versions_may_be_unknown():
    assert all(column.null for version in VERSIONS[1:] for column in version)
    added = upgrade(1, [VERSIONS[0], (Column("a", "count"), Column("b")), (Column("c", "flag"),)])
    assert added == [
        "ALTER TABLE calls ADD COLUMN a BIGINT",
        "ALTER TABLE calls ADD COLUMN b TEXT",
        "ALTER TABLE calls ADD COLUMN c BOOLEAN",
        "UPDATE specclient_schema SET version = 3",
    ]


@pytest.mark.parametrize("kind", BOTH)
def test_since_until_and_limit(kind, make_call, opened):
    store = opened(kind)
    days = [f"2026-01-0{n}" for n in range(1, 6)]
    rows = [(f"c-{day}", day, *values_of(make_call())[2:]) for day in days]
    store.write(rows)
    assert store.read("2026-01-02", "2026-01-04", None) == [rows[2], rows[1]]
    assert store.read(None, None, 2) == [rows[4], rows[3]]
    assert store.read("2026-01-02", None, 0) == []


@pytest.mark.parametrize("kind", BOTH)
def test_all_rows_or_none(kind, make_call, opened):
    store = opened(kind)
    good = values_of(make_call())
    bad = ("c2", None, *good[2:])
    for rows in ([good, bad], [bad]):
        with pytest.raises(LedgerError, match=r"cannot write the ledger .*NOT NULL.*SPECCLIENT_LEDGER"):
            store.write(rows)
        assert store.read(None, None, None) == []
    store.write([good])
    assert store.read(None, None, None) == [good]


@pytest.mark.parametrize("kind", BOTH)
def test_another_programs_table_is_left_as_it_was(kind, path, make_call, opened):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE calls (number TEXT)")
    before = path.read_bytes()
    for use in (lambda s: s.write([values_of(make_call())]), lambda s: s.read(None, None, None)):
        with pytest.raises(LedgerError, match=r"its table 'calls' is another program's.*SPECCLIENT_LEDGER"):
            use(opened(kind))
    assert path.read_bytes() == before


def test_a_batch_that_meets_a_lock_waits_for_it_no_longer_than_a_call_does(
    path, make_call, opened, monkeypatch
):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    store = opened(by_sqlite)
    store.write([values_of(make_call("c1"))])
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        for rows in ([values_of(make_call("c2"))], [values_of(make_call(f"c{n}")) for n in (3, 4)]):
            with pytest.raises(LedgerError, match="locked"):
                store.write(rows)
        assert len(store.read(None, None, None)) == 1  # readers do not wait


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
def test_files_are_kept_by_the_standard_library(setting, file):
    store = locate(setting)
    assert isinstance(store, SQLite)
    assert store.name == file == Ledger(setting).location


def test_the_home_folder_may_be_meant(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Ledger("~/calls.db").location == str(tmp_path / "calls.db")


def test_other_databases_are_sqlalchemys_and_their_password_is_not_shown():
    store = locate("postgresql://me:hunter2@db.example/costs")
    assert isinstance(store, Database)
    assert store.exists()
    assert store.name == "postgresql://me:***@db.example/costs"


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
def test_a_database_in_memory_would_be_lost(setting):
    with pytest.raises(ConfigurationError, match=r"kept in memory only.*SPECCLIENT_LEDGER"):
        locate(setting)


def test_options_that_would_be_ignored_are_refused():
    with pytest.raises(ConfigurationError, match=r"'timeout=30' is not taken.*SPECCLIENT_LEDGER"):
        locate("sqlite:///ledger.db?timeout=30")


def test_the_default_ledger_imports_no_database_toolkit(path):
    script = """
import asyncio, sys
from datetime import UTC, datetime
from specclient.costs.ledger import Ledger
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
