"""The load of pools and replicas as their servers report it, those of other programs' calls included.

A pool with an address of its own has the page of metrics of its servers there, and each replica with an
address has its own. For pools behind Ray Serve the configuration names the pages of the cluster's nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from specclient.http_transport.http import Transport
from specclient.providers.endpoint import Endpoint
from specclient.providers.fleet_pools import pool_endpoint
from specclient.routing.learn.server_load import read_load
from specclient.routing.periodic_readings import PeriodicReadings
from specclient.routing.pools.pool_chooser import PoolChooser
from specclient.routing.replicas.pool_replicas import PoolReplicas
from specclient.telemetry.cache_size import cache_tokens
from specclient.telemetry.ray_metrics import ray_loads
from specclient.telemetry.server_metrics import metrics_request, metrics_url

__all__ = ["INTERVAL_S", "FleetLoads"]

#: Seconds between two readings of a page, and the least seconds for each page where there are many.
INTERVAL_S, _PAGE_S = 2.0, 0.02
#: New pages that are read at once; further ones follow one by one.
_AT_ONCE = 50


class FleetLoads:
    """Reads the load of one fleet's pools.

    Args:
        endpoint: the fleet's.
        nodes: pages of the nodes of its Ray cluster.
        chooser: receives the loads of pools.
        replicas: of pools whose replicas have addresses; their choosers receive the loads of replicas.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        nodes: tuple[str, ...],
        chooser: PoolChooser,
        replicas: Mapping[str, PoolReplicas],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._chooser = chooser
        self._replicas = replicas
        self._found: dict[str, dict[str, float]] = {}  # requests in progress by pool and page
        self._transport: Transport | None = None
        self._readings = PeriodicReadings(f"the load of fleet {endpoint.name!r}", INTERVAL_S, clock=clock)
        for url in nodes:
            self._readings.add(url, partial(self._read_node, url))
        for pool, address in endpoint.pools.items():
            if address is not None and pool not in replicas:
                self._readings.add(pool, partial(self._read_pool, pool, metrics_url(address)))

    def call_placed(self, transport: Transport) -> None:
        """Start the readings that are due; takes microseconds. An event loop must be running."""
        self._transport = transport
        self._readings.call_placed()

    def update_replicas(self, pool: str) -> None:
        """Read the pages of the replicas that a pool has now."""
        numbers, pages = self._replicas[pool].numbers, self._found.setdefault(pool, {})
        for url in [page for page in pages if page not in numbers]:
            del pages[url]
            self._readings.discard((pool, url))
        new = [url for url in numbers if url not in pages]
        for place, url in enumerate(new):
            pages[url] = 0.0
            read = partial(self._read_replica, pool, numbers[url], url)
            self._readings.add((pool, url), read, after_s=max(place - _AT_ONCE, 0) * _PAGE_S)
        count = sum(len(each) for each in self._replicas.values())
        self._readings.interval_s = max(INTERVAL_S, count * _PAGE_S)

    async def aclose(self) -> None:
        """Cancel the readings of the running event loop."""
        await self._readings.aclose()

    async def _read_node(self, page: str) -> None:
        text = await self._page(self._endpoint, page)
        for pool, load in ray_loads(text).get(self._endpoint.name, {}).items():
            self._note(pool, page, load)

    async def _read_pool(self, pool: str, page: str) -> None:
        reading = read_load(await self._page(pool_endpoint(self._endpoint, pool), page))
        if reading is not None:
            self._note(pool, page, reading.load.running + reading.load.waiting)

    async def _read_replica(self, pool: str, number: int, url: str) -> None:
        replicas = self._replicas[pool]
        text = await self._page(
            replicas.endpoint(number, pool_endpoint(self._endpoint, pool)), metrics_url(url)
        )
        reading = read_load(text)
        if reading is not None:
            load = reading.load.running + reading.load.waiting
            replicas.chooser.note_load(number, load)
            self._note(pool, url, load)
        if (tokens := cache_tokens(text)) is not None:
            replicas.chooser.note_cache(number, tokens)

    async def _page(self, endpoint: Endpoint, url: str) -> str:
        assert self._transport is not None
        reply = await self._transport.fetch(metrics_request(endpoint, url))
        return reply.content.decode("utf-8", "replace")

    def _note(self, pool: str, page: str, load: float) -> None:
        pages = self._found.setdefault(pool, {})
        pages[page] = load
        self._chooser.note_load(pool, sum(pages.values()))
