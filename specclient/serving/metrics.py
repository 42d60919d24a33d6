"""Prometheus metrics of a server.

Names and labels are those of vLLM (https://docs.vllm.ai/en/stable/usage/metrics/), with the prefix
``specclient:``. The model label is a listed model or one that was called successfully, else ``other``, so
that clients cannot create an unlimited number of series.

If ``PROMETHEUS_MULTIPROC_DIR`` is an empty folder when they start, processes that serve one port store their
metrics in it, and each of them returns the sums.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

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
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

#: Maximum number of series for models that are not listed by the server but were called successfully.
_MOST_MODELS = 200
#: Number of series for draft positions; the last one includes all further positions.
_MOST_POSITIONS = 64

#: Histogram buckets in seconds. TTFT and TPOT are as in vLLM; latency and queue time start lower, at the
#: overhead of a gateway.
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_EACH = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5)
_WHOLE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120, 240, 480, 960)
_WAIT = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

#: Error code of a request that exceeds a budget.
BUDGET = "insufficient_quota"
#: Error codes of this server's own refusals; codes of upstreams are not used as labels.
_REFUSALS = frozenset(
    {
        BUDGET, "invalid_api_key", "invalid_json", "model_not_found", "no_route",
        "provider_key_missing", "rate_limit_exceeded", "server_busy", "server_stopping",
    }
)  # fmt: skip


class ServerMetrics:
    """The metrics of one server.

    Args:
        models: returns the listed models.
        load: returns the numbers of running and of waiting requests.
        engines: returns the states of the engines in this process.
    """

    def __init__(
        self,
        models: Callable[[], Iterable[str]],
        load: Callable[[], tuple[int, int]],
        engines: Callable[[], Iterable[EngineState]],
    ) -> None:
        self._models, self._load, self._engines = models, load, engines
        self._known: set[str] = set()
        self._series: dict[tuple[object, ...], Counter | Histogram] = {}
        self._shared = bool(os.environ.get(FOLDER_VARIABLE))
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
        self._running = self._gauge("num_requests_running", "Running requests.")
        self._waiting = self._gauge("num_requests_waiting", "Requests waiting for admission.")
        self._requests = self._counter(
            "http_requests", "Finished requests by route and status.",
            "method", "route", "status",
        )  # fmt: skip
        self._refused = self._counter(
            "requests_refused", "Requests refused by this server, by reason.", "reason"
        )
        self._budget_refusals = self._counter(
            "budget_refusals", "Requests refused because their maximum cost exceeds a budget."
        )
        self._whole = self._histogram(
            "e2e_request_latency_seconds",
            "Seconds from the request head to the end of the response.",
            _WHOLE,
            "route",
        )
        self._queue = self._histogram(
            "request_queue_time_seconds", "Seconds that requests waited for admission.", _WAIT
        )

    def _make_calls(self) -> None:
        self._calls = self._counter(
            "calls", "Calls to models by status: ok, error or cancelled.", "model_name", "status"
        )
        self._prompt = self._counter("prompt_tokens", "Prompt tokens.", "model_name")
        self._cached = self._counter("prompt_tokens_cached", "Prompt tokens read from a cache.", "model_name")
        self._generated = self._counter("generation_tokens", "Generated tokens.", "model_name")
        self._cost = self._counter("cost_dollars", "Cost of priced calls in US dollars.", "model_name")
        self._unpriced = self._counter("unpriced_calls", "Calls of unknown cost.", "model_name")
        self._hits = self._counter(
            "response_cache_hits", "Calls that the response cache answered.", "model_name"
        )
        self._saved = self._counter(
            "response_cache_saved_dollars",
            "What the answers of these calls cost when they were made, in US dollars.",
            "model_name",
        )
        self._first = self._histogram(
            "time_to_first_token_seconds",
            "Seconds from the start of a call to its first text.",
            _FIRST,
            "model_name",
        )
        self._each = self._histogram(
            "request_time_per_output_token_seconds",
            "Seconds per token after the first, of streamed calls.", _EACH, "model_name",
        )  # fmt: skip

    def _make_drafts(self) -> None:
        self._steps = self._counter("spec_decode_num_drafts", "Verification passes.", "model_name")
        self._drafted = self._counter("spec_decode_num_draft_tokens", "Drafted tokens.", "model_name")
        self._accepted = self._counter(
            "spec_decode_num_accepted_tokens", "Drafted tokens that the target accepted.", "model_name"
        )
        self._positions = self._counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens by draft position, of calls that report it.", "model_name", "position",
        )  # fmt: skip

    def _make_engines(self) -> None:
        self._in_engine = self._gauge(
            "engine_num_requests", "Running and waiting requests of a loaded engine.", "engine"
        )
        self._busy = self._gauge("engine_busy_seconds", "Seconds of work of an engine's models.", "engine")

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting requests in all processes that serve the port."""
        if not self._shared:
            return self._load()
        self.update_load()
        sums = {family.name: sum(s.value for s in family.samples) for family in self._collected().collect()}
        running, waiting = (sums[f"specclient:num_requests_{state}"] for state in ("running", "waiting"))
        return int(running), int(waiting)

    def update_load(self) -> None:
        """Publish the numbers of running and of waiting requests to other processes."""
        if self._shared:
            self._set_load()

    def _set_load(self) -> None:
        running, waiting = self._load()
        self._running.set(running)
        self._waiting.set(waiting)

    def request(self, entry: RequestEntry) -> None:
        """Count a finished request; a reader of the request log."""
        self.update_load()
        self._series_of(self._requests, entry.verb, entry.route, str(entry.status)).inc()
        if entry.code in _REFUSALS and not entry.calls:
            self._series_of(self._refused, entry.code).inc()
            if entry.code == BUDGET:
                self._budget_refusals.inc()
        if entry.waited_s is not None:
            self._queue.observe(entry.waited_s)
            self._series_of(self._whole, entry.route).observe(entry.seconds or 0.0)

    def observe(self, call: Call) -> None:
        """Count a finished call; an observer of a pipeline."""
        model = self._name(call)
        usage = call.usage
        self._series_of(self._calls, model, call.status).inc()
        self._add(self._prompt, model, usage.prompt)
        self._add(self._cached, model, usage.cached)
        self._add(self._generated, model, usage.completion)
        if call.cost.total is None:
            self._series_of(self._unpriced, model).inc()
        elif call.cost.total > 0:
            self._series_of(self._cost, model).inc(float(call.cost.total))
        if call.cached:
            self._series_of(self._hits, model).inc()
            self._series_of(self._saved, model).inc(float(call.saved or 0))
        if call.ttft_s is not None:
            self._series_of(self._first, model).observe(call.ttft_s)
            if call.status == "ok" and usage.completion is not None and usage.completion > 1:
                self._series_of(self._each, model).observe(
                    (call.latency_s - call.ttft_s) / (usage.completion - 1)
                )
        drafts = call.speculation
        if drafts is not None and drafts.drafted is not None and drafts.accepted is not None:
            self._add(self._steps, model, drafts.steps)
            self._add(self._drafted, model, drafts.drafted)
            self._add(self._accepted, model, drafts.accepted)
            for position, accepted in enumerate(accepted_by_position(drafts)):
                self._series_of(self._positions, model, str(min(position, _MOST_POSITIONS - 1))).inc(accepted)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        self._set_load()
        for name in self._listed:  # create series at 0, so that rates are right from their first increment
            for counter in (self._steps, self._drafted, self._accepted):
                counter.labels(name)
            self._positions.labels(name, "0")
        for engine in self._engines():
            self._in_engine.labels(engine.name).set(engine.unfinished)
            self._busy.labels(engine.name).set(engine.busy_s)
        return generate_latest(self._collected())

    def _series_of(self, family: T, *labels: str) -> T:
        """Return the series of a metric with these labels; cached, because the library's look-up is slow."""
        series: Any = self._series.get((family, *labels))
        if series is None:
            series = self._series[family, *labels] = family.labels(*labels)
        found: T = series
        return found

    def _add(self, family: Counter, model: str, count: int | None) -> None:
        if count is not None and count > 0:
            self._series_of(family, model).inc(count)

    def _collected(self) -> CollectorRegistry:
        """Return the registry with the metrics of all processes."""
        if not self._shared:
            return self.registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry

    def _name(self, call: Call) -> str:
        """Return the model label of a call: its route if that is known, else ``other``."""
        name = call.route.chosen
        if name in self._known:
            return name
        if name in self._listed or (call.status == "ok" and len(self._known) < _MOST_MODELS):
            self._known.add(name)
            return name
        return OTHER_MODEL

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(self._models()) - {AUTO}  # calls have the chosen route instead


def accepted_by_position(drafts: Speculation) -> Sequence[int]:
    """Return the accepted tokens at each draft position; empty if they are unknown.

    Shares suffice only if all passes drafted the same number of tokens.
    """
    if drafts.accepted_per_position is not None:
        return drafts.accepted_per_position
    shares, steps = drafts.per_position, drafts.steps
    if not shares or not steps or drafts.drafted != steps * len(shares):
        return ()
    accepted = [round(share * steps) for share in shares]
    return accepted if sum(accepted) == drafts.accepted else ()
