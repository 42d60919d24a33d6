"""Books what a provider's vector stores cost for a day: one row, by their bytes when it is made.

OpenAI bills vector stores by the gigabyte (2^30 bytes) and day, beyond a free amount of the account
("Pricing", file search). The stores are listed (``GET /vector_stores``, ``usage_bytes`` of each), and the
free amount is taken from their sum. A row is an estimate, as stores grow and shrink within a day.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from specclient.call.booked_objects import BilledObject
from specclient.call.pipeline import Pipeline
from specclient.errors import ConfigurationError
from specclient.prices.tool_prices import FREE_STORAGE_GB
from specclient.providers import Endpoint
from specclient.providers.reported_fields import count, fields_of
from specclient.types.api_method import ApiMethod
from specclient.types.call import Call
from specclient.types.request import PerCallOptions, Request
from specclient.types.usage import Usage, UsageUnit

__all__ = ["STORAGE", "StoredBytes", "book_storage"]

#: What the ledger and the configuration call the storage instead of a model.
STORAGE: Final = "vector_stores"
_GB: Final = 2**30
_MOST_PAGES: Final = 10_000


class StoredBytes(NamedTuple):
    """The vector stores of a provider.

    Attributes:
        provider: its name.
        day: the day that is booked, in UTC.
        stores: the number of stores, without expired ones.
        bytes: their sum; None if one does not state it.
        free_gb: gigabytes of the account that are not billed.
        call: the row.
    """

    provider: str
    day: str
    stores: int
    bytes: int | None
    free_gb: int
    call: Call


async def book_storage(
    pipeline: Pipeline, provider: str | None = None, *, tags: Mapping[str, str] | None = None
) -> StoredBytes:
    """List the vector stores of a provider, and book their storage for today, once a day.

    Args:
        provider: its name; None for the default provider.
        tags: of the row.

    Raises:
        ConfigurationError: the provider is an engine in this process, or its answer is no list of stores.
        OpenAIError: the stores cannot be listed.
    """
    name = provider or pipeline.destinations.default
    endpoint = pipeline.destinations.get(name)
    if not isinstance(endpoint, Endpoint):
        raise ConfigurationError(f"{name!r} has no vector stores; name a hosted provider, such as openai")
    stores, total = 0, 0
    known = True
    async for store in _stores(pipeline, name):
        if store.get("status") == "expired":
            continue
        size = count(store.get("usage_bytes"))
        stores, total, known = stores + 1, total + (size or 0), known and size is not None
    free = FREE_STORAGE_GB.get(endpoint.price_provider or "", 0)
    now = datetime.now(UTC)
    gigabytes = max(Decimal(total) / _GB - free, Decimal(0))
    units = (UsageUnit("storage_gb_day", gigabytes),) if known else ()
    day = f"{now:%Y-%m-%d}"
    found = BilledObject("storage", STORAGE, day, Usage(units=units, estimated=True), now)
    call = pipeline.objects.record(found, endpoint, PerCallOptions(tags=tags or {}))
    await pipeline.objects.book(call)
    return StoredBytes(name, day, stores, total if known else None, free, call)


async def _stores(pipeline: Pipeline, provider: str) -> AsyncGenerator[Mapping[str, Any], None]:
    after = ""
    for _ in range(_MOST_PAGES):
        path = f"/vector_stores?limit=100{after}"
        method = ApiMethod(name="get", verb="GET", path=path, response_type=object)
        page = fields_of(await pipeline.call(Request(method, provider=provider)))
        data = page.get("data")
        if not isinstance(data, list):
            raise ConfigurationError(f"the answer of {provider!r} to GET /vector_stores has no list 'data'")
        stores = [each for each in data if isinstance(each, Mapping)]
        for store in stores:
            yield store
        last = stores[-1].get("id") if stores else None
        if page.get("has_more") is not True or not isinstance(last, str):
            return
        after = f"&after={last}"
