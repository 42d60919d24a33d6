"""The addresses of a fleet's replicas, where they change while it runs.

Two places tell them. The name of a pool's host has an address for each replica, as a headless service of
Kubernetes and a service of Compose have. Or Ray Serve's status lists them: with direct ingress each replica
of an application answers HTTP itself, and a group of targets has their addresses
(https://docs.ray.io/en/latest/serve/api/index.html, ``ServeInstanceDetails``, as of Ray 2.58).
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from specclient.config import FleetSettings
from specclient.http_transport.http import Transport
from specclient.providers.endpoint import Endpoint
from specclient.routing.periodic_readings import PeriodicReadings
from specclient.telemetry.server_metrics import metrics_request

__all__ = ["ReplicaDiscovery", "addresses_of", "ray_replicas"]

#: Seconds between two looks.
_INTERVAL_S = 10.0
#: The most replicas of a pool.
_MOST = 10_000

#: Returns the addresses of a host's name and port.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class ReplicaDiscovery:
    """Looks for the replicas of one fleet's pools.

    Args:
        endpoint: the fleet's.
        table: its configuration.
        found: called with a pool and the base URLs of all its replicas, after each look.
        resolve: returns the addresses of a host's name; None for the system's resolver.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        table: FleetSettings,
        found: Callable[[str, Sequence[str]], None],
        *,
        resolve: Resolve | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._pools = tuple(table.named_pools)
        self._found = found
        self._resolve = addresses_of if resolve is None else resolve
        self._transport: Transport | None = None
        self._readings = PeriodicReadings(f"the replicas of fleet {endpoint.name!r}", _INTERVAL_S)
        if table.status is not None:
            self._readings.add(table.status, partial(self._read_status, table.status))
        for pool, own in table.named_pools.items():
            if own.each_address and own.url is not None:
                self._readings.add(pool, partial(self._read_name, pool, own.url.rstrip("/")))

    def call_placed(self, transport: Transport) -> None:
        """Start the looks that are due; takes microseconds. An event loop must be running."""
        self._transport = transport
        self._readings.call_placed()

    async def aclose(self) -> None:
        """Cancel the looks of the running event loop."""
        await self._readings.aclose()

    async def _read_name(self, pool: str, url: str) -> None:
        parts = urlsplit(url)
        addresses = await self._resolve(parts.hostname or "", parts.port or 80)
        hosts = [_host(address) for address in addresses]
        port = "" if parts.port is None else f":{parts.port}"
        urls = [urlunsplit((parts.scheme, f"{host}{port}", parts.path, parts.query, "")) for host in hosts]
        self._found(pool, urls[:_MOST])

    async def _read_status(self, url: str) -> None:
        assert self._transport is not None
        reply = await self._transport.fetch(metrics_request(self._endpoint, url))
        for pool, urls in ray_replicas(json.loads(reply.content), self._endpoint.name, self._pools).items():
            self._found(pool, urls[:_MOST])


async def addresses_of(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host's name, in order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(each[4][0]) for each in found})


def ray_replicas(status: Any, fleet: str, pools: Sequence[str]) -> Mapping[str, list[str]]:
    """Return the base URLs of replicas by pool, from Ray Serve's status.

    An application with direct ingress serves one model, whose deployment is ``LLMServer:POOL``. It has the
    name of the fleet, or ``FLEET-POOL`` for one of several pools. Groups of proxies, and what does not look
    like Ray's status, are left out.

    Args:
        status: the answer of ``GET /api/serve/applications/`` of Ray's dashboard.
        fleet: the name of the fleet; ``pools``: those of its pools.
    """
    found: dict[str, list[str]] = {}
    groups = status.get("target_groups") if isinstance(status, dict) else None
    for group in groups if isinstance(groups, list) else ():
        try:
            server, _, pool = group["ingress_deployment_name"].partition(":")
            known = server == "LLMServer" and pool in pools and group["protocol"] == "HTTP"
            if not known or group["app_name"] not in (fleet, f"{fleet}-{pool}"):
                continue
            prefix = group["route_prefix"].rstrip("/")
            targets = [(_host(str(each["ip"])), int(each["port"])) for each in group["targets"]]
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        found.setdefault(pool, []).extend(f"http://{host}:{port}{prefix}/v1" for host, port in targets)
    return found


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
