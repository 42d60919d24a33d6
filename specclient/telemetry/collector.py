"""Collects an answer's reports on speculation, in any server's format, into one ``Speculation``.

A format is recognised by its fields, not by the server that was called: gateways pass fields on, and servers
imitate each other. Figures that are not reported stay None, which means unknown and not zero. TGI, Ollama,
TabbyAPI and mlx-lm report nothing in their answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from specclient.telemetry.formats import (
    ANSWER_FIELDS,
    CHOICE_FIELDS,
    FORMATS,
    HEADER_FIELDS,
    ROWS_BY_FIELD,
    TelemetryLocation,
)
from specclient.telemetry.parsers import checked_speculation
from specclient.types.base import field_of
from specclient.types.usage import Speculation

__all__ = ["TelemetryCollector", "extract_speculation"]


class TelemetryCollector:
    """Collects the telemetry of one answer, complete or in chunks; a later report replaces an earlier one.

    Reports are only parsed by :meth:`speculation`, because some servers repeat them in every chunk.

    Args:
        predicted: whether the request contained a ``prediction``. Without one, OpenAI reports 0 accepted and
            0 rejected tokens, which then have no meaning.
    """

    __slots__ = ("_predicted", "_reports")

    def __init__(self, *, predicted: bool = False) -> None:
        self._predicted = predicted
        self._reports: dict[tuple[int, int], Any] = {}  # by row of FORMATS and choice: the object to parse

    def add_answer(self, answer: Any) -> None:
        """Add an answer or a chunk: a mapping or a wire object."""
        self._add("answer", ANSWER_FIELDS, _extra_fields(answer), 0)
        usage = field_of(answer, "usage")
        if usage is not None:
            for name, rows in ROWS_BY_FIELD["usage"].items():
                if field_of(usage, name) is not None:
                    self._keep(rows, usage, 0)
        choices = field_of(answer, "choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            extra = _extra_fields(choice)
            if extra:
                index = field_of(choice, "index")
                self._add("choice", CHOICE_FIELDS, extra, index if isinstance(index, int) else position)

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add the headers of a complete answer, with names in lower case."""
        self._add("headers", HEADER_FIELDS, headers, 0)

    def _add(
        self,
        location: TelemetryLocation,
        fields: frozenset[str],
        container: Mapping[str, Any] | None,
        choice: int,
    ) -> None:
        if container:
            for name in fields.intersection(container):
                if container[name] is not None:
                    self._keep(ROWS_BY_FIELD[location][name], container, choice)

    def _keep(self, rows: tuple[int, ...], container: Any, choice: int) -> None:
        for row in rows:
            self._reports[row, choice] = container

    def speculation(self) -> Speculation | None:
        """Return all figures as one record; None where nothing was reported.

        Draft tokens and the tokens of a user's ``prediction`` are different quantities and stay separate.
        """
        if not self._reports:
            return None
        by_row: dict[int, list[Speculation]] = {}
        for row, choice in sorted(self._reports):
            if (parsed := FORMATS[row].parse(self._reports[row, choice])) is not None:
                by_row.setdefault(row, []).append(parsed)
        records = {row: self._without_empty_prediction(_sum_choices(each)) for row, each in by_row.items()}
        known = {row: each for row, each in records.items() if each != Speculation(method=each.method)}
        if not known:
            return None
        names = dict.fromkeys(FORMATS[row].name for row in known)
        return replace(_merge(list(known.values())), source=", ".join(names))

    def _without_empty_prediction(self, record: Speculation) -> Speculation:
        if self._predicted or record.predicted_accepted or record.predicted_rejected:
            return record
        return replace(record, predicted_accepted=None, predicted_rejected=None)


def extract_speculation(
    answer: Any, *, predicted: bool = False, headers: Mapping[str, str] | None = None
) -> Speculation | None:
    """Return the speculation that one answer reports; None where it reports nothing.

    Args:
        answer: an answer, a chunk, or a record of TensorRT-LLM's ``/perf_metrics``; a mapping or a wire
            object.
        predicted: see :class:`TelemetryCollector`.
        headers: of a complete answer, with names in lower case.
    """
    collector = TelemetryCollector(predicted=predicted)
    collector.add_answer(answer)
    if headers is not None:
        collector.add_headers(headers)
    return collector.speculation()


def _extra_fields(container: Any) -> Mapping[str, Any] | None:
    """Return the fields that OpenAI's objects do not define, where servers put their own."""
    extra: Mapping[str, Any] | None = getattr(container, "__pydantic_extra__", None)  # isinstance is slow
    if extra is None and isinstance(container, Mapping):
        return container
    return extra


def _sum_choices(choices: list[Speculation]) -> Speculation:
    """Return one record for all choices of an answer: counts are summed, ratios follow from them."""
    if len(choices) == 1:
        return choices[0]
    summed = checked_speculation(
        drafted=_sum(each.drafted for each in choices),
        accepted=_sum(each.accepted for each in choices),
        steps=_sum(each.steps for each in choices),
        method=choices[0].method,
    )
    return summed or Speculation()


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def _merge(records: list[Speculation]) -> Speculation:
    """Merge the records of several formats in one answer; they report the same tokens, so nothing is summed.

    All counts are taken from the record that has most of them, so that no ratio mixes two servers' figures;
    other figures that it lacks are taken from the others.
    """
    best = max(
        records, key=lambda each: sum(n is not None for n in (each.drafted, each.accepted, each.steps))
    )
    records = [best, *(each for each in records if each is not best)]
    prediction = next(
        (
            each
            for each in records
            if each.predicted_accepted is not None or each.predicted_rejected is not None
        ),
        best,
    )
    merged = Speculation(
        method=_first(each.method for each in records),
        drafted=best.drafted,
        accepted=best.accepted,
        steps=best.steps,
        acceptance_rate=_first(each.acceptance_rate for each in records),
        mean_accepted_length=_first(each.mean_accepted_length for each in records),
        per_position=_first(each.per_position for each in records),
        predicted_accepted=prediction.predicted_accepted,
        predicted_rejected=prediction.predicted_rejected,
    )
    drafts = replace(merged, method=None, predicted_accepted=None, predicted_rejected=None)
    if merged.method is None and drafts == Speculation():
        return replace(merged, method="prediction")
    return merged


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)
