"""Turn what passes by while a call runs (chunks, usage, telemetry, the end) into its Call."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from specclient import tokens
from specclient.errors import APIConnectionError, APIError, APIStatusError
from specclient.prices.prices import Prices
from specclient.providers.usage import cached_in, with_cached
from specclient.runtime.forks import import_lock
from specclient.telemetry.collector import ANSWER_FIELDS, CHOICE_FIELDS, TelemetryCollector
from specclient.types.backend import EngineTelemetry
from specclient.types.call import Call, CallStatus
from specclient.types.chat.chat_completion import Choice
from specclient.types.chat.chat_completion_chunk import Choice as ChunkChoice
from specclient.types.chat.chat_completion_chunk import ChoiceDelta
from specclient.types.chat.chat_completion_message import ChatCompletionMessage, plain_text
from specclient.types.completion import CompletionChoice
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import Cost, Speculation, Usage
from specclient.types.wire import FailedAttempt

if TYPE_CHECKING:
    from specclient.call.tracing import CallSpan
    from specclient.telemetry.prometheus import CounterValues

_ZERO = Decimal(0)

#: What ends the stream of a response.
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_FAILED_EVENTS = frozenset({"response.failed", "error"})

#: The parameters that bring the answer's likely text; the second one Fireworks'.
_PREDICTIONS = ("prediction", "speculation")

#: Where servers put reasoning that they show: DeepSeek, vLLM, SGLang; OpenRouter, Groq.
_REASONING = ("reasoning_content", "reasoning")


class CallRecorder:
    """Gathers one call's facts; :meth:`close` gives the finished record.

    Args:
        clock: monotonic seconds.
        hosted: whether an endpoint serves it, and not an engine in this process.
        price_provider, rejected_billed: as in :meth:`specclient.prices.prices.Prices.price`.

    Attributes:
        span: of the call, where the program traces; ended with the record.
    """

    def __init__(
        self,
        request: Request,
        route: Decision,
        prices: Prices,
        *,
        clock: Callable[[], float],
        hosted: bool,
        price_provider: str | None = None,
        rejected_billed: bool | None = None,
    ) -> None:
        self._request = request
        self._prices = prices
        self._hosted = hosted
        self._price_provider = price_provider
        self._rejected_billed = rejected_billed
        self._clock = clock
        self._begun = clock()
        self._texts: list[str] = []  # of the first choice
        self._beside: list[str] = []  # all else that was generated: other choices, reasoning, tool calls
        self._connected = False
        self._cached: int | None = None  # prompt tokens read from a cache, as the headers tell
        self._completes = request.operation in ("chat", "completion")
        self._ended: dict[int, str | None] = {}  # why, by the index of a choice that has begun
        self._over = not self._completes and request.operation != "response"
        self._failed: str | None = None  # the event by which the answer said that it failed
        self._usage: Usage | None = None
        self._seen = TelemetryCollector(
            predicted=any(
                name in sent for sent in (request.params, request.options.body) for name in _PREDICTIONS
            )
        )
        self._measured: Speculation | None = None  # by the engine itself, which knows best
        self._metered: Speculation | None = None  # by the server's counters, which are of all its calls
        self._route = route
        self._id = uuid.uuid4().hex
        self._started_at = datetime.now(UTC)
        self._closed: Call | None = None
        self._ttft_s: float | None = None
        self._attempts = 1
        self._lost: list[FailedAttempt] = []
        self._request_id: str | None = None
        self._engine_s: float | None = None
        self._pair: str | None = None
        self._served_model: str | None = None
        self._answer_id: str | None = None
        self.span: CallSpan | None = None

    @property
    def id(self) -> str:
        """Of the record."""
        return self._id

    @property
    def text(self) -> str:
        """The text of a stream's first choice so far."""
        return "".join(self._texts)

    @property
    def is_complete(self) -> bool:
        """Whether the answer has said that it is complete; of some kinds of stream, none ever says."""
        return self._over or (bool(self._ended) and None not in self._ended.values())

    @property
    def total_tokens(self) -> int | None:
        """The tokens that the answer says were used, prompt and answer; None where it says nothing."""
        usage = self._usage
        if usage is None or usage.prompt is None or usage.completion is None:
            return None
        return usage.prompt + usage.completion

    def note_failed_try(self, failed: FailedAttempt) -> None:
        """Note a try that failed and is followed by another one."""
        self._attempts += 1
        if failed.sent and failed.status is None:
            self._lost.append(failed)

    def note_headers(self, attempts: int, request_id: str | None, headers: Mapping[str, str]) -> None:
        """Note that an endpoint answered, and with which headers, their names in lower case."""
        self._connected = True
        self._attempts, self._request_id = attempts, request_id
        self._cached = cached_in(headers)
        if not self._request.stream:  # those of a stream came before there was anything to tell
            self._seen.add_headers(headers)

    def note_answer(self, answer: Any, usage: Usage | None) -> None:
        """Note a whole answer."""
        self._served_model, self._answer_id = _model_of(answer), _id_of(answer)
        self._usage = usage
        if not self._completes:
            if usage is None:
                self._texts.append(_output_text(answer))
            if self._request.operation == "response":
                self._seen.add_answer(answer)
            return
        self._seen.add_answer(answer)
        for choice in answer.choices:
            self._ended[choice.index] = choice.finish_reason
            if usage is None:
                self._note_text(choice)

    def note_chunk(self, chunk: Any, usage: Usage | None) -> None:
        """Note a chunk of a stream, and the usage it carries; on the hot path."""
        if usage is not None:
            self._usage = usage
        if not self._completes:
            self._note_event(chunk)
            return
        told = usage is not None
        for choice in chunk.choices:
            if self._note_text(choice) and self._ttft_s is None:
                self._ttft_s = self._clock() - self._begun
            if choice.finish_reason is not None or choice.index not in self._ended:
                self._ended[choice.index] = choice.finish_reason
            if beside := choice.__pydantic_extra__:
                told = told or not CHOICE_FIELDS.isdisjoint(beside)
        if self._served_model is None:
            self._served_model = chunk.model or None
            self._answer_id = chunk.id or None
        if told or ((beside := chunk.__pydantic_extra__) and not ANSWER_FIELDS.isdisjoint(beside)):
            self._seen.add_answer(chunk)

    def _note_event(self, event: Any) -> None:
        """Note an event of a stream that is none of chunks: a response's, an image's, a transcript's."""
        kind = getattr(event, "type", "") or ""
        if kind.endswith(".delta"):
            delta = getattr(event, "delta", None)
            if isinstance(delta, str):
                (self._texts if "text" in kind else self._beside).append(delta)
            if self._ttft_s is None:
                self._ttft_s = self._clock() - self._begun
        elif kind in _LAST_EVENTS:
            self._over = True
            if kind in _FAILED_EVENTS:
                self._failed = kind
            self._seen.add_answer(getattr(event, "response", None))
        if self._served_model is None:
            whole = getattr(event, "response", event)
            self._served_model, self._answer_id = _model_of(whole), _id_of(whole)

    def _note_text(self, choice: Choice | ChunkChoice | CompletionChoice) -> bool:
        """Keep what a choice holds or adds; return whether that was anything."""
        message: ChatCompletionMessage | ChoiceDelta | None = None
        text = beside = ""
        if isinstance(choice, ChunkChoice):  # first: isinstance is slow to say no, pydantic has its own
            message = choice.delta
        elif isinstance(choice, CompletionChoice):
            text = choice.text
        else:
            message = choice.message
        if message is not None:
            content = message.content
            text = content if isinstance(content, str) else plain_text(content)
            if message.refusal or message.tool_calls or message.__pydantic_extra__:
                beside = _beside_content(message)
        if text:
            (self._beside if choice.index else self._texts).append(text)
        if beside:
            self._beside.append(beside)
        return bool(text or beside)

    def note_engine_telemetry(self, measured: EngineTelemetry) -> None:
        """Note what an engine measured of its own work."""
        self._measured = measured.speculation
        self._engine_s, self._pair = measured.engine_s, measured.pair

    def note_counters(self, before: CounterValues, after: CounterValues) -> None:
        """Note a server's own counters, read before and after; they count where the answer tells nothing."""
        with import_lock:
            from specclient.telemetry.prometheus import counters_delta  # noqa: PLC0415 - only where they are read

        self._metered = counters_delta(before, after)

    def snapshot(self) -> Call:
        """Return the finished record, or as it stands while the call runs, with status ``open``."""
        if self._closed is not None:
            return self._closed
        return self._call("open", latency_s=self._clock() - self._begun, usage=self._told() or Usage())

    def close(self, error: BaseException | None = None) -> Call:
        """Return the finished record, priced; see :meth:`_bill`."""
        latency_s = self._clock() - self._begun
        status: CallStatus = (
            "ok" if error is None else "error" if isinstance(error, Exception) else "cancelled"
        )
        if isinstance(error, APIError):
            self._attempts = max(error.attempts, self._attempts)
        http_status = None
        if isinstance(error, APIStatusError) and error.response is not None:
            http_status, self._request_id = error.status_code, error.request_id
        name = type(error).__name__ if status == "error" else None
        usage, cost = self._bill(status, error, latency_s)
        if status == "ok" and self._failed is not None:
            status, name = "error", self._failed
        self._closed = self._call(
            status,
            latency_s=latency_s,
            usage=usage,
            cost=cost,
            error=name,
            http_status=http_status,
        )
        if self.span is not None:
            reasons = [reason for reason in self._ended.values() if reason is not None]
            self.span.end(self._closed, reasons, self._answer_id)
        return self._closed

    def _call(self, status: CallStatus, *, latency_s: float, usage: Usage, **ended: Any) -> Call:
        request = self._request
        return Call(
            id=self._id,
            started_at=self._started_at,
            operation=request.operation,
            model=request.model,
            route=self._route,
            streamed=request.stream,
            served_model=self._served_model,
            status=status,
            usage=usage,
            speculation=self._measured or self._seen.speculation() or self._metered,
            attempts=self._attempts,
            ttft_s=self._ttft_s,
            latency_s=latency_s,
            engine_s=self._engine_s,
            pair=self._pair,
            request_id=self._request_id,
            tags=dict(request.options.tags),
            metadata=_labels(request.params.get("metadata")),
            lost=tuple(self._lost),
            session=request.options.session,
            **ended,
        )

    def _bill(self, status: CallStatus, error: BaseException | None, latency_s: float) -> tuple[Usage, Cost]:
        """Price a call by what is known of it.

        Finished, or left once the endpoint had begun to answer: its usage, or else our count of what was
        sent and generated, marked as an estimate. Refused: nothing. Sent, and no answer ever came: that
        is not known, and not zero.
        """
        if status == "ok" or self._connected or self._usage is not None:
            return self._priced(latency_s)
        if not self._hosted:
            started = status == "cancelled" or self._texts
            return self._priced(latency_s) if started else (Usage(), Cost(_ZERO, {}, "refused"))
        if isinstance(error, APIConnectionError) and not error.sent:
            return Usage(), Cost(_ZERO, {}, "not sent")
        if isinstance(error, APIConnectionError) or status == "cancelled":
            return Usage(), Cost(None, {}, "unknown: no answer came", estimated=True)
        return Usage(), Cost(_ZERO, {}, "refused")

    def _priced(self, latency_s: float) -> tuple[Usage, Cost]:
        if self._engine_s is None and not self._hosted:
            self._engine_s = latency_s  # left midway: the engine tells its time only at the end
        usage = self._told() or self._estimate()
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
        )
        return usage, cost

    def _told(self) -> Usage | None:
        """Return the usage that the answer told, its headers included."""
        return None if self._usage is None else with_cached(self._usage, self._cached)

    def _estimate(self) -> Usage:
        if not self._completes and self._request.operation not in ("response", "embedding"):
            return Usage()  # images, sound, video: not counted in tokens of text
        model = self._route.model
        prompt = tokens.count_prompt(self._request, model)
        completion = tokens.count_text(self.text + "".join(self._beside), model)
        return Usage(prompt=prompt.tokens, completion=completion.tokens, estimated=True)


