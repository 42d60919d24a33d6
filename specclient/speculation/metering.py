"""Turn an endpoint that counts for Prometheus into its counters of speculation, read around a call."""

from __future__ import annotations

import logging

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
    headers = {} if place.key is None else key_headers(place, place.key.get_secret_value())
    request = WireRequest(
        "GET",
        url,
        headers={name: value for name, value in {**place.headers, **headers}.items() if value is not None},
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
