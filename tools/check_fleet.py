"""Try a fleet of two replicas of vLLM on Ray Serve under load, and write the results into the documentation.

    python tools/check_fleet.py [NAME ...]

NAME is an experiment of ``tools/engines/fleet.py``, or ``commands`` for those of
``tools/engines/fleet_commands.py``; without names, all are run. The environment is that of ``make engines``.
The results are kept in ``tools/engines/fleet.json``, which is part of ``docs/engines.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from check_engines import write_page
from engines.catalogue import engine_named
from engines.fleet import EXPERIMENTS, fleet_settings
from engines.fleet_commands import check_commands
from engines.fleet_page import PICTURE, STREAMS_PICTURE
from engines.fleet_plot import draw, draw_streams
from engines.page import FLEET_RESULTS, PAGE
from engines.running import RunningFleet, environment_of, prepare, running_fleet, version_of

from specclient import AsyncOpenAI

_COMMANDS = "commands"


def main() -> None:
    """Run the named experiments."""
    names = [_COMMANDS, *(experiment.__name__ for experiment in EXPERIMENTS)]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    chosen = parser.parse_args().names or names
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"{unknown[0]!r} is not among the experiments: {', '.join(names)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end, too
    engine = engine_named("ray")
    prepare(engine, fresh=False)
    head = {"version": version_of(engine), "date": datetime.now(UTC).date().isoformat()}
    entries = {}
    if _COMMANDS in chosen:
        entries[_COMMANDS] = _entry(partial(check_commands, environment_of(engine)))
        _record(_COMMANDS, {**head, **entries[_COMMANDS]})
    if experiments := [name for name in chosen if name != _COMMANDS]:
        with running_fleet(engine) as fleet:
            for name in experiments:
                entries[name] = _entry(partial(_run, name, fleet))
                _record(name, {**head, **entries[name]})
    sys.exit(any("failed" in entry for entry in entries.values()))


def _entry(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of an experiment, or what failed in it."""
    try:
        return run()
    except AssertionError as error:
        return {"failed": str(error)}


def _run(name: str, fleet: RunningFleet) -> dict[str, Any]:
    [experiment] = [each for each in EXPERIMENTS if each.__name__ == name]

    async def run() -> dict[str, Any]:
        async with AsyncOpenAI(config=fleet_settings(fleet.base_url), ledger="off") as client:
            return await experiment(fleet, client)

    return asyncio.run(run())


def _record(name: str, entry: dict[str, Any]) -> None:
    entries = json.loads(FLEET_RESULTS.read_text(encoding="utf-8")) if FLEET_RESULTS.exists() else {}
    entries[name] = entry
    FLEET_RESULTS.write_text(json.dumps(entries, sort_keys=True) + "\n", encoding="utf-8")
    draw(entries, PAGE.parent / PICTURE)
    draw_streams(entries, PAGE.parent / STREAMS_PICTURE)
    write_page()


if __name__ == "__main__":
    main()