def _labels(metadata: object) -> Mapping[str, str]:
    """Return a request's ``metadata`` where it is what OpenAI defines: up to 16 short strings by name."""
    if not isinstance(metadata, Mapping):
        return {}
    return {k: v for k, v in metadata.items() if isinstance(k, str) and isinstance(v, str) and len(v) <= 512}


def _model_of(answer: Any) -> str | None:
    """Return the model that an answer names; most have the field, sound and files have not."""
    model = getattr(answer, "model", None)
    return model if isinstance(model, str) and model else None


def _id_of(answer: Any) -> str | None:
    """Return the id that an answer has."""
    number = getattr(answer, "id", None)
    return number if isinstance(number, str) and number else None


def _output_text(answer: Any) -> str:
    text = getattr(answer, "output_text", None) or getattr(answer, "text", None)
    return text if isinstance(text, str) else ""


def _beside_content(message: ChatCompletionMessage | ChoiceDelta) -> str:
    """Return what a message holds beside its content: refusal, reasoning, tool calls."""
    texts = [message.refusal or ""]
    extra = message.model_extra
    if extra:
        texts += [value for name in _REASONING if isinstance(value := extra.get(name), str)]
    for tool in message.tool_calls or ():
        called: Any = getattr(tool, "function", None) or getattr(tool, "custom", None)
        if called is not None:
            given = getattr(called, "arguments", None) or getattr(called, "input", None)
            texts += [str(called.name or ""), str(given or "")]
    return "".join(texts)
