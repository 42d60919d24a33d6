"""Requests for the page of Prometheus metrics that an endpoint's server offers."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from specclient.http_transport.errors import origin_of
from specclient.providers.encoding import key_headers
from specclient.providers.endpoint import Endpoint
from specclient.types.wire import WireRequest

__all__ = ["METRICS_TIMEOUT_S", "metrics_of", "metrics_request", "metrics_url"]

#: Seconds that one read may take; it delays the answer of a call.
METRICS_TIMEOUT_S = 2.0


def metrics_url(base_url: str) -> str:
    """Return the usual URL of a server's metrics: ``/metrics``, a sibling of ``/v1``.

    TensorRT-LLM serves them at ``/prometheus/metrics`` instead.
    """
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/metrics", "", ""))


def metrics_of(endpoint: Endpoint) -> str:
    """Return the URL of an endpoint's metrics: the configured one, or else the usual one."""
    return endpoint.metrics if isinstance(endpoint.metrics, str) else metrics_url(endpoint.base_url)


def metrics_request(endpoint: Endpoint, url: str) -> WireRequest:
    """Return the request for a page of metrics, which is not retried.

    The key and the endpoint's headers are sent only to the endpoint's own origin.

    Args:
        url: of the page.
    """
    return WireRequest(
        "GET",
        url,
        headers=_headers(endpoint) if origin_of(url) == origin_of(endpoint.base_url) else {},
        deployment=f"{endpoint.name} metrics{endpoint.account}",
        timeout=METRICS_TIMEOUT_S,
        max_retries=0,
    )


def _headers(endpoint: Endpoint) -> dict[str, str]:
    """Return the endpoint's headers and its key."""
    key = {} if endpoint.key is None else key_headers(endpoint, endpoint.key.get_secret_value())
    return {name: value for name, value in {**endpoint.headers, **key}.items() if value is not None}
