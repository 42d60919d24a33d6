"""Check specclient against real inference servers, and write their table into the documentation.

    python tools/check_engines.py [NAME ...] [--fresh]

Without names all servers are checked, one at a time. ``--fresh`` installs them anew. The environments and the
logs of the servers are in ``build/engines``; the first run downloads several gigabytes. The results are kept
in ``tools/engines/results.json``, from which the page ``docs/engines.md`` is written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from datetime import UTC, datetime
from typing import Any

from engines.catalogue import ENGINES
from engines.checked_engine import CheckedEngine
from engines.checks import CHECKS, Bench, bench_settings
from engines.page import PAGE, RESULTS, page_of_files
from engines.running import EngineError, RunningServer, prepare, running, version_of

from specclient import AsyncOpenAI


def main() -> None:
    """Check the named servers; the status is 1 if a check failed."""
    names = [engine.name for engine in ENGINES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--fresh", action="store_true", help="install the servers anew")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in names]:
        parser.error(f"{unknown[0]!r} is not among the servers: {', '.join(names)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end, too
    chosen = [engine for engine in ENGINES if not given.names or engine.name in given.names]
    entries = [_record(engine.name, _entry(engine, fresh=given.fresh)) for engine in chosen]
    sys.exit(any("failed" in entry or any(entry["results"].values()) for entry in entries))


def _entry(engine: CheckedEngine, *, fresh: bool) -> dict[str, Any]:
    head = {"version": "", "date": datetime.now(UTC).date().isoformat()}
    begun = time.monotonic()
    try:
        prepare(engine, fresh=fresh)
        head["version"] = version_of(engine)
        with running(engine) as server:
            started = time.monotonic()
            results = asyncio.run(_results(engine, server))
    except EngineError as error:
        print(f"{engine.name}: {error}", file=sys.stderr, flush=True)
        return {**head, "failed": str(error)}
    passed = sum(error is None for error in results.values())
    times = f"started in {started - begun:.0f} s, checked in {time.monotonic() - started:.0f} s"
    print(f"{engine.name} {head['version']}: {passed} of {len(results)} passed, {times}", flush=True)
    return {**head, "results": results}


async def _results(engine: CheckedEngine, server: RunningServer) -> dict[str, str | None]:
    """Return what was wrong in each check, None for nothing."""
    found: dict[str, str | None] = {}
    settings = bench_settings(engine, server.base_url)
    async with AsyncOpenAI(config=settings, ledger="off", max_retries=engine.retries) as client:
        for check in CHECKS:
            name = check.__name__
            if name in engine.without:
                continue
            try:
                await check(Bench(engine, server.models_url, client))
            except Exception as error:  # noqa: BLE001 - any failure of a check is its result
                found[name] = f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")
            else:
                found[name] = None
            print(f"  {engine.name} {name}: {found[name] or 'passed'}", flush=True)
    return found


def _record(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Keep a server's results, and write the page."""
    entries = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    entries[name] = entry
    RESULTS.write_text(json.dumps(entries, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
    write_page()
    return entry


def write_page() -> None:
    """Write the page from the files of results."""
    PAGE.write_text(page_of_files(), encoding="utf-8")


if __name__ == "__main__":
    main()
