"""Turn an endpoint that counts for Prometheus into its counters of speculation, read around a call."""

from __future__ import annotations

import logging

from specclient.errors import OpenAIError
from specclient.providers.endpoint import Endpoint
from specclient.providers.metrics import metrics_of, metrics_request
from specclient.telemetry.prometheus import CounterValues, parse_counters
from specclient.transport.http import Transport

_log = logging.getLogger("specclient")


async def scrape_counters(transport: Transport, place: Endpoint) -> CounterValues | None:
    """Read an endpoint's counters; None where they cannot be read, which breaks no call."""
    try:
        reply = await transport.fetch(metrics_request(place, metrics_of(place)))
    except OpenAIError as error:
        _log.debug("the metrics of %r cannot be read: %s", place.name, error)
        return None
    return parse_counters(reply.content.decode("utf-8", "replace"))
