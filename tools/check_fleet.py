"""Try a fleet of two replicas of vLLM on Ray Serve under load, and write the results into the documentation.

    python tools/check_fleet.py [NAME ...]

NAME is an experiment of ``tools/engines/fleet.py``; without names, all are run. The environment is that of
``make engines``. The results are kept in ``tools/engines/fleet.json``, which is part of ``docs/engines.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import Any

from check_engines import write_page
from engines.catalogue import engine_named
from engines.fleet import EXPERIMENTS, fleet_settings
from engines.fleet_page import PICTURE
from engines.fleet_plot import draw
from engines.page import FLEET_RESULTS, PAGE
from engines.running import RunningFleet, prepare, running_fleet, version_of

from specclient import AsyncOpenAI


def main() -> None:
    """Run the named experiments."""
    names = [experiment.__name__ for experiment in EXPERIMENTS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    chosen = parser.parse_args().names or names
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"{unknown[0]!r} is not among the experiments: {', '.join(names)}")
    engine = engine_named("ray")
    prepare(engine, fresh=False)
    head = {"version": version_of(engine), "date": datetime.now(UTC).date().isoformat()}
    failed = False
    with running_fleet(engine) as fleet:
        for name in chosen:
            try:
                entry = asyncio.run(_run(name, fleet))
            except AssertionError as error:
                entry, failed = {"failed": str(error)}, True
            _record(name, {**head, **entry})
    sys.exit(failed)


async def _run(name: str, fleet: RunningFleet) -> dict[str, Any]:
    [experiment] = [each for each in EXPERIMENTS if each.__name__ == name]
    async with AsyncOpenAI(config=fleet_settings(fleet.base_url), ledger="off") as client:
        return await experiment(fleet, client)


def _record(name: str, entry: dict[str, Any]) -> None:
    entries = json.loads(FLEET_RESULTS.read_text(encoding="utf-8")) if FLEET_RESULTS.exists() else {}
    entries[name] = entry
    FLEET_RESULTS.write_text(json.dumps(entries, sort_keys=True) + "\n", encoding="utf-8")
    draw(entries, PAGE.parent / PICTURE)
    write_page()


if __name__ == "__main__":
    main()
