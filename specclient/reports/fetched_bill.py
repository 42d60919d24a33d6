"""Vendors' bills, fetched from their cost APIs.

Sources: OpenAI, "Costs" (``GET /v1/organization/costs``, at most 180 days a page); Anthropic, "Get Cost
Report" (``GET /v1/organizations/cost_report``, at most 31 days a page). Both need a key of an organization's
administrator, and their figures of the present day are incomplete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final, Literal, Protocol

from specclient.errors import ConfigurationError
from specclient.reports.vendor_bill import VendorBill, bill_of_buckets

__all__ = ["BilledBy", "SupportsGet", "fetch_bill"]

BilledBy = Literal["openai", "anthropic"]

#: Pages after which an answer that always has another one is given up.
_MOST_PAGES = 1000


class SupportsGet(Protocol):
    """A synchronous client, such as :class:`specclient.OpenAI`."""

    def get(self, path: str, *, cast_to: Any, options: Mapping[str, Any] | None = None) -> Any:
        """Send a GET request, and return the response as ``cast_to``."""
        ...


@dataclass(frozen=True, slots=True)
class _CostApi:
    """A vendor's cost API.

    Attributes:
        path: below the base URL.
        query: returns the query for the days from the first to before the second, by key or not.
        security: the option that selects the key; empty for that of the client.
    """

    path: str
    query: Callable[[date, date, bool], Mapping[str, Any]]
    security: Mapping[str, Any] = field(default_factory=dict)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _openai_query(since: date, until: date, by_key: bool) -> Mapping[str, Any]:
    begin, end = (int(_midnight(day).timestamp()) for day in (since, until))
    return {
        "start_time": begin,
        "end_time": end,
        "bucket_width": "1d",
        "group_by": ["line_item", *(["api_key_id"] if by_key else [])],
        "limit": 180,
    }


def _anthropic_query(since: date, until: date, by_key: bool) -> Mapping[str, Any]:
    begin, end = (f"{day.isoformat()}T00:00:00Z" for day in (since, until))
    groups = ["description", *(["workspace_id"] if by_key else [])]
    return {"starting_at": begin, "ending_at": end, "group_by": groups, "limit": 31}


_APIS: Final[Mapping[BilledBy, _CostApi]] = {
    "openai": _CostApi("/organization/costs", _openai_query, {"security": {"admin_api_key_auth": True}}),
    "anthropic": _CostApi("/organizations/cost_report", _anthropic_query),
}


def fetch_bill(
    client: SupportsGet, vendor: BilledBy, since: date, until: date, *, by_key: bool = False
) -> VendorBill:
    """Fetch what a vendor billed.

    Args:
        client: its default provider is the vendor's API, with the key of an administrator: for OpenAI, that
            of ``client.admin``.
        vendor: whose API it is.
        since: the first day, in UTC.
        until: the day after the last one.
        by_key: whether its lines name the key (OpenAI) or the workspace (Anthropic).

    Raises:
        ConfigurationError: ``since`` is not before ``until``, or the answers cannot be read.
        OpenAIError: a request failed.
    """
    if since >= until:
        raise ConfigurationError(f"the bill would cover no day: from {since} to before {until}")
    api = _APIS[vendor]
    buckets = _buckets(client, api, api.query(since, until, by_key))
    return bill_of_buckets(buckets, f"the answer of {vendor}'s cost API")


def _buckets(client: SupportsGet, api: _CostApi, given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the buckets of all pages."""
    query = dict(given)
    for _ in range(_MOST_PAGES):
        page = _decoded(client.get(api.path, cast_to=bytes, options={"params": query, **api.security}))
        yield from page["data"]
        if page.get("has_more") is not True:
            return
        following = page.get("next_page")
        if not isinstance(following, str) or not following or following == query.get("page"):
            raise ConfigurationError(f"{api.path}: 'has_more' is true, but 'next_page' is {following!r:.60}")
        query["page"] = following
    raise ConfigurationError(f"{api.path} has more than {_MOST_PAGES:,} pages; ask for fewer days")


def _decoded(content: bytes) -> Mapping[str, Any]:
    """Return a page, with exact amounts."""
    try:
        page = json.loads(content, parse_float=Decimal)
    except (ValueError, RecursionError):
        page = None
    data = page.get("data") if isinstance(page, Mapping) else None
    if not isinstance(page, Mapping) or not isinstance(data, list):
        raise ConfigurationError("the cost API's answer has no list 'data'; is the address right?")
    if not all(isinstance(each, Mapping) for each in data):
        raise ConfigurationError("a bucket in the cost API's answer is no object")
    return page
