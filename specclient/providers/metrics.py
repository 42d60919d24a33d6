"""Turn an endpoint into the request for its page of Prometheus metrics."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from specclient.providers.encoding import key_headers
from specclient.providers.endpoint import Endpoint
from specclient.types.wire import WireRequest

__all__ = ["METRICS_TIMEOUT_S", "metrics_of", "metrics_request", "metrics_url"]

#: Seconds that a reading may take: it is no part of an answer.
METRICS_TIMEOUT_S = 2.0


def metrics_url(base_url: str) -> str:
    """Return where a server of this base URL serves its metrics: ``/metrics``, beside ``/v1``.

    TensorRT-LLM serves them at ``/prometheus/metrics`` instead.
    """
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/metrics", "", ""))


def metrics_of(place: Endpoint) -> str:
    """Return where an endpoint serves its metrics: where it is said to, else where such servers do."""
    return place.metrics if isinstance(place.metrics, str) else metrics_url(place.base_url)


def metrics_request(place: Endpoint, url: str) -> WireRequest:
    """Return the request for a page of metrics, tried once; the key goes to the endpoint's own origin alone.

    Args:
        url: of the page.
    """
    return WireRequest(
        "GET",
        url,
        headers=_headers(place) if _origin(url) == _origin(place.base_url) else {},
        deployment=f"{place.name} metrics{place.account}",
        timeout=METRICS_TIMEOUT_S,
        max_retries=0,
    )


def _headers(place: Endpoint) -> dict[str, str]:
    """Return the endpoint's own headers and its key, which are for it alone."""
    key = {} if place.key is None else key_headers(place, place.key.get_secret_value())
    return {name: value for name, value in {**place.headers, **key}.items() if value is not None}


def _origin(url: str) -> tuple[str, str]:
    """Return the part of a URL that says whom it leads to (RFC 6454, section 4)."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
