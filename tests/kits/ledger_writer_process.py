"""A program that records calls in a ledger and prints each recorded call.

    python ledger_writer_process.py SETTING DURABILITY PREFIX CALLS [WINDOW_S]

For each call, it prints the id and the time in seconds, by the machine's monotonic clock, at which the ledger
had recorded it. If CALLS is 0, it continues until it is killed.
"""

import asyncio
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count

from specclient.ledger.ledger import Ledger
from specclient.types.call import Call
from specclient.types.route import Decision
from specclient.types.usage import Cost, Usage

ROUTE = Decision(chosen="local/demo", provider="local", model="demo")


def call(key):
    cost = Cost(Decimal("0.000000003"), {"input": Decimal("0.000000003")}, "somewhere")
    return Call(
        id=key,
        started_at=datetime.now(UTC),
        operation="chat",
        model="local/demo",
        route=ROUTE,
        status="ok",
        usage=Usage(prompt=10, completion=5),
        cost=cost,
    )


async def one(ledger, key):
    await ledger.record(call(key))
    sys.stdout.write(f"{key} {time.monotonic()}\n")  # one write per line, since processes share the pipe
    sys.stdout.flush()


async def main(setting, durability, prefix, calls, window_s="0.5"):
    ledger = Ledger(setting, durability=durability, window_s=float(window_s))
    numbers = range(int(calls)) if int(calls) else count()
    for first in numbers:
        if first % 7 == 0:
            await asyncio.gather(*(one(ledger, f"{prefix}-{n}") for n in range(first, first + 7)))
            await asyncio.sleep(0 if int(calls) else 0.002)
    ledger.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
