"""Speculation figures from a server's Prometheus counters: the difference between two reads.

For servers that report nothing in their answers (TGI), or only if they were started with an option (vLLM).
The counters are those of the whole server, so the difference includes all concurrent requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from specclient.telemetry.formats import SERVER_METRICS, MetricNames
from specclient.telemetry.parsers import checked_speculation, count
from specclient.types.usage import Speculation

SOURCE = "metrics delta"

CounterValues = Mapping[tuple[str, int | None], int]
"""Values by a counter's name and draft position; the position is None for counters without positions."""

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


_BY_NAME = {name: server for server in SERVER_METRICS for name in server.counters}

#: A counter of vLLM's engine V0 only, which counted no passes, and counted tokens after a rejected one as
#: accepted.
_VLLM_V0 = "vllm:spec_decode_num_emitted_tokens_total"


def samples(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, labels and value of each sample in Prometheus' text format; other lines are skipped."""
    for line in text.splitlines():
        if (sample := _SAMPLE.fullmatch(line.strip())) is not None:
            yield sample[1], sample[2] or "", sample[3]


def parse_counters(text: str) -> CounterValues:
    """Return the speculation counters in Prometheus' text format, summed over engines and models.

    A counter with a value that is not a whole number is left out. Raises nothing, whatever the text is.
    """
    counters: dict[tuple[str, int | None], int] = {}
    unfit: set[str] = set()
    for name, labels, value in samples(text):
        if name == _VLLM_V0:
            unfit |= _BY_NAME["vllm:spec_decode_num_draft_tokens_total"].counters
        server = _BY_NAME.get(name)
        if server is None:
            continue
        number = None if server.rounds_values and "e" in value.lower() else count(value)
        position = None
        if name in (server.accepted_at, server.drafted_at):
            position = count(dict(_LABEL.findall(labels)).get(server.position))
            number = None if position is None else number
        if number is None:
            unfit.add(name)
        else:
            counters[name, position] = counters.get((name, position), 0) + number
    return {key: number for key, number in counters.items() if key[0] not in unfit}


def counters_delta(before: CounterValues, after: CounterValues) -> Speculation | None:
    """Return the speculation between two reads; None where there was none, or it is unknown.

    If a counter has decreased or disappeared, the server was restarted, and nothing is known.
    """
    if any(after.get(key, -1) < number for key, number in before.items()):
        return None
    names = {name for name, _ in before}  # a position that is new since then began at 0
    moved = {key: number - before.get(key, 0) for key, number in after.items() if key[0] in names}
    for server in SERVER_METRICS:
        if any(moved.get(key) for key in moved if key[0] in server.counters):
            record = _speculation(server, moved)
            return None if record is None else replace(record, source=SOURCE)
    return None


def _speculation(server: MetricNames, moved: CounterValues) -> Speculation | None:
    def total(name: str) -> int | None:
        values = [value for key, value in moved.items() if key[0] == name]
        return sum(values) if values else None

    steps, drafted, accepted = total(server.steps), total(server.drafted), total(server.accepted)
    rates = _per_position(server, moved, drafted, steps)
    if accepted != sum(_by_position(moved, server.accepted_at)):  # some engines report no positions
        rates = None
    return checked_speculation(drafted=drafted, accepted=accepted, steps=steps, per_position=rates)


def _per_position(
    server: MetricNames, moved: CounterValues, drafted: int | None, steps: int | None
) -> tuple[float, ...] | None:
    """Return the acceptance rate by position, where it is known how many rounds drafted that far."""
    accepted = _by_position(moved, server.accepted_at)
    if server.drafted_at:
        reached = _by_position(moved, server.drafted_at)
    else:  # known only if every round drafted the full width
        reached = [steps] * len(accepted) if steps and drafted == steps * len(accepted) else []
    reached = [rounds for rounds in reached if rounds]
    kept = [*accepted, *[0] * len(reached)][: len(reached)]
    if not reached or sum(kept) != sum(accepted) or reached != sorted(reached, reverse=True):
        return None
    if any(map(int.__gt__, kept, reached)):
        return None
    return tuple(hits / rounds for hits, rounds in zip(kept, reached, strict=True))


def _by_position(moved: CounterValues, name: str) -> list[int]:
    """Return a counter's values in order of position; an empty list where a position is missing."""
    values = {at: number for (key, at), number in moved.items() if key == name and at is not None}
    return [values[at] for at in sorted(values)] if sorted(values) == list(range(len(values))) else []
