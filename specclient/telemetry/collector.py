"""Turn whatever an answer tells of speculation, in any server's dialect, into one Speculation.

A dialect is recognised by the fields that are there, whichever server was asked: gateways pass fields on,
and servers imitate each other. What nobody tells stays None: unknown, never zero. TGI, Ollama, TabbyAPI and
mlx-lm tell nothing in their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from specclient.telemetry import parsers
from specclient.telemetry.parsers import TelemetryFields, checked_speculation, get
from specclient.types.base import WireModel
from specclient.types.usage import Speculation

__all__ = ["ANSWER_FIELDS", "CHOICE_FIELDS", "TELEMETRY_FORMATS", "TelemetryCollector", "extract_speculation"]

TelemetryLocation = Literal["answer", "choice", "usage", "headers"]


@dataclass(frozen=True, slots=True)
class TelemetryFormat:
    """Where a server tells of speculation.

    Attributes:
        name: what ``Speculation.source`` and ``Capabilities.telemetry`` call it; two rows of a name are two
            places of one dialect.
        place: what the fields stand in.
        fields: those that tell it apart: where none is there, it is not spoken.
        read: turns what the fields stand in into figures; raises nothing, whatever they hold.
    """

    name: str
    place: TelemetryLocation
    fields: tuple[str, ...]
    read: Callable[[TelemetryFields], Speculation | None]


_TRITON = ("total_draft_tokens", "total_accepted_draft_tokens")
_FIREWORKS = (
    "fireworks-speculation-prompt-tokens",
    "fireworks-speculation-prompt-matched-tokens",
    "fireworks-speculation-matched-tokens",
    "fireworks-speculation-acceptance",
)

# Where two tell the same in one answer, the upper row's figures are taken.
_ROWS = (
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

TELEMETRY_FORMATS: tuple[str, ...] = tuple(dict.fromkeys(row.name for row in _ROWS))
"""The names of all dialects."""


def _rows_at(place: TelemetryLocation) -> Mapping[str, tuple[int, ...]]:
    """Return which rows of the table each field that may stand at a place is read by."""
    at = [(number, row) for number, row in enumerate(_ROWS) if row.place == place]
    fields = dict.fromkeys(field for _, row in at for field in row.fields)
    return {field: tuple(number for number, row in at if field in row.fields) for field in fields}


_AT: Mapping[TelemetryLocation, Mapping[str, tuple[int, ...]]] = {
    place: _rows_at(place) for place in get_args(TelemetryLocation)
}

ANSWER_FIELDS = frozenset(_AT["answer"])
"""The fields of an answer or a chunk, beside those OpenAI's have, in which something may be told."""
CHOICE_FIELDS = frozenset(_AT["choice"])
"""The same of a choice."""
_ON_HEADERS = frozenset(_AT["headers"])


