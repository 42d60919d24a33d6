"""The recorder of one call: collects usage, text, telemetry and timing, and returns the finished ``Call``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from specclient.call.answer_counts import AnswerCounter
from specclient.call.answer_fields import (
    FAILED_EVENTS,
    LAST_EVENTS,
    id_of,
    model_of,
    output_text,
    tier_of,
    type_of,
)
from specclient.call.answer_texts import AnswerTexts
from specclient.call.billed_units import requested_usage
from specclient.call.call_fields import request_fields
from specclient.call.usage_estimate import UsageEstimate
from specclient.errors import APIConnectionError, APIError, APIStatusError, ResponseTooLargeError
from specclient.prices.prices import Prices
from specclient.prices.service_tiers import requested_tier
from specclient.providers.usage import cached_in, with_cached
from specclient.runtime.forks import import_lock
from specclient.telemetry.collector import TelemetryCollector
from specclient.telemetry.formats import ANSWER_FIELDS, CHOICE_FIELDS
from specclient.types.backend import EngineTelemetry
from specclient.types.call import Call, CallStatus
from specclient.types.request import PREDICTION_PARAMETERS, Request
from specclient.types.route import Decision
from specclient.types.usage import Cost, Speculation, Usage
from specclient.types.wire import FailedAttempt

if TYPE_CHECKING:
    from specclient.call.tracing import CallSpan
    from specclient.telemetry.prometheus import CounterValues

_ZERO = Decimal(0)

#: States of a response that the provider still works on.
_UNFINISHED = frozenset({"queued", "in_progress"})


class CallRecorder:
    """Collects the facts of one call; :meth:`close` returns the finished record.

    Args:
        clock: monotonic seconds.
        hosted: whether an endpoint serves the call, and not an engine in this process.
        over_chat: whether a chat completion serves a request of another API.
        price_provider, rejected_billed: as in :meth:`specclient.prices.prices.Prices.price`.

    Attributes:
        span: the call's trace span, in programs that trace; :meth:`close` ends it.
    """

    def __init__(
        self,
        request: Request,
        route: Decision,
        prices: Prices,
        *,
        clock: Callable[[], float],
        hosted: bool,
        over_chat: bool = False,
        price_provider: str | None = None,
        rejected_billed: bool | None = None,
    ) -> None:
        self._request = request
        self._prices = prices
        self._hosted = hosted
        self._price_provider = price_provider
        self._rejected_billed = rejected_billed
        self._clock = clock
        self._started_s = clock()
        self._texts = AnswerTexts()
        self._answered = False  # whether response headers have arrived
        self._tier: str | None = None  # the service tier that the answer names
        self._cached: int | None = None  # prompt tokens read from a cache, as the headers report
        self._completes = over_chat or request.operation in ("chat", "completion")
        self._finish_reasons: dict[int, str | None] = {}  # by choice index; None while a choice goes on
        self._is_over = not self._completes and request.operation != "response"
        self._in_background = request.operation == "response" and bool(
            request.params.get("background") or request.options.body.get("background")
        )
        self._failure_event: str | None = None  # the event that reported a failure inside the stream
        self._usage: Usage | None = None
        self._estimate = UsageEstimate(request, route.model)  # used if the answer reports no usage
        sent = request.params.keys() | request.options.body.keys()
        self._telemetry = TelemetryCollector(predicted=not sent.isdisjoint(PREDICTION_PARAMETERS))
        self._counts = AnswerCounter()
        self._engine_speculation: Speculation | None = None  # exact; preferred
        self._counted_speculation: Speculation | None = None  # of all the server's calls; the last resort
        self._route = route
        self._id = os.urandom(16).hex()
        self._started_at = datetime.now(UTC)
        self._closed: Call | None = None
        self._ttft_s: float | None = None
        self._attempts = 1
        self._lost_attempts: list[FailedAttempt] = []
        self._request_id: str | None = None
        self._engine_s: float | None = None
        self._pair: str | None = None
        self._served_model: str | None = None
        self._answer_id: str | None = None
        self._release: Callable[[], None] | None = None  # of the server that was started for the call
        self.span: CallSpan | None = None

    @property
    def id(self) -> str:
        """The record's id."""
        return self._id

    @property
    def text(self) -> str:
        """The text of a stream's first choice so far."""
        return self._texts.text

    @property
    def is_complete(self) -> bool:
        """Whether the answer has reported that it is complete; some kinds of stream have no such report."""
        return self._is_over or (bool(self._finish_reasons) and None not in self._finish_reasons.values())

    @property
    def total_tokens(self) -> int | None:
        """Prompt and completion tokens of the answer's usage; None where it reports none."""
        usage = self._usage
        if usage is None or usage.prompt is None or usage.completion is None:
            return None
        return usage.prompt + usage.completion

    def note_server_ready(self, release: Callable[[], None]) -> None:
        """Note that the server of the model is ready: the time of the call begins now.

        Args:
            release: called when the record is closed.
        """
        self._started_s, self._release = self._clock(), release

    def note_failed_try(self, failed: FailedAttempt) -> None:
        """Note an HTTP attempt that failed and is retried."""
        self._attempts += 1
        if failed.sent and failed.status is None:
            self._lost_attempts.append(failed)

    def note_headers(self, attempts: int, request_id: str | None, headers: Mapping[str, str]) -> None:
        """Note that an endpoint answered.

        Args:
            attempts: HTTP attempts, the successful one included.
            headers: of the response, with names in lower case.
        """
        self._answered = True
        self._attempts, self._request_id = attempts, request_id
        self._cached = cached_in(headers)
        if not self._request.stream:  # a stream's headers are sent before there is telemetry to report
            self._telemetry.add_headers(headers)

    def note_answer(self, answer: Any, usage: Usage | None) -> None:
        """Note a complete answer."""
        self._served_model, self._answer_id = model_of(answer), id_of(answer)
        self._usage, self._tier = usage, tier_of(answer)
        if not self._completes:
            if usage is None:
                self._texts.first.append(output_text(answer))
            if self._request.operation == "response":
                status = getattr(answer, "status", None)
                self._is_over = not isinstance(status, str) or status not in _UNFINISHED
                self._telemetry.add_answer(answer)
                self._counts.note_response(answer)
            return
        self._telemetry.add_answer(answer)
        self._counts.note_answer(answer)
        for choice in answer.choices:
            self._finish_reasons[choice.index] = choice.finish_reason
            if usage is None:
                self._texts.add_choice(choice)

    def note_chunk(self, chunk: Any, usage: Usage | None) -> None:
        """Note a chunk of a stream, and the usage in it; runs for every chunk."""
        if usage is not None:
            self._usage = usage
        if not self._completes:
            self._note_event(chunk)
            return
        self._counts.note_chunk(chunk)
        has_telemetry = usage is not None
        for choice in chunk.choices:
            if self._texts.add_choice(choice) and self._ttft_s is None:
                self._ttft_s = self._clock() - self._started_s
            if choice.finish_reason is not None or choice.index not in self._finish_reasons:
                self._finish_reasons[choice.index] = choice.finish_reason
            if extra := choice.__pydantic_extra__:
                has_telemetry = has_telemetry or not CHOICE_FIELDS.isdisjoint(extra)
        if self._served_model is None:
            self._served_model, self._answer_id = model_of(chunk), id_of(chunk)
            self._tier = tier_of(chunk)
        elif usage is not None:
            # a router may name its model only in the last chunk
            self._served_model = model_of(chunk) or self._served_model
            self._tier = tier_of(chunk) or self._tier
        if has_telemetry or ((extra := chunk.__pydantic_extra__) and not ANSWER_FIELDS.isdisjoint(extra)):
            self._telemetry.add_answer(chunk)

    def _note_event(self, event: Any) -> None:
        """Note an event of a stream that has no chunks: of a response, an image, a transcription."""
        kind = type_of(event)
        self._counts.note_event(kind, event)
        if kind.endswith(".delta"):
            delta = getattr(event, "delta", None)
            if isinstance(delta, str):
                (self._texts.first if "text" in kind else self._texts.other).append(delta)
            if self._ttft_s is None:
                self._ttft_s = self._clock() - self._started_s
        elif kind in LAST_EVENTS:
            self._is_over = True
            answer = getattr(event, "response", None)
            if kind in FAILED_EVENTS or getattr(answer, "status", None) == "failed":
                self._failure_event = kind
            self._telemetry.add_answer(answer)
            self._tier = tier_of(answer)
        if self._served_model is None:
            answer = getattr(event, "response", event)
            self._served_model, self._answer_id = model_of(answer), id_of(answer)

    def note_engine_telemetry(self, telemetry: EngineTelemetry) -> None:
        """Note what an engine in this process measured."""
        self._engine_speculation = telemetry.speculation
        self._engine_s, self._pair = telemetry.engine_s, telemetry.pair

    def note_counters(self, before: CounterValues, after: CounterValues) -> None:
        """Note a server's counters before and after the call, for answers without telemetry."""
        with import_lock:
            from specclient.telemetry.prometheus import counters_delta  # noqa: PLC0415 - few calls need it

        self._counted_speculation = counters_delta(before, after)

    def counts_long_prompt(self, error: BaseException | None) -> bool:
        """Return whether :meth:`close` counts the tokens of a prompt that is too long for an event loop."""
        return self._usage is None and self._has_begun(_status_of(error)) and self._estimate.is_long

    def count_prompt(self) -> None:
        """Count the tokens of the prompt, for :meth:`close`."""
        self._estimate.count_prompt()

    def snapshot(self) -> Call:
        """Return the finished record; while the call runs, its present state with status ``open``."""
        if self._closed is not None:
            return self._closed
        latency_s = self._clock() - self._started_s
        return self._call("open", latency_s=latency_s, usage=self._reported_usage() or Usage())

    def close(self, error: BaseException | None = None) -> Call:
        """Return the finished record with its cost.

        Args:
            error: the exception that ended the call; None for success. It is no ``Exception``, but a
                ``BaseException``, if the caller cancelled the call.
        """
        latency_s = self._clock() - self._started_s
        if self._release is not None:
            self._release()
            self._release = None
        status = _status_of(error)
        if isinstance(error, APIError):
            self._attempts = max(error.attempts, self._attempts)
        http_status = None
        if isinstance(error, APIStatusError) and error.response is not None:
            http_status, self._request_id = error.status_code, error.request_id
        error_name = type(error).__name__ if status == "error" else None
        usage, cost = self._bill(status, error, latency_s)
        if status == "ok" and self._failure_event is not None:
            status, error_name = "error", self._failure_event
        self._closed = self._call(
            status, latency_s=latency_s, usage=usage, cost=cost, error=error_name, http_status=http_status
        )
        if self.span is not None:
            reasons = [reason for reason in self._finish_reasons.values() if reason is not None]
            self.span.end(self._closed, reasons, self._answer_id)
        return self._closed

    def _call(self, status: CallStatus, *, latency_s: float, usage: Usage, **outcome: Any) -> Call:
        return Call(
            **request_fields(self._request),
            id=self._id,
            started_at=self._started_at,
            route=self._route,
            served_model=self._served_model,
            status=status,
            usage=usage,
            speculation=self._engine_speculation
            or self._telemetry.speculation()
            or self._counted_speculation,
            attempts=self._attempts,
            ttft_s=self._ttft_s,
            latency_s=latency_s,
            engine_s=self._engine_s,
            pair=self._pair,
            request_id=self._request_id,
            lost_attempts=tuple(self._lost_attempts),
            counts=self._counts.counts(),
            **outcome,
        )

    def _bill(self, status: CallStatus, error: BaseException | None, latency_s: float) -> tuple[Usage, Cost]:
        """Return the usage and cost of the finished call.

        - An endpoint had begun to answer: the usage that it reported, or else our own token count, marked as
          an estimate.
        - The request was refused, or never sent: nothing.
        - It was sent and no answer came: unknown, which is not zero.
        """
        if self._has_begun(status):
            return self._priced(latency_s)
        if not self._hosted:
            return Usage(), Cost(_ZERO, {}, "refused")
        if isinstance(error, APIConnectionError) and not error.sent:
            return Usage(), Cost(_ZERO, {}, "not sent")
        if isinstance(error, APIConnectionError | ResponseTooLargeError) or status == "cancelled":
            return Usage(), Cost(None, {}, "unknown: no answer came", estimated=True)
        return Usage(), Cost(_ZERO, {}, "refused")

    def _has_begun(self, status: CallStatus) -> bool:
        """Return whether a destination has begun to answer; an engine has, even if the call was cancelled."""
        if status == "ok" or self._answered or self._usage is not None:
            return True
        return not self._hosted and (status == "cancelled" or bool(self._texts.first))

    def _priced(self, latency_s: float) -> tuple[Usage, Cost]:
        if self._engine_s is None and not self._hosted:
            self._engine_s = latency_s  # cancelled: an engine reports its time only at the end
        usage = self._reported_usage() or self._estimated_usage()
        cost = self._prices.price(
            usage,
            self._route.provider,
            self._route.model,
            price_provider=self._price_provider,
            at=self._started_at,
            engine_s=self._engine_s,
            served=self._served_model,
            latency_s=latency_s,
            rejected_billed=self._rejected_billed,
            requested_tier=requested_tier(self._request) if self._hosted else None,
        )
        return usage, cost

    def _reported_usage(self) -> Usage | None:
        """Return the usage that the answer and its headers report."""
        if self._usage is None:
            return None
        usage = with_cached(self._usage, self._cached)
        return replace(usage, traffic=self._tier) if usage.traffic is None and self._tier else usage

    def _estimated_usage(self) -> Usage:
        if not self._completes and self._request.operation not in ("response", "embedding"):
            return requested_usage(self._request)  # images, audio and video have no text tokens
        if self._in_background and not self._is_over:
            return Usage()  # the provider still works on it
        return self._estimate.usage(self._texts.whole, self._tier)


def _status_of(error: BaseException | None) -> CallStatus:
    return "ok" if error is None else "error" if isinstance(error, Exception) else "cancelled"
