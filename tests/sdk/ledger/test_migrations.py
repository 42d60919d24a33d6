"""Migrations: ledgers of each released schema version, and of the next one, open without loss or warning.

The files in ``tests/data/ledgers`` were written by the code of their version and are never changed.
``make ledger-snapshot`` writes the file of a new version.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from specclient.errors import LedgerError
from specclient.ledger import rollup
from specclient.ledger.figures import FIGURES, SUM_NAMES
from specclient.ledger.ledger import Ledger
from specclient.ledger.migrations import MIGRATIONS
from specclient.ledger.row import COLUMNS
from specclient.ledger.schema import CALLS_TABLE, HOURS_TABLE, SCHEMA_VERSION, VERSION_TABLE
from specclient.ledger.sums import DIMENSION_NAMES
from specclient.reports.reader import CallFilter, read_reports
from specclient.types.usage import Usage

OLD_LEDGERS = {
    int(path.stem.removeprefix("v")): path.read_text()
    for path in sorted(Path(__file__).parents[2].joinpath("data", "ledgers").glob("v*.sql"))
}
OLD_IDS = ["c1", "c2", "c3", "c4"]


@pytest.fixture(params=["sqlite", "postgresql"])
def old_ledger(request, tmp_path):
    """Return a function that creates a ledger of a schema version and returns its setting."""

    def create(version):
        script = OLD_LEDGERS[version]
        if request.param == "sqlite":
            path = tmp_path / f"v{version}.sqlite3"
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript(script)
            return str(path)
        import psycopg

        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url) as connection:
            connection.execute(script.replace(" DOUBLE", " DOUBLE PRECISION"))
        return url

    return create


@pytest.fixture
def no_warning(caplog):
    """Fail if anything is logged."""
    caplog.set_level(logging.INFO, "specclient")
    yield
    assert [record.getMessage() for record in caplog.records] == []


def released(version):
    return [name for known, name in ((each.since, each.name) for each in COLUMNS) if known <= version]


def test_every_released_version_has_a_snapshot():
    assert sorted(OLD_LEDGERS) == list(range(1, SCHEMA_VERSION + 1)), "run `make ledger-snapshot`"
    assert set(MIGRATIONS) <= set(OLD_LEDGERS)


@pytest.mark.parametrize("version", sorted(OLD_LEDGERS))
def test_released_columns_are_never_changed(version, tmp_path):
    with closing(sqlite3.connect(tmp_path / "old.sqlite3")) as connection:
        connection.executescript(OLD_LEDGERS[version])
        calls = [row[1] for row in connection.execute(f"PRAGMA table_info({CALLS_TABLE})")]
        hours = [row[1] for row in connection.execute(f"PRAGMA table_info({HOURS_TABLE})")]
    advice = f"version {version} is released; a new column or figure takes since={max(OLD_LEDGERS) + 1}"
    assert calls == released(version), advice
    sums = [name for figure in FIGURES if figure.since <= version for name in figure.sum_names]
    assert sorted(hours) == sorted([*DIMENSION_NAMES, *sums] if sums else []), advice


def columns_of(ledger, table):
    """Return the names and types of a table's columns."""
    if ledger.location.startswith("postgresql"):
        sql = (
            "SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = :t"
        )
        return set(ledger.transact(lambda execute: execute(sql, {"t": table})))
    rows = ledger.transact(lambda execute: execute(f"PRAGMA table_info({table})"))
    return {(name, kind, null) for _, name, kind, null, *_ in rows}


