"""Reads an endpoint's Prometheus counters of speculation, before and after a call."""

from __future__ import annotations

import logging

from specclient.errors import OpenAIError
from specclient.http_transport.http import Transport
from specclient.providers.endpoint import Endpoint
from specclient.telemetry.prometheus import CounterValues, parse_counters
from specclient.telemetry.server_metrics import metrics_of, metrics_request

_log = logging.getLogger("specclient")


async def scrape_counters(transport: Transport, endpoint: Endpoint) -> CounterValues | None:
    """Return an endpoint's counters; None where they cannot be read, which does not affect the call."""
    try:
        reply = await transport.fetch(metrics_request(endpoint, metrics_of(endpoint)))
    except OpenAIError as error:
        _log.debug("the metrics of %r cannot be read: %s", endpoint.name, error)
        return None
    return parse_counters(reply.content.decode("utf-8", "replace"))
