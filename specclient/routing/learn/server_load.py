"""Server load: requests, cache use and acceptance, parsed from a server's page of Prometheus metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from specclient.types.server_load import ServerLoad

__all__ = ["LoadReading", "load_between", "read_load"]

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t]*")
#: SGLang reports its queue once as a whole and again for each priority.
_PART = re.compile(r'(?:^|,)priority="[^"]')


@dataclass(frozen=True, slots=True)
class _MetricNames:
    """The metric names of one kind of server; of several names, those of newer versions come first.

    Attributes:
        running, waiting, slots: requests; ``cache``: the used share of the KV cache.
        rate, length: the share of accepted draft tokens, and the tokens per verification.
        accepted, drafted, steps: counters since the server started, from which ``rate`` and ``length`` are
            computed if the server does not report them.
    """

    running: str
    waiting: str
    cache: tuple[str, ...] = ()
    slots: str = ""
    rate: str = ""
    length: str = ""
    accepted: str = ""
    drafted: str = ""
    steps: str = ""


# Our own server names them as vLLM does: v1/metrics/loggers.py (before 0.10: gpu_cache_usage_perc). SGLang
# srt/metrics/collector.py; llama.cpp tools/server/README.md (cache use was reported until 2025);
# TensorRT-LLM metrics/collector.py.
_SERVERS = (
    *(
        _MetricNames(
            running=f"{prefix}:num_requests_running",
            waiting=f"{prefix}:num_requests_waiting",
            cache=(f"{prefix}:kv_cache_usage_perc", f"{prefix}:gpu_cache_usage_perc"),
            accepted=f"{prefix}:spec_decode_num_accepted_tokens_total",
            drafted=f"{prefix}:spec_decode_num_draft_tokens_total",
            steps=f"{prefix}:spec_decode_num_drafts_total",
        )
        for prefix in ("specclient", "vllm")
    ),
    _MetricNames(
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        cache=("sglang:token_usage",),
        slots="sglang:max_running_requests",
        rate="sglang:spec_accept_rate",
        length="sglang:spec_accept_length",
    ),
    _MetricNames(
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        cache=("llamacpp:kv_cache_usage_ratio",),
        accepted="llamacpp:spec_decode_num_accepted_tokens_total",
        drafted="llamacpp:spec_decode_num_draft_tokens_total",
        steps="llamacpp:spec_decode_num_drafts_total",
    ),
    _MetricNames(
        running="trtllm_num_requests_running",
        waiting="trtllm_num_requests_waiting",
        cache=("trtllm_kv_cache_utilization",),
        slots="trtllm_max_num_active_requests",
        length="trtllm_spec_decode_acceptance_length",
        accepted="trtllm_spec_decode_num_accepted_tokens_total",
        drafted="trtllm_spec_decode_num_draft_tokens_total",
    ),
)
_NAMES = frozenset(
    name
    for server in _SERVERS
    for name in (
        server.running, server.waiting, *server.cache, server.slots, server.rate, server.length,
        server.accepted, server.drafted, server.steps,
    )
    if name
)  # fmt: skip


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
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line.strip())
        if sample is None or sample[1] not in _NAMES or _PART.search(sample[2] or ""):
            continue
        value = _number(sample[3])
        if value is not None:
            seen.setdefault(sample[1], []).append(value)
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