def sums_agree(ledger):
    """Return whether the stored sums by hour equal the sums over the rows, in every figure."""
    stored = ledger.rollup(by=DIMENSION_NAMES)
    ledger.transact(rollup.rebuild)
    return stored == ledger.rollup(by=DIMENSION_NAMES)


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("version", sorted(OLD_LEDGERS))
def test_an_older_ledger_is_migrated_written_and_read(version, old_ledger, make_call, tmp_path):
    setting = old_ledger(version)
    ledger = Ledger(setting)
    ledger.submit(make_call("new", usage=Usage(prompt=1, cache_write=2), session="s"))
    ledger.close()
    ledger = Ledger(setting)
    rows = {row.id: row for row in ledger.rows()}
    assert sorted(rows) == [*OLD_IDS, "new"]
    first = rows["c1"]
    assert (first.prompt_tokens, first.cost_nano, first.tags, first.streamed) == (
        120,
        1230000,
        {"team": "red"},
        True,
    )
    assert rows["c1"].tool_calls == (None if version < 4 else 2)
    assert (rows["c3"].accepted, rows["c3"].engine_s, rows["c3"].cost_estimated) == (30, 1.5, True)
    assert (rows["c3"].parent, rows["c3"].purpose) == ((None, "call") if version < 2 else ("w", "draft"))
    (total,) = ledger.rollup()
    assert (total.calls, total.tokens_in, total.tokens_written, total.cost_nano) == (5, 1131, 902, 1230003)
    by_rows = read_reports(ledger, [["model"]], CallFilter()).reports[0].total
    assert by_rows.sums == total.sums
    assert sums_agree(ledger)
    new = Ledger(str(tmp_path / "new.sqlite3"))
    if not setting.startswith("postgresql"):
        new.submit(make_call())
        new.flush()
        for table in (CALLS_TABLE, HOURS_TABLE, VERSION_TABLE):
            assert columns_of(ledger, table) == columns_of(new, table)
    sql = f"SELECT version FROM {VERSION_TABLE}"
    assert ledger.transact(lambda execute: execute(sql)) == [(SCHEMA_VERSION,)]
    new.close()
    ledger.close()


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("version", sorted(OLD_LEDGERS))
def test_an_older_ledger_is_migrated_by_concurrent_writers(version, old_ledger, make_call):
    setting = old_ledger(version)

    def write(number):
        ledger = Ledger(setting)
        ledger.submit(make_call(f"new{number}"))
        written = ledger.flush(60)
        ledger.close()
        return written

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(write, range(6)))
    ledger = Ledger(setting)
    assert {row.id for row in ledger.rows()} == {*OLD_IDS, *(f"new{n}" for n in range(6))}
    assert sum(totals.calls for totals in ledger.rollup()) == 10
    assert sums_agree(ledger)
    ledger.close()


