"""The load of pools as their servers report it, those of other programs' calls included.

A pool with an address of its own has the page of metrics of its servers there. For pools behind Ray Serve the
configuration names the pages of the cluster's nodes. While calls are placed, each page is read every few
seconds; no call waits for it or fails because of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specclient.http_transport.http import Transport
from specclient.providers.endpoint import Endpoint
from specclient.providers.fleet_pools import pool_endpoint
from specclient.routing.learn.server_load import read_load
from specclient.routing.pools.pool_chooser import PoolChooser
from specclient.telemetry.ray_metrics import ray_loads
from specclient.telemetry.server_metrics import metrics_request, metrics_url

__all__ = ["INTERVAL_S", "FleetLoads"]

#: Seconds between two readings of a page, and the greatest number after failed ones.
INTERVAL_S, _MOST_S = 2.0, 60.0

_log = logging.getLogger("specclient")


@dataclass(slots=True)
class _FleetPage:
    """A page of metrics.

    Attributes:
        url: of the page; ``endpoint``: whose headers and key are sent to its own origin.
        pool: the pool whose servers it is about; empty for a node of a Ray cluster.
        found: requests in progress by pool, of the last reading.
    """

    url: str
    endpoint: Endpoint
    pool: str
    found: Mapping[str, float] = field(default_factory=dict)
    next_at: float = float("-inf")
    failures: int = 0
    task: asyncio.Task[None] | None = None


class FleetLoads:
    """Reads the load of one fleet's pools.

    Args:
        endpoint: the fleet's.
        nodes: pages of the nodes of its Ray cluster.
        chooser: receives the loads.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        nodes: tuple[str, ...],
        chooser: PoolChooser,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = endpoint.name
        self._chooser = chooser
        self._clock = clock
        self._pages = [_FleetPage(url, endpoint, "") for url in nodes]
        for pool, url in endpoint.pools.items():
            if url is not None:
                own = pool_endpoint(endpoint, pool)
                self._pages.append(_FleetPage(metrics_url(url), own, pool))

    def call_placed(self, transport: Transport) -> None:
        """Start the readings that are due; takes microseconds. An event loop must be running."""
        now = self._clock()
        for page in self._pages:
            running = page.task is not None and not page.task.done() and page.task.get_loop().is_running()
            if not running and now >= page.next_at:
                page.task = asyncio.get_running_loop().create_task(self._read(page, transport))

    async def aclose(self) -> None:
        """Cancel the readings of the running event loop."""
        loop = asyncio.get_running_loop()
        tasks = [page.task for page in self._pages if page.task is not None]
        running = [task for task in tasks if not task.done() and task.get_loop() is loop]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _read(self, page: _FleetPage, transport: Transport) -> None:
        try:
            reply = await transport.fetch(metrics_request(page.endpoint, page.url))
            found = self._loads(page, reply.content.decode("utf-8", "replace"))
        except Exception as error:  # noqa: BLE001 - no call depends on a reading
            _log.debug("the load of fleet %r cannot be read: %s", self._name, error)
            page.failures += 1
        else:
            page.failures = 0
            page.found = found
            for pool in found:
                total = sum(each.found.get(pool, 0.0) for each in self._pages)
                self._chooser.note_load(pool, total)
        page.next_at = self._clock() + min(INTERVAL_S * 2**page.failures, _MOST_S)

    def _loads(self, page: _FleetPage, text: str) -> Mapping[str, float]:
        """Return the requests in progress by pool; empty where the page has none."""
        if not page.pool:
            return ray_loads(text).get(self._name, {})
        reading = read_load(text)
        return {} if reading is None else {page.pool: reading.load.running + reading.load.waiting}
