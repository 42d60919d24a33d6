"""Load polling: how busy endpoints and engines are, read in the background while calls are routed.

:meth:`LoadPoller.call_routed` runs for every routed call. It starts reading the metrics page of each
candidate endpoint whose last reading is older than a few seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from specclient.errors import ConfigurationError, NotFoundError
from specclient.http_transport.http import Transport
from specclient.providers.endpoint import Endpoint
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.server_load import LoadReading, load_between, read_load
from specclient.routing.periodic_readings import PeriodicReadings
from specclient.routing.router import Router
from specclient.telemetry.server_metrics import metrics_of, metrics_request
from specclient.types.server_load import SupportsLoad

__all__ = ["LoadPoller"]

#: Seconds between two readings of an endpoint, and the maximum after failed readings.
INTERVAL_S, MOST_S = 2.0, 300.0
#: The random share of that time.
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


@dataclass(slots=True)
class _PolledPage:
    """One metrics page, with the endpoint and the transport of the latest call that needs it."""

    url: str
    endpoint: Endpoint
    transport: Transport
    last: LoadReading | None = None


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
        self._pages: dict[str, _PolledPage] = {}
        self._readings = PeriodicReadings(
            "the load of an endpoint", INTERVAL_S, most_s=MOST_S, jitter=_JITTER, clock=clock, chance=chance
        )
        self._watched: WeakKeyDictionary[Router, _PolledSources] = WeakKeyDictionary()

    def call_routed(self, router: Router, transport: Transport) -> None:
        """Start the readings that are due; takes microseconds. An event loop must be running.

        Args:
            router: the router of the call, whose candidates are read.
            transport: reads the pages.
        """
        watched = self._watched.get(router)
        if watched is None:
            watched = self._watched[router] = _watched(router)
        self._readings.call_placed([self._page(*each, transport) for each in watched.endpoints])
        for route, model, engine in watched.engines:
            with suppress(NotFoundError):  # raised again by the decision
                self._estimates.note_load(route, engine.current_load(model))

    def _page(self, endpoint: Endpoint, url: str, transport: Transport) -> str:
        """Note who needs a page, and return its key."""
        key = f"{url} {endpoint.account}"
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _PolledPage(url, endpoint, transport)
            self._readings.add(key, partial(self._read, page))
        else:
            page.endpoint, page.transport = endpoint, transport
        return key

    async def _read(self, page: _PolledPage) -> None:
        name = page.endpoint.name
        try:
            reading = await _reading(page)
        except Exception:
            page.last = None
            self._estimates.note_load(name, None)
            raise
        self._estimates.note_load(name, load_between(page.last, reading))
        page.last = reading

    async def aclose(self) -> None:
        """Cancel the readings of the running event loop."""
        await self._readings.aclose()


async def _reading(page: _PolledPage) -> LoadReading:
    """Read a page.

    Raises:
        ValueError: no load is on it.
    """
    reply = await page.transport.fetch(metrics_request(page.endpoint, page.url))
    reading = read_load(reply.content.decode("utf-8", "replace"))
    if reading is None:
        raise ValueError(f"the page of {page.endpoint.name!r} has no load")
    return reading


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
        elif (url := _url(place)) is not None:
            endpoints[head] = place, url
    return _PolledSources(tuple(endpoints.values()), tuple(engines))


def _url(place: Endpoint) -> str | None:
    """Return the URL of an endpoint's metrics page, None if it is not known to have one."""
    if place.metrics:
        return metrics_of(place)
    folder = _SERVERS.get(place.name)
    if folder is None or place.lacks:
        return None
    return metrics_of(place).removesuffix("metrics") + f"{folder}metrics"
