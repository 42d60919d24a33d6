"""Why a call has no price, and the setting that would give it one."""

from __future__ import annotations

import logging
from functools import lru_cache

from specclient.prices import vertex
from specclient.prices.service_tiers import is_reserved, special_tier

__all__ = ["unpriced_reason"]

logger = logging.getLogger("specclient")


def unpriced_reason(
    route: str, price_provider: str | None, traffic: str | None, region: str | None = None
) -> str:
    """Return why a call has no price; log it once if a setting would give it one.

    Args:
        region: without a price, although the model has one elsewhere; None otherwise.
    """
    if price_provider in vertex.IDS and traffic == vertex.RESERVED:
        return "provisioned throughput is paid by its reservation, not by tokens"
    tier = special_tier(traffic)
    if is_reserved(price_provider, tier):
        return f"the service tier {tier!r} is paid by its reservation, not by tokens"
    table = f'[prices."{route}"]' if tier is None else f'[prices."{route}".tiers.{tier}]'
    what = route if tier is None else f"{route} in the service tier {tier!r}"
    what = what if region is None else f"{what} in the region {region!r}"
    source = f"no price for {what}; set {table} in specclient.toml"
    _warn_once(source)
    return source


@lru_cache(maxsize=1024)
def _warn_once(message: str) -> None:
    logger.warning("%s (the call is recorded as unpriced)", message)
