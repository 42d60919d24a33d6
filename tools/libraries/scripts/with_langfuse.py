"""langfuse: importing ``langfuse.openai`` wraps the methods of the openai package."""

from checks import Case
from langfuse import Langfuse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_EXPORTER = InMemorySpanExporter()
_PROVIDER = TracerProvider()
_PROVIDER.add_span_processor(SimpleSpanProcessor(_EXPORTER))
Langfuse(
    public_key="pk-lf-1",
    secret_key="sk-lf-1",
    host="http://127.0.0.1:9",  # nothing listens; the spans are read from the exporter
    tracer_provider=_PROVIDER,
)

import langfuse.openai  # noqa: E402, F401 - after the client that it uses
from traced_calls import run_traced  # noqa: E402


def spans() -> int:
    return len(_EXPORTER.get_finished_spans())


run_traced(Case.client, spans)
