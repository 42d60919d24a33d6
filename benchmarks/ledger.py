"""Measure the ledger: CPU time per row, rows written per second, and the time of a report over many rows.

    python benchmarks/ledger.py [ROWS]    # rows of the large ledger; default 1,000,000 (about 400 MB)

CPU time is that of the process, including the writer's thread. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from specclient.ledger import rollup
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import COLUMN_NAMES, encoded_row
from specclient.ledger.schema import CALLS_TABLE
from specclient.types.call import Call
from specclient.types.route import Candidate, Decision
from specclient.types.usage import Cost, Speculation, Usage

ROUNDS = 5
MODELS = 20
MONTH = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 31

ROUTE = Decision(
    chosen="openai/gpt-4.1-mini",
    provider="openai",
    model="gpt-4.1-mini",
    reason="named",
    candidates=(Candidate("openai/gpt-4.1-mini", verdict="chosen"),),
)
COST = Cost(
    Decimal("0.00123"), {"input": Decimal("0.001"), "output": Decimal("0.00023")}, "genai-prices 2026-01-01"
)

#: SQL expressions of the columns that vary in the large ledger. Ids ascend with time, over the range of ids.
SPREAD = {
    "id": "printf('%016x%016x', i * :stride, i)",
    "started_at": "strftime('%Y-%m-%dT%H:%M:%f', :begin + i * :step, 'unixepoch') || '000+00:00'",
    "provider": "'provider-' || (i % 5)",
    "model": "'provider-' || (i % 5) || '/model-' || (i % :models)",
    "route": "'provider-' || (i % 5) || '/model-' || (i % :models)",
    "status": "CASE WHEN i % 97 = 0 THEN 'error' ELSE 'ok' END",
    "prompt_tokens": "100 + i % 1000",
    "completion_tokens": "10 + i % 300",
    "cost_nano": "CASE WHEN i % 50 = 0 THEN NULL ELSE 1000 + i % 100000 END",
    "latency_s": "0.2 + (i % 1000) / 300.0",
    "streamed": "i % 2",
}


def new_call() -> Call:
    """Return a finished call of a hosted model with a known price."""
    return Call(
        id=uuid.uuid4().hex,
        started_at=datetime.now(UTC),
        operation="chat",
        model="openai/gpt-4.1-mini",
        route=ROUTE,
        status="ok",
        served_model="gpt-4.1-mini-2025-04-14",
        usage=Usage(prompt=120, completion=80, cached=0),
        speculation=Speculation(predicted_accepted=3, predicted_rejected=1, source="openai"),
        cost=COST,
        latency_s=1.25,
        ttft_s=0.3,
        request_id="req_0123456789",
        tags={"team": "red"},
    )


async def cpu_of(ledger: Ledger, number: int, at_once: int) -> float:
    """Return µs of CPU time per call, from the finished call to its committed row."""
    calls = [new_call() for _ in range(number)]
    begun = time.process_time()
    for first in range(0, len(calls), at_once):
        await asyncio.gather(*(ledger.record(call) for call in calls[first : first + at_once]))
    ledger.flush()
    return (time.process_time() - begun) / len(calls) * 1e6


async def rows_a_second(ledger: Ledger, number: int) -> float:
    """Return the calls per second that one event loop can record and commit."""
    calls = [new_call() for _ in range(number)]
    begun = time.perf_counter()
    for call in calls:
        await ledger.record(call)
    ledger.flush()
    return number / (time.perf_counter() - begun)


def fill(ledger: Ledger, number: int) -> None:
    """Insert many rows into a ledger, and rebuild their stored sums."""
    template = dict(zip(COLUMN_NAMES, encoded_row(new_call()), strict=True))
    columns = {name: SPREAD.get(name, f":{name}") for name in COLUMN_NAMES}
    params = {name: value for name, value in template.items() if name not in SPREAD}
    params |= {
        "begin": MONTH.timestamp(),
        "step": DAYS * 86400 / number,
        "stride": 2**63 // number,
        "models": MODELS,
    }
    sql = f"""INSERT INTO {CALLS_TABLE} ({", ".join(columns)})
        WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i < :last)
        SELECT {", ".join(columns.values())} FROM n"""
    for first in range(0, number, 500_000):
        last = min(first + 500_000, number) - 1
        ledger.transact(lambda execute: execute(sql, {**params, "first": first, "last": last}))  # noqa: B023
    ledger.transact(rollup.rebuild)


@contextmanager
def large_ledger(path: Path, number: int) -> Iterator[Ledger]:
    """Fill a ledger, and print its size."""
    ledger = Ledger(str(path))
    begun = time.perf_counter()
    fill(ledger, number)
    size = path.stat().st_size
    took = time.perf_counter() - begun
    print(f"{number:,} rows, {size / 2**30:.2f} GiB, made in {took:.0f} s", flush=True)
    yield ledger
    ledger.close()


def seconds(work: Callable[[], object]) -> float:
    """Return the median seconds of ``ROUNDS`` runs."""
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    """Measure, print a table, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rows", type=int, nargs="?", default=1_000_000, help="rows of the large ledger (default %(default)s)"
    )
    number = parser.parse_args().rows
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="specclient-bench-") as folder:
        for durability, calls in (("batch", 4_000), ("sync", 256)):  # with sync, each call waits for the disk
            ledger = Ledger(str(Path(folder) / f"{durability}.sqlite3"), durability=durability)  # type: ignore[arg-type]
            for at_once in (1, 64):
                runs = [asyncio.run(cpu_of(ledger, calls, at_once)) for _ in range(ROUNDS)]
                figures[f"CPU a call, {durability}, {at_once} at once, µs"] = statistics.median(runs)
            ledger.close()
        ledger = Ledger(str(Path(folder) / "fast.sqlite3"))
        figures["rows a second, empty ledger"] = asyncio.run(rows_a_second(ledger, 100_000))
        ledger.close()
        with large_ledger(Path(folder) / "big.sqlite3", number) as ledger:
            end = MONTH + timedelta(days=DAYS)
            month = lambda: ledger.rollup(MONTH, end, ["model"])  # noqa: E731
            partial_days = lambda: ledger.rollup(MONTH + timedelta(hours=13, minutes=17), None, ["model"])  # noqa: E731
            figures["month by model, s"] = seconds(month)
            figures["days beginning within an hour, by model, s"] = seconds(partial_days)
            figures["month by day and model, s"] = seconds(
                lambda: ledger.rollup(MONTH, end, ["day", "model"])
            )
            figures[f"rows a second, on top of {number:,}"] = asyncio.run(rows_a_second(ledger, 50_000))
            assert sum(sums.calls for sums in ledger.rollup(MONTH, end)) == number
            begun = time.perf_counter()
            removed = ledger.prune(MONTH + timedelta(days=1))
            figures[f"prune of {removed:,} rows, s"] = time.perf_counter() - begun
    for name, figure in figures.items():
        print(f"{name:50} {figure:12,.4g}" if figure < 1000 else f"{name:50} {figure:12,.0f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
