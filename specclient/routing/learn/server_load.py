"""Server load: requests, cache use and acceptance, parsed from a server's page of Prometheus metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from specclient.telemetry.formats import SERVER_METRICS
from specclient.telemetry.prometheus import samples
from specclient.types.server_load import ServerLoad

__all__ = ["LoadReading", "load_between", "read_load"]

#: Label of the queues by priority, which SGLang reports in addition to the whole queue.
_PRIORITY = re.compile(r'(?:^|,)priority="[^"]')


_SERVERS = tuple(server for server in SERVER_METRICS if server.running)
_NAMES = frozenset(name for server in _SERVERS for name in server.counters | server.gauges)


@dataclass(frozen=True, slots=True)
class LoadReading:
    """One reading of a metrics page: its gauges, and its counters since the server started.

    Attributes:
        load: the load; its acceptance is None unless the page reports it directly.
        counted: accepted tokens, drafted tokens and verifications; None without such a counter.
    """

    load: ServerLoad
    counted: tuple[float | None, float | None, float | None] = field(default=(None, None, None))


def read_load(text: str) -> LoadReading | None:
    """Return the load on a page in Prometheus' text format, None for an unknown kind of server.

    Requests of several engines and models are summed; the fullest cache counts. Malformed text raises
    nothing.
    """
    seen: dict[str, list[float]] = {}
    for name, labels, printed in samples(text):
        if name not in _NAMES or _PRIORITY.search(labels):
            continue
        value = _number(printed)
        if value is not None:
            seen.setdefault(name, []).append(value)
    for server in _SERVERS:
        running, waiting = seen.get(server.running), seen.get(server.waiting)
        if running is not None or waiting is not None:
            cache = next((seen[name] for name in server.cache if name in seen), None)
            slots = seen.get(server.slots)
            load = ServerLoad(
                running=sum(running or ()),
                waiting=sum(waiting or ()),
                slots=round(sum(slots)) or None if slots else None,
                cache_use=min(max(cache), 1.0) if cache else None,
                acceptance_rate=_mean(seen.get(server.rate), most=1.0),
                tokens_per_verification=_mean(seen.get(server.length)),
            )
            counters = (server.accepted, server.drafted, server.steps)
            accepted, drafted, steps = (sum(seen[name]) if name in seen else None for name in counters)
            return LoadReading(load, (accepted, drafted, steps))
    return None


def load_between(before: LoadReading | None, after: LoadReading) -> ServerLoad:
    """Return a server's load by its newest page, with the acceptance since the reading before it.

    A counter that went down was reset with its server; the acceptance of that time is then unknown.
    """
    load = after.load
    if before is None:
        return load
    accepted, drafted, steps = (
        None if old is None or new is None or new < old else new - old
        for old, new in zip(before.counted, after.counted, strict=True)
    )
    rate, length = load.acceptance_rate, load.tokens_per_verification
    if rate is None and accepted is not None and drafted:
        rate = min(accepted / drafted, 1.0)
    if length is None and accepted is not None and steps:
        length = 1 + accepted / steps
    return ServerLoad(load.running, load.waiting, load.slots, load.cache_use, rate, length)


def _number(text: str) -> float | None:
    """Return a value if it is finite and 0 or more."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value >= 0 and math.isfinite(value) else None


def _mean(values: Iterable[float] | None, most: float = math.inf) -> float | None:
    """Return the mean of the values above 0; a server that has drafted nothing yet reports 0."""
    known = [value for value in values or () if value]
    return min(sum(known) / len(known), most) if known else None