class TelemetryCollector:
    """Gathers what one answer tells, whole or in chunks; of what is told again, the last counts.

    Nothing is read before it is asked for: some servers tell again with every chunk.

    Args:
        predicted: whether the request carried a ``prediction``. Without one, OpenAI reports 0 accepted and
            0 rejected, which then means nothing.
    """

    __slots__ = ("_predicted", "_told")

    def __init__(self, *, predicted: bool = False) -> None:
        self._predicted = predicted
        self._told: dict[tuple[int, int], Any] = {}  # by row and choice: what the row's fields stand in

    def add_answer(self, answer: Any) -> None:
        """Note an answer or a chunk: a mapping, or an object of the wire."""
        self._note("answer", ANSWER_FIELDS, _beside(answer), 0)
        usage = get(answer, "usage")
        if usage is not None:
            for field, rows in _AT["usage"].items():
                if get(usage, field) is not None:
                    self._keep(rows, usage, 0)
        choices = get(answer, "choices")
        for place, choice in enumerate(choices if isinstance(choices, list) else ()):
            beside = _beside(choice)
            if beside:
                index = get(choice, "index")
                self._note("choice", CHOICE_FIELDS, beside, index if isinstance(index, int) else place)

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Note the headers of a whole answer, their names in lower case."""
        self._note("headers", _ON_HEADERS, headers, 0)

    def _note(
        self, place: TelemetryLocation, fields: frozenset[str], where: Mapping[str, Any] | None, choice: int
    ) -> None:
        if where:
            for field in fields.intersection(where):
                if where[field] is not None:
                    self._keep(_AT[place][field], where, choice)

    def _keep(self, rows: tuple[int, ...], where: Any, choice: int) -> None:
        for number in rows:
            self._told[number, choice] = where

    def speculation(self) -> Speculation | None:
        """Return all that was told, as one; None where nothing was.

        Draft tokens and the tokens of a user's ``prediction`` are different quantities and stay apart.
        """
        by_row: dict[int, list[Speculation]] = {}
        for number, choice in sorted(self._told):
            if (told := _ROWS[number].read(self._told[number, choice])) is not None:
                by_row.setdefault(number, []).append(told)
        rows = {number: self._meant(_added(told)) for number, told in by_row.items()}
        known = {number: told for number, told in rows.items() if told != Speculation(method=told.method)}
        if not known:
            return None
        names = dict.fromkeys(_ROWS[number].name for number in known)
        return replace(_merged(list(known.values())), source=", ".join(names))

    def _meant(self, told: Speculation) -> Speculation:
        if self._predicted or told.predicted_accepted or told.predicted_rejected:
            return told
        return replace(told, predicted_accepted=None, predicted_rejected=None)


def extract_speculation(
    answer: Any, *, predicted: bool = False, headers: Mapping[str, str] | None = None
) -> Speculation | None:
    """Return what one answer tells of speculation, or None where it tells nothing.

    Args:
        answer: an answer, a chunk, or a record of TensorRT-LLM's ``/perf_metrics``; a mapping, or an object
            of the wire.
        predicted: see :class:`TelemetryCollector`.
        headers: of a whole answer, their names in lower case.
    """
    seen = TelemetryCollector(predicted=predicted)
    seen.add_answer(answer)
    if headers is not None:
        seen.add_headers(headers)
    return seen.speculation()


def _beside(where: Any) -> Mapping[str, Any] | None:
    """Return the fields that OpenAI's objects do not have, where servers put their own."""
    if isinstance(where, WireModel):
        return where.__pydantic_extra__
    return where if isinstance(where, Mapping) else None


def _added(choices: list[Speculation]) -> Speculation:
    """Return what one dialect tells of the choices of one answer: counts add up, ratios alone do not."""
    if len(choices) == 1:
        return choices[0]
    summed = checked_speculation(
        drafted=_sum(told.drafted for told in choices),
        accepted=_sum(told.accepted for told in choices),
        steps=_sum(told.steps for told in choices),
        method=choices[0].method,
    )
    return summed or Speculation()


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def _merged(told: list[Speculation]) -> Speculation:
    """Return what several dialects tell of one answer, which is the same told again: nothing is added up.

    Counts are taken together from the one that knows most of them, so that no ratio is made of two servers'
    figures; what it does not know is taken from the others.
    """
    best = max(told, key=lambda one: sum(n is not None for n in (one.drafted, one.accepted, one.steps)))
    told = [best, *(one for one in told if one is not best)]
    prediction = next(
        (one for one in told if one.predicted_accepted is not None or one.predicted_rejected is not None),
        best,
    )
    merged = Speculation(
        method=_first(one.method for one in told),
        drafted=best.drafted,
        accepted=best.accepted,
        steps=best.steps,
        acceptance_rate=_first(one.acceptance_rate for one in told),
        mean_accepted_length=_first(one.mean_accepted_length for one in told),
        per_position=_first(one.per_position for one in told),
        predicted_accepted=prediction.predicted_accepted,
        predicted_rejected=prediction.predicted_rejected,
    )
    drafts = replace(merged, method=None, predicted_accepted=None, predicted_rejected=None)
    if merged.method is None and drafts == Speculation():
        return replace(merged, method="prediction")
    return merged


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)
