"""Turn two readings of a server's Prometheus counters into what speculation did in between.

The counters are the whole server's: of several requests at once, they tell what all of them did together.
For servers that tell nothing in their answers (TGI), or only if they were started so (vLLM).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from specclient.telemetry.parsers import checked_speculation, count
from specclient.types.usage import Speculation

SOURCE = "metrics delta"

CounterValues = Mapping[tuple[str, int | None], int]
"""Values by a counter's name and the draft position it counts, None where it counts none."""

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """What one kind of server calls its counters; empty where it has none.

    Attributes:
        accepted, drafted: draft tokens; where they have positions, their sum.
        steps: verification passes that had a draft.
        accepted_at: draft tokens that were accepted, by position; ``drafted_at``: that were drafted.
        position: the label that says which position.
        rounds: whether large values are printed to six digits: with an exponent, they are no exact counts.
    """

    accepted: str = ""
    drafted: str = ""
    steps: str = ""
    accepted_at: str = ""
    drafted_at: str = ""
    position: str = "position"
    rounds: bool = False

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset((self.accepted, self.drafted, self.steps, self.accepted_at, self.drafted_at)) - {""}


def _as_vllm(prefix: str, *, rounds: bool = False) -> ServerCounters:
    name = f"{prefix}:spec_decode_num"
    return ServerCounters(
        accepted=f"{name}_accepted_tokens_total",
        drafted=f"{name}_draft_tokens_total",
        steps=f"{name}_drafts_total",
        accepted_at=f"{name}_accepted_tokens_per_pos_total",
        rounds=rounds,
    )


# Our own (specclient/serving/metrics.py); vLLM v1/spec_decode/metrics.py; llama.cpp tools/server/README.md;
# TensorRT-LLM metrics/collector.py (by finished request, else by iteration); TGI's router, which observes
# with every pass how many tokens it won beyond the first. SGLang's other figures are gauges, of which no
# difference can be taken.
_SERVERS = (
    _as_vllm("specclient"),
    _as_vllm("vllm"),
    _as_vllm("llamacpp", rounds=True),
    ServerCounters(
        accepted="trtllm_spec_decode_accepted_tokens_total",
        drafted="trtllm_spec_decode_drafted_tokens_total",
        accepted_at="trtllm_spec_decode_accepted_tokens_total",
        drafted_at="trtllm_spec_decode_drafted_tokens_total",
        position="token_position",
    ),
    ServerCounters(
        accepted="trtllm_spec_decode_num_accepted_tokens_total",
        drafted="trtllm_spec_decode_num_draft_tokens_total",
    ),
    ServerCounters(accepted="tgi_request_skipped_tokens_sum", steps="tgi_request_skipped_tokens_count"),
    ServerCounters(steps="sglang:spec_verify_calls_total"),
)
_BY_NAME = {name: server for server in _SERVERS for name in server.names}

#: Told by vLLM's engine V0 alone, which had no counter of passes and called "accepted" also the tokens behind
#: a rejected one.
_V0 = "vllm:spec_decode_num_emitted_tokens_total"


def parse_counters(text: str) -> CounterValues:
    """Return the counters of speculation in Prometheus' text format, those of all engines and models summed.

    A counter that is no whole number somewhere is left out. Raises nothing, whatever the text is.
    """
    counters: dict[tuple[str, int | None], int] = {}
    unfit: set[str] = set()
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line.strip())
        name, labels, value = ("", "", "") if sample is None else sample.groups()
        if name == _V0:
            unfit |= _BY_NAME["vllm:spec_decode_num_draft_tokens_total"].names
        server = _BY_NAME.get(name)
        if server is None:
            continue
        number = None if server.rounds and "e" in value.lower() else count(value)
        place = None
        if name in (server.accepted_at, server.drafted_at):
            place = count(dict(_LABEL.findall(labels or "")).get(server.position))
            number = None if place is None else number
        if number is None:
            unfit.add(name)
        else:
            counters[name, place] = counters.get((name, place), 0) + number
    return {key: number for key, number in counters.items() if key[0] not in unfit}


def counters_delta(before: CounterValues, after: CounterValues) -> Speculation | None:
    """Return what speculation did between two readings; None where nothing, or where it cannot be told.

    A counter that went down, or is gone, has begun anew with its server: then nothing is known.
    """
    if any(after.get(key, -1) < number for key, number in before.items()):
        return None
    told = {name for name, _ in before}  # of a position that has come since, the counter began at 0
    moved = {key: number - before.get(key, 0) for key, number in after.items() if key[0] in told}
    for server in _SERVERS:
        if any(moved.get(key) for key in moved if key[0] in server.names):
            found = _figures(server, moved)
            return None if found is None else replace(found, source=SOURCE)
    return None


def _figures(server: ServerCounters, moved: CounterValues) -> Speculation | None:
    def total(name: str) -> int | None:
        return (
            sum(moved[key] for key in moved if key[0] == name) if name in {key[0] for key in moved} else None
        )

    steps, drafted, accepted = total(server.steps), total(server.drafted), total(server.accepted)
    shares = _per_position(server, moved, drafted, steps)
    if accepted != sum(_by_place(moved, server.accepted_at)):  # not all of its engines tell by position
        shares = None
    return checked_speculation(drafted=drafted, accepted=accepted, steps=steps, per_position=shares)


def _per_position(
    server: ServerCounters, moved: CounterValues, drafted: int | None, steps: int | None
) -> tuple[float, ...] | None:
    """Return the share of rounds that kept each position, where it is known how many drafted that far."""
    accepted = _by_place(moved, server.accepted_at)
    if server.drafted_at:
        reached = _by_place(moved, server.drafted_at)
    else:  # every round drafted the full width, or it is not known which
        reached = [steps] * len(accepted) if steps and drafted == steps * len(accepted) else []
    reached = [rounds for rounds in reached if rounds]
    kept = [*accepted, *[0] * len(reached)][: len(reached)]
    if not reached or sum(kept) != sum(accepted) or reached != sorted(reached, reverse=True):
        return None
    if any(map(int.__gt__, kept, reached)):
        return None
    return tuple(hits / rounds for hits, rounds in zip(kept, reached, strict=True))


def _by_place(moved: CounterValues, name: str) -> list[int]:
    """Return a counter's values by position; none where positions are missing."""
    values = {place: number for (key, place), number in moved.items() if key == name and place is not None}
    return [values[place] for place in sorted(values)] if sorted(values) == list(range(len(values))) else []
