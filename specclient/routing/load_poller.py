"""Load polling: how busy endpoints and engines are, read in the background while calls are routed.

:meth:`LoadPoller.call_routed` runs for every routed call. It starts reading the metrics page of each
candidate endpoint whose last reading is older than a few seconds. No call waits for a reading or fails
because of one; without calls, nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from specclient.errors import ConfigurationError, NotFoundError
from specclient.http_transport.http import Transport
from specclient.providers.endpoint import Endpoint
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.server_load import LoadReading, load_between, read_load
from specclient.routing.router import Router
from specclient.runtime.backoff import doubled
from specclient.runtime.forks import register_fork_reset
from specclient.telemetry.server_metrics import metrics_of, metrics_request
from specclient.types.server_load import SupportsLoad

__all__ = ["LoadPoller"]

#: Seconds between two readings of an endpoint, and the maximum after failed readings.
INTERVAL_S, MOST_S = 2.0, 300.0
#: The random share of that time, which keeps many programs from reading at the same moment.
_JITTER = 0.25
#: Self-hosted servers that may serve a metrics page without `metrics` in the configuration, and its folder.
_SERVERS = {
    "specclient": "",
    "vllm": "",
    "sglang": "",
    "llamacpp": "",
    "nim": "",
    "tensorrt-llm": "prometheus/",
}

_log = logging.getLogger("specclient")


@dataclass(slots=True)
class _PolledPage:
    """One metrics page: the time of its next reading, failures in a row, and the last reading."""

    next_at: float = 0.0
    failures: int = 0
    last: LoadReading | None = None
    task: asyncio.Task[None] | None = None


class LoadPoller:
    """Reads the load of endpoints and engines, each page once for all clients.

    Args:
        estimates: receives every reading.
        clock: returns monotonic seconds.
        chance: the random numbers for jitter.
    """

    def __init__(
        self,
        estimates: Estimator,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self._estimates = estimates
        self._clock = clock
        self._chance = chance or random.Random()
        self._pages: dict[str, _PolledPage] = {}
        self._watched: WeakKeyDictionary[Router, _PolledSources] = WeakKeyDictionary()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Forget all readings in a forked child, where the parent's tasks never end."""
        self._pages = {}
        self._watched = WeakKeyDictionary()

    def call_routed(self, router: Router, transport: Transport) -> None:
        """Start the readings that are due; takes microseconds. An event loop must be running.

        Args:
            router: the router of the call, whose candidates are read.
            transport: reads the pages.
        """
        watched = self._watched.get(router)
        if watched is None:
            watched = self._watched[router] = _watched(router)
        for place, url in watched.endpoints:
            self._due(place, url, transport)
        for route, model, engine in watched.engines:
            with suppress(NotFoundError):  # raised again by the decision
                self._estimates.note_load(route, engine.current_load(model))

    def _due(self, place: Endpoint, url: str, transport: Transport) -> None:
        """Start reading a page, unless a reading runs or the last one is recent."""
        page = self._pages.setdefault(f"{url} {place.account}", _PolledPage())
        if page.task is not None and not page.task.done() and page.task.get_loop().is_running():
            return
        if self._clock() >= page.next_at:
            page.task = asyncio.get_running_loop().create_task(self._read(place, url, page, transport))

    async def _read(self, place: Endpoint, url: str, page: _PolledPage, transport: Transport) -> None:
        try:
            reply = await transport.fetch(metrics_request(place, url))
            reading = read_load(reply.content.decode("utf-8", "replace"))
        except Exception as error:  # noqa: BLE001 - no call depends on a reading
            _log.debug("the load of %r cannot be read: %s", place.name, error)
            reading = None
        if reading is None:
            page.failures += 1
            page.last = None
            self._estimates.note_load(place.name, None)
        else:
            page.failures = 0
            self._estimates.note_load(place.name, load_between(page.last, reading))
            page.last = reading
        wait = doubled(INTERVAL_S, page.failures, MOST_S)
        page.next_at = self._clock() + wait * self._chance.uniform(1 - _JITTER, 1 + _JITTER)

    async def aclose(self) -> None:
        """Cancel the readings of the running event loop."""
        loop = asyncio.get_running_loop()
        tasks = [page.task for page in self._pages.values() if page.task is not None]
        running = [task for task in tasks if not task.done() and task.get_loop() is loop]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _PolledSources:
    """The sources of load among a router's candidates: metrics pages, and engines in this process."""

    endpoints: tuple[tuple[Endpoint, str], ...]
    engines: tuple[tuple[str, str, SupportsLoad], ...]


def _watched(router: Router) -> _PolledSources:
    endpoints: dict[str, tuple[Endpoint, str]] = {}
    engines: list[tuple[str, str, SupportsLoad]] = []
    for route in router.candidates:
        head, _, model = route.partition("/")
        try:
            place = router.destinations.get(head)
        except (NotFoundError, ConfigurationError):  # raised again by the decision
            continue
        if not isinstance(place, Endpoint):
            if isinstance(place, SupportsLoad):
                engines.append((route, model, place))
        elif (url := _page(place)) is not None:
            endpoints[head] = place, url
    return _PolledSources(tuple(endpoints.values()), tuple(engines))


def _page(place: Endpoint) -> str | None:
    """Return the URL of an endpoint's metrics page, None if it is not known to have one."""
    if place.metrics:
        return metrics_of(place)
    folder = _SERVERS.get(place.name)
    if folder is None or place.lacks:
        return None
    return metrics_of(place).removesuffix("metrics") + f"{folder}metrics"
