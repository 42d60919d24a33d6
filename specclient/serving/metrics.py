"""Turn finished requests and calls into Prometheus' counters, gauges and histograms, and those into its text.

Named and labelled as vLLM's (https://docs.vllm.ai/en/stable/usage/metrics/), with ``specclient:`` in front.
A label holds what the server knows, or has called with success; any other model is ``other``, so no client
can make series without end.

With ``PROMETHEUS_MULTIPROC_DIR`` set to an empty folder before they start, processes that serve one port keep
their figures in it, and each of them tells the sum of all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from specclient.routing.router import AUTO
from specclient.serving.request_log import RequestEntry
from specclient.types.backend import EngineState
from specclient.types.call import Call
from specclient.types.usage import Speculation

__all__ = ["CONTENT_TYPE", "OTHER_MODEL", "ServerMetrics"]

T = TypeVar("T", Counter, Histogram)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER_MODEL = "other"
FOLDER = "PROMETHEUS_MULTIPROC_DIR"

#: Models that were called with success and have series of their own, beside those that the server lists.
_MOST_MODELS = 200
#: Draft positions with a series of their own; the last one has all that lie behind it.
_MOST_POSITIONS = 64

#: Upper edges, in seconds: of first tokens and of the time for each further one, as vLLM's; of whole answers
#: and of waiting, down to what a gateway adds.
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_EACH = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5)
_WHOLE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120, 240, 480, 960)
_WAIT = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

#: The code of a request that a budget does not allow.
BUDGET = "insufficient_quota"
#: The codes by which this server itself refuses; what an upstream says is not counted under its own words.
_REFUSALS = frozenset(
    {
        BUDGET, "invalid_api_key", "invalid_json", "model_not_found", "no_route",
        "provider_key_missing", "rate_limit_exceeded", "server_busy", "server_stopping",
    }
)  # fmt: skip


class ServerMetrics:
    """The figures of one server.

    Args:
        models: lists the models that the server names itself.
        turns: how many requests run, and how many wait.
        engines: what the engines in this process say of themselves.
    """

    def __init__(
        self,
        models: Callable[[], Iterable[str]],
        turns: Callable[[], tuple[int, int]],
        engines: Callable[[], Iterable[EngineState]],
    ) -> None:
        self._models, self._turns, self._engines = models, turns, engines
        self._known: set[str] = set()
        self._series: dict[tuple[object, ...], Counter | Histogram] = {}
        self._shared = bool(os.environ.get(FOLDER))
        self.registry = CollectorRegistry()
        self._make_requests()
        self._make_calls()
        self._make_drafts()
        self._make_engines()

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"specclient:{name}", what, labels, registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"specclient:{name}", what, labels, registry=self.registry, multiprocess_mode="livesum")

    def _histogram(self, name: str, what: str, edges: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"specclient:{name}", what, labels, buckets=edges, registry=self.registry)

    def _make_requests(self) -> None:
        self._running = self._gauge("num_requests_running", "Requests that are being worked on.")
        self._waiting = self._gauge("num_requests_waiting", "Requests that wait for their turn.")
        self._requests = self._counter(
            "http_requests", "Requests answered, by the server's own route and status.",
            "method", "route", "status",
        )  # fmt: skip
        self._refused = self._counter("requests_refused", "Requests that this server refused.", "reason")
        self._budget_refusals = self._counter(
            "budget_refusals", "Requests refused because a budget does not allow what they may cost."
        )
        self._whole = self._histogram(
            "e2e_request_latency_seconds",
            "Seconds from a request's head to its answer's end.",
            _WHOLE,
            "route",
        )
        self._queue = self._histogram(
            "request_queue_time_seconds", "Seconds that requests waited for their turn.", _WAIT
        )

    def _make_calls(self) -> None:
        self._calls = self._counter(
            "calls", "Calls of models, each billed once: ok, error or cancelled.", "model_name", "status"
        )
        self._prompt = self._counter("prompt_tokens", "Tokens of prompts.", "model_name")
        self._cached = self._counter(
            "prompt_tokens_cached", "Those of them that were read from a cache.", "model_name"
        )
        self._generated = self._counter("generation_tokens", "Tokens generated.", "model_name")
        self._cost = self._counter("cost_dollars", "US dollars that priced calls cost.", "model_name")
        self._unpriced = self._counter("unpriced_calls", "Calls whose cost is not known.", "model_name")
        self._first = self._histogram(
            "time_to_first_token_seconds",
            "Seconds from a call's start to its first text.",
            _FIRST,
            "model_name",
        )
        self._each = self._histogram(
            "request_time_per_output_token_seconds",
            "Of streamed calls, seconds for each token after the first.", _EACH, "model_name",
        )  # fmt: skip

    def _make_drafts(self) -> None:
        self._steps = self._counter("spec_decode_num_drafts", "Verification passes.", "model_name")
        self._drafted = self._counter("spec_decode_num_draft_tokens", "Tokens drafted.", "model_name")
        self._accepted = self._counter(
            "spec_decode_num_accepted_tokens", "Drafted tokens that the target kept.", "model_name"
        )
        self._positions = self._counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "The same by position in the draft, of the calls that tell.", "model_name", "position",
        )  # fmt: skip

    def _make_engines(self) -> None:
        self._in_engine = self._gauge(
            "engine_num_requests", "Requests that a loaded engine holds, running and waiting.", "engine"
        )
        self._busy = self._gauge(
            "engine_busy_seconds", "Seconds that an engine's models have worked.", "engine"
        )

    def load(self) -> tuple[int, int]:
        """Return how many requests run and how many wait, at all processes that serve the port."""
        if not self._shared:
            return self._turns()
        self.turn()
        sums = {found.name: sum(s.value for s in found.samples) for found in self._collected().collect()}
        running, waiting = (sums[f"specclient:num_requests_{state}"] for state in ("running", "waiting"))
        return int(running), int(waiting)

    def turn(self) -> None:
        """Note how many requests run and wait, after either has changed, where other processes tell it."""
        if self._shared:
            self._note_turns()

    def _note_turns(self) -> None:
        running, waiting = self._turns()
        self._running.set(running)
        self._waiting.set(waiting)

    def request(self, entry: RequestEntry) -> None:
        """Note a finished request."""
        self.turn()
        self._of(self._requests, entry.verb, entry.route, str(entry.status)).inc()
        if entry.code in _REFUSALS and not entry.calls:
            self._of(self._refused, entry.code).inc()
            if entry.code == BUDGET:
                self._budget_refusals.inc()
        if entry.waited_s is not None:
            self._queue.observe(entry.waited_s)
            self._of(self._whole, entry.route).observe(entry.seconds or 0.0)

    async def observe(self, call: Call) -> None:
        """Note a finished call; an observer of a pipeline."""
        model = self._name(call)
        usage = call.usage
        self._of(self._calls, model, call.status).inc()
        self._add(self._prompt, model, usage.prompt)
        self._add(self._cached, model, usage.cached)
        self._add(self._generated, model, usage.completion)
        if call.cost.total is None:
            self._of(self._unpriced, model).inc()
        elif call.cost.total > 0:
            self._of(self._cost, model).inc(float(call.cost.total))
        if call.ttft_s is not None:
            self._of(self._first, model).observe(call.ttft_s)
            if call.status == "ok" and usage.completion is not None and usage.completion > 1:
                self._of(self._each, model).observe((call.latency_s - call.ttft_s) / (usage.completion - 1))
        drafts = call.speculation
        if drafts is not None and drafts.drafted is not None and drafts.accepted is not None:
            self._add(self._steps, model, drafts.steps)
            self._add(self._drafted, model, drafts.drafted)
            self._add(self._accepted, model, drafts.accepted)
            for place, kept in enumerate(accepted_at(drafts)):
                self._of(self._positions, model, str(min(place, _MOST_POSITIONS - 1))).inc(kept)

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        self._note_turns()
        for name in self._listed:  # from 0 on: of a series that begins later, a reader takes no difference
            for counter in (self._steps, self._drafted, self._accepted):
                counter.labels(name)
            self._positions.labels(name, "0")
        for engine in self._engines():
            self._in_engine.labels(engine.name).set(engine.unfinished)
            self._busy.labels(engine.name).set(engine.busy_s)
        return generate_latest(self._collected())

    def _of(self, family: T, *labels: str) -> T:
        """Return the one of a family's series that has these labels; its own look-up is slow."""
        series = self._series.get((family, *labels))
        if series is None:
            series = self._series[family, *labels] = family.labels(*labels)
        return cast("T", series)

    def _add(self, family: Counter, model: str, count: int | None) -> None:
        if count is not None and count > 0:
            self._of(family, model).inc(count)

    def _collected(self) -> CollectorRegistry:
        """Return where the figures of all processes are."""
        if not self._shared:
            return self.registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry

    def _name(self, call: Call) -> str:
        """Return the label of a call's model: the route taken, where it is known to be one."""
        name = call.route.chosen
        if name in self._known:
            return name
        if name in self._listed or (call.status == "ok" and len(self._known) < _MOST_MODELS):
            self._known.add(name)
            return name
        return OTHER_MODEL

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(self._models()) - {AUTO}  # which calls take the route that was chosen for it


def accepted_at(drafts: Speculation) -> Sequence[int]:
    """Return how many tokens were kept at each draft position; nothing where that cannot be told.

    Shares alone tell it where every pass drafted as far as the others.
    """
    if drafts.accepted_per_position is not None:
        return drafts.accepted_per_position
    shares, steps = drafts.per_position, drafts.steps
    if not shares or not steps or drafts.drafted != steps * len(shares):
        return ()
    kept = [round(share * steps) for share in shares]
    return kept if sum(kept) == drafts.accepted else ()
