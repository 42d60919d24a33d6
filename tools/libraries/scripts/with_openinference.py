"""openinference: its OpenTelemetry instrumentation of the openai package."""

from checks import Case
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from traced_calls import run_traced

_EXPORTER = InMemorySpanExporter()
_PROVIDER = TracerProvider()
_PROVIDER.add_span_processor(SimpleSpanProcessor(_EXPORTER))
OpenAIInstrumentor().instrument(tracer_provider=_PROVIDER)


def spans() -> int:
    return sum("ompletion" in span.name for span in _EXPORTER.get_finished_spans())


run_traced(Case.client, spans)