#: A program of the next version. It adds one column to the rows, and three figures, one of which reads
#: that column.
NEXT_VERSION = """
import importlib.util, json, sys
from datetime import UTC, datetime
from pathlib import Path

def load_with(name, line, added):
    assert name not in sys.modules
    spec = importlib.util.find_spec(name)
    source = Path(spec.origin).read_text()
    assert source.count(line) == 1, line
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    exec(compile(source.replace(line, line + added), spec.origin, "exec"), module.__dict__)

load_with(
    "specclient.ledger.figures",
    '    tokens_written = Sum("cache_write_tokens", since=3, exported=False)\\n',
    '    tokens_1h = Sum("written_1h", since=NEXT, text=ReportText("written 1 h", "count", 4, 8))\\n'
    '    asked_calls = Counted(since=NEXT, text=ReportText("asked", "count", 4.2, 8))\\n'
    '    long_prompts = Sum("prompt_tokens", of=lambda n: (n or 0) >= 1000, since=NEXT)\\n'
    .replace("NEXT", sys.argv[2]),
)
load_with(
    "specclient.ledger.row",
    '    session: str | None = field(default=None, metadata=column("session", since=2))\\n',
    '    written_1h: int | None = field(\\n'
    '        default=None, metadata=column("usage.cache_write_1h", "count", since=NEXT)\\n'
    '    )\\n'
    .replace("NEXT", sys.argv[2]),
)

from specclient.ledger.ledger import Ledger
from specclient.ledger.schema import SCHEMA_VERSION
from specclient.reports.reader import CallFilter, read_reports
from specclient.reports.text import ReportCells, markdown
from specclient.types.call import Call
from specclient.types.route import Decision
from specclient.types.usage import Usage

assert SCHEMA_VERSION == int(sys.argv[2])
ledger = Ledger(sys.argv[1])
ledger.submit(
    Call(id="next", started_at=datetime.now(UTC), operation="chat", model="m", status="ok",
         route=Decision("p/m", "p", "m"), usage=Usage(prompt=2000, cache_write_1h=7),
         counts={"asked_calls": 3, "tool_calls": 1})
)
ledger.close()
print("migrated", flush=True)
sys.stdin.readline()
(total,) = ledger.rollup()
by_rows = read_reports(ledger, [["model"]], CallFilter()).reports[0]
by_sums = read_reports(ledger, [["model"]], CallFilter(), most_read=-1).reports[0]
assert by_rows.total.sums == total.sums == by_sums.total.sums, (by_rows.total.sums, total.sums)
cells = ReportCells.of(by_rows)
print(json.dumps({
    "ids": [row.id for row in ledger.rows()],
    "written": {row.id: row.written_1h for row in ledger.rows()},
    "tokens_1h": total.tokens_1h,
    "asked_calls": [total.asked_calls, {row.id: row.asked_calls for row in ledger.rows()}],
    "titles": cells.titles,
    "long_prompts": total.long_prompts,
    "text": dict(zip(cells.titles, cells.total)),
    "exported": by_rows.to_json()["total"],
    "csv": by_rows.to_csv().splitlines()[0],
    "markdown": markdown(by_rows),
}))
ledger.close()
"""


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("version", sorted(OLD_LEDGERS))
def test_a_new_figure_needs_only_its_line_in_the_table_of_figures(version, old_ledger, make_call):
    """The new figure is in the schema, roll-up, sums, report columns and exports, also for older calls."""
    setting = old_ledger(version)
    ledger = Ledger(setting)
    ledger.submit(make_call("this"))
    ledger.flush()
    command = [sys.executable, "-W", "error", "-c", NEXT_VERSION, setting, str(SCHEMA_VERSION + 1)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "migrated\n", process.stderr.read()
        # A PostgreSQL pool may open a new connection, which would find the newer version.
        if not setting.startswith("postgresql"):
            ledger.submit(make_call("this too"))  # over the connection that was open during the migration
            assert ledger.flush(60)
        out, err = process.communicate("\n", timeout=120)
    assert err == ""
    output = json.loads(out)
    this = {"this"} if setting.startswith("postgresql") else {"this", "this too"}
    assert set(output["ids"]) == {*OLD_IDS, "next", *this}
    assert {key for key, value in output["written"].items() if value is not None} == {"next"}
    assert (output["tokens_1h"], output["long_prompts"]) == (7, 2)  # the older call c4 has 1000 tokens
    assert output["text"]["written 1 h"] == "7"
    assert output["asked_calls"][0] == int(output["text"]["asked"]) == output["exported"]["asked_calls"] == 3
    assert {key for key, value in output["asked_calls"][1].items() if value is not None} == {"next"}
    places = [output["titles"].index(title) for title in ("cached", "written 1 h", "asked", "tool calls")]
    assert places == sorted(places)  # figures with equal places keep the order of the table
    assert (output["exported"]["tokens_1h"], output["exported"]["long_prompts"]) == (7, 2)
    assert {"tokens_1h", "long_prompts"} <= set(output["csv"].split(","))
    assert "written 1 h" in output["markdown"]
    ledger.close()
    with pytest.raises(
        LedgerError, match=rf"version {SCHEMA_VERSION + 1}, this specclient knows up to .*upgrade"
    ):
        Ledger(setting).rows()


def test_no_figure_shares_a_name():
    assert len(set(SUM_NAMES)) == len(SUM_NAMES)
    assert not set(SUM_NAMES) & set(DIMENSION_NAMES)
