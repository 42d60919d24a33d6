"""logfire: ``instrument_openai`` of a client."""

from typing import Any

import logfire
from checks import Case
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from traced_calls import run_traced

_EXPORTER = InMemorySpanExporter()
logfire.configure(
    send_to_logfire=False, console=False, additional_span_processors=[SimpleSpanProcessor(_EXPORTER)]
)


def client(case: Case) -> Any:
    made = case.client()
    logfire.instrument_openai(made)
    return made


def spans() -> int:
    return len(_EXPORTER.get_finished_spans())


run_traced(client, spans)
