"""Turn calls that flow into readings of how busy the places are that may serve them, in the background.

Every call that is routed is told to :class:`LoadPoller`; an endpoint whose last page is older than a moment
is
then read once, beside the call. No call waits for that or fails by it, and where no calls flow, nothing is
read.
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
from specclient.providers.endpoint import Endpoint
from specclient.providers.metrics import metrics_of, metrics_request
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.server_load import LoadReading, load_between, read_load
from specclient.routing.router import Router
from specclient.runtime.forks import register_fork_reset
from specclient.transport.http import Transport
from specclient.types.server_load import SupportsLoad

__all__ = ["LoadPoller"]

#: Seconds between two readings of an endpoint, and at most where none can be had.
INTERVAL_S, MOST_S = 2.0, 300.0
#: How much of these seconds is left to chance, so that many programs do not read at once.
_JITTER = 0.25
#: Own servers that tell their load, as far as they were started so, beside those that are said to.
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
    """One page: when it is read next, how often that failed in a row, and what it told last."""

    next_at: float = 0.0
    failures: int = 0
    last: LoadReading | None = None
    task: asyncio.Task[None] | None = None


class LoadPoller:
    """Reads the load of places, each page once however many clients there are.

    Args:
        estimates: told of every reading.
        clock: monotonic seconds; ``chance``: where jitter comes from.
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
        """In a forked child: what the parent's loop was reading is never brought to an end there."""
        self._pages = {}
        self._watched = WeakKeyDictionary()

    def flowing(self, router: Router, transport: Transport) -> None:
        """Note that a call is being routed; takes microseconds, and an event loop must be running.

        Args:
            router: whose candidates the call may go to.
            transport: reads their pages.
        """
        watched = self._watched.get(router)
        if watched is None:
            watched = self._watched[router] = _watched(router)
        for place, url in watched.endpoints:
            self._due(place, url, transport)
        for route, model, engine in watched.engines:
            with suppress(NotFoundError):  # told where the route is decided
                self._estimates.loaded(route, engine.busy(model))

    def _due(self, place: Endpoint, url: str, transport: Transport) -> None:
        """Begin to read a page, unless that is being done or was done a moment ago."""
        page = self._pages.setdefault(f"{url} {place.account}", _PolledPage())
        if page.task is not None and not page.task.done() and page.task.get_loop().is_running():
            return
        if self._clock() >= page.next_at:
            page.task = asyncio.get_running_loop().create_task(self._read(place, url, page, transport))

    async def _read(self, place: Endpoint, url: str, page: _PolledPage, transport: Transport) -> None:
        try:
            reply = await transport.fetch(metrics_request(place, url))
            reading = read_load(reply.content.decode("utf-8", "replace"))
        except Exception as error:  # noqa: BLE001 - nobody waits for it, and nothing is lost with it
            _log.debug("the load of %r cannot be read: %s", place.name, error)
            reading = None
        if reading is None:
            page.failures += 1
            page.last = None
            self._estimates.loaded(place.name, None)
        else:
            page.failures = 0
            self._estimates.loaded(place.name, load_between(page.last, reading))
            page.last = reading
        wait = min(INTERVAL_S * 2**page.failures, MOST_S) if page.failures else INTERVAL_S
        page.next_at = self._clock() + wait * self._chance.uniform(1 - _JITTER, 1 + _JITTER)

    async def aclose(self) -> None:
        """End the readings of the running loop."""
        loop = asyncio.get_running_loop()
        tasks = [page.task for page in self._pages.values() if page.task is not None]
        running = [task for task in tasks if not task.done() and task.get_loop() is loop]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _PolledSources:
    """What a router's candidates tell their load by: pages of endpoints, and engines of this process."""

    endpoints: tuple[tuple[Endpoint, str], ...]
    engines: tuple[tuple[str, str, SupportsLoad], ...]


def _watched(router: Router) -> _PolledSources:
    endpoints: dict[str, tuple[Endpoint, str]] = {}
    engines: list[tuple[str, str, SupportsLoad]] = []
    for route in router.candidates:
        head, _, model = route.partition("/")
        try:
            place = router.destinations.get(head)
        except (NotFoundError, ConfigurationError):  # as above
            continue
        if not isinstance(place, Endpoint):
            if isinstance(place, SupportsLoad):
                engines.append((route, model, place))
        elif (url := _page(place)) is not None:
            endpoints[head] = place, url
    return _PolledSources(tuple(endpoints.values()), tuple(engines))


def _page(place: Endpoint) -> str | None:
    """Return where an endpoint tells its load, None where it is not known to."""
    if place.metrics:
        return metrics_of(place)
    folder = _SERVERS.get(place.name)
    if folder is None or place.lacks:
        return None
    return metrics_of(place).removesuffix("metrics") + f"{folder}metrics"
