"""OpenTelemetry spans of calls, by the semantic conventions for generative AI.

Names and values: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/. Attributes that the
conventions do not define begin with ``specclient.``. Spans hold no prompt, answer, stop sequence or key.

A program that traces imports OpenTelemetry's API itself, to configure an exporter. Only then is this module
imported; in other programs, tracing costs one lookup in ``sys.modules`` per call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from specclient.providers import Endpoint
from specclient.runtime.forks import import_lock
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["INSTRUMENTATION_SCOPE", "CallSpan", "begin_span", "inject_trace_headers", "note_hit"]

#: The instrumentation scope of all spans of this package.
INSTRUMENTATION_SCOPE = "specclient"

_OPERATIONS = {"completion": "text_completion", "embedding": "embeddings", "response": "chat"}
#: The conventions' names of providers that are named differently here.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
#: The request parameters in a span, each with its attribute's name and type.
_PARAMETERS: Mapping[str, tuple[str, type[int] | type[float]]] = MappingProxyType(
    {
        "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
        "max_completion_tokens": ("gen_ai.request.max_tokens", int),
        "max_output_tokens": ("gen_ai.request.max_tokens", int),
        "max_tokens": ("gen_ai.request.max_tokens", int),
        "presence_penalty": ("gen_ai.request.presence_penalty", float),
        "seed": ("gen_ai.request.seed", int),
        "temperature": ("gen_ai.request.temperature", float),
        "top_p": ("gen_ai.request.top_p", float),
    }
)
#: Larger numbers are left out: exporters encode attributes in 64 bits.
_MAX_NUMBER = 2**63
#: Headers that propagate a span to the next service; https://www.w3.org/TR/trace-context/.
_TRACE_HEADERS = frozenset({"traceparent", "tracestate"})


class CallSpan:
    """The span of one call, from the first HTTP attempt to the end of the answer."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def inject_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return headers with the trace context, so that the provider's spans become children of this one."""
        return inject_trace_headers(self._span, headers)

    def end(self, call: Call, reasons: Sequence[str], answer_id: str | None) -> None:
        """Add the outcome of the call and end the span.

        Args:
            call: the finished record.
            reasons: the finish reason of each choice.
            answer_id: the id in the answer.
        """
        span = self._span
        if span.is_recording():
            span.set_attributes(dict(_outcome_attributes(call, reasons, answer_id)))
            if call.status == "error":
                from opentelemetry.trace import StatusCode  # noqa: PLC0415 - a span exists, so it is loaded

                span.set_attribute("error.type", str(call.http_status or call.error or "error"))
                span.set_status(StatusCode.ERROR, call.error)
        span.end()


def begin_span(request: Request, decision: Decision, endpoint: Endpoint | None) -> CallSpan | None:
    """Begin the span of a call, as a child of the caller's span; None where no tracer is configured.

    Args:
        endpoint: serves the call; None for an engine in this process.
    """
    with import_lock:
        from opentelemetry import trace  # noqa: PLC0415 - only in programs that trace

    operation = _OPERATIONS.get(request.operation, request.operation)
    span = trace.get_tracer(INSTRUMENTATION_SCOPE, VERSION).start_span(
        f"{operation} {decision.model}",
        kind=trace.SpanKind.INTERNAL if endpoint is None else trace.SpanKind.CLIENT,
        attributes=dict(_request_attributes(operation, request, decision, endpoint)),
    )
    return CallSpan(span) if span.get_span_context().is_valid else None


def note_hit(request: Request, call: Call) -> None:
    """Make the span of a call that the response cache answered, after its end; it has no duration."""
    span = begin_span(request, call.route, None)
    if span is not None:
        span.end(call, (), None)


def inject_trace_headers(span: Span, headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers with the trace context of a span, which replaces any that is there."""
    with import_lock:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - as above
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

    kept = {name: value for name, value in headers.items() if name.lower() not in _TRACE_HEADERS}
    TraceContextTextMapPropagator().inject(kept, set_span_in_context(span))
    return kept


def _request_attributes(
    operation: str, request: Request, decision: Decision, endpoint: Endpoint | None
) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that are known before the request is sent, on which samplers decide."""
    yield "gen_ai.operation.name", operation
    yield "gen_ai.provider.name", _PROVIDERS.get(decision.provider, decision.provider)
    yield "gen_ai.request.model", decision.model
    if request.stream:
        yield "gen_ai.request.stream", True
    if isinstance(count := request.params.get("n"), int) and count != 1 and abs(count) < _MAX_NUMBER:
        yield "gen_ai.request.choice.count", count
    for name, (attribute, kind) in _PARAMETERS.items():
        value = request.params.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
            yield attribute, kind(value)
    if request.options.session is not None:
        yield "gen_ai.conversation.id", request.options.session
    if endpoint is not None:
        parts = urlsplit(endpoint.base_url)
        if parts.hostname:
            yield "server.address", parts.hostname
            yield "server.port", parts.port or (80 if parts.scheme == "http" else 443)
    if decision.reason:
        yield "specclient.route.reason", decision.reason


def _outcome_attributes(
    call: Call, reasons: Sequence[str], answer_id: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a finished call; unknown ones are left out."""
    usage, speculation = call.usage, call.speculation
    known = {
        "gen_ai.response.id": answer_id,
        "gen_ai.response.model": call.served_model,
        "gen_ai.response.finish_reasons": list(reasons) or None,
        "gen_ai.response.time_to_first_chunk": call.ttft_s,
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.completion,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
        "specclient.call.id": call.id,
        "specclient.call.status": call.status,
        "specclient.call.attempts": call.attempts,
        "specclient.call.purpose": call.purpose,
        "specclient.cost.usd": None if call.cost.total is None else float(call.cost.total),
        "specclient.pair": call.pair,
        "specclient.cached": call.cached or None,
        "specclient.saved.usd": None if call.saved is None else float(call.saved),
    }
    if speculation is not None:
        known |= {
            "specclient.speculation.method": speculation.method,
            "specclient.speculation.drafted": speculation.drafted,
            "specclient.speculation.accepted": speculation.accepted,
            "specclient.speculation.steps": speculation.steps,
        }
    yield from ((name, value) for name, value in known.items() if value is not None)
