"""The tables of telemetry: servers' reports on speculation in answers and in Prometheus metrics.

To support another server, add a row to :data:`FORMATS` for its answers, with a parser in
:mod:`specclient.telemetry.parsers`, and a row to :data:`SERVER_METRICS` for its metrics, which needs no
parser. A format is recognised by its fields, and metrics by their names, so no preset needs to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from specclient.telemetry import parsers
from specclient.telemetry.parsers import TelemetryFields
from specclient.types.usage import Speculation

TelemetryLocation = Literal["answer", "choice", "usage", "headers"]


@dataclass(frozen=True, slots=True)
class TelemetryFormat:
    """One place where a server reports speculation.

    Attributes:
        name: the name in ``Speculation.source`` and ``Capabilities.telemetry``; several rows of one name are
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


class MetricNames(NamedTuple):
    """The metric names of one kind of server; empty where it lacks a metric.

    The counters are read before and after a call (:mod:`specclient.telemetry.prometheus`). The gauges, with
    the counters, are the server's load (:mod:`specclient.routing.learn.server_load`). Being a tuple keeps the
    import fast: a dataclass takes longer to create.

    Attributes:
        accepted, drafted: counters of draft tokens; of counters with positions, the sum is used.
        steps: counter of verification passes that had a draft.
        accepted_at, drafted_at: counters of draft tokens by position.
        position: the label that holds the position.
        rounds_values: whether large values are printed with six digits and an exponent, and so are not exact.
        running, waiting, slots: gauges of requests; without ``running``, the server's load is not read.
        cache: gauges of the used share of the KV cache; of several names, the newer version's comes first.
        rate, length: gauges of the share of accepted draft tokens, and of the tokens per verification.
    """

    accepted: str = ""
    drafted: str = ""
    steps: str = ""
    accepted_at: str = ""
    drafted_at: str = ""
    position: str = "position"
    rounds_values: bool = False
    running: str = ""
    waiting: str = ""
    slots: str = ""
    cache: tuple[str, ...] = ()
    rate: str = ""
    length: str = ""

    @property
    def counters(self) -> frozenset[str]:
        """The names of all counters."""
        return frozenset((self.accepted, self.drafted, self.steps, self.accepted_at, self.drafted_at)) - {""}

    @property
    def gauges(self) -> frozenset[str]:
        """The names of all gauges."""
        return frozenset((self.running, self.waiting, self.slots, *self.cache, self.rate, self.length)) - {""}


def _as_vllm(prefix: str) -> MetricNames:
    """Return vLLM's names with a prefix. Before version 0.10, the cache was ``gpu_cache_usage_perc``."""
    name = f"{prefix}:spec_decode_num"
    return MetricNames(
        accepted=f"{name}_accepted_tokens_total",
        drafted=f"{name}_draft_tokens_total",
        steps=f"{name}_drafts_total",
        accepted_at=f"{name}_accepted_tokens_per_pos_total",
        running=f"{prefix}:num_requests_running",
        waiting=f"{prefix}:num_requests_waiting",
        cache=(f"{prefix}:kv_cache_usage_perc", f"{prefix}:gpu_cache_usage_perc"),
    )


#: All servers with metrics. Sources: our own server (specclient/serving); vLLM v1/spec_decode/metrics.py and
#: v1/metrics/loggers.py; llama.cpp tools/server/README.md (cache use was reported until 2025); TensorRT-LLM
#: metrics/collector.py (counters by finished request, else by iteration); TGI's router, which observes in
#: every pass the tokens gained beyond the first; SGLang srt/metrics/collector.py.
SERVER_METRICS = (
    _as_vllm("specclient"),
    _as_vllm("vllm"),
    _as_vllm("llamacpp")._replace(
        rounds_values=True,
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        cache=("llamacpp:kv_cache_usage_ratio",),
    ),
    MetricNames(
        accepted="trtllm_spec_decode_accepted_tokens_total",
        drafted="trtllm_spec_decode_drafted_tokens_total",
        accepted_at="trtllm_spec_decode_accepted_tokens_total",
        drafted_at="trtllm_spec_decode_drafted_tokens_total",
        position="token_position",
    ),
    MetricNames(
        accepted="trtllm_spec_decode_num_accepted_tokens_total",
        drafted="trtllm_spec_decode_num_draft_tokens_total",
        running="trtllm_num_requests_running",
        waiting="trtllm_num_requests_waiting",
        slots="trtllm_max_num_active_requests",
        cache=("trtllm_kv_cache_utilization",),
        length="trtllm_spec_decode_acceptance_length",
    ),
    MetricNames(accepted="tgi_request_skipped_tokens_sum", steps="tgi_request_skipped_tokens_count"),
    MetricNames(
        steps="sglang:spec_verify_calls_total",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        slots="sglang:max_running_requests",
        cache=("sglang:token_usage",),
        rate="sglang:spec_accept_rate",  # the difference of two gauges has no meaning
        length="sglang:spec_accept_length",
    ),
)
