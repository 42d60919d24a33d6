"""Measure the processor time of `specclient serve`: for a whole answer, and for an event of a stream.

    python benchmarks/gateway_processor.py [--blocks 5] [--answers 480] [--streams 48]

The upstream has canned responses, and 16 clients send requests without a pause. The time is that of all
threads of the server's process, in user and system mode, as Linux reports it. The ledger is on. Two keys take
turns, block by block, so that a change in the machine's speed meets both: the operator's, and a stored one
with a budget and a limit of requests a minute, which are checked before each call and charged after it. The
time of an event is that of its stream without the time of a whole answer, divided by the events: what begins
and ends a call is not counted twice. Each figure is the median, and the least, of all blocks. Prints a table,
then one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from canned import CHUNKS
from client import serving
from gateway import checker
from gateway_load import Subject, send_load
from gateway_servers import KEY, QUICK, Running, ours

#: Concurrent clients.
AT_ONCE = 16
#: Requests before the first block, for each key and kind.
WARM_UP = 320
_LIMITS = ("--budget", "1000/day", "--requests-per-minute", "10000000")
#: Microseconds of each block, by figure.
Figures = dict[str, list[float]]
_CREATE = "from specclient_cli.main import main; main()"


def seconds_of(process: int) -> float:
    """Return the processor time of all threads of a process that run, in seconds."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def stored_key(folder: Path) -> str:
    """Create a key with a budget in the ledger of the gateway; return it."""
    command = [sys.executable, "-c", _CREATE, "serve", "keys", "create", "benchmark", *_LIMITS]
    env = os.environ | {"SPECCLIENT_LEDGER": str(folder / "ledger.sqlite3")}
    made = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found = re.search(r"sk-\S+", made.stdout)
    if found is None:
        raise SystemExit(f"`serve keys create` printed no key: {made.stdout!r}")
    return found[0]


async def block(process: int, subject: Subject, requests: int, *, stream: bool) -> float:
    """Return the server's microseconds of processor time for each request of a block."""
    check = checker(CHUNKS if stream else 0)
    begun = seconds_of(process)
    await send_load(subject, AT_ONCE, max(1, requests // AT_ONCE), stream=stream, check=check)
    return (seconds_of(process) - begun) / (max(1, requests // AT_ONCE) * AT_ONCE) * 1e6


async def figures(gateway: Running, budgeted: str, blocks: int, answers: int, streams: int) -> Figures:
    """Return the times of all blocks, by figure."""
    key = Subject("key", gateway.port, "/v1", gateway.models[QUICK], KEY)
    subjects = {"operator's key": key, "stored key with a budget": replace(key, key=budgeted)}
    found: Figures = {}
    for turn in range(-1, blocks):
        for name, subject in subjects.items():
            whole = await block(gateway.process, subject, answers if turn >= 0 else WARM_UP, stream=False)
            stream = await block(gateway.process, subject, streams, stream=True)
            if turn >= 0:
                found.setdefault(f"answer, {name}", []).append(whole)
                found.setdefault(f"event, {name}", []).append((stream - whole) / CHUNKS)
    return found


def main() -> None:
    """Measure, print a table, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=5, help="blocks of each key and kind")
    parser.add_argument("--answers", type=int, default=480, help="whole answers in a block")
    parser.add_argument("--streams", type=int, default=48, help="streams in a block, of 300 events each")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, serving() as upstream:
        folder = Path(place)
        budgeted = stored_key(folder)
        with ours(upstream, folder) as gateway:
            found = asyncio.run(figures(gateway, budgeted, args.blocks, args.answers, args.streams))
    print(f"{'µs of processor time':40}{'median':>10}{'least':>10}")
    for name, times in sorted(found.items()):
        print(f"{name:40}{statistics.median(times):>10,.1f}{min(times):>10,.1f}")
    print(json.dumps({"benchmark": "gateway_processor", "figures": found}))


if __name__ == "__main__":
    main()
