"""The table of telemetry formats: where each server reports speculation, and which function parses it.

To support another server, add a parser to :mod:`specclient.telemetry.parsers` and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from specclient.telemetry import parsers
from specclient.telemetry.parsers import TelemetryFields
from specclient.types.usage import Speculation

TelemetryLocation = Literal["answer", "choice", "usage", "headers"]


@dataclass(frozen=True, slots=True)
class TelemetryFormat:
    """One place where a server reports speculation.

    Attributes:
        name: the name in ``Speculation.source`` and ``Capabilities.telemetry``; rows of the same name are
            several places of one format.
        location: the object that holds the fields.
        fields: the fields by which the format is recognised; without any of them it is not used.
        parse: returns the figures in that object; raises nothing, whatever it holds.
    """

    name: str
    location: TelemetryLocation
    fields: tuple[str, ...]
    parse: Callable[[TelemetryFields], Speculation | None]


_TRITON = ("total_draft_tokens", "total_accepted_draft_tokens")
_FIREWORKS = (
    "fireworks-speculation-prompt-tokens",
    "fireworks-speculation-prompt-matched-tokens",
    "fireworks-speculation-matched-tokens",
    "fireworks-speculation-acceptance",
)

#: All formats. Where two report the same figure in one answer, the upper row's is used.
FORMATS = (
    TelemetryFormat("specclient", "answer", ("specclient",), parsers.specclient),
    TelemetryFormat("vllm", "answer", ("metrics",), parsers.vllm),
    TelemetryFormat("sglang", "answer", ("sglext",), parsers.sglang_extension),
    TelemetryFormat("sglang", "answer", ("meta_info",), parsers.sglang_meta_info),
    TelemetryFormat("sglang", "choice", ("meta_info",), parsers.sglang_meta_info),
    TelemetryFormat("tensorrt", "answer", ("speculative_decoding", "perf_metrics"), parsers.tensorrt),
    TelemetryFormat("tensorrt", "choice", ("speculative_decoding",), parsers.tensorrt),
    TelemetryFormat("tensorrt", "choice", ("avg_decoded_tokens_per_iter",), parsers.tensorrt_length),
    TelemetryFormat("triton", "answer", _TRITON, parsers.triton),
    TelemetryFormat("llamacpp", "answer", ("timings",), parsers.llama_cpp),
    TelemetryFormat("lmstudio", "answer", ("stats",), parsers.lm_studio),
    TelemetryFormat("fireworks", "answer", ("perf_metrics",), parsers.fireworks),
    TelemetryFormat("fireworks", "headers", _FIREWORKS, parsers.fireworks_headers),
    TelemetryFormat("sambanova", "usage", ("acceptance_rate",), parsers.samba_nova),
    TelemetryFormat(
        "openai", "usage", ("completion_tokens_details", "output_tokens_details"), parsers.openai
    ),
)

TELEMETRY_FORMATS: tuple[str, ...] = tuple(dict.fromkeys(row.name for row in FORMATS))
"""The names of all formats."""


def _rows_by_field(location: TelemetryLocation) -> Mapping[str, tuple[int, ...]]:
    """Return the rows that each field of a location is parsed by, as indexes of :data:`FORMATS`."""
    rows = [(index, row) for index, row in enumerate(FORMATS) if row.location == location]
    fields = dict.fromkeys(field for _, row in rows for field in row.fields)
    return {field: tuple(index for index, row in rows if field in row.fields) for field in fields}


ROWS_BY_FIELD: Mapping[TelemetryLocation, Mapping[str, tuple[int, ...]]] = {
    location: _rows_by_field(location) for location in get_args(TelemetryLocation)
}
"""Indexes of :data:`FORMATS` by location and field."""
ANSWER_FIELDS = frozenset(ROWS_BY_FIELD["answer"])
"""Fields of an answer or a chunk, not defined by OpenAI, that may hold telemetry."""
CHOICE_FIELDS = frozenset(ROWS_BY_FIELD["choice"])
"""Fields of a choice, not defined by OpenAI, that may hold telemetry."""
HEADER_FIELDS = frozenset(ROWS_BY_FIELD["headers"])
"""Headers that may hold telemetry."""
