"""The pools of a fleet's endpoint, by name."""

from __future__ import annotations

from dataclasses import replace

from specclient.config import FLEET_AUTO
from specclient.errors import NotFoundError
from specclient.providers.endpoint import Endpoint

__all__ = ["fleet_routes", "pool_endpoint"]


def pool_endpoint(endpoint: Endpoint, pool: str) -> Endpoint:
    """Return the endpoint of a pool of a fleet: with its own address, if it has one.

    Raises:
        NotFoundError: the fleet has no such pool.
    """
    if pool not in endpoint.pools:
        raise NotFoundError(
            f"fleet {endpoint.name!r} has no pool {pool!r}; its pools are {', '.join(endpoint.pools)}, and "
            f"{FLEET_AUTO!r} is the fastest of them"
        )
    url = endpoint.pools[pool]
    return endpoint if url is None else replace(endpoint, base_url=url, account=pool, start_hint="")


def fleet_routes(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the routes of a fleet's pools, ``NAME/POOL``; none for another provider."""
    return tuple(f"{endpoint.name}/{pool}" for pool in endpoint.pools)
