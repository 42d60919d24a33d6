"""Turn each served request into an entry: live while it is worked on, then told to whoever reads, and logged.

An entry has figures and names, and nothing of what was asked or answered.
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

#: The status of a request whose client left before it had one, as nginx calls it.
CLIENT_GONE = 499
#: What a method that HTTP does not have is called, as OpenTelemetry calls it: clients may make up any.
OTHER_VERB = "_OTHER"
_VERBS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
#: The route of a request that none of the table's fits.
OTHER_ROUTE = "other"

#: The environment variable that says how the server logs; see :func:`log_format`.
FORM_VARIABLE = "SPECCLIENT_LOG_FORMAT"

_log = logging.getLogger("specclient.requests")


@dataclass(slots=True, kw_only=True)
class RequestEntry:
    """One request.

    Attributes:
        id: as in its answer's ``x-request-id``.
        verb: of HTTP, or ``OTHER_VERB``.
        route: of the server's table, with its placeholders; ``OTHER_ROUTE`` where there is none.
        key: the name of the key that it came with.
        model: as asked for.
        status: of HTTP; ``CLIENT_GONE`` where the client left before there was one.
        code: OpenAI's, of an answer that is an error.
        waited_s: seconds it waited for its turn; None where it takes no turn, or has none yet.
        seconds: it took in all; None while it runs.
        calls: records of the calls that were made for it.
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
        """Return the sum of a count of its calls' usage; None where none knows it."""
        return _sum(getattr(call.usage, name) for call in self.calls)

    @property
    def cost(self) -> Decimal | None:
        """Dollars of its calls; None where none has a price."""
        known = [call.cost.total for call in self.calls if call.cost.total is not None]
        return sum(known, Decimal(0)) if known else None

    def drafts(self, name: str) -> int | None:
        """Return the sum of a count of its calls' speculation; None where none knows it."""
        return _sum(getattr(call.speculation, name) for call in self.calls if call.speculation)


_current: ContextVar[RequestEntry | None] = ContextVar("specclient_request", default=None)


def current() -> RequestEntry | None:
    """Return the entry of the request that is being served here, if one is."""
    return _current.get()


class RequestLog:
    """All requests of a server.

    Args:
        readers: told of each finished request, in order.
        clock: monotonic seconds; ``now``: the time of day.

    Attributes:
        live: those that are being worked on, the oldest first.
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

    @contextmanager
    def entry(self, number: str, verb: str) -> Iterator[RequestEntry]:
        """Keep the entry of a request while it is served; :func:`current` finds it meanwhile."""
        verb = verb if verb in _VERBS else OTHER_VERB
        entry = RequestEntry(id=number, verb=verb, begun=self.clock(), started_at=self._now())
        self.live[number] = entry
        token = _current.set(entry)
        try:
            yield entry
        finally:
            _current.reset(token)
            del self.live[number]
            entry.status = entry.status or CLIENT_GONE
            entry.seconds = self.clock() - entry.begun
            for read in self.readers:
                read(entry)

    async def observe(self, call: Call) -> None:
        """Note a finished call with the request that it was made for; an observer of a pipeline."""
        entry = _current.get()
        if entry is not None:
            entry.calls.append(call)


def log_entry(entry: RequestEntry) -> None:
    """Log a finished request, figures and names alone."""
    if _log.isEnabledFor(logging.INFO):
        _log.info(
            "%s %s %d", entry.verb, entry.route, entry.status, extra={"specclient_request": facts(entry)}
        )


def facts(entry: RequestEntry) -> dict[str, Any]:
    """Return what a finished request's line says; money as text, exact, and nothing that is not known."""
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
    """Writes each record as one line of JSON: ``time``, ``level``, ``logger``, ``message``, and its facts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
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
    """Log in a form: ``json`` writes each request, and whatever else is logged, as a line of JSON.

    Any other form changes nothing: what others have set up stays as it is.
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
