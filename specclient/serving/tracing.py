"""OpenTelemetry spans of requests.

The span continues the trace of a ``traceparent`` header; the spans of the request's calls
(:mod:`specclient.call.tracing`) are its children. Without tracing, the header is forwarded to the provider
unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from specclient.call.tracing import INSTRUMENTATION_SCOPE
from specclient.serving.exchange import ASGIScope
from specclient.serving.request_log import CLIENT_GONE, OTHER_ROUTE, RequestEntry
from specclient.version import VERSION

__all__ = ["request_span"]

_UNTRACED = nullcontext()


def request_span(scope: ASGIScope, entry: RequestEntry) -> AbstractContextManager[None]:
    """Return a context with the span of a request. It does nothing if OpenTelemetry is not loaded."""
    return _traced(scope, entry) if "opentelemetry.trace" in sys.modules else _UNTRACED


@contextmanager
def _traced(scope: ASGIScope, entry: RequestEntry) -> Iterator[None]:
    """Record a span by the semantic conventions for HTTP servers.

    Attributes: https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-server.
    """
    from opentelemetry import context, trace  # noqa: PLC0415 - imported only if tracing is in use
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    address, port = scope.get("server") or (None, None)
    attributes = {
        "http.request.method": entry.verb,
        "url.path": scope["path"],
        "url.scheme": scope["scheme"],
        "server.address": address,
        "server.port": port,
        "specclient.request.id": entry.id,
    }
    span = trace.get_tracer(INSTRUMENTATION_SCOPE, VERSION).start_span(
        entry.verb,
        context=TraceContextTextMapPropagator().extract(headers),
        kind=trace.SpanKind.SERVER,
        attributes={name: value for name, value in attributes.items() if value is not None},
    )
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        context.detach(token)
        if entry.route != OTHER_ROUTE:
            span.update_name(f"{entry.verb} {entry.route}")
            span.set_attribute("http.route", entry.route)
        status = entry.status or CLIENT_GONE
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_attribute("error.type", entry.code or str(status))
            span.set_status(trace.StatusCode.ERROR)
        span.end()
