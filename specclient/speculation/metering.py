"""Turn an endpoint that counts for Prometheus into its counters of speculation, read around a call."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from specclient.errors import OpenAIError
from specclient.providers.base import Endpoint
from specclient.providers.encoding import key_headers
from specclient.speculation.prometheus import Counters, metrics_url, read_metrics
from specclient.transport.http import Transport
from specclient.types.wire import WireRequest

#: Seconds that a reading may take: it is no part of the answer.
PATIENCE_S = 2.0

_log = logging.getLogger("specclient")


async def counters(transport: Transport, place: Endpoint) -> Counters | None:
    """Read an endpoint's counters; None where they cannot be read, which breaks no call."""
    url = place.metrics if isinstance(place.metrics, str) else metrics_url(place.base_url)
    request = WireRequest(
        "GET",
        url,
        headers=_headers(place) if _origin(url) == _origin(place.base_url) else {},
        deployment=f"{place.name} metrics{place.account}",
        timeout=PATIENCE_S,
        max_retries=0,
    )
    try:
        reply = await transport.fetch(request)
    except OpenAIError as error:
        _log.debug("the metrics of %r cannot be read: %s", place.name, error)
        return None
    return read_metrics(reply.content.decode("utf-8", "replace"))


def _headers(place: Endpoint) -> dict[str, str]:
    """Return the endpoint's own headers and its key, which are for it alone."""
    key = {} if place.key is None else key_headers(place, place.key.get_secret_value())
    return {name: value for name, value in {**place.headers, **key}.items() if value is not None}


def _origin(url: str) -> tuple[str, str]:
    """Return the part of a URL that says whom it leads to (RFC 6454, section 4)."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
