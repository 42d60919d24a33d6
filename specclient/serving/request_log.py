"""The log of requests: entries of running requests, and log records of finished ones.

An entry has figures and names, but no content of requests or responses.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TextIO

from specclient.types.call import Call

__all__ = ["FORM_VARIABLE", "JSONLogFormatter", "RequestEntry", "RequestLog", "current", "log_format"]

#: Status of a request whose client disconnected before the response started; nginx uses the same.
CLIENT_GONE = 499
#: Name for HTTP methods that do not exist, as in OpenTelemetry, because clients may send any text.
OTHER_VERB = "_OTHER"
_VERBS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
#: Route of a request that matches no route.
OTHER_ROUTE = "other"

#: Environment variable of the log format; see :func:`log_format`.
FORM_VARIABLE = "SPECCLIENT_LOG_FORMAT"

_log = logging.getLogger("specclient.requests")


@dataclass(slots=True, kw_only=True)
class RequestEntry:
    """One request.

    Attributes:
        id: the value of ``x-request-id`` in the response.
        verb: HTTP method, or ``OTHER_VERB``.
        begun: start in monotonic seconds.
        started_at: start as a time, UTC.
        route: route with its placeholders, or ``OTHER_ROUTE``.
        key: name of the stored key.
        model: the requested model.
        streamed: whether the response is a stream.
        status: HTTP status; ``CLIENT_GONE`` if the client disconnected before the response started.
        code: ``code`` of an error response.
        waited_s: seconds in the admission queue; None if the request does not use it or is still waiting.
        seconds: total time; None while the request runs.
        calls: records of its calls.
    """

    id: str
    verb: str
    begun: float
    started_at: datetime
    route: str = OTHER_ROUTE
    key: str | None = None
    model: str | None = None
    streamed: bool = False
    status: int = 0
    code: str | None = None
    waited_s: float | None = None
    seconds: float | None = None
    calls: list[Call] = field(default_factory=list)

    def total(self, name: str) -> int | None:
        """Return the sum of a usage field over its calls; None if it is unknown for all."""
        return _sum(getattr(call.usage, name) for call in self.calls)

    @property
    def cost(self) -> Decimal | None:
        """Dollars of its calls; None if no call has a price."""
        known = [call.cost.total for call in self.calls if call.cost.total is not None]
        return sum(known, Decimal(0)) if known else None

    def drafts(self, name: str) -> int | None:
        """Return the sum of a speculation field over its calls; None if it is unknown for all."""
        return _sum(getattr(call.speculation, name) for call in self.calls if call.speculation)


_current: ContextVar[RequestEntry | None] = ContextVar("specclient_request", default=None)


def current() -> RequestEntry | None:
    """Return the entry of the request that the current task serves; None outside of a request."""
    return _current.get()


class RequestLog:
    """All requests of a server.

    Args:
        readers: called with each finished request, in order.
        clock: returns monotonic seconds.
        now: returns the current time, UTC.

    Attributes:
        live: running requests by id, the oldest first.
    """

    def __init__(
        self,
        readers: Iterable[Callable[[RequestEntry], None]] = (),
        *,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.live: dict[str, RequestEntry] = {}
        self.readers = [*readers, log_entry]
        self.clock = clock
        self._now = now

    def entry(self, number: str, verb: str) -> LoggedRequest:
        """Return a context with the entry of a running request; :func:`current` returns it inside."""
        verb = verb if verb in _VERBS else OTHER_VERB
        return LoggedRequest(
            self, RequestEntry(id=number, verb=verb, begun=self.clock(), started_at=self._now())
        )

    def observe(self, call: Call) -> None:
        """Add a finished call to the entry of its request; an observer of a pipeline."""
        entry = _current.get()
        if entry is not None:
            entry.calls.append(call)


class LoggedRequest:
    """The context of a running request.

    Args:
        log: the log that the request is in.
        entry: its entry.
    """

    __slots__ = ("_entry", "_log", "_token")

    def __init__(self, log: RequestLog, entry: RequestEntry) -> None:
        self._log, self._entry = log, entry

    def __enter__(self) -> RequestEntry:
        self._log.live[self._entry.id] = self._entry
        self._token = _current.set(self._entry)
        return self._entry

    def __exit__(self, *_: object) -> None:
        entry, log = self._entry, self._log
        _current.reset(self._token)
        del log.live[entry.id]
        entry.status = entry.status or CLIENT_GONE
        entry.seconds = log.clock() - entry.begun
        for read in log.readers:
            read(entry)


def log_entry(entry: RequestEntry) -> None:
    """Log a finished request."""
    if _log.isEnabledFor(logging.INFO):
        _log.info(
            "%s %s %d", entry.verb, entry.route, entry.status, extra={"specclient_request": facts(entry)}
        )


def facts(entry: RequestEntry) -> dict[str, Any]:
    """Return the known fields of a finished request's log record; costs are exact text."""
    drafted, accepted = entry.drafts("drafted"), entry.drafts("accepted")
    first = next((call for call in entry.calls if call.ttft_s is not None), None)
    known = {
        "id": entry.id,
        "key": entry.key,
        "method": entry.verb,
        "route": entry.route,
        "model": entry.model,
        "chosen": entry.calls[-1].route.chosen if entry.calls else None,
        "status": entry.status,
        "code": entry.code,
        "streamed": entry.streamed,
        "prompt_tokens": entry.total("prompt"),
        "completion_tokens": entry.total("completion"),
        "cost_usd": None if entry.cost is None else f"{entry.cost:f}",
        "queue_s": _rounded(entry.waited_s),
        "ttft_s": _rounded(first.ttft_s) if first else None,
        "latency_s": _rounded(entry.seconds),
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": _rounded(accepted / drafted) if drafted and accepted is not None else None,
    }
    return {name: value for name, value in known.items() if value is not None}


class JSONLogFormatter(logging.Formatter):
    """Formats a record as a line of JSON: ``time``, ``level``, ``logger``, ``message``, request fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "specclient_request", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


@contextmanager
def log_format(form: str, stream: TextIO) -> Iterator[None]:
    """Return a context with a log format.

    Args:
        form: ``json`` writes each request and each other log record as a line of JSON. Any other value
            changes nothing.
        stream: the destination of the lines.
    """
    if form != "json":
        yield
        return
    loggers = [logging.getLogger(name) for name in ("specclient", "uvicorn")]
    before = [(logger, logger.propagate) for logger in loggers]
    level, handler = _log.level, logging.StreamHandler(stream)
    handler.setFormatter(JSONLogFormatter())
    _log.setLevel(logging.INFO)
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        _log.setLevel(level)
        for logger, propagate in before:
            logger.removeHandler(handler)
            logger.propagate = propagate


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
